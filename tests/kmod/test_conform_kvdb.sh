#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only OR MIT
#
# The conformance suites of libkvdb on pools of the module, as root and with many
# descriptors. test_conform_user runs the rest, without either; in the long run
# (TEST_LONG=1) both run nearly everything.

. "$(dirname "$0")/conform.sh"
suite test_kvdb_api
suite test_kvdb_stores
suite test_kvdb_cursor
[ -z "${TEST_LONG-}" ] || suite test_kvdb_data
finish
