#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only OR MIT
#
# The long runs, one suite after the other; `make nightly` builds what they need.
#
#   B=build O=build [SEED=N] [RECORD=DIR] tests/nightly.sh [STEP...]
#
# A run that was stopped goes on where it was: of the same commit, what passed is
# not repeated, be it a step or a program of one. Output of each step, and
# result.txt with commit, seed, machines, dates and the figure of each line, are
# in $B/nightly.
#
# SCRATCH=DIR: programs keep their files there; in memory most are twice as fast.
#
# With RECORD the result is noted in DIR too, with what passed so far (parts.txt):
# another clone of the commit goes on from there, on another machine as well.

set -u
cd "$(dirname "$0")/.." || exit 1
B=$(realpath -m "${B:-build}")
O=$(realpath -m "${O:-$B}")
dir=$B/nightly
commit=$(git describe --always --dirty --abbrev=12 2>/dev/null || echo unknown)

# taken_up: a new folder has what was recorded of this commit
taken_up() {
	grep -qsx "commit $commit" "$RECORD/parts.txt" || return 0
	awk -v dir="$dir" '
	{ rest = $0; sub(/^[a-z]+ /, "", rest) }
	$1 == "seed" || $1 == "begun" { print rest >dir "/" $1 }
	$1 == "end" {
		sub(/^[a-z]+ /, "", rest)
		print rest >dir "/" $2 ".end"
		out = dir "/" $2 ".out"
	}
	$1 == "part" {
		out = dir "/" $2 "/" $3
		system("mkdir -p " dir "/" $2)
		print $4, $5, $6 >out ".sum"
		close(out ".sum")
		printf "" >out
	}
	$1 == "machine" { system("mkdir -p " dir "/" $2 "; : >" dir "/" $2 "/passed") }
	/^# figure: / { print >out }' "$RECORD/parts.txt"
}

# parts: what taken_up() reads
parts() {
	local f
	echo "# SPDX-License-Identifier: GPL-2.0-only OR MIT"
	echo "commit $commit"
	echo "seed $SEED"
	sed 's/^/begun /' "$dir/begun"
	for f in "$dir"/*.end; do
		[ -e "$f" ] || continue
		f=${f##*/}
		echo "end ${f%.end} $(cat "$dir/$f")"
		[ "$f" != coverage.end ] || grep '^# figure: ' "$dir/coverage.out"
	done
	for f in "$dir"/*/*.sum; do
		[ -e "$f" ] || continue
		f=${f#"$dir/"}
		awk '{ exit $2 || !($1 + $3) }' "$dir/$f" || continue
		f=${f%.sum}
		echo "part ${f%%/*} ${f#*/} $(cat "$dir/$f.sum")"
		grep -a '^# figure: ' "$dir/$f"
	done
	find "$dir" -mindepth 3 -name passed -printf 'machine %P\n' | sed 's|/passed$||'
}

# run STEP: in place of this shell; its output goes to standard output
run() {
	case $1 in
	coverage) exec env -u TEST_LONG -u RESUME tests/coverage.py ;;
	*) LOG=$dir/$1 exec tests/run.sh "$1" ;;
	esac
}

# rows STEP: the table of run.sh, or what coverage.py says of itself
rows() {
	case $1 in
	coverage)
		sed -n 's/^# figure: //p' "$dir/$1.out" |
			awk -F ' *[|] *' '{ printf "%-22s %s\n", $1, $2 }'
		;;
	*) LOG=$dir/$1 tests/run.sh | sed '/^$/d' ;;
	esac
}

result() {
	local step
	echo "# SPDX-License-Identifier: GPL-2.0-only OR MIT"
	echo "commit $commit, SEED=$SEED, until $(date -u '+%F %R') UTC; begun and resumed:"
	cat "$dir/begun"
	for step in $steps; do
		[ -e "$dir/$step.end" ] || compgen -G "$dir/$step/*.sum" >/dev/null || continue
		echo
		echo "$step: $(cat "$dir/$step.end" 2>/dev/null || echo "parts of it, so far")"
		rows "$step"
	done
}

noted() {
	result >"$dir/result.txt"
	[ -n "${RECORD-}" ] || return 0
	parts >"$RECORD/parts.txt"
	cp "$dir/result.txt" "$RECORD/"
}

stopped() {
	trap - INT TERM
	[ -z "$child" ] || kill "$child" 2>/dev/null
	wait
	noted
	exit 130
}

[ "$(cat "$dir/commit" 2>/dev/null)" = "$commit" ] || rm -rf "$dir"
if [ -n "${RECORD-}" ]; then
	RECORD=$(realpath -m "$RECORD")
	mkdir -p "$RECORD" || exit 1
fi
if [ ! -d "$dir" ]; then
	mkdir -p "$dir" || exit 1
	[ -z "${RECORD-}" ] || taken_up
	echo "$commit" >"$dir/commit"
fi
[ -e "$dir/seed" ] || echo "${SEED:-$(date +%s)}" >"$dir/seed"
SEED=$(cat "$dir/seed")
export B O SEED TEST_LONG=1 RESUME=1
echo "$(date -u '+%F %R') UTC: $(sed -n 's/^model name.*: //p' /proc/cpuinfo | head -n 1)," \
	"$(nproc) cores, $(free -g | awk '/^Mem/ { print $2 }') GiB, Linux" \
	"$(uname -r)${SCRATCH:+, files in $SCRATCH}" >>"$dir/begun"

steps="unit conform cli lint crash model stress soak asan tsan fuzz vm uml debug guards
	planted refusals coverage"
failed=0
child=
trap stopped INT TERM
# shellcheck disable=SC2086
[ $# != 0 ] || set -- $steps
for step; do
	if grep -qs '^passed' "$dir/$step.end"; then
		echo "nightly: $step passed already"
		continue
	fi
	echo "nightly: $step"
	rm -f "$dir/$step.end"
	run "$step" >"$dir/$step.out" 2>&1 &
	child=$!
	wait $child
	rc=$?
	child=
	word=passed
	[ $rc = 0 ] || word="FAILED, exit $rc" failed=1
	echo "$word, $(date -u '+%F %R') UTC" >"$dir/$step.end"
	[ $rc = 0 ] || tail -n 40 "$dir/$step.out"
	noted
done
noted
cat "$dir/result.txt"
exit $failed
