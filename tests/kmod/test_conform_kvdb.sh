#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only OR MIT
#
# The conformance suite of libkvdb on pools of the module, as root and with many
# descriptors: the same as nobody in particular is test_conform_user.

. "$(dirname "$0")/conform.sh"
suite test_kvdb_api
suite test_kvdb_cursor
suite test_kvdb_data
finish
