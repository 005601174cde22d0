#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only OR MIT
#
# Finds kernels to test the module with, and makes them usable.
#
#   kernels.sh get [SERIES...]  fetches the newest kernel of each series (6.1, 6.12, ...), of all
#                             series from 6.1 on that the archives have, unless one is there:
#                             Debian packages, downloaded and unpacked below $B/kernels. Nothing
#                             is installed: no boot menu changes
#   kernels.sh headers        releases that have headers, 6.1 and newer, oldest first
#   kernels.sh boot           the same, the newest of each series only
#   kernels.sh dir KVER       prints the folder of its headers
#   kernels.sh image KVER     prints "VMLINUX ROOT": an ELF kernel for QEMU, and the folder
#                             that has lib/modules/KVER
#
# What was fetched or unpacked once is kept. Besides what apt is configured for, further SUITES
# of the same archive are looked at, with lists and settings of apt below $B/kernels; their
# packages are never installed. Of a series that both have the machine's own is taken.
#
#   SUITES='bookworm trixie trixie-backports'
#   MIRROR=URL                the archive, else that of this machine's sources

set -u
cd "$(dirname "$0")/../.." || exit 1
B=$(realpath -m "${B:-build}")
PATH=$PATH:/usr/sbin:/sbin
apt=$B/kernels/apt
# as root apt would like to read with another account, which cannot write here
as_root=APT::Sandbox::User=root
more=(-o Dir::Etc::sourcelist=/dev/null -o "Dir::Etc::sourceparts=$apt/parts"
	-o "Dir::State::lists=$apt/lists" -o "Dir::State::status=$apt/status"
	-o "Dir::Cache=$apt/cache" -o Acquire::Languages=none
	-o Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false -o "$as_root")

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

# newest: of lines that begin with a release, the last of each series, oldest series first
newest() {
	awk -F. '{ v[$1 "." int($2)] = $0 } END { for (s in v) print v[s] }' | sort -V
}

boot() { headers | newest; }

# has SERIES: a kernel of it is here
has() { boot | grep -qE "^${1//./\\.}([.-]|\$)"; }

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

# look: reads the package lists that are missing, or those of further suites a day old
look() {
	local key=/usr/share/keyrings/debian-archive-keyring.gpg mirror=${MIRROR-}
	# images of containers come without package lists
	[ "$(id -u)" != 0 ] || apt-cache show make >/dev/null 2>&1 || apt-get -q update >&2
	[ -r $key ] || return
	[ -z "$(find "$apt/status" -mmin -1440 2>/dev/null)" ] || return
	: "${mirror:=$(cat /etc/apt/sources.list /etc/apt/sources.list.d/* 2>/dev/null |
		grep -oE 'https?://[^ ]*/debian/?( |$)' | head -n 1 | tr -d ' ')}"
	mkdir -p "$apt"/{parts,lists/partial,cache/archives/partial} || return
	printf '%s\n' 'Types: deb' "URIs: ${mirror:-http://deb.debian.org/debian}" \
		"Suites: ${SUITES:-bookworm trixie trixie-backports}" 'Components: main' \
		"Signed-By: $key" >"$apt/parts/more.sources"
	: >"$apt/status.part"
	apt-get "${more[@]}" -q -o "Dir::State::status=$apt/status.part" \
		--allow-releaseinfo-change update >"$apt/log" 2>&1 &&
		mv "$apt/status.part" "$apt/status"
}

# offered OPTION...: releases that have headers and an image, in the eyes of apt with OPTIONs
offered() {
	apt-cache "$@" search --names-only '^linux-(headers|image)-[0-9]+[.][0-9]+[.].*-amd64$' |
		sed -E -e 's/^linux-((headers|image)-[^ ]*).*/\1/' -e '/-(cloud|rt)-/d' |
		awk '{ kind = $0; sub(/^[a-z]*-/, ""); if (seen[$0] && seen[$0] != kind) print
			seen[$0] = kind }' |
		sort -V
}

# offers: "KVER WHERE", the newest of each series: what is said last wins
offers() {
	{
		[ ! -e "$apt/status" ] || offered "${more[@]}" | sed 's/$/ more/'
		offered | sed 's/$/ own/'
	} | newest | while read -r kver where; do
		[ "$(printf '6.1\n%s\n' "$kver" | sort -V | head -n 1)" = 6.1 ] &&
			echo "$kver $where"
	done
}

