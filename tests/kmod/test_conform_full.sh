#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only OR MIT
#
# Databases that fill their pool, on pools of the module: minutes of computing in an
# emulated machine, so in the long run only.

. "$(dirname "$0")/conform.sh"
[ -n "${TEST_LONG-}" ] || {
	echo "1..0 # SKIP takes minutes: TEST_LONG=1 runs it"
	exit 77
}
suite test_kvdb_space
finish
