#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only OR MIT
#
# udev/69-mpool.rules with a real udevd: disks come and go, and trusted pools become active when
# their last member has come. Only in the virtual machine, which has no udevd of its own; the
# path without systemd is what runs here (host_systemd.sh boots the other).
#
# vm-files: /lib/systemd/systemd-udevd udevadm blkid
# vm-files: /lib/udev/rules.d/50-udev-default.rules /lib/udev/rules.d/60-block.rules
# vm-files: /lib/udev/rules.d/60-persistent-storage.rules

. "$(dirname "$0")/../cli/lib.sh"

udevd=/lib/systemd/systemd-udevd
rules=/etc/udev/rules.d/69-mpool.rules
trust=/etc/mpool/pools.d

if [ -z "${MPK_VM-}" ]; then
	echo "1..0 # SKIP it starts its own udevd and takes disks away: only in the virtual machine"
	exit 77
fi
if [ ! -x $udevd ] || [ ! -e /lib/udev/rules.d/60-persistent-storage.rules ]; then
	echo "1..0 # SKIP no udevd, or no rules of its package"
	exit 77
fi
# shellcheck disable=SC2086
set -- $MPK_DEVS
A=$1 B=$2 C=$3 D=$4
declare -A virtio
for d in $A $B $C $D; do
	virtio[$d]=$(basename "$(readlink -f "/sys/block/${d##*/}/device")")
done
driver=/sys/bus/virtio/drivers/virtio_blk

settle() { udevadm settle --timeout=60 || fail "udevd does not settle"; }
# a disk gets the first free letter: by its own number
dev_of() { echo "/dev/$(ls "/sys/bus/virtio/devices/${virtio[$1]}/block")"; }
appear() {
	local d
	for d; do
		[ -e "$driver/${virtio[$d]}" ] || echo "${virtio[$d]}" >$driver/bind
		settle
	done
}
vanish() {
	local d
	for d; do
		[ ! -e "$driver/${virtio[$d]}" ] || echo "${virtio[$d]}" >$driver/unbind
	done
	settle
}
is_active() { [ -c /dev/mpool/up ]; }
uuid() { blkid -p -o value -s UUID "$1"; }

members_are_prepared() {
	# a foreign pool of the same name
	want 0 mpool create -y up "$C" --no-activate
	if is_active; then fail "created with --no-activate, and active"; fi
	rm "$trust/$(uuid "$C")"
	vanish "$C"
	want 0 mpool create -y up "$A" --staging "$B" --gid 1100 --mode 0660
	want 0 mpool deactivate up
	[ -e "$trust/$(uuid "$A")" ] || fail "a new pool is not trusted"
	same "blkid's type" "$(blkid -p -o value -s TYPE "$A")" mpool
	vanish "$A" "$B" "$D"
	mkdir -p ${rules%/*} /run/udev
	sed "s|@BINDIR@|$BIN|g" "$TOP/udev/69-mpool.rules" >$rules
	$udevd --daemon --resolve-names=never || fail "udevd does not start"
	udevadm control --ping || fail "udevd does not answer"
}

one_member_alone_waits() {
	appear "$A"
	if is_active; then fail "active with one of two members"; fi
	want 0 mpool scan -H -o name,state,found,members,trusted
	has out '^up	incomplete	1	2	yes$'
}

the_last_member_activates() {
	appear "$B"
	is_active || fail "not active with both members: $(mpool scan)"
	same "owner and mode" "$(stat -c "%u:%g %a" /dev/mpool/up)" "0:1100 660"
	want 0 mpool status up
}

members_have_links() {
	local d s
	for d in "$A" "$B"; do
		d=$(dev_of "$d")
		s=$(cat "/sys/block/${d##*/}/serial")
		same "by-mpool/up/$s" "$(readlink -f "/dev/disk/by-mpool/up/$s")" "$d"
		udevadm info --query=property "$d" >"$S/out"
		has out '^ID_FS_TYPE=mpool$'
		has out '^UDISKS_IGNORE=1$'
	done
}

events_change_nothing_afterwards() {
	local before
	before=$(stat -c '%Y %i' /dev/mpool/up)
	udevadm trigger --action=change --subsystem-match=block
	settle
	same "the node" "$(stat -c '%Y %i' /dev/mpool/up)" "$before"
	same "owner and mode" "$(stat -c "%u:%g %a" /dev/mpool/up)" "0:1100 660"
}

what_was_deactivated_stays_so() {
	want 0 mpool deactivate up
	# closing the members made events; more of them come
	settle
	udevadm trigger --action=change --subsystem-match=block
	settle
	if is_active; then fail "an event activated it again"; fi
	vanish "$A"
	appear "$A"
	is_active || fail "not active after a member came back"
	want 0 mpool deactivate up
}

an_untrusted_pool_of_the_same_name_is_only_listed() {
	vanish "$A" "$B"
	appear "$C"
	if is_active; then fail "a pool that nobody trusts is active"; fi
	want 0 mpool scan -H -o name,state,trusted
	has out '^up	complete	no$'
	vanish "$C"
}

a_copied_member_is_refused() {
	appear "$A" "$D"
	dd if="$(dev_of "$A")" of="$(dev_of "$D")" bs=1M oflag=direct status=none
	settle
	vanish "$A" "$D"
	appear "$D" "$A" "$B"
	if is_active; then fail "active although member $A is there twice"; fi
	want 0 mpool scan -H -o name,state,found
	has out '^up	duplicate	3$'
	vanish "$D"
	wipefs -q -a "$(appear "$D" && dev_of "$D")"
	settle
	vanish "$A"
	appear "$A"
	is_active || fail "not active without the copy"
	want 0 mpool deactivate up
}

a_removable_device_never_activates() {
	local i d=
	modprobe sd_mod && modprobe scsi_debug removable=1 dev_size_mb=64 || skip "no scsi_debug"
	for ((i = 0; i < 600 && !${#d}; i++)); do
		d=$(grep -ls scsi_debug /sys/block/sd*/device/model)
		sleep 0.1
	done
	d=$(echo "$d" | sed -n '1s|^/sys/block/\([a-z]*\)/.*|/dev/\1|p')
	[ -b "$d" ] || fail "scsi_debug made no disk"
	# it is there a moment before its event is sent
	for ((i = 0; i < 600; i++)); do
		settle
		udevadm info --query=property "$d" >"$S/out" 2>&1 || :
		grep -q '^USEC_INITIALIZED=' "$S/out" && break
		sleep 0.1
	done
	want 0 mpool create -y stick "$d"
	want 0 mpool deactivate stick
	[ -e "$trust/$(uuid "$d")" ] || fail "not trusted, so this would prove nothing"
	udevadm trigger --action=add "$d"
	settle
	udevadm info --query=property "$d" >"$S/out"
	has out '^ID_FS_TYPE=mpool$'
	[ ! -e /dev/mpool/stick ] || fail "active"
	# neither rule nor command: the rule is not the only one that refuses
	want 0 mpool activate --incremental "$d"
	[ ! -e /dev/mpool/stick ] || fail "mpool activate --incremental activated it"
	# a process that looks at it keeps it loaded
	settle
	modprobe -r scsi_debug
}

# crc32c HEX: of so many bytes, as four little-endian ones
crc32c() {
	local i k c=$((0xffffffff)) s=$1
	for ((i = 0; i < ${#s}; i += 2)); do
		c=$((c ^ 16#${s:i:2}))
		for ((k = 0; k < 8; k++)); do
			c=$((c & 1 ? (c >> 1) ^ 0x82f63b78 : c >> 1))
		done
	done
	c=$((c ^ 0xffffffff))
	printf '%02x%02x%02x%02x' $((c & 255)) $((c >> 8 & 255)) $((c >> 16 & 255)) $((c >> 24))
}

# forge NAME DEV: what libblkid takes for a member of a trusted pool
forge() {
	local s id
	id=$(find $trust -type f -printf '%f\n' | head -n 1 | tr -d -)
	s=$(printf 'mpoolDev%s' "$1" | xxd -p -c 64)
	s=$(printf '%-80s' "$s" | tr ' ' 0)${id}000101000000
	echo "$s$(crc32c "$s")" | xxd -r -p | dd of="$2" conv=notrunc bs=4096 status=none
	settle
}

labels_stay_in_their_folder() {
	local d n
	appear "$D"
	d=$(dev_of "$D")
	for n in .. . '../../etc/x' 'a b;$(touch /tmp/hacked)`id`' '-n' '%n$kernel' $'\nx'; do
		forge "$n" "$d"
		same "type with label $n" "$(blkid -p -o value -s TYPE "$d")" mpool
		find /dev/disk -type l -lname "*/${d##*/}" |
			grep -vE '^/dev/disk/by-[a-z]+/[^/]+(/[^/]+)?$' &&
			fail "label '$n' made a link elsewhere"
		find /dev /etc /tmp -maxdepth 1 -name 'hacked*' | grep . && fail "executed"
		udevadm info --query=symlink "$d" | tr ' ' '\n' >"$S/out"
		hasnt out '\.\./|^disk/by-mpool/\.'
	done
	if is_active; then fail "a forged member activated something"; fi
	wipefs -q -a "$d"
	vanish "$D"
}

shutdown_deactivates_all() {
	appear "$D"
	want 0 mpool create -y busy "$(dev_of "$D")"
	# its end made an event, the first one with a signature: later it would activate again
	settle
	want 0 mpool activate up
	exec 7</dev/mpool/busy
	want 4 mpool deactivate -a
	has err 'busy'
	if is_active; then fail "one busy pool kept another one active"; fi
	exec 7<&-
	want 0 mpool deactivate -a
	[ -z "$(ls /dev/mpool 2>/dev/null)" ] || fail "left: $(ls /dev/mpool)"
	want 0 mpool deactivate -a
}

rules_are_read_without_complaint() {
	udevadm test --action=add "/sys/block/$(basename "$(dev_of "$A")")" >"$S/out" 2>&1
	has out '69-mpool.rules'
	grep -E '69-mpool.rules:[0-9]+.*([Ii]nvalid|[Ii]gnor|[Uu]nknown|[Ff]ail)' "$S/out" &&
		fail "see above"
	has out '^UDISKS_IGNORE=1$'
}

run members_are_prepared
run one_member_alone_waits
run the_last_member_activates
run members_have_links
run events_change_nothing_afterwards
run what_was_deactivated_stays_so
run an_untrusted_pool_of_the_same_name_is_only_listed
run a_copied_member_is_refused
run a_removable_device_never_activates
run labels_stay_in_their_folder
run shutdown_deactivates_all
run rules_are_read_without_complaint
udevadm control --exit
rm -rf /run/udev $rules
finish
