#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only OR MIT
#
# Activation, trust and the search for members by mpool; inactive pools used in the command's
# own process. Overwrites $MPK_DEVS.

# tests are called by name, and words are split on purpose
# shellcheck disable=SC2317,SC2086,SC2154 source=cli.sh
. "$(dirname "$0")/cli.sh"

inactive_pools_work_by_name() {
	pool
	uuid=$(value uuid)
	want 0 mpool deactivate cli
	want 0 mpool scan
	has out "^cli +complete +2 +2 +yes +$A,$B +$uuid"
	want 0 mpool verify cli
	want 0 mpool dump cli
	want 0 mpool set cli label=asleep
	same label "$(value label)" asleep
	same by-uuid "$(value label $uuid)" asleep
	want 0 mpool rename cli other
	want 0 mpool activate $uuid
	same label "$(value label other)" asleep
	want 0 mpool deactivate -a
	[ -z "$(ls /tmp/mpool.* "$T"/mpool.* 2>/dev/null)" ] || fail "a folder was left behind"
}

activate_says_what_is_missing() {
	pool
	want 0 mpool activate cli
	has out 'active already'
	want 0 mpool deactivate cli
	cp --sparse=always $B staging.img
	wipefs -q -a $B
	want 6 mpool activate cli
	has err '1 of 2 members'
	want 0 mpool activate --incremental $A
	has out 'waits for more members'
	want 0 mpool scan --activate $A
	has err 'waits for more members'
	want 6 mpool status cli
	dd if=staging.img of=$B bs=1M conv=sparse status=none
	want 0 mpool scan --activate $A
	[ -c /dev/mpool/cli ] || fail "it is not active"
	want 0 mpool deactivate cli
	want 0 mpool activate --read-only cli
	want 1 mpool set cli label=x
	want 0 mpool get cli
}

untrusted_pools_belong_to_root() {
	pool mode=0666 gid=1234
	same node "$(stat -c '%g %a' /dev/mpool/cli)" "1234 666"
	want 0 mpool deactivate cli
	rm -r "$MPOOL_TRUST_DIR"
	want 0 mpool activate -a
	want 0 mpool activate --incremental $A
	want 0 mpool scan --activate $A
	[ ! -e /dev/mpool/cli ] || fail "an untrusted pool is active"
	want 0 mpool activate cli
	same node "$(stat -c '%u %g %a' /dev/mpool/cli)" "0 0 600"
	want 0 mpool deactivate cli
	want 0 mpool scan --trust --activate $A
	same node "$(stat -c '%g %a' /dev/mpool/cli)" "1234 666"
}

busy_pools_stay() {
	pool
	exec 7<>/dev/mpool/cli
	want 4 mpool deactivate cli
	one_line_error
	want 4 mpool destroy -y cli
	want 4 mpool deactivate -a
	exec 7>&-
	want 4 mpool wipe -y $A
	want 0 mpool verify cli
	want 0 mpool deactivate -a
	want 0 mpool wipe -y $A
	want 2 blkid -p $A
	want 0 mpool scan --recover -y $A
	want 0 mpool activate cli
}

doctor_knows_the_module() {
	pool
	want 0 mpool doctor
	has out '^module +ok '
	has out '^control node +ok '
	has out "^$A +ok +capacity device of cli"
	chmod 0666 /dev/mpoolctl
	want 6 mpool doctor
	has out '^control node +wrong '
	chmod 0600 /dev/mpoolctl
	want 0 mpool deactivate cli
	wipefs -q -a $B
	want 6 mpool doctor
	has out '^cli +wrong +pool, incomplete'
}

# a device below another one is not a member, and a suspended one is not read
scan_looks_at_the_top_only() {
	pool
	want 0 mpool deactivate cli
	modprobe -q dm-mod
	dmsetup create above --table "0 $(blockdev --getsz $A) linear $A 0" ||
		skip "no device mapper"
	dm=$(readlink -f /dev/mapper/above)
	[ -b "$dm" ] || dm=/dev/$(basename "$(ls -d /sys/block/dm-*)")
	want 0 mpool scan -H -o state,devices
	has out "^complete	$dm,$B\$"
	dmsetup suspend above
	want 0 timeout 20 mpool scan -H -o state,devices
	has out "^incomplete	$B\$"
	dmsetup resume above
	want 0 mpool activate cli
	want 0 mpool status cli
	has out "$dm|dm-"
	want 0 mpool deactivate cli
	dmsetup remove above
}

# a device that an add cut short has left: perhaps a member, so for no other pool, not even by force
a_cut_add_keeps_nobody_from_the_pool() {
	pool
	want 0 mpool deactivate cli
	for k in $(seq 60); do
		! MPOOL_DEV=capacity:fail=write,after=$k mpool add -f -y cli $C || break
		[ "$(blkid -p -s TYPE -o value $C)" != mpool ] || break
	done
	want 0 mpool scan -H -o state,members
	same state "$(cat "$S/out")" "complete	2"
	want 5 mpool create -f -y other $C
	want 0 mpool activate cli
	want 5 mpool create -f -y other $C
	want 0 mpool add -f -y cli $C
	want 0 mpool deactivate cli
	want 0 mpool scan -H -o state,members
	same added "$(cat "$S/out")" "complete	3"
	want 0 mpool activate cli
}

run a_cut_add_keeps_nobody_from_the_pool
run inactive_pools_work_by_name
run activate_says_what_is_missing
run untrusted_pools_belong_to_root
run busy_pools_stay
run doctor_knows_the_module
run scan_looks_at_the_top_only
clear
finish
