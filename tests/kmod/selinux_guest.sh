#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only OR MIT
#
# Runs in the machine of host_selinux.sh, whose kernel has SELinux and, so far, no policy.

set -u
export PATH=$PWD/build/bin:$PATH
read -r disk _ <<<"$MPK_DEVS"
# in one write; a file system learns its label when it is mounted, which is at activation
mount -t selinuxfs selinuxfs /sys/fs/selinux &&
	dd if=build/bin/policy of=/sys/fs/selinux/load bs=64M status=none || {
	echo 'Bail out! no policy'
	exit 1
}
# has an object open until it ends
TEST_SHORT=1 build/tests/bench_objfd "$disk" >"$TMPDIR/out" 2>&1 &
while label=$(stat -L -c %C /proc/$!/fd/* 2>/dev/null | grep -m 1 mpool); [ -z "$label" ]; do
	kill -0 $! 2>/dev/null || break
done
wait $! || label=
echo "# $label"
if [ "$label" = system_u:object_r:mpool_object_t:s0 ]; then
	echo "ok 1 - objects_have_their_label"
else
	sed 's/^/# /' "$TMPDIR/out"
	echo "not ok 1 - objects_have_their_label"
fi
echo 1..1
