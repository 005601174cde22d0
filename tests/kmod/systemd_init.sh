#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only OR MIT
#
# First process of host_systemd.sh's machine, in place of init: makes two pools and the units
# of this test, then becomes systemd. The pool "up" is trusted and waits on two disks for the
# boot to find it; "other" is no pool's.

export PATH=/t/build/bin:/usr/sbin:/usr/bin:/sbin:/bin
echo '@@mpk init'
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs dev /dev
mount -t tmpfs -o mode=755 run /run
mount -t tmpfs tmp /tmp
exec </dev/console >/dev/console 2>&1
dmesg -n 1
echo 1 >/proc/sys/kernel/panic_on_oops
k=/lib/modules/$(uname -r)
mkdir -p "$k/extra" && cp /t/build/mpool.ko "$k/extra" && depmod
modprobe virtio_pci && modprobe virtio_blk && modprobe mpool || exit 1
for ((i = 0; i < 100 && $(grep -ls mpk-v /sys/block/*/serial | wc -l) < 4; i++)); do
	sleep 0.1
done
disk() {
	local f
	f=$(grep -l "^$1" /sys/block/*/serial)
	f=${f%/serial}
	echo "/dev/${f##*/}"
}
mpool create -y up "$(disk mpk-v0)" --staging "$(disk mpk-v1)" --gid 1100 --mode 0660 &&
	mpool deactivate up && mpool create -y other "$(disk mpk-v2)" && mpool deactivate other &&
	rm "/etc/mpool/pools.d/$(blkid -p -o value -s UUID "$(disk mpk-v2)")" &&
	rmmod mpool || exit 1

# as make install does it
mkdir -p /etc/udev/rules.d /etc/systemd/system
for f in /t/udev/*; do
	case $f in
	*.rules) d=/etc/udev/rules.d ;;
	*.sysusers) continue ;;
	*) d=/etc/systemd/system ;;
	esac
	sed 's|@BINDIR@|/t/build/bin|g' "$f" >"$d/${f##*/}"
done
# holds the pool open, as a database would, and goes before mpool.service at shutdown
cat >/etc/systemd/system/user.service <<'U'
[Unit]
Requires=dev-mpool-up.device
After=dev-mpool-up.device
[Service]
ExecStart=/bin/bash -c 'exec sleep 1000 </dev/mpool/up'
U
cat >/etc/systemd/system/check.service <<'U'
[Unit]
After=basic.target
[Service]
Type=oneshot
ExecStart=/bin/bash /t/tests/kmod/systemd_guest.sh check
StandardOutput=tty
StandardError=tty
TTYPath=/dev/console
TimeoutStartSec=10min
U
# stops after mpool.service and says what it left
cat >/etc/systemd/system/witness.service <<'U'
[Unit]
DefaultDependencies=no
Before=mpool.service shutdown.target
Conflicts=shutdown.target
[Service]
Type=oneshot
RemainAfterExit=yes
ExecStop=/bin/bash /t/tests/kmod/systemd_guest.sh witness
StandardOutput=tty
StandardError=tty
TTYPath=/dev/console
U
w=/etc/systemd/system/sysinit.target.wants
mkdir -p $w
for u in systemd-udevd systemd-udev-trigger; do
	ln -s "/lib/systemd/system/$u.service" $w
done
ln -s /etc/systemd/system/witness.service $w
systemctl --root=/ -q enable mpool.service || exit 1
printf '[Unit]\nRequires=basic.target\nWants=check.service\n' >/etc/systemd/system/default.target
umount /tmp
exec /lib/systemd/systemd --show-status=no --log-target=kmsg
