#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only OR MIT
#
# tests/run.sh and the Makefile themselves: what is interrupted leaves nothing running, and what
# is built has the sources that are there.

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

# members: what make built of the two sources, however old they are
members() {
	local lib=out/obj/utils/common.a
	env -u MAKEFLAGS -u MAKELEVEL make -f "$TOP/Makefile" SAN= ABLATE= DEBUG= COV= B=out \
		$lib >"$S/out" 2>&1 || fail "make failed"
	ar t $lib | xargs
}

what_is_built_has_the_sources_that_are_there() {
	mkdir -p utils/common kmod/core tests/bench
	cp "$TOP/kmod/version.h" kmod
	cp "$TOP/utils/install.mk" utils
	cp "$TOP/tests/bench/peers.mk" tests/bench
	cp "$TOP/kmod/core/Makefile.objs" kmod/core
	echo 'int f(void); int f(void) { return 1; }' >utils/common/old.c
	echo 'int g(void); int g(void) { return 2; }' >utils/common/stays.c
	touch -d '2 days ago' utils/common/*.c
	same first "$(members)" 'old.o stays.o'
	mv utils/common/old.c utils/common/new.c
	same renamed "$(members)" 'new.o stays.o'
	rm utils/common/new.c
	same removed "$(members)" stays.o
	rm out/obj/utils/common/stays.o
	members >/dev/null
	[ -e out/obj/utils/common/stays.o ] || fail "an object that was missing was not made"
}

run what_is_built_has_the_sources_that_are_there
run an_interrupted_run_leaves_no_program
finish
