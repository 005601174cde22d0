#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only OR MIT
#
# Runs test programs in QEMU under the debug kernel of build.sh, as boot.sh does under others:
# several processors, preemption, a check for sleep in atomic context, all far slower. One
# more is always there: "leaks", which asks kmemleak.
#
#   debug.sh OUT NAME...

set -u
cd "$(dirname "$0")/../../.." || exit 1
export B
B=$(realpath -m "${B:-build}")
out=$1
shift
kver=$(tests/kmod/uml/build.sh debug) || exit
# acpi=noirq: interpreting ACPI under KASAN takes longer than all the rest; loglevel: minutes
# on a busy machine, in which the console shows how far it came
VM_CPUS=${VM_CPUS:-2} VM_MEM=${VM_MEM:-2048} \
	VM_APPEND="acpi=noirq loglevel=7 softlockup_panic=0 ${VM_APPEND-}" \
	exec tests/kmod/boot.sh "$kver" "$out" "$@" leaks
