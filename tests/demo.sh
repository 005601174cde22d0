#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only OR MIT
#
# make demo: a pool of two media classes on plain files, a database on it, real
# data, a killed loader, a power cut, and figures. Everything lies in $B/demo,
# which it empties first; nothing is left running. It takes about 3 GB of disk
# and 2 GB of memory with the usual number of records.
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
	case $rc in
	0) ;;
	130) echo "demo: interrupted; the files are in $D" >&2 ;;
	*) echo "demo: failed; the files are in $D" >&2 ;;
	esac
}
trap end EXIT
trap 'exit 130' INT TERM HUP

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

# Disk is needed, or nothing of this works; memory only makes it fast.
check_room() {
	local disk=$((1000 + RECORDS * 2 / 1000)) memory=2000 have
	have=$(df --output=avail -B 1000000 "$D" 2>/dev/null | tail -n 1 | tr -dc 0-9 || true)
	[ "${have:-$disk}" -ge "$disk" ] || die "$D has $have MB free and about $disk MB are" \
		"needed; a smaller RECORDS or another folder (make demo B=DIR) helps"
	have=$(awk '/^MemAvailable/ { print int($2 * 1.024 / 1000) }' /proc/meminfo)
	[ "${have:-$memory}" -ge "$memory" ] ||
		echo "demo: $have MB of memory are free and about $memory MB are wanted" >&2
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
	kvdb bench "$2" --check "$3" --threads 8 >"$out" 2>"$out.err" || {
		cat "$out"
		cat "$out.err" >&2
		# an interrupted check has proven nothing, and disproven nothing
		if grep -q ': interrupted' "$out.err"; then
			exit 130
		fi
		die "the proof failed"
	}
	rm -f "$out.err"
	sed 's/^/  /' "$out"
}

# clean_by COMMAND...: shows which command said so
clean_by() {
	"$@" | sed "s/^/$1 $2: /"
}

# A check that cannot fail proves nothing: take one key away, then put it back.
# It is the key of record 0, which was acknowledged long before the cut.
round_doubt() {
	local key=user6284781860667377211 rc=0
	kvdb get "$1" usertable $key >"$D/value"
	kvdb del "$1" usertable $key
	kvdb bench "$1" --check "$2" --threads 8 >/dev/null 2>"$D/doubt" || rc=$?
	grep -q ': interrupted' "$D/doubt" && exit 130
	if [ "$rc" != 1 ]; then
		cat "$D/doubt" >&2
		die "a key was deleted and the check did not notice (exit $rc)"
	fi
	echo "kvdb del ./cut usertable $key; the same check again, exit 1:"
	sed 's/^/  /' "$D/doubt"
	echo "the check notices one missing key; it is put back"
	kvdb put "$1" usertable $key - <"$D/value"
	rm -f "$D/value" "$D/doubt"
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
		[ "$rc" != 0 ] ||
			die "the loader ended before it was killed; a larger RECORDS helps"
		die "the loader failed (exit $rc)"
	}
	echo "SIGKILL to process $pid after about $done records"
	proof kill "$D/db" "$D/acks.kill"
}

# ---- (c) power cut ----------------------------------------------------------

# power_cut SEED
power_cut() {
	local rc=0 dev="all:volatile,cut=1500ms,seed=$1" load
	load=(kvdb bench "$D/cut" --workload load --records $((RECORDS * 4)) --value-size 500
		--journal "$D/acks.cut")
	rm -rf "$D/cut" "$D/acks.cut"
	kvdb -q create "$D/cut" --size 2G --staging-size 1G
	echo "kvdb create $D/cut --size 2G --staging-size 1G"
	echo "MPOOL_DEV='$dev' ${load[*]}"
	MPOOL_DEV=$dev "${load[@]}" >"$D/loader.out" 2>&1 &
	loader=$!
	wait "$loader" 2>/dev/null || rc=$?
	loader=
	[ "$rc" = 137 ] || {
		cat "$D/loader.out" >&2
		[ "$rc" != 0 ] ||
			die "the loader ended before the power was cut; a larger RECORDS helps"
		die "the loader failed (exit $rc)"
	}
	proof cut "$D/cut" "$D/acks.cut"
}

round_cut() {
	local try
	title "(c) power cut: unflushed writes are dropped, reordered and torn"
	for try in 0 1 2; do
		power_cut $((SEED + try))
		# a cut may fall just behind a flush: then there was nothing to lose
		grep -q '^lost  *0 ' "$D/proof.cut" || break
		[ $try = 2 ] || echo "nothing was lost this time; again with the next seed"
	done
	round_doubt "$D/cut" "$D/acks.cut"
	clean_by kvdb verify "$D/cut"
}

# ---- (d) figures ------------------------------------------------------------

round_figures() {
	title "(d) the rest of the load, then workloads A and C, every read verified"
	kvdb bench "$D/db" --workload load,a,c --missing --records "$RECORDS" --ops "$RECORDS" \
		>"$D/figures"
	grep '^verified: ' "$D/figures"
	clean_by kvdb verify "$D/db"
	clean_by mpool verify "$D/db"
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
check_room
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
