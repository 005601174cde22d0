#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only OR MIT
#
# kmod/selinux/mpool.cil, compiled with the distribution's policy: what it allows, and, in a
# machine that boots with that policy, the labels that the kernel gives. Needs no root.

set -u
cd "$(dirname "$0")/../.." || exit 1
B=$(realpath -m "${B:-build}")
O=$(realpath -m "${O:-$B}")
export B
PATH=$PATH:/usr/sbin:/sbin
base=/usr/share/selinux/default pp=/usr/libexec/selinux/hll/pp
# shellcheck disable=SC1091
. tests/kmod/host.sh
for c in secilc sesearch seinfo bzcat $pp; do
	command -v "$c" >/dev/null || skip "no $c"
done
[ -e $base/base.pp.bz2 ] || skip "no policy of Debian's (selinux-policy-default)"

# accounts of this machine are left out
for m in base unconfined postgresql; do
	bzcat $base/$m.pp.bz2 | $pp | sed '/^(selinuxuser/d' >"$T/$m.cil"
done
echo '(typeattributeset mpool_client postgresql_t)' >"$T/client.cil"
policy() {
	local out=$T/$1
	shift
	(cd "$T" && secilc -M true -o "$out" -f "$out.contexts" base.cil unconfined.cil \
		postgresql.cil "$@") >"$T/log" 2>&1
}
m=$PWD/kmod/selinux/mpool.cil
policy without && policy closed "$m" && policy open "$m" client.cil
verdict it_compiles_with_the_policy_of_the_distribution

# may POLICY DOMAIN TYPE CLASS PERMISSION
may() {
	sesearch -A -s "$2" -t "$3" -c "$4" -p "$5" "$T/$1" 2>>"$T/log" |
		grep '^allow' >>"$T/log"
}
: >"$T/log"
# granted TYPE CLASS PERMISSION...: each, and by the line about the service alone
granted() {
	local type=$1 class=$2 p
	shift 2
	for p; do
		may open postgresql_t "$type" "$class" "$p" || return
		! may closed postgresql_t "$type" "$class" "$p" || return
	done
}
granted mpool_device_t chr_file open read write ioctl lock &&
	granted mpool_object_t file open read write append map getattr
verdict a_service_that_was_named_may_use_pools_and_no_other

! may open postgresql_t mpool_control_t chr_file open &&
	! may open postgresql_t fixed_disk_device_t blk_file open &&
	! may open postgresql_t mpool_object_t file execute &&
	! may open postgresql_t mpool_device_t chr_file relabelto
verdict it_may_not_administer

may open unconfined_t mpool_control_t chr_file ioctl &&
	may open unconfined_t mpool_device_t chr_file ioctl &&
	may open unconfined_t mpool_object_t file write &&
	may open udev_t mpool_device_t chr_file relabelto
verdict administrators_and_udev_reach_all

# label PATH: of a device with that name
label() {
	awk -v path="$1" '$2 == "-c" && path ~ "^" $1 "$" { l = $3 } END { print l }' \
		"$T/open.contexts"
}
{
	[ "$(label /dev/mpool/db1)" = system_u:object_r:mpool_device_t:s0 ] &&
		[ "$(label /dev/mpoolctl)" = system_u:object_r:mpool_control_t:s0 ] &&
		seinfo --genfscon mpool_objects "$T/open" | grep -q :mpool_object_t:
} >"$T/log" 2>&1
verdict nodes_and_objects_have_their_labels

kver=${KVER:-$(tests/kmod/kernels.sh boot | head -n 1)}
name=the_kernel_gives_them
n=$((n + 1))
if [ -z "$kver" ] || [ ! -e "$B/kmod/$kver/mpool.ko" ]; then
	echo "ok $n - $name # SKIP no module: make modules"
elif ! type qemu-system-x86_64 busybox >/dev/null 2>&1; then
	echo "ok $n - $name # SKIP no qemu-system-x86_64 or no busybox"
else
	mkdir -p "$T"/guest/{bin,tests}
	cp "$O/bin/mpool" "$T/guest/bin"
	cp "$O/tests/bench_objfd" "$T/guest/tests"
	cp "$T/open" "$T/guest/bin/policy"
	O=$T/guest VM_DISK_SIZE=64M VM_MEM=1024 VM_TIMEOUT=${VM_TIMEOUT:-300} \
		VM_APPEND='security=selinux selinux=1 enforcing=0' \
		tests/kmod/boot.sh "$kver" "$T/vm" selinux_guest >"$T/log" 2>&1
	read -r _ rc _ why <"$T/vm/results"
	sed 's/^/# /' "$T/vm/selinux_guest"
	if [ "$rc" = 0 ] && [ -z "$why" ] && grep -q '^ok 1' "$T/vm/selinux_guest"; then
		echo "ok $n - $name"
	else
		tail -n 40 "$T/log" "$T/vm/console" | sed 's/^/# /'
		echo "not ok $n - $name $why"
		failed=1
	fi
fi
finish
