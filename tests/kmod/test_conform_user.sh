#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only OR MIT
#
# The suites of libkvdb as a user without a privilege but the group of the pool (mode 0660),
# with 64 descriptors, through io_uring and, in the long run, with plain calls.

. "$(dirname "$0")/conform.sh"
ulimit -n 64
export MPOOL_TEST_USER=1001:1100
suite test_kvdb_data
[ -z "${TEST_LONG-}" ] || suite test_kvdb_cursor MPOOL_IO=sync
finish
