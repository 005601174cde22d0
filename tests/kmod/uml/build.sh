#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only OR MIT
#
# Builds kernels that check the module, from Debian's source of Linux 6.1, and the module for
# them. What was built is kept until source, configuration, compiler or processor change.
#
#   build.sh kernel        $B/uml/linux, User Mode Linux: about three minutes on two cores
#   build.sh module DIR    kmod/ and planted.c compiled for that one, as DIR/*.ko
#   build.sh debug         a kernel for QEMU and the module, where tests/kmod/boot.sh finds
#                          them below $B; prints its release. About nine minutes
#
# The source is the package linux-source-6.1 where it is installed, else that package is
# downloaded into $B/uml. Exit 77: this machine has no way to the source or cannot build it;
# a line on standard error says why.

set -u
here=$(cd "$(dirname "$0")" && pwd)
top=$(cd "$here/../../.." && pwd)
B=$(realpath -m "${B:-$top/build}")
work=$B/uml
src=$work/source
tarball=/usr/src/linux-source-6.1.tar.xz
mkdir -p "$work" || exit 1

skip() {
	echo "uml: $*" >&2
	exit 77
}

# ---- source ----

# of what is installed, else of what was downloaded earlier, else nothing
source_version() {
	if [ -r "$tarball" ]; then
		dpkg-query -W -f='${Version}' linux-source-6.1 2>/dev/null || stat -c %s "$tarball"
	else
		cat "$work/downloaded" 2>/dev/null
	fi
}

