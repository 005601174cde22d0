#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only OR MIT
#
# Runs test programs one after another, as root, in this kernel: in the virtual machine
# (called by init) or on a real machine (make -C tests/kmod run_tests). The module is loaded
# before each program and unloaded after it; that it cannot be unloaded, that a pool is left
# active, or that the kernel complained, is a finding against the program.
#
#   each.sh NAME...       a program of $O/tests, or tests/kmod/NAME.sh
#
# A program finds in its environment, besides what tests/run.sh gives:
#
#   MPK_DEVS   block devices it may overwrite, separated by spaces (at least three)
#   MPK_NVME   an NVMe disk it may overwrite, or empty
#   MPK_KO     the module's file; the module is loaded already
#   MPK_VM     1 in the virtual machine, where it may do anything: users, other modules
#
# The output is TAP between lines that begin with @@mpk, for boot.sh and split.awk.

set -u
cd "$(dirname "$0")/../.." || exit 1
O=${O:-${B:-build}}
: "${MPK_KO:=$O/kmod/$(uname -r)/mpool.ko}" "${MPK_VM=}" "${MPK_DEVS=}" "${MPK_NVME=}"
export O MPK_KO MPK_VM MPK_DEVS MPK_NVME
bad='BUG:|WARNING:|possible circular|possible recursive|suspicious RCU|Oops|KASAN|UBSAN'
bad+='|general protection|INFO: task .* blocked|soft lockup|rcu.*detected.*stall|refcount_t'
bad+='|bad page|Call Trace|list_(add|del) corr'

say() { echo "@@mpk $*"; }

[ "$(id -u)" = 0 ] || {
	echo "each.sh: needs root" >&2
	exit 2
}
if [ -z "$MPK_VM" ] && [ -n "$(ls /dev/mpool 2>/dev/null)" ]; then
	echo "each.sh: pools are active here; deactivate them first" >&2
	exit 2
fi

# load: 0 also when there is nothing to load; programs say themselves what they miss
load() {
	[ -e "$MPK_KO" ] || return 0
	[ -e /sys/module/mpool ] && return 0
	modprobe -q crc32c
	modprobe -q libcrc32c
	insmod "$MPK_KO" || {
		say log "the module was not loaded: insmod failed"
		return 1
	}
}

unload() {
	local i n
	for n in /dev/mpool/*; do
		[ -e "$n" ] || continue
		say log "left active: $n"
		"$O/bin/mpool" deactivate "${n##*/}"
	done
	[ -e /sys/module/mpool ] || return 0
	for ((i = 0; i < 20; i++)); do
		rmmod mpool 2>/dev/null && return 0
		sleep 0.1
	done
	say log "the module cannot be unloaded: in use $(cat /sys/module/mpool/refcnt)"
}

one() {
	local name=$1 limit=${TEST_LIMIT:-300} rc t0 t1 cmd mark
	if [ -x "tests/kmod/$name.sh" ]; then
		cmd=tests/kmod/$name.sh
	elif [ -x "$O/tests/$name" ]; then
		cmd=$O/tests/$name
	else
		say begin "$name"
		echo "Bail out! there is no program $name"
		say end "$name" 1 0
		return
	fi
	mark="mpk: begin $name $$ $RANDOM"
	echo "$mark" >/dev/kmsg
	# that of the program before is gone
	TMPDIR=$(TMPDIR=/tmp mktemp -d)
	export TMPDIR
	t0=$(cut -d' ' -f1 /proc/uptime)
	say begin "$name"
	load && {
		timeout -k 10 "$limit" "$cmd" </dev/null 2>&1
		rc=$?
	}
	# a last line without its end must not swallow what follows
	echo
	[ "${rc:=1}" -le 128 ] || say log "it was ended by signal $((rc - 128))"
	unload
	# disks in memory of a program that died
	[ -n "$MPK_VM" ] && rmdir /sys/kernel/config/nullb/* 2>/dev/null
	t1=$(cut -d' ' -f1 /proc/uptime)
	rm -rf "$TMPDIR"
	# what the allocators print when they fail: fail_nth wants it
	dmesg | sed -E -e "1,/$mark/d" \
		-e '/kmem_cache_create.* failed with error -12|vmalloc error:/,/Call Trace/d' \
		>"/tmp/klog.$$"
	grep -E "$bad" "/tmp/klog.$$" | head -n 20 | while read -r line; do
		say log "$line"
	done
	if [ "$rc" != 0 ] && [ "$rc" != 77 ]; then
		tail -n 40 "/tmp/klog.$$" | sed 's/^/# kernel: /'
	fi
	say end "$name" "$rc" "$(awk -v a="$t0" -v b="$t1" 'BEGIN { print b - a }')"
}

# on a machine that names no disks: some in memory
own=()
if [ -z "$MPK_DEVS" ] && [ -z "$MPK_VM" ]; then
	[ -e /sys/module/null_blk ] || modprobe null_blk nr_devices=0
	mountpoint -q /sys/kernel/config || mount -t configfs configfs /sys/kernel/config
	for i in 0 1 2 3; do
		d=/sys/kernel/config/nullb/mpkdev$i
		mkdir "$d" && own+=("$d") || break
		for a in size=512 memory_backed=1 discard=1 cache_size=1 power=1; do
			echo "${a#*=}" >"$d/${a%=*}"
		done
		MPK_DEVS+=" /dev/mpkdev$i"
	done
fi
for name; do
	one "$name"
done
for d in "${own[@]}"; do
	echo 0 >"$d/power"
	rmdir "$d"
done
say "done"
