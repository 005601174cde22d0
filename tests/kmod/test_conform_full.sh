#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only OR MIT
#
# Databases that fill their pool, on pools of the module.

. "$(dirname "$0")/conform.sh"
suite test_kvdb_space
finish
