#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only OR MIT
#
# The administrator's verbs of mpool on pools by name: made, changed and destroyed through the
# module. Overwrites $MPK_DEVS.

# tests are called by name, and words are split on purpose
# shellcheck disable=SC2317,SC2086,SC2154 source=cli.sh
. "$(dirname "$0")/cli.sh"

create_activates_and_trusts() {
	pool mode=0640 gid=1234 --label "by name"
	has out '^created cli: capacity .*, staging '
	same node "$(stat -c '%F %g %a' /dev/mpool/cli)" "character special file 1234 640"
	uuid=$(value uuid)
	same uuid "$(blkid -p -o value -s UUID $A)" "$uuid"
	same trust "$(stat -c %a "$MPOOL_TRUST_DIR/$uuid")" 644
	want 0 mpool list -H -o name,health,classes,label,path
	has out '^cli	ok	capacity,staging	by name	cli$'
	want 0 mpool status cli
	has out "capacity .*block device .*$A"
	want 5 mpool create -y other $C $A
	one_line_error
	want 0 mpool history -H -o command cli
	has out '^mpool create .* cli '
}

create_keeps_its_hands_off() {
	clear
	mkfs.ext4 -q -F $C 16M
	before=$(dd if=$C bs=1M count=8 status=none | sha256sum)
	want 5 mpool create cli $C
	one_line_error
	want 5 mpool create -f cli $C
	has err 'use -y'
	same bytes "$(dd if=$C bs=1M count=8 status=none | sha256sum)" "$before"
	want 2 mpool create cli
	want 8 as_user mpool create -y cli $A
	one_line_error
	want 0 mpool create --no-activate -f -y cli $C
	[ ! -e /dev/mpool/cli ] || fail "it is active"
	want 0 mpool list -H -o name,health
	has out '^cli	inactive$'
}

set_and_rename_hold_at_once() {
	pool
	want 3 mpool get other
	want 8 as_user mpool get cli
	want 0 mpool set cli gid=1234 mode=0660 spare_staging=10
	same node "$(stat -c '%g %a' /dev/mpool/cli)" "1234 660"
	want 0 as_user mpool get -H -o value cli spare_staging
	same spare "$(cat "$S/out")" 10%
	want 8 as_user mpool set cli mode=0666
	want 8 as_user mpool rename cli mine
	want 8 as_user mpool deactivate cli
	want 0 mpool rename cli archive
	same nodes "$(ls /dev/mpool)" archive
	want 2 mpool rename archive a/b
	want 0 mpool deactivate archive
	want 0 mpool activate archive
	same label "$(value mode archive)" 0660
	want 0 mpool history -H -o command archive
	has out 'mpool rename cli archive'
}

add_and_grow() {
	pool
	before=$(value size_capacity)
	want 0 mpool add -n cli $C
	same devices "$(value devices_capacity)" 1
	want 0 mpool add -y cli $C
	same devices "$(value devices_capacity)" 2
	[ "$(value size_capacity)" -gt $before ] || fail "nothing was gained"
	want 0 mpool deactivate cli
	want 0 mpool verify cli
	want 0 mpool activate cli
	truncate -s 64M img
	modprobe -q loop
	loop=$(losetup -f --show img) || skip "no loop device"
	want 0 mpool add --staging -y cli $loop
	before=$(value size_staging)
	want 0 mpool grow cli
	has err 'not gained'
	truncate -s 128M img
	losetup -c $loop
	want 0 mpool grow cli
	has out 'staging from '
	[ "$(value size_staging)" -gt $before ] || fail "nothing was gained"
	want 0 mpool destroy -y cli
	losetup -d $loop
}

# what is refused in the end was not wiped before
add_wipes_nothing_that_it_does_not_take() {
	pool
	mkfs.ext4 -q -F $C 16M
	mkdir -p mnt
	mount -t ext4 $C mnt || skip "cannot mount"
	want 4 mpool add -f -y cli $C
	one_line_error
	umount mnt
	same type "$(blkid -p -o value -s TYPE $C)" ext4
	mount -t ext4 $C mnt
	want 4 mpool add -f -n cli $C
	umount mnt
	want 0 mpool deactivate cli
	want 0 mpool activate -r cli
	want 1 mpool add -f -y cli $C
	has err 'open it for writing'
	same type "$(blkid -p -o value -s TYPE $C)" ext4
	want 0 mpool deactivate cli
	want 0 mpool activate cli
	want 0 mpool add -f -y cli $C
	same type "$(blkid -p -o value -s TYPE $C)" mpool
}

what_is_in_it() {
	pool
	want 0 mpool objects -H -o type,class cli
	same objects "$(sort -u "$S/out")" "mlog	capacity"
	want 0 mpool df -H -p -o class,free cli
	same classes "$(cut -f1 "$S/out" | xargs)" "capacity staging"
	want 0 mpool scrub cli
	has out '0 damaged'
	want 0 mpool iostat -H -o pool,device,writes cli 1 2
	same lines "$(wc -l <"$S/out")" 4
	has out "^cli	$A	[1-9]"
	want 0 mpool iostat -j
	same header "$(head -n 1 "$S/out" | grep -c '"command":"mpool iostat"')" 1
	same members "$(sed -n 2p "$S/out" | grep -oE '"[a-z_]+":' | tr -d '": \n')" \
		"$(sed -n '/"iostat_line": {/,/^    }/p' "$TOP/utils/schema/mpool.json" |
			grep -oE '^ {8}"[a-z_]+": ' | tr -d '": \n')"
	want 0 mpool map -H -o what cli
	has out '^superblock'
	want 0 mpool dump cli
	has out "$(value uuid)"
}

# what is in the member's place in /dev is not taken for it
verify_looks_at_the_members() {
	pool
	mv $B $B.away
	cp -a $C $B
	want 6 mpool verify cli
	has err "$B .* has no node in /dev"
	one_line_error
	want 6 mpool dump cli
	mv $B.away $B
	want 0 mpool verify cli
}

destroy_leaves_blank_devices() {
	pool
	uuid=$(value uuid)
	want 5 mpool destroy cli
	want 0 mpool destroy -n cli
	[ -c /dev/mpool/cli ] || fail "the plan took it away"
	want 0 mpool destroy -y cli
	[ ! -e /dev/mpool/cli ] || fail "it is still active"
	want 2 blkid -p $A
	want 2 blkid -p $B
	[ ! -e "$MPOOL_TRUST_DIR/$uuid" ] || fail "it is still trusted"
	want 3 mpool status cli
}

run create_activates_and_trusts
run create_keeps_its_hands_off
run set_and_rename_hold_at_once
run add_and_grow
run add_wipes_nothing_that_it_does_not_take
run what_is_in_it
run verify_looks_at_the_members
run destroy_leaves_blank_devices
clear
finish
