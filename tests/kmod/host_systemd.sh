#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only OR MIT
#
# The units of udev/ and the systemd half of 69-mpool.rules, under a real systemd: boots a
# machine with it as the first process, plugs, and shuts down. See systemd_init.sh. Needs no
# root.

set -u
cd "$(dirname "$0")/../.." || exit 1
B=$(realpath -m "${B:-build}")
O=$(realpath -m "${O:-$B}")
export B
kver=${KVER:-$(tests/kmod/kernels.sh boot | head -n 1)}
skip() {
	echo "1..0 # SKIP $1"
	exit 77
}
for c in qemu-system-x86_64 busybox; do
	PATH=$PATH:/usr/sbin:/sbin command -v $c >/dev/null || skip "no $c"
done
[ -n "$kver" ] || skip "no kernel headers, 6.1 or newer"
[ -e "$B/kmod/$kver/mpool.ko" ] || skip "no module for $kver: make modules"
s=/lib/systemd
[ -x $s/systemd ] && [ -x $s/systemd-udevd ] &&
	[ -e /lib/udev/rules.d/60-persistent-storage.rules ] ||
	skip "no systemd or no udev on this machine"

dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
mkdir -p "$dir"/guest/{bin,tests}
cp "$O/bin/mpool" "$dir/guest/bin"
files="$s/systemd $s/systemd-udevd $s/systemd-shutdown systemctl udevadm depmod"
for u in {basic,sysinit,local-fs,local-fs-pre,paths,slices,sockets,timers,swap}.target \
	{shutdown,umount,final,reboot}.target systemd-reboot.service systemd-udevd.service \
	systemd-udevd-{control,kernel}.socket systemd-udev-trigger.service modprobe@.service; do
	files+=" $s/system/$u"
done
for f in 50-udev-default.rules 60-block.rules 60-persistent-storage.rules 99-systemd.rules; do
	files+=" /lib/udev/rules.d/$f"
done
O=$dir/guest VM_DISK_SIZE=64M VM_MEM=1024 VM_TIMEOUT=${VM_TIMEOUT:-300} VM_FILES=$files \
	VM_APPEND='rdinit=/t/tests/kmod/systemd_init.sh' \
	tests/kmod/boot.sh "$kver" "$dir/vm" systemd >"$dir/log" 2>&1
cat "$dir/vm/systemd"
read -r _ rc _ why <"$dir/vm/results"
if [ "$rc" != 0 ] || [ -n "$why" ]; then
	tail -n 60 "$dir/log" "$dir/vm/console" | sed 's/^/# /'
	echo "Bail out! $why"
	exit 1
fi
