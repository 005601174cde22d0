#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only OR MIT
#
# make demo: a pool of two media classes on plain files, a database on it, real
# data, a killed loader, a power cut, and figures. Everything lies in $B/demo,
# which it empties first; nothing is left running.
#
#   B=build tests/demo.sh      RECORDS=1000000 (records of the benchmark)
#                              SEED=n repeats the choices of the power cut

set -eu
set -o pipefail
cd "$(dirname "$0")/.."
B=$(realpath -m "${B:-build}")
D=$B/demo
PATH=$B/bin:$PATH
RECORDS=${RECORDS:-1000000}
SEED=${SEED:-$(date +%s)}
loader=
unset MPOOL_DEV
export LC_ALL=C.UTF-8

end() {
	local rc=$?
	[ -z "$loader" ] || kill -KILL "$loader" 2>/dev/null || true
	[ $rc = 0 ] || echo "demo: failed; the files are in $D" >&2
}
trap end EXIT
trap 'exit 130' INT TERM

die() {
	echo "demo: $*" >&2
	exit 1
}
title() {
	printf '\n== %s\n' "$*"
}
begin=$(date +%s)
now() {
	date +%s%N
}
# seconds SINCE: with tenths
seconds() {
	local ms=$((($(now) - $1) / 1000000))
	printf '%d.%d' $((ms / 1000)) $((ms % 1000 / 100))
}

# ---- (a) real records ------------------------------------------------------

# Stanzas on standard input -> key TAB stanza, in the escapes of the tsv format.
stanzas() {
	sed 's/\\/\\\\/g; s/\t/\\t/g; s/\r/\\r/g' | awk '
	BEGIN { RS = ""; FS = "\n" }
	{
		name = ""; text = $1
		for (i = 1; i <= NF; i++) {
			if (name == "" && $i ~ /^Package: /) name = substr($i, 10)
			if (i > 1) text = text "\\n" $i
		}
		if (name != "") print name "\t" text
	}'
}

# Without control characters and bytes that are not UTF-8: what scan prints can
# then be compared with the input.
clean() {
	iconv -c -f UTF-8 -t UTF-8 | tr -d '\000-\010\013-\037\177'
}

# Sets $what and writes $D/records.tsv.
find_records() {
	local f size best=0 text=
	what=
	if command -v apt-cache >/dev/null; then
		apt-cache dumpavail 2>/dev/null | clean | stanzas >"$D/records.tsv" || true
		what="the Debian package index (apt-cache dumpavail)"
	fi
	if [ ! -s "$D/records.tsv" ] && [ -s /var/lib/dpkg/status ]; then
		clean </var/lib/dpkg/status | stanzas >"$D/records.tsv"
		what="the Debian list of installed packages (/var/lib/dpkg/status)"
	fi
	if [ ! -s "$D/records.tsv" ]; then
		for f in /usr/share/dict/words /usr/share/hwdata/*.ids /usr/share/misc/*.ids \
			/usr/share/unicode/* /etc/services /etc/protocols; do
			[ -f "$f" ] || continue
			size=$(wc -c <"$f" || echo 0)
			[ "$size" -gt "$best" ] && best=$size text=$f
		done
		[ -n "$text" ] || die "no text database was found on this machine"
		clean <"$text" | sed 's/\\/\\\\/g; s/\t/\\t/g' |
			awk '{ printf "line-%08d\t%s\n", NR, $0 }' >"$D/records.tsv"
		what="no package index here; instead each line of $text"
	fi
}

round_records() {
	local t name n
	title "(a) real records: loading"
	find_records
	echo "$what: $(wc -l <"$D/records.tsv") entries, $(wc -c <"$D/records.tsv") bytes of text"
	t=$(now)
	kvdb load --create "$D/db" packages "$D/records.tsv"
	# of two entries with one name the later one counts, as in the database
	awk -F'\t' '{ last[$1] = $0 } END { for (k in last) print last[k] }' "$D/records.tsv" |
		LC_ALL=C sort -t "$(printf '\t')" -k 1,1 >"$D/wanted.tsv"
	kvdb scan -H "$D/db" packages >"$D/got.tsv"
	cmp "$D/wanted.tsv" "$D/got.tsv" || die "what was read back is not what was loaded"
	n=$(wc -l <"$D/got.tsv")
	echo "read back in key order: $n records, every byte equal ($(seconds "$t") s for both)"
	for name in bash coreutils "$(tail -n 1 "$D/wanted.tsv" | cut -f 1)"; do
		grep -q "^$name	" "$D/wanted.tsv" || continue
		echo "  kvdb get ./db packages $name | head -n 3"
		kvdb get "$D/db" packages "$name" | sed -n '1,3s/^/    /p'
	done
	rm -f "$D/got.tsv" "$D/wanted.tsv"
}

# ---- proof after a crash ----------------------------------------------------

# proof ROUND DB JOURNAL: checks, shows, and keeps one line for the table
proof() {
	local out=$D/proof.$1
	kvdb bench "$2" --check "$3" --threads 8 >"$out" || {
		cat "$out"
		die "the proof failed"
	}
	sed 's/^/  /' "$out"
}

round_kill() {
	local done=0 pid rc=0
	title "(b) $RECORDS YCSB records; the loader is killed in the middle"
	kvdb bench "$D/db" --workload load --records "$RECORDS" --journal "$D/acks.kill" \
		--progress=json >"$D/loader.out" 2>&1 &
	loader=$!
	while [ "$done" -lt $((RECORDS * 2 / 5)) ]; do
		sleep 0.05
		kill -0 "$loader" 2>/dev/null || break
		done=$(sed -n 's/.*"done":\([0-9]*\).*/\1/p' "$D/loader.out" | tail -n 1)
		done=${done:-0}
	done
	pid=$loader
	kill -KILL "$pid" 2>/dev/null || true
	wait "$pid" 2>/dev/null || rc=$?
	loader=
	[ "$rc" = 137 ] || {
		cat "$D/loader.out" >&2
		die "the loader ended before it was killed (exit $rc); a larger RECORDS helps"
	}
	echo "SIGKILL to process $pid after about $done records"
	proof kill "$D/db" "$D/acks.kill"
}

