#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only OR MIT
#
# Lists the packages that the build and the tests need and installs those that
# are missing. With all present it touches neither network nor privilege. Only
# an installation asks for root (sudo), and it says first what it will run.
#
# --list  print the names for this distribution, one per line, and stop
# --check print what is missing and exit 1 if anything is; install nothing

set -u

# name on Debian and Ubuntu | name on Fedora and RHEL | what for; a '+' marks
# what only a few tests use: without it they are skipped and say so
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
fio|fio|+figures: what the same file reaches without us
g++|gcc-c++|+lint: public headers compile as C++
sparse|sparse|+lint: endianness of media structures
shellcheck|ShellCheck|+lint: shell scripts
man-db|man-db|+lint: manual pages
'

if command -v apt-get >/dev/null && command -v dpkg-query >/dev/null; then
	column=1
	is_there_many() {
		# one call for all: half a second saved at each `make check`
		dpkg-query -W -f='${db:Status-Status} ${binary:Package}\n' "$@" 2>/dev/null |
			sed -n 's/^installed \([^:]*\).*/\1/p'
	}
	refresh=(apt-get -q update)
	# leftover interrupted downloads are retried; no question is ever asked
	install=(env DEBIAN_FRONTEND=noninteractive apt-get -q install -y --no-install-recommends)
elif command -v dnf >/dev/null; then
	column=2
	is_there_many() { rpm -q --qf '%{NAME}\n' "$@" 2>/dev/null | grep -v ' '; }
	refresh=()
	install=(dnf -q install -y --setopt=install_weak_deps=False)
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
	if [ $column = 1 ]; then names+=("$deb"); else names+=("$rpm"); fi
	why+=("$what")
done <<<"$packages"

if [ "${1-}" = --list ]; then
	printf '%s\n' "${names[@]}"
	exit 0
fi

present=" $(is_there_many "${names[@]}" | tr '\n' ' ')"
missing=() needed=0
for i in "${!names[@]}"; do
	state=installed
	if [[ "$present" != *" ${names[i]} "* ]]; then
		missing+=("${names[i]}")
		state=missing
		[ "${why[i]#+}" = "${why[i]}" ] && needed=1
	fi
	printf '  %-20s %-10s %s\n' "${names[i]}" $state "${why[i]#+}"
done

if [ ${#missing[@]} = 0 ]; then
	echo "deps: all ${#names[@]} packages are installed"
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
if ! "${as_root[@]}" "${install[@]}" "${missing[@]}"; then
	echo "deps: installation failed; missing: ${missing[*]}" >&2
	exit $needed
fi
echo "deps: installed ${missing[*]}"
