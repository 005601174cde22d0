# shellcheck shell=bash
# SPDX-License-Identifier: GPL-2.0-only OR MIT
#
# Sourced by test_mpool_admin.sh and test_mpool_scan.sh: what both use.

# shellcheck source=lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

lib=$O/lib/libmpool.so

# a pool ./p of two classes
pool() {
	want 0 mpool create "${1:-./p}" --size 64M --staging-size 32M --label "a label"
}

# value KEY [POOL]
value() {
	want 0 mpool get -H -p -o value "${2:-./p}" "$1"
	cat "$S/out"
}

# fill N: objects of 64 KiB with a checksum
fill() {
	[ -e "$lib" ] || skip "no shared library was built"
	want 0 python3 "$CLI/hold.py" "$lib" ./p "$1"
}
