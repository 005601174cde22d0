#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only OR MIT
#
# Power cuts below the module. A virtual machine records what a pool in the kernel sends to
# its device, twice: dm-log-writes inside, blklogwrites in QEMU. Outside, crash states are
# rebuilt from both logs and judged by the embedded build and by what cut_work knows was
# acknowledged (cut_replay). A second machine gets some of the states for the module to open.
# Positive controls: the same judge over a module whose flushes do nothing, over a log whose
# flushes are ignored, and over planted ordering bugs.
#
#   COUNT=500   distinct crash states judged from each log
#   STATES=50   of them for the module
#   STEPS=240   operations of the workload
#   BROKEN=all  functions whose flushes to break, one after another; or those of all together
#   BACK=kernel or embedded: the embedded backend on the same devices, without the module
#
# SEED repeats a run. Needs no root.

set -u
cd "$(dirname "$0")/../.." || exit 1
B=$(realpath -m "${B:-build}")
O=$(realpath -m "${O:-$B}")
export B O
long=${TEST_LONG:+1}
: "${COUNT:=${long:+20000}}" "${COUNT:=500}"
: "${STATES:=${long:+500}}" "${STATES:=50}"
: "${STEPS:=${long:+480}}" "${STEPS:=240}"
# not mp_mlog_open: the workload syncs a log before it closes it, which leaves that flush nothing
# to carry (test_core_order shows it)
: "${BROKEN:=${long:+all checkpoint data_flush log_sync}}" "${BROKEN:=all}"
: "${BACK:=kernel}" "${SEED:=${TEST_SEED:-$RANDOM}}"
export SEED
[ "$BACK" = kernel ] || BROKEN=
limit=$((${long:-0} ? 4000 : 340)) # seconds for one machine
kver=${KVER:-$(tests/kmod/kernels.sh boot | head -n 1)}
ko=$B/kmod/$kver/mpool.ko

skip() {
	echo "1..0 # SKIP $1"
	exit 77
}
for c in qemu-system-x86_64 busybox dmsetup; do
	PATH=$PATH:/usr/sbin:/sbin command -v $c >/dev/null || skip "no $c"
done
[ -n "$kver" ] || skip "no kernel headers, 6.1 or newer"
[ "$BACK" != kernel ] || [ -e "$ko" ] || skip "no module for $kver: make modules"

dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
n=0 failed=0
# say RC NAME [FILE]: a line of TAP; what FILE says goes before it
say() {
	n=$((n + 1))
	[ $# -lt 3 ] || sed 's/^\([^#]\)/# \1/' "$3"
	if [ "$1" = 0 ]; then
		echo "ok $n - $2"
	else
		echo "not ok $n - $2"
		failed=1
	fi
}

# plain NAME SERIAL: arguments of QEMU for a disk that is not recorded
plain() {
	echo "-blockdev driver=file,filename=$dir/$1,node-name=p-$1,cache.no-flush=on
		-device virtio-blk-pci,drive=p-$1,serial=$2"
}

# watched NAME SERIAL: and for one whose writes and flushes go to NAME.host as well. Its
# cache settings stay at their default: a flush that is dropped here would not be recorded
watched() {
	: >"$dir/$1.host"
	echo "-blockdev driver=file,filename=$dir/$1,node-name=f-$1
		-blockdev driver=file,filename=$dir/$1.host,node-name=l-$1
		-blockdev driver=blklogwrites,node-name=w-$1,file=f-$1,log=l-$1,log-sector-size=512
		-device virtio-blk-pci,drive=w-$1,serial=$2"
}

# the module without the flushes of function $1, or of all
broken() {
	local d=$B/kmod-broken/$kver-$1
	mkdir -p "$d" && cp -pr kmod/. tests/kmod/broken.h "$d" || return
	env -u MAKEFLAGS -u MAKELEVEL -u MFLAGS -u B -u O make -j2 -C "$d" KVER="$kver" \
		KDIR="$(tests/kmod/kernels.sh dir "$kver")" \
		KCFLAGS="-DMP_BROKEN=$1 -include $d/broken.h" >"$dir/make" 2>&1 || {
		tail -n 20 "$dir/make"
		return 1
	}
	cp "$d/mpool.ko" "$dir/guest/bin/mpool-$1.ko"
}

# boot WHAT QEMU-ARGUMENTS: 0 when all went well in the machine
boot() {
	local rc list=${BROKEN// /,}
	VM_DISKS=1 VM_DISK_SIZE=16M VM_MEM=1024 VM_TIMEOUT=${VM_TIMEOUT:-$limit} \
		O=$dir/guest VM_QEMU=$2 VM_APPEND="TEST_LIMIT=$((limit - 40)) cut=$1
			cut_seed=$SEED cut_steps=$STEPS cut_back=$BACK cut_broken=$list" \
		tests/kmod/boot.sh "$kver" "$dir/$1" cut_guest >"$dir/$1.log" 2>&1
	# name, exit code, seconds, and what was wrong
	[ "$(awk '{ print $2 $4 }' "$dir/$1/results" 2>/dev/null)" = 0 ]
	rc=$?
	[ ! -e "$dir/$1/again" ] || sed 's/^/# begun again: /' "$dir/$1/again"
	sed 's/^/# guest: /' "$dir/$1/cut_guest"
	[ $rc = 0 ] || tail -n 30 "$dir/$1.log" "$dir/$1/results" "$dir/$1/console" | sed 's/^/# /'
	return $rc
}

judge() { "$O/tests/cut_replay" "$@" >"$dir/judge" 2>&1; }

echo "# SEED=$SEED COUNT=$COUNT STATES=$STATES STEPS=$STEPS BACK=$BACK, kernel $kver"
# the guest gets no more than it needs
mkdir -p "$dir"/guest/{bin,tests}
cp "$O/tests/cut_work" "$dir/guest/tests"
base=$dir/base
"$O/tests/cut_replay" base "$base" || exit 1
args="$(watched fua cut-fua) $(plain fua-log cut-fua-log) $(watched data cut-data)
	$(plain log cut-log) $(plain out cut-out)"
cp "$base" "$dir/fua"
cp "$base" "$dir/data"
truncate -s 256M "$dir"/{fua-log,log}
truncate -s 4M "$dir/out"
for b in $BROKEN; do
	broken "$b"
	say $? "module_without_barrier_${b}_is_built"
	cp "$base" "$dir/data-$b"
	truncate -s 256M "$dir/log-$b"
	truncate -s 4M "$dir/out-$b"
	args+=" $(plain "data-$b" "cut-data-$b") $(plain "log-$b" "cut-log-$b")
		$(plain "out-$b" "cut-out-$b")"
done
boot record "$args"
say $? workload_is_recorded

echo "# one FUA write as dm-log-writes saw it:"
"$O/tests/cut_replay" show "$dir/fua-log" | sed 's/^/#  /'
echo "# the same as blklogwrites saw it:"
"$O/tests/cut_replay" show "$dir/fua.host" | sed 's/^/#  /'
"$O/tests/cut_replay" show "$dir/fua-log" | grep -q 'write 0+4096 FUA'
say $? a_fua_write_reaches_the_device_as_one
"$O/tests/cut_replay" show "$dir/fua.host" | grep -A1 'write 0+4096$' | grep -q flush
say $? a_disk_without_fua_gets_a_write_and_a_flush

judge -n "$COUNT" -x "$dir/pack" -N "$STATES" judge "$dir/log" "$dir/out"
say $? every_cut_in_the_log_of_dm_log_writes_recovers "$dir/judge"
judge -n "$COUNT" judge "$dir/data.host" "$dir/out"
say $? every_cut_in_the_log_of_blklogwrites_recovers "$dir/judge"
judge -f judge "$dir/log" "$dir/out"
say $? a_log_without_flushes_is_noticed "$dir/judge"
judge -n 100 -p judge "$dir/log" "$dir/out"
say $? planted_ordering_bugs_are_noticed "$dir/judge"
for b in $BROKEN; do
	judge -n "$COUNT" -b judge "$dir/log-$b" "$dir/out-$b"
	say $? "a_module_without_barrier_${b}_is_noticed" "$dir/judge"
done

if [ -e "$dir/pack" ]; then
	truncate -s %512 "$dir/pack"
	cp "$base" "$dir/data2"
	boot check "$(plain data2 cut-data) $(plain pack cut-pack)"
	say $? "the_module_recovers_$STATES"_states
fi
echo "# figure: power cut | module: 2 x $COUNT cuts judged, $STATES opened by it | $SEED"
echo "1..$n"
exit $failed
