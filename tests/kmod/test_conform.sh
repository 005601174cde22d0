#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only OR MIT
#
# The conformance suite of libmpool on pools of the module.

. "$(dirname "$0")/conform.sh"
suite test_mpool_pool
suite test_mpool_log
suite test_mpool_object
suite test_mpool_args
finish
