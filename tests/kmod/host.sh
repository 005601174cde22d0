# shellcheck shell=bash
# SPDX-License-Identifier: GPL-2.0-only OR MIT
#
# Sourced by the tests of the module that run on this machine, host_*.sh: TAP by "verdict NAME"
# after a command, whose output is in $T/log, and "finish" at the end. $T goes with the script.

T=$(mktemp -d) || exit 1
trap 'rm -rf "$T"' EXIT
n=0 failed=0

skip() {
	echo "1..0 # SKIP $1"
	exit 77
}

verdict() {
	local rc=$?
	n=$((n + 1))
	if [ $rc = 0 ]; then
		echo "ok $n - $1"
	else
		sed 's/^/# /' "$T/log" | tail -n 40
		echo "not ok $n - $1"
		failed=1
	fi
}

finish() {
	echo "1..$n"
	exit $failed
}
