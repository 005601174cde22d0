#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only OR MIT
#
# tests/limit.py: a program that is slow because others use the machine is left alone; one that
# hangs or computes for ever is ended.

cd "$(dirname "$0")/../.." || exit 1
. tests/lint/lib.sh
T=$TMPDIR

# is RC SECONDS COMMAND...: what the command comes to under that limit
is() {
	local want=$1 rc=0
	shift
	tests/limit.py "$@" >"$T/said" 2>&1 || rc=$?
	[ $rc = "$want" ] || echo "limit.py $* ended with $rc, not $want: $(cat "$T/said")"
}

{
	is 0 9 true
	is 7 9 sh -c 'exit 7'
	is 127 9 "$T/none"
	is 137 9 sh -c 'kill -KILL $$'
	# shellcheck disable=SC2016
	(trap '' HUP && is 129 9 sh -c 'kill -HUP $$')
	# shellcheck disable=SC2016
	is 0 9 sh -c 'read -r _ _ _ _ _ s _ </proc/$$/stat && [ $s = $$ ]'
} >"$T/out"
verdict the_status_is_the_commands

# four times as long by the clock, some of the time at work; it may begin late
is 0 1.5 python3 -c '
import time
begin = time.monotonic()
while time.monotonic() < begin + 6:
    t = time.process_time()
    while time.process_time() < t + 0.02:
        pass
    time.sleep(0.06)' >"$T/out"
verdict a_slow_one_is_left_alone

is 124 0.5 sleep 60 >"$T/out"
verdict an_idle_one_is_ended

is 124 0.3 sh -c 'while :; do :; done' >"$T/out"
verdict one_that_computes_for_ever_is_ended

# its children count, and end with it
is 124 0.3 sh -c "sh -c 'echo \$\$ >$T/pid; while :; do :; done' & wait" >"$T/out"
sed 's/.*) //' "/proc/$(cat "$T/pid")/stat" 2>/dev/null | grep -q '^[^ZX]' &&
	echo "a child goes on" >>"$T/out"
verdict children_count_and_end_with_it

# a program that is told to end takes it along
rm "$T/pid"
tests/limit.py 60 sh -c "echo \$\$ >$T/pid; exec sleep 60" &
until [ -s "$T/pid" ]; do
	sleep 0.1
done
kill $! && wait $!
gone=$?
{
	[ $gone = 124 ] || echo "it ended with $gone"
	[ ! -d "/proc/$(cat "$T/pid")" ] || echo "the command goes on"
} >"$T/out"
verdict who_is_told_to_end_ends_the_command

echo "1..$n"
exit $failed
