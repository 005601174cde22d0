#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only OR MIT
#
# Runs under the systemd of host_systemd.sh's machine: "check" once it is up, "witness" when it
# goes down and the pools should have been deactivated. TAP for split.awk, on the console.

export PATH=/t/build/bin:$PATH
say() { echo "@@mpk $*"; }

if [ "$1" = witness ]; then
	if [ -z "$(ls /dev/mpool 2>/dev/null)" ] && [ -e /sys/class/mpool ]; then
		echo "ok 7 - shutdown_deactivates_pools_after_their_users"
	else
		echo "# left: $(ls /dev/mpool 2>&1)"
		echo "not ok 7 - shutdown_deactivates_pools_after_their_users"
	fi
	echo "1..7"
	say end systemd 0 "$(cut -d' ' -f1 /proc/uptime)"
	say "done"
	exit
fi

n=0
verdict() {
	local rc=$?
	n=$((n + 1))
	if [ $rc = 0 ]; then
		echo "ok $n - $1"
		return
	fi
	echo "not ok $n - $1"
	{
		systemctl --no-pager list-units --all '*mpool*'
		mpool scan
		dmesg | tail -n 30
	} 2>&1 | sed 's/^/# /'
}
# soon CONDITION...: within a minute
soon() {
	local i
	for ((i = 0; i < 600; i++)); do
		"$@" && return
		sleep 0.1
	done
	return 1
}
active() { systemctl is-active -q "$1"; }
# no job waits: whatever was going to be activated is
idle() { ! systemctl list-jobs --no-legend --plain | grep -q mpool; }

say begin systemd
soon active dev-mpool-up.device && [ -c /dev/mpool/up ] &&
	[ "$(stat -c '%u:%g %a' /dev/mpool/up)" = "0:1100 660" ]
verdict a_boot_activates_the_trusted_pool

udevadm settle --timeout=60 && soon idle && [ ! -e /dev/mpool/other ] &&
	mpool scan -H -o name,state,trusted | grep -qx 'other	complete	no'
verdict the_other_pool_is_only_listed

! systemctl --no-pager --plain --no-legend list-units --failed | grep mpool
verdict no_unit_failed

udevadm_change() {
	udevadm trigger --action=change --subsystem-match=block && udevadm settle --timeout=60 &&
		soon idle
}
udevadm_change && mpool -q deactivate up && udevadm_change && sleep 1 && [ ! -e /dev/mpool/up ]
verdict what_was_deactivated_stays_so

# a member goes and comes: its device is another one for systemd, and starts its unit again
v=$(grep -l mpk-v0 /sys/block/*/serial) && v=${v%/serial} &&
	v=$(basename "$(readlink -f "$v/device")") &&
	echo "$v" >/sys/bus/virtio/drivers/virtio_blk/unbind && udevadm settle --timeout=60 &&
	[ ! -e /dev/mpool/up ] && echo "$v" >/sys/bus/virtio/drivers/virtio_blk/bind &&
	soon active dev-mpool-up.device
verdict a_member_that_comes_back_activates_it_again

is_held() { [ "$(cat /sys/class/mpool/up/opens)" = 1 ]; }
systemctl start user.service && soon is_held
verdict a_service_can_require_the_pool

systemctl --no-block reboot 2>&1 | sed 's/^/# /'
