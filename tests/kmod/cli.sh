# shellcheck shell=bash
# SPDX-License-Identifier: GPL-2.0-only OR MIT
#
# Sourced by test_cli*.sh: what the tests of the commands on the module's pools share. It
# skips the program when there is no module, or fewer than three devices.

# shellcheck source=../cli/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/../cli/lib.sh"

# shellcheck disable=SC2086
set -- ${MPK_DEVS-}
if [ ! -e /dev/mpoolctl ] || [ $# -lt 3 ]; then
	echo "1..0 # SKIP the module is not loaded, or fewer than three devices"
	exit 77
fi
A=$1 B=$2 C=$3
export MPOOL_TRUST_DIR=$T/pools.d

clear() {
	local d
	mpool deactivate -q -a || fail "a pool of the test before is in use"
	for d in $A $B $C; do
		dd if=/dev/zero of="$d" bs=4k count=1 conv=notrunc status=none
	done
	rm -rf "$MPOOL_TRUST_DIR"
}
# the pool cli of two classes
pool() {
	clear
	want 0 mpool create -y cli "$A" --staging "$B" "$@"
}
value() {
	want 0 mpool get -H -p -o value "${2:-cli}" "$1"
	cat "$S/out"
}
as_user() { setpriv --reuid=1234 --regid=1234 --clear-groups -- "$@"; }
