#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only OR MIT
#
# What host_refusals.sh wants done in its virtual machine: each refusal in $BIN/refusals is
# switched off in the module $BIN/mpool-off.ko, loaded anew, and programs run until one
# fails. "begin NUMBER" without its "end NUMBER PROGRAM MILLISECONDS" was the machine's end.
# A program counts that passes with all of them on; the first machine says which of those that
# noticed the last time do not.

set -u
: "${O:=build}" "${BIN:=$O/bin}"
off=/sys/module/mpool/parameters/mp_off

now_ms() { sed 's/\([0-9]*\)\.\([0-9]\).*/\1\200/' /proc/uptime; }

# leftovers of a program that ended early, which keep the module
unload() {
	local i n
	for ((i = 0; i < 30; i++)); do
		for n in /dev/mpool/*; do
			[ ! -e "$n" ] || "$BIN/mpool" deactivate "${n##*/}" >/dev/null 2>&1
		done
		rmdir /sys/kernel/config/nullb/* 2>/dev/null
		rmmod mpool 2>/dev/null && return
		sleep 0.1
	done
	return 1
}

# run NUMBER PROGRAM: with that refusal off; 0: noticed, by the first test that fails
run() {
	local rc pid
	echo "$1" >$off
	timeout -k 5 200 "$O/tests/$2" </dev/null >/tmp/said 2>&1 &
	pid=$!
	while kill -0 $pid 2>/dev/null && ! grep -q '^not ok' /tmp/said; do
		sleep 0.1
	done
	kill $pid 2>/dev/null
	wait $pid
	rc=$?
	echo 0 >$off
	echo "# $2: exit $rc"
	[ $rc != 0 ]
}

unload || exit 1
for p in $([ ! -e "$BIN/first" ] || cut -d' ' -f3 "$BIN/refusals" | sort -u); do
	insmod "$BIN/mpool-off.ko" || exit 1
	! run 0 "$p" || sed "s/^/# $p fails with all on: /" /tmp/said
	unload || exit 1
done
while read -r number _ programs; do
	insmod "$BIN/mpool-off.ko" || exit 1
	echo "# begin $number"
	t=$(now_ms)
	by=-
	for p in $programs; do
		run "$number" "$p" || continue
		by=$p
		break
	done
	echo "# end $number $by $(($(now_ms) - t))"
	# a reference that is not given back: noticed, and no other module fits in
	unload || break
done <"$BIN/refusals"
echo "ok 1 - refusals"
echo 1..1
