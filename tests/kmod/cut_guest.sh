#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only OR MIT
#
# What host_powercut.sh wants done in its virtual machines; see powercut.h. The kernel's command
# line says what (cut=record, cut=check) and how (cut_seed=, cut_steps=, cut_back=kernel or
# embedded). Disks are found by serial number.
#
#   record: on cut-fua, one FUA write. On cut-data a pool, as two slices of one device that
#   cut-log records, worked on by cut_work, which leaves its oracle on cut-out. Then the same on
#   cut-data-N and so on with the module $BIN/mpool-N.ko, N in cut_broken=.
#   check: the states on cut-pack, one after another on the slices of cut-data.

set -u
cd "$(dirname "$0")/../.." || exit 1
: "${O:=build}" "${BIN:=$O/bin}"
dm() { dmsetup --noudevsync --noudevrules "$@"; }

option() { sed -n "s/.*\\bcut_$1=\\([^ ]*\\).*/\\1/p" /proc/cmdline; }

# disk SERIAL: its device; waits for a slow discovery
disk() {
	local i f
	for ((i = 0; i < 50; i++)); do
		f=$(grep -lx "$1" /sys/block/*/serial 2>/dev/null)
		if [ -n "$f" ]; then
			f=${f%/serial}
			echo "/dev/${f##*/}"
			return
		fi
		sleep 0.1
	done
	return 1
}

sectors() { cat "/sys/class/block/${1##*/}/size"; }

# table NAME LINE
table() {
	echo "$2" | dm create "$1" && dm mknodes "$1"
}

# slices DEV: cap, stg and mark on it; sizes as in powercut.h, in sectors
slices() {
	local n=$((12 << 11))
	table cap "0 $n linear $1 0" && table stg "0 $n linear $1 $n" &&
		table mark "0 128 linear $1 $((2 * n))"
}

unslice() {
	local i n
	for n in cap stg mark logged; do
		[ -e "/dev/mapper/$n" ] || continue
		for ((i = 0; i < 50; i++)); do
			dm remove "$n" && break
			sleep 0.1
		done
	done
}

# logged DATA LOG: the recorder
logged() { table logged "0 $(sectors "$1") log-writes $1 $2"; }

fua() {
	local data log q
	data=$(disk cut-fua) && log=$(disk cut-fua-log) || return
	q=/sys/block/${data##*/}/queue
	echo "cut_guest: the disk's write cache: $(cat "$q/write_cache"), FUA: $(cat "$q/fua")"
	logged "$data" "$log" && slices /dev/mapper/logged &&
		"$O/tests/cut_work" -l logged -m /dev/mapper/mark fua /dev/mapper/cap
	unslice
}

# record SUFFIX
record() {
	local data log out rc
	data=$(disk "cut-data$1") && log=$(disk "cut-log$1") && out=$(disk "cut-out$1") || return
	logged "$data" "$log" && slices /dev/mapper/logged || return
	# shellcheck disable=SC2086
	"$O/tests/cut_work" $back $members -l logged -m /dev/mapper/mark -S "$(option seed)" \
		-n "$(option steps)" work "$out"
	rc=$?
	unslice
	rm -rf /tmp/cutpool
	return $rc
}

check() {
	local data pack rc
	data=$(disk cut-data) && pack=$(disk cut-pack) && slices "$data" || return
	# shellcheck disable=SC2086
	"$O/tests/cut_work" $back $members check "$pack"
	rc=$?
	unslice
	return $rc
}

# broken FUNCTION
broken() {
	[ -e /sys/module/mpool ] && { rmmod mpool || return; }
	insmod "$BIN/mpool-$1.ko" && record "-$1"
}

n=0 failed=0
say() {
	n=$((n + 1))
	if [ "$1" = 0 ]; then
		echo "ok $n - $2"
	else
		echo "not ok $n - $2"
		failed=1
	fi
}

members='-c /dev/mapper/cap -s /dev/mapper/stg -d /tmp/cutpool'
back=
[ "$(option back)" = kernel ] && back=-k
modprobe dm-mod
modprobe dm-log-writes
case $(sed -n 's/.*\bcut=\([a-z]*\).*/\1/p' /proc/cmdline) in
record)
	fua
	say $? one_fua_write
	record ''
	say $? workload_is_recorded
	for b in $(option broken | tr , ' '); do
		broken "$b"
		say $? "workload_without_barrier_${b}_is_recorded"
	done
	;;
check)
	check
	say $? the_module_recovers_every_state
	;;
*)
	echo "1..0 # SKIP only for host_powercut.sh"
	exit 77
	;;
esac
echo "1..$n"
exit $failed
