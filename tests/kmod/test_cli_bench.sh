#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only OR MIT
#
# mpool bench on a block device, with the real fio: what it refuses, and that it measures.
# Overwrites the first of $MPK_DEVS.
#
# vm-files: fio

# tests are called by name
# shellcheck disable=SC2317,SC2154 source=cli.sh
. "$(dirname "$0")/cli.sh"

command -v fio >/dev/null || {
	echo "1..0 # SKIP no fio"
	exit 77
}

bench_refuses_what_is_used() {
	clear
	want 0 mpool create -y cli "$A"
	want 4 mpool bench -f -y "$A" --size 8M --runtime 1s
	one_line_error
	want 0 mpool deactivate cli
	want 5 mpool bench -y "$A" --size 8M --runtime 1s
	has err 'use -f'
	want 0 mpool verify cli
	clear
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
