#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only OR MIT
#
# Finds kernels to test the module with, and makes them bootable.
#
#   kernels.sh headers        releases whose headers are installed, 6.1 and newer, oldest first
#   kernels.sh boot           the same, the newest of each series only (6.1, 6.12, ...)
#   kernels.sh image KVER     prints "VMLINUX ROOT": an ELF kernel for QEMU, and the folder
#                             that has lib/modules/KVER
#
# An image is taken from the system, or else its Debian package is downloaded and unpacked
# below $B/kernels: nothing is installed, no boot menu changes. What was made once is kept.

set -u
cd "$(dirname "$0")/../.." || exit 1
B=$(realpath -m "${B:-build}")
PATH=$PATH:/usr/sbin:/sbin

headers() {
	local d v
	for d in /lib/modules/*/build; do
		[ -e "$d/Makefile" ] || continue
		v=${d#/lib/modules/}
		v=${v%/build}
		[ "$(printf '6.1\n%s\n' "${v%%-*}" | sort -V | head -n 1)" = 6.1 ] && echo "$v"
	done | sort -V
}

boot() {
	# sorted by version: the last of a series wins
	headers | awk -F. '{ s = $1 "." int($2); if (!(s in v)) o[++n] = s; v[s] = $0 }
		END { for (i = 1; i <= n; i++) print v[o[i]] }'
}

# unpack BZIMAGE OUT: the ELF kernel inside, which QEMU enters without firmware
unpack() {
	python3 -c '
import ctypes, gzip, lzma, struct, sys

image = open(sys.argv[1], "rb").read()
if image[0x202:0x206] != b"HdrS":
    sys.exit("not a kernel for PCs")
off, n = struct.unpack_from("<II", image, 0x248)
off += ((image[0x1f1] or 4) + 1) * 512
size, = struct.unpack_from("<I", image, off + n - 4)
data = image[off:off + n - 4]
if data[:6] == b"\xfd7zXZ\0":
    elf = lzma.decompress(data)
elif data[:2] == b"\x1f\x8b":
    elf = gzip.decompress(data)
elif data[:4] == b"\x28\xb5\x2f\xfd":
    zstd = ctypes.CDLL("libzstd.so.1")
    zstd.ZSTD_decompress.restype = ctypes.c_size_t
    buf = ctypes.create_string_buffer(size)
    got = zstd.ZSTD_decompress(buf, ctypes.c_size_t(size), data, ctypes.c_size_t(len(data)))
    elf = buf.raw[:got] if got == size else b""
else:
    sys.exit("compressed in an unknown way")
if elf[:4] != b"\x7fELF" or len(elf) != size:
    sys.exit("damaged")
open(sys.argv[2], "wb").write(elf)' "$1" "$2.part" && mv "$2.part" "$2"
}

# fetch KVER DIR: the package of the image, unpacked into DIR
fetch() {
	local deb
	command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null || return 1
	rm -rf "$2.part"
	mkdir -p "$2.part" || return 1
	# as root apt would like to read with another account, which cannot write here
	(cd "$2.part" && apt-get -q -o APT::Sandbox::User=root download "linux-image-$1") >&2 ||
		return 1
	deb=$(echo "$2.part"/*.deb)
	dpkg-deb -x "$deb" "$2.part" && rm "$deb" && depmod -b "$2.part" "$1" && mv "$2.part" "$2"
}

image() {
	local kver=$1 root=/ boot=/boot/vmlinuz-$1 dir=$B/kernels/$1
	if [ ! -r "$boot" ] || [ ! -e "/lib/modules/$kver/modules.dep" ]; then
		root=$dir/root
		boot=$root/boot/vmlinuz-$kver
		if [ ! -e "$root" ]; then
			mkdir -p "$dir"
			fetch "$kver" "$root" || return 1
		fi
	fi
	mkdir -p "$dir" || return 1
	if [ ! -e "$dir/vmlinux" ] || [ "$boot" -nt "$dir/vmlinux" ]; then
		unpack "$boot" "$dir/vmlinux" || return 1
	fi
	echo "$dir/vmlinux $root"
}

case ${1-} in
headers) headers ;;
boot) boot ;;
image)
	mkdir -p "$B/kernels" || exit 1
	# one of two runs at the same time makes it
	exec 9>"$B/kernels/$2.lock"
	flock 9
	image "$2"
	;;
*)
	echo "usage: kernels.sh headers | boot | image KVER" >&2
	exit 2
	;;
esac
