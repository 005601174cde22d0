#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only OR MIT
#
# Boots a kernel in QEMU and runs test programs in it; needs neither root nor the network.
#
#   boot.sh KVER OUT NAME...
#
# OUT receives the file console, one file of TAP per program, and the file results with a
# line "NAME RC SECONDS WHY" for each: WHY is empty, or what the kernel or each.sh found; and
# the file again, with the reason, if the machine had to be begun a second time.
# The programs come from $O, the module from $B/kmod/KVER/mpool.ko.
#
#   VM_CPUS=2 VM_MEM=1536 VM_TIMEOUT=600  processors, memory in MiB, limit in seconds
#   VM_DISKS=4 VM_DISK_SIZE=512M          virtio disks; one more is NVMe
#   VM_QEMU, VM_APPEND                    further arguments of QEMU and of the kernel
#   VM_FILES                              further files of this machine for the guest
#   TEST_LIMIT=300                        limit of one program, seconds
#   TEST_LONG, SEED, COUNT                reach the programs
#
# A program in tests/kmod asks for more with a line of its own:
#   vm-files: fio /lib/systemd/systemd-udevd     commands or files, if this machine has them
#
# The verdict comes from the console, never from QEMU's exit code.

set -u
cd "$(dirname "$0")/../.." || exit 1
kver=$1 out=$2
shift 2
B=$(realpath -m "${B:-build}")
O=$(realpath -m "${O:-$B}")
PATH=$PATH:/usr/sbin:/sbin
here=tests/kmod
mkdir -p "$out" || exit 1
out=$(realpath "$out")
# beside the results: disks may grow, and /tmp may be memory
work=$(mktemp -d "$out/work.XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT

# commands of this machine that the guest gets
tools='busybox bash dmsetup modprobe rmmod insmod lsmod setpriv losetup blockdev wipefs blkid
	mkfs.ext4 mount umount udevadm flock unshare getfacl find grep sed awk dmesg ps xxd blkzone
	blkdiscard cmp diff'
modules='virtio_pci virtio_blk nvme null_blk scsi_debug sd_mod nvmet nvmet-tcp nvme-tcp dm-mod
	dm-flakey dm-delay dm-log-writes loop ext4 libcrc32c crc32c_generic crc32c_intel
	configfs 9p 9pnet_virtio'

# copy ROOT FILE: at the same place; the guest's /bin, /sbin, /lib are links into /usr
copy() {
	local d
	d=$(realpath "${2%/*}") || return
	mkdir -p "$1$d"
	cp -rLn --preserve=mode "$2" "$1$d/"
}

# libs ROOT FILE...: the shared libraries that FILEs need
libs() {
	local root=$1 p
	shift
	ldd "$@" 2>/dev/null | grep -oE '/[^ :]+\.so[^ :]*' | sort -u | while read -r p; do
		copy "$root" "$p"
	done
}

# put ROOT FILE...: commands or files, with their libraries
put() {
	local root=$1 f p all=()
	shift
	for f; do
		p=$(type -P "$f" || realpath -qse "$f") || continue
		[ -e "$p" ] || continue
		copy "$root" "$p"
		all+=("$p")
	done
	[ ${#all[@]} = 0 ] || libs "$root" "${all[@]}"
}

pack() { (cd "$1" && find . | cpio --quiet -o -H newc -R 0:0) >"$2.part" && mv "$2.part" "$2"; }

# The first part of the initial file system is the same for all: made again when this changes.
tools_cpio() {
	local r=$work/tools a
	[ -e "$B/kernels/tools.cpio" ] && [ "$B/kernels/tools.cpio" -nt $here/boot.sh ] &&
		[ "$B/kernels/tools.cpio" -nt $here/init ] && return
	mkdir -p "$r"/usr/{bin,sbin,lib,lib64} "$r"/{dev,proc,sys,tmp,run,root,etc,mnt}
	ln -s usr/{bin,sbin,lib,lib64} "$r"
	chmod 755 "$r"
	# shellcheck disable=SC2046,SC2086
	put "$r" $tools $(dpkg -L coreutils 2>/dev/null | grep -E 'bin/[a-z0-9]+$')
	for a in $(busybox --list); do
		# real ones first
		[ -e "$r/bin/$a" ] || [ -e "$r/sbin/$a" ] || ln -s busybox "$r/bin/$a"
	done
	cp $here/init "$r/init"
	printf '%s\n' root:x:0:0:root:/root:/bin/bash nobody:x:65534:65534::/tmp:/bin/bash \
		alice:x:1001:1001::/tmp:/bin/bash bob:x:1002:1002::/tmp:/bin/bash >"$r/etc/passwd"
	printf '%s\n' root:x:0: disk:x:6: nogroup:x:65534: alice:x:1001: bob:x:1002: \
		pool:x:1100:alice >"$r/etc/group"
	pack "$r" "$B/kernels/tools.cpio"
}

# modules_cpio ROOT
modules_cpio() {
	local r=$work/modules c=$B/kernels/$kver/modules.cpio m f
	[ -e "$c" ] && [ "$c" -nt $here/boot.sh ] && return
	for m in $modules; do
		modprobe -S "$kver" -d "$1" --show-depends "$m" 2>/dev/null
	done | awk '$1 == "insmod" && !s[$2]++ { print $2 }' >"$work/list"
	while read -r f; do
		m=$r/usr/lib/modules/$kver/kernel/$(basename "$f")
		mkdir -p "${m%/*}"
		case $f in
		*.xz) xz -dc "$f" >"${m%.xz}" ;;
		*.zst) zstd -qdc "$f" >"${m%.zst}" ;;
		*) cp "$f" "$m" ;;
		esac
	done <"$work/list"
	cp "${1%/}/lib/modules/$kver"/modules.{builtin,builtin.modinfo,order} \
		"$r/usr/lib/modules/$kver"
	depmod -b "$r/usr" "$kver"
	pack "$r" "$c"
}

