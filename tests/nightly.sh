#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only OR MIT
#
# The long runs, one suite after the other; `make nightly` builds what they need.
#
#   B=build O=build [SEED=N] tests/nightly.sh [STEP...]
#
# A run that was stopped goes on where it was: of the same commit, what passed is
# not repeated, be it a step or a program of one. Output of each step, and
# result.txt with commit, seed, machines, dates and the figure of each line, are
# in $B/nightly.

set -u
cd "$(dirname "$0")/.." || exit 1
B=$(realpath -m "${B:-build}")
O=$(realpath -m "${O:-$B}")
dir=$B/nightly
commit=$(git describe --always --dirty --abbrev=12 2>/dev/null || echo unknown)
[ "$(cat "$dir/commit" 2>/dev/null)" = "$commit" ] || rm -rf "$dir"
mkdir -p "$dir" || exit 1
echo "$commit" >"$dir/commit"
[ -e "$dir/seed" ] || echo "${SEED:-$(date +%s)}" >"$dir/seed"
SEED=$(cat "$dir/seed")
export B O SEED TEST_LONG=1 RESUME=1
echo "$(date -u '+%F %R') UTC: $(sed -n 's/^model name.*: //p' /proc/cpuinfo | head -n 1)," \
	"$(nproc) cores, $(free -g | awk '/^Mem/ { print $2 }') GiB, Linux $(uname -r)" \
	>>"$dir/begun"

# run STEP: its output goes to standard output
run() {
	case $1 in
	guards) O=$B/ablate tests/ablate.py full ;;
	planted) O=$B/ablate tests/ablate.py planted ;;
	coverage) env -u TEST_LONG tests/coverage.py ;;
	*) LOG=$dir/$1 tests/run.sh "$1" ;;
	esac
}

# rows STEP: the table of run.sh, or what other programs say of themselves
rows() {
	case $1 in
	guards | planted | coverage) sed -n 's/^# figure: //p' "$dir/$1.out" ;;
	*) awk -v RS= '{ table = last; last = $0 } END { print table }' "$dir/$1.out" ;;
	esac
}

result() {
	local step
	echo "# SPDX-License-Identifier: GPL-2.0-only OR MIT"
	echo "commit $commit, SEED=$SEED, until $(date -u '+%F %R') UTC; begun and resumed:"
	cat "$dir/begun"
	for step; do
		[ -e "$dir/$step.end" ] || continue
		echo
		echo "$step: $(cat "$dir/$step.end")"
		rows "$step"
	done
}

[ $# != 0 ] || set -- unit conform cli lint crash model stress soak asan tsan fuzz vm newer uml \
	debug planted guards coverage
failed=0
for step; do
	if grep -qs '^passed' "$dir/$step.end"; then
		echo "nightly: $step passed already"
		continue
	fi
	echo "nightly: $step"
	rm -f "$dir/$step.end"
	run "$step" >"$dir/$step.out" 2>&1
	rc=$?
	word=passed
	[ $rc = 0 ] || word="FAILED, exit $rc" failed=1
	echo "$word, $(date -u '+%F %R') UTC" >"$dir/$step.end"
	[ $rc = 0 ] || tail -n 40 "$dir/$step.out"
	result "$@" >"$dir/result.txt"
done
result "$@" | tee "$dir/result.txt"
exit $failed
