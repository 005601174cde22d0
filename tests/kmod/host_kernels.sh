#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only OR MIT
#
# kernels.sh with an archive of this test's own: small packages in a folder, which a private
# configuration of apt names. No network, no root, nothing of the machine changes; TAP.

set -u
cd "$(dirname "$0")/../.." || exit 1
# shellcheck disable=SC1091
. tests/kmod/host.sh
for c in apt-get dpkg-deb depmod; do
	PATH=$PATH:/usr/sbin:/sbin command -v "$c" >/dev/null || skip "no $c"
done

# package NAME DEPENDS [FILE...]
package() {
	local name=$1 depends=$2 f
	shift 2
	mkdir -p "$T/p/DEBIAN"
	for f; do
		mkdir -p "$T/p/${f%/*}" && echo "of $name" >"$T/p/$f"
	done
	printf '%s\n' "Package: $name" 'Version: 1' 'Architecture: all' 'Maintainer: test' \
		"${depends:+Depends: $depends}" 'Description: of a test' |
		grep . >"$T/p/DEBIAN/control"
	dpkg-deb -b --root-owner-group "$T/p" "$T/archive/$name.deb" >/dev/null
	{
		cat "$T/p/DEBIAN/control"
		printf '%s\n' "Filename: ./$name.deb" "Size: $(stat -c %s "$T/archive/$name.deb")" \
			"SHA256: $(sha256sum <"$T/archive/$name.deb" | cut -d' ' -f1)" ''
	} >>"$T/archive/Packages"
	rm -r "$T/p"
}
# headers KVER, image KVER: with all in one package, or in parts as from 7.2 on
headers() {
	package "linux-headers-$1" "linux-headers-${1%-amd64}-common, linux-kbuild-${1%-amd64}" \
		"usr/src/linux-headers-$1/Makefile"
	package "linux-headers-${1%-amd64}-common" ''
	package "linux-kbuild-${1%-amd64}" '' "usr/lib/linux-kbuild-${1%-amd64}/tool"
}
image() { package "linux-image-$1" '' "boot/vmlinuz-$1" "lib/modules/$1/kernel/a"; }
split_image() {
	package "linux-image-$1" "linux-binary-$1, linux-modules-$1"
	package "linux-binary-$1" '' "usr/lib/modules/$1/vmlinuz"
	package "linux-modules-$1" '' "usr/lib/modules/$1/kernel/a"
}

mkdir -p "$T"/{archive,lists/partial,cache/archives/partial,parts}
headers 5.10.0-3-amd64 && image 5.10.0-3-amd64
headers 6.1.0-8-amd64 && image 6.1.0-8-amd64
headers 6.1.0-9-amd64 && image 6.1.0-9-cloud-amd64
headers 6.1.0-10-amd64
image 6.5.0-1-amd64
headers 7.10.1-amd64 && split_image 7.10.1-amd64
headers 7.9.2-amd64 && image 7.9.2-amd64
headers 7.9.10-amd64 && image 7.9.10-amd64
package make ''
echo "deb [trusted=yes] file:$T/archive ./" >"$T/sources.list"
cat >"$T/apt.conf" <<END
Dir::Etc::sourcelist "$T/sources.list";
Dir::Etc::sourceparts "$T/parts";
Dir::State::lists "$T/lists";
Dir::State::status "$T/status";
Dir::Cache "$T/cache";
APT::Sandbox::User "root";
END
: >"$T/status"
export APT_CONFIG=$T/apt.conf B=$T/build
apt-get -q update >"$T/log" 2>&1
verdict an_archive_in_a_folder_can_be_read

# further suites of it: there are none
export MIRROR=file:$T/none
tests/kmod/kernels.sh get 6.1 >"$T/log" 2>&1
[ -e "$B/kernels/6.1.0-8-amd64/root/boot/vmlinuz-6.1.0-8-amd64" ] &&
	[ "$(ls -d "$B"/kernels/6.*)" = "$B/kernels/6.1.0-8-amd64" ]
verdict headers_without_an_image_are_passed_over

tests/kmod/kernels.sh get 6.5 >"$T/log" 2>&1
grep -q 'none of series 6.5 could be had' "$T/log"
verdict a_series_without_headers_is_named

tests/kmod/kernels.sh get >"$T/log" 2>&1
[ "$(cd "$B/kernels" && echo */root)" = \
	'6.1.0-8-amd64/root 7.10.1-amd64/root 7.9.10-amd64/root' ] &&
	[ -e "$B/kernels/7.10.1-amd64/root/usr/src/linux-headers-7.10.1-amd64/Makefile" ] &&
	[ -e "$B/kernels/7.10.1-amd64/root/usr/lib/linux-kbuild-7.10.1/tool" ] &&
	[ -e "$B/kernels/7.10.1-amd64/root/lib/modules/7.10.1-amd64/kernel/a" ]
verdict the_newest_of_each_series_is_fetched_whole

# `boot` also knows the kernels of this machine
[ "$(tests/kmod/kernels.sh boot | grep -xE '6.1.0-8-amd64|7.9.10-amd64|7.10.1-amd64' |
	tr '\n' ' ')" = '6.1.0-8-amd64 7.9.10-amd64 7.10.1-amd64 ' ] || [ -d /lib/modules ]
verdict they_are_booted_oldest_first
finish