tests_cpio() {
	local r=$work/tests name f
	mkdir -p "$r"/t/build/{bin,tests} "$r/t/tests"
	chmod 755 "$r" "$r/t"
	cp -r $here tests/cli "$r/t/tests"
	cp -r udev "$r/t/udev"
	cp -r --parents utils/schema "$r/t"
	printf '%s\n' "$@" >"$r/t/list"
	[ -e "$B/kmod/$kver/mpool.ko" ] && cp "$B/kmod/$kver/mpool.ko" "$r/t/build"
	for f in "$O"/bin/*; do
		[ -e "$f" ] && cp -L "$f" "$r/t/build/bin"
	done
	for f in "$O"/tests/*; do
		name=${f##*/}
		# programs of tests/kmod, the conformance suites, and what was asked for by name
		[ -e "$here/$name.c" ] || [ -e "tests/conform/$name.c" ] ||
			[[ " $* " == *" $name "* ]] || continue
		cp "$f" "$r/t/build/tests"
	done
	strip -g "$r"/t/build/bin/* "$r"/t/build/tests/* 2>/dev/null
	# shellcheck disable=SC2086,SC2046
	put "$r" ${VM_FILES-} $(sed -n 's/^[ *#/]*vm-files: //p' $here/* 2>/dev/null)
	libs "$r" "$r"/t/build/bin/* "$r"/t/build/tests/*
	pack "$r" "$work/tests.cpio"
}

# accel VMLINUX: kvm where a guest really answers within 8 s; some hosts only pretend
accel() {
	local c answer=tcg
	c=$B/kernels/accel.$(cat /proc/sys/kernel/random/boot_id)
	if [ ! -e "$c" ]; then
		if [ -w /dev/kvm ]; then
			mkdir -p "$work/probe/bin"
			cp -L "$(type -P busybox)" "$work/probe/bin/busybox"
			printf '#!/bin/busybox sh\necho alive\nreboot -f\n' >"$work/probe/init"
			chmod 755 "$work/probe/init"
			pack "$work/probe" "$work/probe.cpio"
			timeout -k 1 8 qemu-system-x86_64 -nodefaults -no-reboot -display none \
				-serial stdio -m 512 -accel kvm -cpu host -kernel "$1" \
				-initrd "$work/probe.cpio" -append 'console=ttyS0 quiet panic=-1' \
				</dev/null 2>/dev/null | grep -qa ^alive && answer=kvm
		fi
		echo $answer >"$c"
	fi
	cat "$c"
}

read -r vmlinux root < <(B=$B $here/kernels.sh image "$kver") || {
	echo "boot.sh: there is no image of kernel $kver" >&2
	exit 1
}
exec 9>"$B/kernels/tools.lock"
flock 9
tools_cpio
flock -u 9
exec 8>"$B/kernels/$kver.lock"
flock 8
modules_cpio "$root"
flock -u 8
tests_cpio "$@"
cat "$B/kernels/tools.cpio" "$B/kernels/$kver/modules.cpio" "$work/tests.cpio" >"$work/initrd"

qemu=(qemu-system-x86_64 -nodefaults -no-reboot -display none -serial stdio
	-machine pc -smp "${VM_CPUS:-2}" -m "${VM_MEM:-1536}" -kernel "$vmlinux"
	-initrd "$work/initrd")
if [ "$(accel "$vmlinux")" = kvm ]; then
	qemu+=(-accel kvm -cpu host)
else
	qemu+=(-accel "tcg,thread=multi" -cpu max)
fi
disks=${VM_DISKS:-4}
for ((i = 0; i < disks; i++)); do
	qemu+=(-drive "id=v$i,file=$work/v$i,format=raw,if=none,cache=unsafe,discard=unmap"
		-device "virtio-blk-pci,drive=v$i,serial=mpk-v$i")
done
qemu+=(-drive "id=n0,file=$work/n0,format=raw,if=none,cache=unsafe,discard=unmap"
	-device "nvme,id=nv,serial=mpk-n0" -device "nvme-ns,drive=n0,bus=nv,nsid=1")
append="console=ttyS0 quiet panic=-1 no_timer_check mitigations=off nokaslr tsc=reliable
	random.trust_cpu=on log_buf_len=4M rcupdate.rcu_cpu_stall_timeout=120
	mpk_disks=$((disks + 1))
	mpk_limit=${TEST_LIMIT:-300} ${TEST_LONG:+mpk_long=1} mpk_seed=${SEED:-${TEST_SEED-}}
	${COUNT:+mpk_count=$COUNT}
	${VM_APPEND-}"

# silence: ends a machine that has said nothing in three minutes. Its first program starts
# after some ten seconds, and says so
silence() {
	local i
	for ((i = 0; i < 180; i++)); do
		sleep 1
		[ ! -s "$out/console" ] || return
	done
	# it may not hear a signal that it can refuse
	kill -KILL "$(cat "$work/pid")"
}

# machine: on empty disks
machine() {
	rm -f "$work"/{v[0-9]*,n0}
	for ((i = 0; i < disks; i++)); do
		truncate -s "${VM_DISK_SIZE:-512M}" "$work/v$i"
	done
	truncate -s "${VM_DISK_SIZE:-512M}" "$work/n0"
	: >"$out/console"
	silence >/dev/null 2>&1 &
	# shellcheck disable=SC2086
	timeout --foreground -k 10 "${VM_TIMEOUT:-600}" "${qemu[@]}" -append "$(echo $append)" \
		-pidfile "$work/pid" ${VM_QEMU-} </dev/null 2>"$out/qemu" |
		sed -u 's/\r//g' >"$out/console"
	kill $! 2>/dev/null
}

# is_emulator: a breakpoint in code of the kernel proper, which had just patched it. QEMU with
# several emulated processors may execute what memory no longer holds. A breakpoint in code of
# the module is not excused.
is_emulator() {
	grep -q 'Oops: int3' "$out/console" &&
		! grep -A 30 'Oops: int3' "$out/console" | grep -q 'RIP: .*\[mpool\]'
}

rm -f "$out/again"
machine
if is_emulator; then
	echo "the emulator failed (int3 in the kernel's own code, see console.first)" >"$out/again"
elif [ ! -s "$out/console" ]; then
	echo "the first program of the machine did not start" >"$out/again"
fi
if [ -e "$out/again" ]; then
	mv "$out/console" "$out/console.first"
	machine
fi
awk -v out="$out" -v list="$*" -f $here/split.awk "$out/console"