# ---- (c) power cut ----------------------------------------------------------

round_cut() {
	local rc=0
	title "(c) power cut: unflushed writes are dropped, reordered and torn"
	kvdb -q create "$D/cut" --size 2G --staging-size 1G
	echo "MPOOL_DEV='all:volatile,cut=1500ms,seed=$SEED' kvdb bench ./cut --workload load ..."
	MPOOL_DEV="all:volatile,cut=1500ms,seed=$SEED" kvdb bench "$D/cut" --workload load \
		--records $((RECORDS * 4)) --value-size 500 --journal "$D/acks.cut" \
		>"$D/loader.out" 2>&1 &
	loader=$!
	wait "$loader" 2>/dev/null || rc=$?
	loader=
	[ "$rc" = 137 ] || {
		cat "$D/loader.out" >&2
		die "the power was not cut (exit $rc)"
	}
	proof cut "$D/cut" "$D/acks.cut"
	kvdb verify "$D/cut"
}

# ---- (d) figures ------------------------------------------------------------

round_figures() {
	title "(d) the rest of the load, then workloads A and C, every read verified"
	kvdb bench "$D/db" --workload load,a,c --missing --records "$RECORDS" --ops "$RECORDS" \
		>"$D/figures"
	kvdb verify "$D/db"
	mpool verify "$D/db"
}

table() {
	local r
	title "result"
	for r in kill cut; do
		awk -v round="$([ $r = kill ] && echo SIGKILL || echo 'power cut')" '
		/^recovery/ { n = split($0, p, "; "); rec = p[n] }
		/^acknowledged/ { ack = $2 }
		/^lost/ {
			lost = $2; ms = 0; bound = $(NF - 1) " ms"
			for (i = 1; i <= NF; i++) if ($i == "within") ms = $(i + 1)
		}
		END {
			printf "%-10s %9d acknowledged, %6d lost", round, ack, lost
			printf " within %.1f ms (bound %s), recovered in %s\n", ms, bound, rec
		}
		' "$D/proof.$r"
	done
	echo
	cat "$D/figures"
}

for tool in kvdb mpool; do
	[ -x "$B/bin/$tool" ] || die "no $B/bin/$tool: run make first"
done
rm -rf "$D"
mkdir -p "$D"
title "a pool of two media classes on plain files"
kvdb create "$D/db" --size 4G --staging-size 1G
mpool list "$D/db"
round_records
round_kill
round_cut
round_figures
table
title "done in $(($(date +%s) - begin)) s; nothing is running"
echo "The files are in $D ($(du -sh "$D" | cut -f 1)): ./db and ./cut are pools; look around with"
echo "  $B/bin/kvdb info $D/db"
echo "  $B/bin/kvdb scan $D/db packages --limit 3"
echo "Remove everything:  rm -rf $D"