# fetch DIR WHERE PACKAGE...: unpacked into DIR, with what they need of their own source package
fetch() {
	local dir=$1 what='linux-(image|binary|modules|base|headers|kbuild)-[0-9]' deb opts=() pkgs
	[ "$2" = own ] || {
		opts=("${more[@]}")
		what+='|(libc6|libelf1.*|libssl3.*|libzstd1|zlib1g)$'
	}
	shift 2
	mapfile -t pkgs < <(apt-cache "${opts[@]}" depends --recurse --important "$@" |
		grep -E "^($what)" | sort -u)
	mkdir -p "$dir" || return 1
	(cd "$dir" && apt-get -q -o "$as_root" "${opts[@]}" download "${pkgs[@]}") >&2 ||
		return 1
	for deb in "$dir"/*.deb; do
		dpkg-deb -x "$deb" "$dir" && rm "$deb" || return 1
	done
	[ -e "$dir/lib" ] || ln -s usr/lib "$dir/lib"
}

# foreign DIR ROOT: headers in DIR, which will be ROOT, are of another release of the
# distribution: their tools start by the dynamic loader and with the C library that came along,
# and the compiler is this machine's
foreign() {
	local dir=$1 lib=usr/lib/x86_64-linux-gnu ld f h
	ld=$(cd "$dir" && find . -name 'ld-linux-x86-64.so.2' -type f | head -n 1)
	[ -n "$ld" ] || return 1
	find "$dir"/usr/lib/linux-kbuild-* -type f -perm -1 | while read -r f; do
		[ "$(head -c 4 "$f" | tail -c 3)" = ELF ] || continue
		mv "$f" "$f.elf"
		# some look for others by their own name
		# shellcheck disable=SC2016
		printf '#!/bin/sh\nexec %s --library-path %s --argv0 "$0" "$0.elf" "$@"\n' \
			"'$2/$ld'" "'$2/lib/x86_64-linux-gnu:$2/$lib'" >"$f"
		chmod 755 "$f"
	done
	h=$(echo "$dir"/usr/src/linux-headers-*-amd64)
	sed -i 's/gcc-[0-9]*$/gcc/' "$h/.kernelvariables"
	# what that compiler can do and this one may not
	gcc -fmin-function-alignment=16 -x c -c -o /dev/null /dev/null 2>/dev/null ||
		sed -i '/CC_HAS_MIN_FUNCTION_ALIGNMENT/d' "$h/include/config/auto.conf" \
			"$h/include/generated/autoconf.h"
	# modules without type information, for which pahole would have to be as new
	rm -f "$h/vmlinux"
}

# get KVER WHERE: its image and headers
get() {
	local kver=$1 root=$B/kernels/$1/root
	rm -rf "$root.part"
	fetch "$root.part" "$2" "linux-image-$kver" "linux-headers-$kver" || return 1
	[ "$2" = own ] || foreign "$root.part" "$root" || return 1
	# headers name the place where they would be installed
	sed -i "s|/usr/src/linux-|$root/usr/src/linux-|" "$root.part"/usr/src/*/Makefile
	depmod -b "$root.part" "$kver" && mv "$root.part" "$root"
}

# get_all [SERIES...]: of these, or of all that are offered, those that are not here
get_all() {
	local series kver where offers
	command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null || return
	[ $# = 0 ] || [ -n "$(for series; do has "$series" || echo "$series"; done)" ] || return
	look
	offers=$(offers)
	# shellcheck disable=SC2046
	[ $# != 0 ] || set -- $(awk -F. '{ print $1 "." int($2) }' <<<"$offers")
	for series; do
		! has "$series" || continue
		read -r kver where < <(grep -E "^${series//./\\.}([.-]|\$)" <<<"$offers")
		if [ -z "$kver" ]; then
			echo "kernels: none of series $series could be had here" >&2
		else
			get "$kver" "$where" || echo "kernels: $kver could not be had" >&2 &
		fi
	done
	wait
}

image() {
	local kver=$1 root=/ boot=/boot/vmlinuz-$1 dir=$B/kernels/$1
	if [ ! -r "$boot" ] || [ ! -e "/lib/modules/$kver/modules.dep" ]; then
		root=$dir/root
		if [ ! -e "$root" ]; then
			rm -rf "$root.part"
			fetch "$root.part" own "linux-image-$kver" &&
				depmod -b "$root.part" "$kver" || return 1
			mv "$root.part" "$root"
		fi
		boot=$root/boot/vmlinuz-$kver
		[ -e "$boot" ] || boot=$root/lib/modules/$kver/vmlinuz
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
	get_all "$@"
	;;
image)
	mkdir -p "$B/kernels" || exit 1
	# one of two runs at the same time makes it
	exec 9>"$B/kernels/$2.lock"
	flock 9
	image "$2"
	;;
*)
	echo "usage: kernels.sh get [SERIES...] | headers | boot | dir KVER | image KVER" >&2
	exit 2
	;;
esac
