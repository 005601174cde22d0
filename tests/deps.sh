#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only OR MIT
#
# Lists the packages that the build and the tests need and installs those that
# are missing. With all present it touches neither network nor privilege. Only
# an installation asks for root (sudo), and it says first what it will run.
#
# --list  print the names for this distribution, one per line, and stop
# --check print what is missing and exit 1 if anything is; install nothing
# --needed as root: only what the build needs, so that the rest is installed beside it
# --bench instead of those: the other engines that `make bench` measures

set -u

# name on Debian and Ubuntu | name on Fedora and RHEL (- where there is none) | what
# for; a '+' marks what only a few tests use: without it they are skipped and say so
packages='
gcc|gcc|C compiler
libc6-dev|glibc-devel|C library headers
make|make|build
pkg-config|pkgconf-pkg-config|build: finds the libraries
liburing-dev|liburing-devel|asynchronous I/O
libblkid-dev|libblkid-devel|recognises foreign file systems
libudev-dev|systemd-devel|device properties
libjson-c-dev|json-c-devel|JSON output and configuration
liblz4-dev|lz4-devel|compression
libzstd-dev|libzstd-devel|compression
libxxhash-dev|xxhash-devel|hashes
python3|python3|tests and lint
clang|clang|+the fuzz programs
libclang-rt-14-dev|compiler-rt|+the fuzz programs: libFuzzer
fio|fio|+figures: what the same file reaches without us
g++|gcc-c++|+lint: public headers compile as C++
sparse|sparse|+lint: endianness of media structures
shellcheck|ShellCheck|+lint: shell scripts
man-db|man-db|+lint: manual pages
libelf1|elfutils-libelf|+the kernel module: kernel build tools
pahole|dwarves|+the kernel module: kernel build tools
libelf-dev|elfutils-libelf-devel|+the kernel under sanitizers: its build
flex|flex|+the kernel under sanitizers: its build
bison|bison|+the kernel under sanitizers: its build
bc|bc|+the kernel under sanitizers: its build
dkms|dkms|+the kernel module through DKMS
qemu-system-x86|qemu-system-x86-core|+virtual machines for the kernel module
busybox-static|busybox|+virtual machines: commands of the guest
cpio|cpio|+virtual machines: files of the guest
kmod|kmod|+virtual machines: modules of the guest
xz-utils|xz|+virtual machines: modules of the guest
e2fsprogs|e2fsprogs|+virtual machines: a file system to compare with
dmsetup|device-mapper|+virtual machines: failing and logging disks
udev|systemd-udev|+virtual machines: udev rules
xxd|vim-common|+virtual machines: forged superblocks
systemd|systemd|+virtual machines: units
selinux-policy-default|-|+labels for SELinux: the policy they build on
secilc|secilc|+labels for SELinux: compiler
policycoreutils|policycoreutils|+labels for SELinux: translates the policy
setools|setools-console|+labels for SELinux: questions to the policy
'

peers='
librocksdb-dev|rocksdb-devel|+bench: RocksDB
libwiredtiger-dev|-|+bench: WiredTiger
liblmdb-dev|lmdb-devel|+bench: LMDB
'
[ "${1-}" != --bench ] || packages=$peers

if command -v apt-get >/dev/null && command -v dpkg-query >/dev/null; then
	column=1
	is_there_many() {
		# one call for all: half a second saved at each `make check`
		dpkg-query -W -f='${db:Status-Status} ${binary:Package}\n' "$@" 2>/dev/null |
			sed -n 's/^installed \([^:]*\).*/\1/p'
	}
	refresh=(apt-get -q update)
	# false only when the package lists are there and do not have it
	exists() { apt-cache show "$1" >/dev/null 2>&1 || ! apt-cache show make >/dev/null 2>&1; }
	# leftover interrupted downloads are retried; no question is ever asked
	install=(env DEBIAN_FRONTEND=noninteractive apt-get -q install -y --no-install-recommends)
elif command -v dnf >/dev/null; then
	column=2
	is_there_many() { rpm -q --qf '%{NAME}\n' "$@" 2>/dev/null | grep -v ' '; }
	refresh=()
	exists() { true; }
	install=(dnf -q install -y --setopt=install_weak_deps=False --setopt=strict=0)
else
	echo "deps: neither apt-get nor dnf here; these are needed (Debian names):" >&2
	printf '%s' "$packages" | sed -n 's/^\([^|]*\)|[^|]*|\(.*\)/  \1  \2/p' >&2
	# packages of another distribution: the libraries may be there all the same
	pkg-config --exists liburing blkid libudev json-c liblz4 libzstd libxxhash
	exit
fi

names=() why=()
while IFS='|' read -r deb rpm what; do
	[ -n "$deb" ] || continue
	[ $column = 1 ] && name=$deb || name=$rpm
	[ "$name" = - ] && continue
	names+=("$name")
	why+=("$what")
done <<<"$packages"

if [ "${1-}" = --list ]; then
	printf '%s\n' "${names[@]}"
	exit 0
fi

is_first=
[ "${1-}" != --needed ] || is_first=1
present=" $(is_there_many "${names[@]}" | tr '\n' ' ')"
missing=() needed=0
for i in "${!names[@]}"; do
	state=installed
	if [[ "$present" != *" ${names[i]} "* ]]; then
		if [ "${why[i]#+}" = "${why[i]}" ]; then
			missing+=("${names[i]}")
			state=missing
			needed=1
		elif [ -n "$is_first" ] && [ "$(id -u)" = 0 ]; then
			# a password is typed once, for everything
			continue
		elif exists "${names[i]}"; then
			missing+=("${names[i]}")
			state=missing
		else
			state="not here"
		fi
	fi
	[ -n "$is_first" ] || printf '  %-24s %-10s %s\n' "${names[i]}" "$state" "${why[i]#+}"
done

[ -z "$is_first" ] || [ $needed = 1 ] || exit 0
if [ ${#missing[@]} = 0 ]; then
	echo "deps: nothing to install"
	exit 0
fi
[ "${1-}" = --check ] && exit 1

as_root=()
if [ "$(id -u)" != 0 ]; then
	if [ $needed = 0 ]; then
		# not worth a password
		echo "deps: missing, not needed to build: ${missing[*]}"
		echo "deps: tests that use them are skipped"
		exit 0
	fi
	if ! command -v sudo >/dev/null; then
		echo "deps: not root and no sudo here; as root run: ${install[*]} ${missing[*]}" >&2
		exit 1
	fi
	as_root=(sudo)
fi
echo "deps: will run: ${as_root[*]:+${as_root[*]} }${install[*]} ${missing[*]}"
if [ ${#refresh[@]} != 0 ]; then
	"${as_root[@]}" "${refresh[@]}" ||
		echo "deps: package lists not refreshed, trying with the old ones" >&2
fi
# with lists read just now: names of another release are left out
found=()
for name in "${missing[@]}"; do
	exists "$name" && found+=("$name")
done
missing=("${found[@]}")
if ! "${as_root[@]}" "${install[@]}" "${missing[@]}"; then
	echo "deps: installation failed; missing: ${missing[*]}" >&2
	exit $needed
fi
echo "deps: installed ${missing[*]}"
