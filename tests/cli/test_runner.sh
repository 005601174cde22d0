#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only OR MIT
#
# tests/run.sh itself: who interrupts it leaves nothing running.

# shellcheck disable=SC1091
. "$(dirname "$0")/lib.sh"

an_interrupted_run_leaves_no_program() {
	local run rc=0 program i
	mkdir -p build/tests
	cat >build/tests/stress_soak <<-'EOF'
	#!/bin/bash
	echo $$ >"$O/pid"
	exec sleep 300
	EOF
	chmod +x build/tests/stress_soak
	B=$PWD/build O=$PWD/build LOG=$PWD/log "$TOP/tests/run.sh" soak >"$S/out" 2>&1 &
	run=$!
	for ((i = 0; i < 100; i++)); do
		[ -s build/pid ] && break
		sleep 0.05
	done
	program=$(cat build/pid)
	kill -TERM $run
	wait $run || rc=$?
	same "exit code" $rc 130
	for ((i = 0; i < 40; i++)); do
		kill -0 "$program" 2>/dev/null || return 0
		sleep 0.05
	done
	kill "$program"
	fail "the program goes on"
}

run an_interrupted_run_leaves_no_program
finish
