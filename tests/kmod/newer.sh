#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only OR MIT
#
# Compiles the module against the headers of a kernel that is newer than this distribution:
# the newest of Debian's SUITES. Their tools need a newer C library, so this ends with object
# files, not with a module that could be loaded. Needs the network, not root; TAP.
#
#   SUITES='trixie-backports sid'   where to look, the first that has one wins
#   MIRROR=URL                      the archive, else that of this machine's sources

set -u
cd "$(dirname "$0")/../.." || exit 1
B=$(realpath -m "${B:-build}")
d=$B/kernels/newer
name=the_module_compiles_for_a_newer_kernel
skip() {
	echo "1..0 # SKIP $1"
	exit 77
}
command -v apt-get >/dev/null || skip "no apt-get"
mkdir -p "$d"/{lists/partial,cache/archives/partial,deb} || exit 1
: "${MIRROR:=$(cat /etc/apt/sources.list /etc/apt/sources.list.d/* 2>/dev/null |
	grep -oE 'https?://[^ ]*/debian/?( |$)' | head -n 1 | tr -d ' ')}"
: "${MIRROR:=http://deb.debian.org/debian}"
opts=(-q -o "Dir::Etc::sourcelist=$d/sources.list" -o Dir::Etc::sourceparts=/dev/null
	-o "Dir::State::lists=$d/lists" -o "Dir::Cache=$d/cache" -o APT::Sandbox::User=root)
for suite in ${SUITES:-trixie-backports sid}; do
	echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $MIRROR $suite main" \
		>"$d/sources.list"
	apt-get "${opts[@]}" update >"$d/log" 2>&1 || continue
	# the flavour of most PCs; the name carries the release
	kver=$(apt-cache "${opts[@]}" search --names-only '^linux-headers-[0-9][^ ]*-amd64$' |
		sed -n 's/^linux-headers-\([^ ]*\) .*/\1/p' | grep -vE 'cloud|rt-' | sort -V |
		tail -n 1)
	[ -n "$kver" ] && break
done
[ -n "${kver-}" ] || skip "no newer kernel can be had here"
root=$d/$kver
if [ ! -e "$root" ]; then
	rm -rf "$root.part" "$d"/deb/*
	mkdir -p "$root.part"
	# what the headers need of their own source package
	mapfile -t pkgs < <(apt-cache "${opts[@]}" depends "linux-headers-$kver" |
		sed -n 's/.*Depends: \(linux-\(headers\|kbuild\)-[^ ]*\).*/\1/p')
	(cd "$d/deb" && apt-get "${opts[@]}" download "linux-headers-$kver" "${pkgs[@]}") \
		>"$d/log" 2>&1 || skip "the headers cannot be downloaded"
	for f in "$d"/deb/*.deb; do
		dpkg-deb -x "$f" "$root.part" || exit 1
		rm "$f"
	done
	h=$root.part/usr/src/linux-headers-$kver
	sed -i "s|/usr/src/|$root/usr/src/|" "$root.part"/usr/src/*/Makefile
	# that compiler can align functions, this one may not; and its tools do not start here
	sed -i '/CC_HAS_MIN_FUNCTION_ALIGNMENT/d' "$h/include/config/auto.conf" \
		"$h/include/generated/autoconf.h"
	find -L "$h/tools" -name objtool -type f -exec ln -sf /bin/true {} \;
	mv "$root.part" "$root"
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp -r kmod/. "$work"
echo "# kernel $kver"
env -u MAKEFLAGS -u MAKELEVEL -u MFLAGS -u B -u O make -j2 -C "$root/usr/src/linux-headers-$kver" \
	M="$work" CC="${CC:-gcc}" HOSTCC="${CC:-gcc}" W=1 mpool.o >"$d/log" 2>&1
rc=$?
grep -E 'error|warning' "$d/log" | grep -v 'version differs' | sed 's/^/# /' | head -n 60
[ -e "$work/mpool.o" ] || rc=1
grep -qi 'warning' <(grep -vE 'version differs|compiler differs' "$d/log") && rc=1
if [ $rc = 0 ]; then
	echo "ok 1 - $name"
else
	tail -n 20 "$d/log" | sed 's/^/# /'
	echo "not ok 1 - $name"
fi
echo 1..1
exit $rc
