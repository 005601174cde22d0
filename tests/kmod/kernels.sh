#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only OR MIT
#
# Finds kernels to test the module with, and makes them usable.
#
#   kernels.sh get SERIES...  fetches the newest kernel of each series (6.1, 6.12, ...) unless
#                             one is there: Debian packages, downloaded and unpacked below
#                             $B/kernels. Nothing is installed: no boot menu changes
#   kernels.sh headers        releases that have headers, 6.1 and newer, oldest first
#   kernels.sh boot           the same, the newest of each series only
#   kernels.sh dir KVER       prints the folder of its headers
#   kernels.sh image KVER     prints "VMLINUX ROOT": an ELF kernel for QEMU, and the folder
#                             that has lib/modules/KVER
#
# What was fetched or unpacked once is kept.

set -u
cd "$(dirname "$0")/../.." || exit 1
B=$(realpath -m "${B:-build}")
PATH=$PATH:/usr/sbin:/sbin

dir() {
	local d
	for d in "/lib/modules/$1/build" "$B/kernels/$1/root/usr/src/linux-headers-$1"; do
		[ -e "$d/Makefile" ] && echo "$d" && return
	done
	return 1
}

headers() {
	local d v
	for d in /lib/modules/*/build "$B"/kernels/*/root; do
		v=${d%/*}
		v=${v##*/}
		dir "$v" >/dev/null || continue
		[ "$(printf '6.1\n%s\n' "${v%%-*}" | sort -V | head -n 1)" = 6.1 ] && echo "$v"
	done | sort -Vu
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

# fetch KVER DIR PACKAGE...: unpacked into DIR
fetch() {
	local kver=$1 dir=$2 deb
	shift 2
	command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null || return 1
	mkdir -p "$dir" || return 1
	# as root apt would like to read with another account, which cannot write here
	(cd "$dir" && apt-get -q -o APT::Sandbox::User=root download "$@") >&2 || return 1
	for deb in "$dir"/*.deb; do
		dpkg-deb -x "$deb" "$dir" && rm "$deb" || return 1
	done
	# headers name the place where they would be installed
	sed -i "s|^include /usr/src/|include $dir/usr/src/|" "$dir"/usr/src/*/Makefile 2>/dev/null
	depmod -b "$dir" "$kver"
}

# get SERIES: its newest kernel, image and headers; 1: there is none to be had
get() {
	local series=$1 kver root
	boot | grep -qE "^${series//./\\.}([.-]|\$)" && return
	# images of containers come without package lists
	[ "$(id -u)" != 0 ] || apt-cache show make >/dev/null 2>&1 || apt-get -q update >&2
	kver=$(apt-cache search --names-only "^linux-headers-${series//./\\.}[.0-9+a-z-]*-amd64\$" \
		2>/dev/null | sed -n 's/^linux-headers-\([^ ]*\) .*/\1/p' | grep -vE 'cloud|rt-' |
		grep -E "^${series//./\\.}\." | sort -V | tail -n 1)
	[ -n "$kver" ] || return 1
	root=$B/kernels/$kver/root
	rm -rf "$root.part"
	# the names of some releases have the flavour in the middle of what is common
	fetch "$kver" "$root.part" "linux-image-$kver" "linux-headers-$kver" \
		"linux-headers-${kver%-amd64}-common" "$(apt-cache depends "linux-headers-$kver" |
			sed -n 's/.*Depends: \(linux-kbuild-[^ ]*\).*/\1/p')" || return 1
	sed -i "s|$root.part/|$root/|" "$root.part"/usr/src/*/Makefile
	mv "$root.part" "$root"
}

image() {
	local kver=$1 root=/ boot=/boot/vmlinuz-$1 dir=$B/kernels/$1
	if [ ! -r "$boot" ] || [ ! -e "/lib/modules/$kver/modules.dep" ]; then
		root=$dir/root
		boot=$root/boot/vmlinuz-$kver
		if [ ! -e "$root" ]; then
			rm -rf "$root.part"
			fetch "$kver" "$root.part" "linux-image-$kver" || return 1
			mv "$root.part" "$root"
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
dir) dir "$2" ;;
get)
	shift
	mkdir -p "$B/kernels" || exit 1
	for series; do
		get "$series" || echo "kernels: none of series $series could be had here" >&2 &
	done
	wait
	;;
image)
	mkdir -p "$B/kernels" || exit 1
	# one of two runs at the same time makes it
	exec 9>"$B/kernels/$2.lock"
	flock 9
	image "$2"
	;;
*)
	echo "usage: kernels.sh get SERIES... | headers | boot | dir KVER | image KVER" >&2
	exit 2
	;;
esac
