# shellcheck shell=bash
# SPDX-License-Identifier: GPL-2.0-only OR MIT
#
# Sourced by programs that run the conformance suites of the libraries on pools of the
# module (tests/conform/kmod_help.h):
#
#	. tests/kmod/conform.sh
#	suite test_mpool_log			a program of tests/conform
#	suite test_kvdb_data MPOOL_IO=sync	with this in its environment
#	finish
#
# Everything that the programs report becomes one TAP.

cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 1
O=${O:-${B:-build}}
c_count=0
c_failed=0
export MPOOL_TEST_KMOD=1
unset MPOOL_DEV MPOOL_IO
# a user of a test passes through it
[ -z "${TMPDIR-}" ] || chmod 755 "$TMPDIR"

# why nothing can be shown here
missing() {
	if [ "$(id -u)" != 0 ]; then
		echo "needs root"
	elif [ ! -e /sys/module/mpool ]; then
		echo "the module is not loaded"
	elif ! { [ -d /sys/kernel/config/nullb ] || modprobe null_blk nr_devices=0; } 2>/dev/null ||
		! { [ -d /sys/kernel/config/nullb ] ||
			mount -t configfs configfs /sys/kernel/config; } 2>/dev/null; then
		echo "no null_blk with configfs"
	fi
}

why=$(missing)
[ -z "$why" ] || {
	echo "1..0 # SKIP $why"
	exit 77
}

# suite PROGRAM [NAME=VALUE]...
suite() {
	local prog=$1 pid rc line word plan='' seen=0 what
	shift
	what=${prog#test_}${*:+ ($*)}
	echo "# $prog $*"
	exec 5< <(exec env "$@" "$O/tests/$prog" 2>&1)
	pid=$!
	# line by line: what was reached is seen even when time runs out
	while IFS= read -r line <&5; do
		case $line in
		ok\ * | not\ ok\ *)
			word=${line%%ok *}ok
			seen=$((seen + 1))
			c_count=$((c_count + 1))
			[ "$word" = ok ] || c_failed=1
			echo "$word $c_count - $what: ${line#*- }"
			;;
		1..*) plan=${line#1..} ;;
		*) echo "$line" ;;
		esac
	done
	exec 5<&-
	wait "$pid"
	rc=$?
	if [ "$plan" != "$seen" ] || { [ $rc != 0 ] && [ $c_failed = 0 ]; }; then
		c_failed=1
		c_count=$((c_count + 1))
		echo "# exit $rc"
		echo "not ok $c_count - $what: ended before its plan"
	fi
}

finish() {
	echo "1..$c_count"
	exit $c_failed
}