fetch() {
	local deb
	command -v apt-get >/dev/null || skip "no package linux-source-6.1 and no apt-get here"
	rm -rf "$work/deb"
	mkdir -p "$work/deb/root"
	# as root apt would like to read with another account, which cannot write here
	(cd "$work/deb" && apt-get -q -o APT::Sandbox::User=root download linux-source-6.1) >&2 ||
		skip "linux-source-6.1 cannot be downloaded"
	deb=$(echo "$work"/deb/*.deb)
	dpkg-deb -f "$deb" Version >"$work/downloaded"
	dpkg-deb -x "$deb" "$work/deb/root" || exit 1
	tarball=$work/deb/root$tarball
}

# Of what cannot be part of these kernels only the lists stay: a third of the files.
unpack() {
	[ -r "$tarball" ] || fetch
	rm -rf "$src" "$work/build"
	mkdir -p "$src"
	tar -xJf "$tarball" -C "$src" --strip-components=1 \
		--exclude='*/Documentation/*/*' --exclude='*/drivers/gpu/*.[ch]' \
		--exclude='*/drivers/media/*.[ch]' --exclude='*/drivers/net/*/*.[ch]' \
		--exclude='*/drivers/infiniband/*.[ch]' --exclude='*/drivers/staging/*.[ch]' \
		--exclude='*/drivers/scsi/*/*.[ch]' --exclude='*/sound/*.[ch]' --exclude='*.dts' \
		--exclude='*.dtsi' --exclude='*/arch/[ac-tvw]*/*.[chS]' \
		--exclude='*/tools/testing' || exit 1
	rm -rf "$work/deb"
}

# Changes that User Mode Linux 6.1 needs. It fixes the size of the floating point state at
# that of a processor without AMX: where it is larger, the first program does not start (the
# kernel refuses a short buffer). Each new process walks its mappings without any
# protection, which lockdep reports: true, harmless, and not ours. And the stack that KASAN
# and kmemleak note at each allocation is searched for whatever looks like code, to keep but
# the frames: more than half of the time of tests that allocate much.
patch_source() {
	local f=$src/arch/x86/um/user-offsets.c size
	sed -z -i 's/\n\tfor_each_vma(vmi, vma)\n\t\tfix_range([^;]*, 1);/'\
'\n\trcu_read_lock();&\n\trcu_read_unlock();/' "$src/arch/um/kernel/tlb.c"
	size=$("$work/xsave_size")
	sed -i -e 's/^void dump_trace/static void save_addr(void *, unsigned long, int);\n&/' \
		-e 's/if (__kernel_text_address(addr))/if ((ops->address != save_addr || '\
'(unsigned long)sp == bp + sizeof(long)) \&\& __kernel_text_address(addr))/' \
		"$src/arch/um/kernel/stacktrace.c"
	[ "$size" -gt 2696 ] || return 0
	sed -i "s/DEFINE_LONGS(HOST_FP_SIZE, 2696)/DEFINE_LONGS(HOST_FP_SIZE, $size)/" "$f"
}

# ---- kernels ----

# what the tree is made from
tree() {
	source_version
	declare -f unpack patch_source
	"$work/xsave_size"
}

# key CONFIG: changes when the result would
key() {
	{
		tree
		declare -f kmake
		cat "$1"
		${CC:-gcc} --version
	} | sha256sum | cut -d' ' -f1
}

# kmake ARCH DIR TARGET...
# User Mode Linux is built by every fresh `make check`: -O1 compiles faster than -Os, and what
# runs under KASAN is no slower. QEMU's kernel keeps what distributions test.
kmake() {
	local arch=$1 dir=$2
	shift 2
	[ "$arch" != um ] || set -- KCFLAGS=-O1 "$@"
	env -u MAKEFLAGS -u MAKELEVEL -u MFLAGS make -C "$src" ARCH="$arch" O="$dir" \
		-j"${JOBS:-2}" KBUILD_BUILD_TIMESTAMP=@0 KBUILD_BUILD_USER=mpool \
		KBUILD_BUILD_HOST=build "$@"
}

# configure ARCH DIR CONFIG
configure() {
	local o
	KCONFIG_ALLCONFIG=$3 kmake "$1" "$2" allnoconfig >"$2.log" 2>&1 || {
		tail -n 20 "$2.log" >&2
		exit 1
	}
	# an option that did not survive would be a checker that checks nothing
	grep -E '^CONFIG_[A-Z0-9_]*=[^n]' "$3" | while read -r o; do
		grep -qxF "$o" "$2/.config" || echo "$o"
	done >"$2.lost"
	[ -s "$2.lost" ] || return 0
	echo "uml: options that this source does not take: $(tr '\n' ' ' <"$2.lost")" >&2
	exit 1
}

# build ARCH DIR CONFIG TARGET...: 0, built now; 1, it was there
build() {
	local arch=$1 dir=$2 config=$3 start=$SECONDS
	shift 3
	[ "$(key "$config")" = "$(cat "$dir.key" 2>/dev/null)" ] && return 1
	rm -rf "$dir" "$dir.key"
	mkdir -p "$dir"
	# a tree of something else, or one that was left half way
	if [ -z "$(source_version)" ] || ! tree | cmp -s - "$work/unpacked"; then
		rm -f "$work/unpacked"
		unpack
		patch_source
		tree >"$work/unpacked"
	fi
	configure "$arch" "$dir" "$config"
	echo "uml: building a kernel, some minutes; log: $dir.log" >&2
	kmake "$arch" "$dir" "$@" >"$dir.log" 2>&1 || {
		grep -E 'error|\*\*\*' "$dir.log" | head -n 20 >&2
		exit 1
	}
	key "$config" >"$dir.key"
	echo "uml: kernel built in $((SECONDS - start)) s" >&2
}

can_build() {
	local tool
	[ "$(uname -m)" = x86_64 ] || skip "these kernels need an x86-64 machine"
	for tool in make "${CC:-gcc}" flex bison bc xz; do
		command -v "$tool" >/dev/null || skip "$tool is missing"
	done
	${CC:-gcc} -O -o "$work/xsave_size" "$here/xsave_size.c" || exit 1
}

kernel() {
	can_build
	build um "$work/build" "$here/kernel.config" linux modules ||
		[ ! -e "$work/linux" ] || return 0
	strip -o "$work/linux" "$work/build/linux" || exit 1
}

# module ARCH KDIR OUT SOURCE: the folder SOURCE is copied, nothing is made among the sources
module() {
	local arch=$1 kdir=$2 out=$3 dir
	dir=$work/module.$1.$(basename "$4")
	mkdir -p "$dir" "$out"
	# with their times: what did not change is not compiled again
	cp -rp "$4/." "$dir"
	# planted.c has no Kbuild of its own
	[ -e "$dir/Kbuild" ] || echo 'obj-m := planted.o' >"$dir/Kbuild"
	env -u MAKEFLAGS -u MAKELEVEL -u MFLAGS make -C "$kdir" M="$dir" ARCH="$arch" \
		UBSAN_SANITIZE=y -j"${JOBS:-2}" modules >"$kdir.module.log" 2>&1 &&
		cp "$dir"/*.ko "$out" && return
	cat "$kdir.module.log" >&2
	exit 1
}

# PVH, by which boot.sh enters other kernels, dies in one with KASAN: so a bzImage
debug() {
	local release root dir=$work/debug
	can_build
	command -v depmod >/dev/null || PATH=$PATH:/usr/sbin:/sbin
	build x86_64 "$dir" "$here/debug.config" bzImage modules
	release=$(cat "$dir/include/config/kernel.release") || exit 1
	root=$B/kernels/$release/root
	if [ ! -e "$root" ] || [ "$dir.key" -nt "$root" ]; then
		rm -rf "$root" "$B/kernels/$release"
		mkdir -p "$root"
		kmake x86_64 "$dir" INSTALL_MOD_PATH="$root" modules_install >>"$dir.log" 2>&1 ||
			exit 1
		cp "$dir/arch/x86/boot/bzImage" "$B/kernels/$release/vmlinux"
	fi
	module x86_64 "$dir" "$B/kmod/$release" "$top/kmod"
	echo "$release"
}

exec 9>"$work/lock"
flock 9
case ${1-} in
kernel) kernel ;;
module)
	module um "$work/build" "$2" "$top/kmod"
	module um "$work/build" "$2" "$here"
	;;
debug) debug ;;
*)
	echo "usage: build.sh kernel | module OUT | debug" >&2
	exit 2
	;;
esac
