#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only OR MIT
#
# Builds the module into $B/kmod/KVER for each release given, or for all whose headers are
# installed, 6.1 and newer. With every check that the headers can do (W=1, sparse), and any
# warning is a failure. Of kernels of another release of Debian kernels.sh leaves out what this
# machine's compiler lacks, and type information (BTF).

set -u
cd "$(dirname "$0")/../.." || exit 1
B=$(realpath -m "${B:-build}")
log=$(mktemp) || exit 1
trap 'rm -f "$log"' EXIT
[ $# != 0 ] || mapfile -t kvers < <(tests/kmod/kernels.sh headers)
[ $# != 0 ] && kvers=("$@")
if [ ${#kvers[@]} = 0 ]; then
	echo 'modules: skipped: no headers of a kernel 6.1 or newer (make kernels fetches some)'
	exit 0
fi
# checks KDIR: what these headers can do; some ask for a script about sparse that they lack
checks() {
	echo W=1
	command -v sparse >/dev/null || return
	# shellcheck disable=SC2046
	[ -e "$1/scripts/checker-valid.sh" ] || ! grep -qs checker-valid \
		$(sed -n 's/^include //p' "$1/Makefile") || return
	echo C=1 CF=-D__CHECK_ENDIAN__
}

for kver in "${kvers[@]}"; do
	dir=$B/kmod/$kver
	kdir=$(tests/kmod/kernels.sh dir "$kver")
	mkdir -p "$dir" && cp -pr kmod/. "$dir" || exit 1
	# several makes at once belong to different folders
	# shellcheck disable=SC2046
	if ! env -u MAKEFLAGS -u MAKELEVEL -u MFLAGS -u B -u O make -j2 -C "$dir" KVER="$kver" \
		KDIR="$kdir" $(checks "$kdir") >"$log" 2>&1 ||
		grep -i 'warning' "$log" | grep -qvE '(compiler|pahole version) differs'; then
		# what compiled with a warning must not look up to date the next time
		make -s -C "$dir" KVER="$kver" KDIR="$kdir" clean >/dev/null 2>&1
		grep -vE '^ +(CC|CHECK|LD|BTF)' "$log" >&2
		echo "modules: $kver: failed" >&2
		exit 1
	fi
	printf '  %-7s %s\n' MODULE "$dir/mpool.ko"
done
