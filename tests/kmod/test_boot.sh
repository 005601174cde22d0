#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only OR MIT
#
# What the other programs take for granted: several processors, disks, and a clean kernel log.

. "$(dirname "$0")/../cli/lib.sh"

disks_are_there() {
	local d n=0
	for d in $MPK_DEVS; do
		[ -b "$d" ] || fail "$d is no block device"
		n=$((n + 1))
	done
	[ $n -ge 3 ] || fail "MPK_DEVS names $n devices"
}
run disks_are_there
finish
