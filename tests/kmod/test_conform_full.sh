#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only OR MIT
#
# Databases that fill their pool, on pools of the module: minutes of computing in an
# emulated machine, so tests/run.sh runs it in the long run only.

. "$(dirname "$0")/conform.sh"
suite test_kvdb_space
finish
