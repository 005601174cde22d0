#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only OR MIT
#
# tests/fuzz/run.sh NAME EXECUTIONS SECONDS
#
# Runs fuzz_NAME from $O/tests on its corpus, until it has done so many
# executions or used so much time, and prints TAP. Decoders and text are fast: they
# must do all of them, and use no more than SECONDS of a processor for it.
# SEED, and PIECE=i/n of a run in pieces, repeat it. What it finds is left in
# $O/found; fuzz_NAME FILE shows it again.
#
# GROW=1 adds what a run found new to the corpus, as few and as short inputs as
# show it.

set -u
cd "$(dirname "$0")/../.." || exit 1
name=$1 runs=$2 seconds=$3 done=0 bad=
O=$(realpath -m "${O:-build/fuzz}")
program=$O/tests/fuzz_$name
packed=tests/fuzz/corpus/$name.tar.gz
seed=${SEED:-${TEST_SEED:-$(($(date +%s%N) % 1000000000 + 1))}}
piece=${PIECE:-0/1}
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT

if [ ! -x "$program" ]; then
	echo "1..0 # SKIP no clang with libFuzzer"
	exit 77
fi
max=9000
case $name in
pool | kvdb) max=400 ;;
esac
mkdir -p "$O/found" "$tmp/new" "$tmp/corpus"
tar -xzf "$packed" -C "$tmp/corpus" || exit 1
echo "# SEED=$seed"
share=$((seconds / ${piece#*/}))
box=("-max_total_time=$share")
case $name in
decode | text)
	# of the processor, for a run beside others does no less; the kernel sees to it
	box=()
	ulimit -t $share
	;;
esac
"$program" -seed=$((seed + ${piece%/*})) -runs=$((runs / ${piece#*/})) \
	"${box[@]}" -max_len=$max -timeout=60 \
	-rss_limit_mb=4096 -malloc_limit_mb=160 -artifact_prefix="$O/found/$name-" \
	"$tmp/new" "$tmp/corpus" >"$tmp/log" 2>&1
rc=$?
grep '^# ' "$tmp/log"
if [ $rc != 0 ]; then
	grep -vE '^(#[0-9]|INFO:)' "$tmp/log" | head -n 100 | sed 's/^/# /'
	echo "not ok 1 - fuzz_${name}_finds_nothing"
else
	done=$(sed -n 's/^# executions //p' "$tmp/log")
	echo "# figure: fuzz $name | $done executions | $seed"
	echo "ok 1 - fuzz_${name}_finds_nothing"
fi
case $name in
decode | text)
	# one in a hundred less: libFuzzer counts inputs that the program never sees
	[ "$done" -ge $((runs / ${piece#*/} * 99 / 100)) ] || bad=not
	echo "${bad:+not }ok 2 - fuzz_${name}_did_all_executions"
	echo 1..2
	;;
*) echo 1..1 ;;
esac
if [ $rc = 0 ] && [ -n "${GROW-}" ]; then
	mkdir "$tmp/least"
	"$program" -merge=1 -max_len=$max "$tmp/least" "$tmp/corpus" "$tmp/new" >/dev/null 2>&1 &&
		tar --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner -C "$tmp/least" \
			-czf "$packed" .
fi
exit $rc
