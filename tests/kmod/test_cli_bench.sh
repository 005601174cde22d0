#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only OR MIT
#
# mpool bench on a block device, with the real fio: what it refuses, and that it measures.
# Overwrites the first of $MPK_DEVS.
#
# vm-files: fio

# tests are called by name
# shellcheck disable=SC2317 source=../cli/lib.sh
. "$(dirname "$0")/../cli/lib.sh"

# shellcheck disable=SC2086
set -- ${MPK_DEVS-}
if [ $# = 0 ] || ! command -v fio >/dev/null; then
	echo "1..0 # SKIP no device, or no fio"
	exit 77
fi
A=$1
export MPOOL_TRUST_DIR=$T/pools.d

bench_refuses_what_is_used() {
	wipefs -q -a "$A"
	want 0 mpool create -y cli "$A"
	want 4 mpool bench -f -y "$A" --size 8M --runtime 1s
	one_line_error
	want 0 mpool deactivate cli
	want 5 mpool bench -y "$A" --size 8M --runtime 1s
	has err 'use -f'
	want 0 mpool verify cli
	wipefs -q -a "$A"
	want 5 mpool bench "$A" --size 8M --runtime 1s
	has err 'use -y'
}

bench_measures_a_device() {
	want 0 mpool bench -y "$A" --size 8M --runtime 1s
	has out '^loss bound: [0-9]+ ms or more'
	has out '^write-and-flush +flush '
}

run bench_refuses_what_is_used
run bench_measures_a_device
finish
