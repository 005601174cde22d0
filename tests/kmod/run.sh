#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only OR MIT
#
# For people who work on the module: builds what is needed and runs programs of tests/kmod
# (and tests/conform) in virtual machines.
#
#   tests/kmod/run.sh [-k KVER]... [-n] [NAME...]
#
#   -k KVER  this kernel, or the newest whose release begins so (-k 6.1); all otherwise
#   -n       do not build
#   NAME     without .c or .sh; all otherwise
#
# Environment: B (build folder), and what boot.sh takes (VM_CPUS, VM_MEM, VM_QEMU, ...).
# Consoles and logs stay in $B/vm.

set -u
cd "$(dirname "$0")/../.." || exit 1
export B=${B:-build} VM_KERNELS='' VM_TESTS
build=1
while getopts k:n opt; do
	case $opt in
	k)
		k=$(tests/kmod/kernels.sh headers |
			grep -E "^${OPTARG//./\\.}([.-]|\$)" | tail -n 1)
		[ -n "$k" ] || {
			echo "run.sh: no headers of kernel $OPTARG here" >&2
			exit 2
		}
		VM_KERNELS+=" $k"
		;;
	n) build= ;;
	*) exit 2 ;;
	esac
done
shift $((OPTIND - 1))
VM_TESTS=$*
if [ -n "$build" ]; then
	make --no-print-directory -j2 B="$B" bin tests || exit 1
	# shellcheck disable=SC2086
	tests/kmod/modules.sh ${VM_KERNELS:-$(tests/kmod/kernels.sh boot)} || exit 1
fi
LOG=$B/vm exec tests/run.sh vm
