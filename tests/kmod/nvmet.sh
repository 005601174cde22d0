#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only OR MIT
#
# A disk behind NVMe over TCP, target and host in this kernel:
#
#   nvmet.sh up DISK     exports DISK and connects to it; prints the new device
#   nvmet.sh kill        the target ends, as if its machine did
#   nvmet.sh disconnect  the host gives up
#   nvmet.sh down        both, and the configuration goes

set -u
t=/sys/kernel/config/nvmet
nqn=mpool-test
id=c29ca5e2-c7df-47ec-8631-fc73058a1396

up() {
	local i c
	modprobe -a nvmet nvmet-tcp nvme-tcp || exit 1
	mkdir -p $t/subsystems/$nqn/namespaces/1 $t/ports/1
	echo 1 >$t/subsystems/$nqn/attr_allow_any_host
	echo -n "$1" >$t/subsystems/$nqn/namespaces/1/device_path
	echo 1 >$t/subsystems/$nqn/namespaces/1/enable || exit 1
	if [ ! -e $t/ports/1/subsystems/$nqn ]; then
		cd $t/ports/1 || exit 1
		echo tcp >addr_trtype
		echo ipv4 >addr_adrfam
		echo 127.0.0.1 >addr_traddr
		echo 4420 >addr_trsvcid
		ln -s $t/subsystems/$nqn subsystems/$nqn || exit 1
	fi
	# short limits: the host is to notice within seconds
	c=transport=tcp,traddr=127.0.0.1,trsvcid=4420,nqn=$nqn,hostid=$id
	c+=,hostnqn=nqn.2014-08.org.nvmexpress:uuid:$id
	c+=,keep_alive_tmo=2,reconnect_delay=1,ctrl_loss_tmo=4,fast_io_fail_tmo=1
	echo "$c" >/dev/nvme-fabrics || exit 1
	for ((i = 0; i < 100; i++)); do
		# with multipathing the namespace belongs to the subsystem
		for c in /sys/block/nvme*; do
			grep -qs $nqn "$c/device/subsysnqn" && [ -b "/dev/${c##*/}" ] &&
				echo "/dev/${c##*/}" && return
		done
		sleep 0.1
	done
	echo "nvmet.sh: no device came" >&2
	exit 1
}

disconnect() {
	local c
	for c in /sys/class/nvme/nvme*; do
		if [ "$(cat "$c/subsysnqn" 2>/dev/null)" = $nqn ]; then
			echo 1 >"$c/delete_controller"
		fi
	done
	return 0
}

# without its port the target answers no host, connections end at once
drop() {
	rm -f $t/ports/1/subsystems/$nqn
	rmdir $t/ports/1
}

case ${1-} in
up) up "$2" ;;
kill) drop ;;
disconnect) disconnect ;;
down)
	disconnect
	drop
	echo 0 >$t/subsystems/$nqn/namespaces/1/enable
	rmdir $t/subsystems/$nqn/namespaces/1 $t/subsystems/$nqn
	;;
*)
	echo "usage: nvmet.sh up DISK | kill | disconnect | down" >&2
	exit 2
	;;
esac
