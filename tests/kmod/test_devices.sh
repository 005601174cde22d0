#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only OR MIT
#
# Pools of the module on disks of several kinds, used by the two commands as an
# administrator and a program would: virtio disks of two classes, an NVMe disk, a remote
# disk over NVMe/TCP, a disk that grows; and the demo's work, a database that survives the
# death of its loader, on /dev/mpool/NAME.
#
# vm-files: dmsetup

[ "$(id -u)" = 0 ] && [ -e /dev/mpoolctl ] || {
	echo "1..0 # SKIP needs root and the kernel module"
	exit 77
}
. "$(dirname "$0")/../cli/lib.sh"
set +u
read -r -a devs <<<"$MPK_DEVS"
tools=$(cd "$(dirname "$0")" && pwd)
DM=(dmsetup --noudevsync --noudevrules)

# records N: lines for kvdb load
records() {
	seq "$1" | awk '{ printf "key-%08d\tvalue %d, to be read back %d\n", $1, $1, $1 * 7 }'
}

# pool NAME [ARGUMENTS]: made, active, and gone with the test
pool() {
	local n
	P=$1
	# of a test that failed
	for n in /dev/mpool/*; do
		[ ! -e "$n" ] || mpool destroy -y "${n##*/}"
	done
	for n in "${devs[@]}" $MPK_NVME; do
		mpool wipe -y "$n" >/dev/null 2>&1 || true
	done
	want 0 mpool create -f -y "$@"
	[ -c "/dev/mpool/$P" ] || fail "no node of $P"
}
gone() {
	want 0 mpool destroy -y "$P"
	[ ! -e "/dev/mpool/$P" ] || fail "$P is still there"
}

# holds NAME N COMMAND...: a database takes N records and gives them back, also after the
# pool was deactivated and COMMAND activated it
holds() {
	local name=$1
	records "$2" >in.tsv
	shift 2
	want 0 kvdb create "$name"
	want 0 kvdb load --create "$name" words in.tsv
	want 0 kvdb scan -H "$name" words
	cmp "$S/out" in.tsv || fail "read back is not what was loaded"
	want 0 mpool deactivate "$name"
	want 0 "$@"
	set -- "$name"
	want 0 kvdb scan -H "$1" words
	cmp "$S/out" in.tsv || fail "not the same after an activation"
	want 0 kvdb verify "$1"
	want 0 mpool verify "$1"
}

two_classes_on_several_disks() {
	pool several "${devs[0]}" "${devs[1]}" --staging "${devs[2]}" --staging "${devs[3]}"
	same multihost "$(mpool get -H -o value several multihost)" no
	want 0 mpool status -j several
	has out '"devices"'
	holds several 20000 mpool scan --activate
	want 0 mpool df several
	has out staging
	gone
}

nvme_is_staging() {
	[ -n "$MPK_NVME" ] || skip "no NVMe disk"
	pool fast "${devs[0]}" --staging "$MPK_NVME"
	holds fast 20000 mpool activate fast
	gone
}

# the remote disk is $far; the target keeps it in a file, far/disk: as a disk of this machine
# it would be a second copy
remote_up() {
	mkfs.ext4 -q -F "${devs[1]}"
	mkdir far
	mount "${devs[1]}" far
	truncate -s 400M far/disk
	far=$("$tools/nvmet.sh" up "$PWD/far/disk") || fail "no remote disk"
}
remote_down() {
	"$tools/nvmet.sh" down
	umount far
	wipefs -qa "${devs[1]}"
}

a_remote_disk_is_capacity() {
	local far
	remote_up
	pool remote "$far" --staging "${devs[0]}"
	same multihost "$(mpool get -H -o value remote multihost)" yes
	holds remote 20000 mpool activate remote
	gone
	remote_down
}

# a process with the target's file is another host to the module, known by its heartbeat only
another_host_is_kept_out() {
	local far uuid begun took
	remote_up
	pool remote "$far"
	uuid=$(mpool get -H -o value remote uuid)
	mkdir there
	cat >there/pool.json <<-END
		{ "version": 1, "name": "remote", "uuid": "$uuid", "devices": [
		{ "path": "$PWD/far/disk", "class": "capacity", "size": 419430400 } ] }
	END
	want 4 mpool set ./there label=mine
	has err 'host vm writes its heartbeat there.*MP0125'
	want 4 mpool verify ./there
	want 0 mpool deactivate remote
	want 0 mpool set ./there label=mine
	# the process has the pool now, and holds it longer than a heartbeat
	kvdb create ./there
	mkfifo go
	kvdb load --create ./there words go >loader 2>&1 &
	exec 7>go
	sleep 2
	want 4 mpool activate remote
	has err MP0125
	# one that dies is passed over
	kill -KILL %1
	exec 7>&-
	wait %1 || true
	begun=$(date +%s%N)
	want 0 mpool activate remote
	took=$((($(date +%s%N) - begun) / 1000000))
	echo "# activated $took ms after the other died"
	[ $took -ge 1400 ] || fail "after $took ms"
	same label "$(mpool get -H -o value remote label)" mine
	want 0 mpool verify remote
	# activated for reading, it is told when another comes, and reads no object any more
	want 0 mpool deactivate remote
	want 0 mpool activate --read-only remote
	same fault "$(cat /sys/class/mpool/remote/fault_id)" 0
	want 0 mpool set ./there label=theirs
	same fault "$(cat /sys/class/mpool/remote/fault_id)" 126
	want 0 mpool deactivate remote
	want 0 mpool activate remote
	gone
	remote_down
}

# writes_of DEV: so far
writes_of() { awk '{ print $5 }' "/sys/block/${1##*/}/stat"; }

# the kernel stops its tasks for five seconds, as before a sleep, and lets them go on; it counts
# these with a delay loop, which ends early on an emulated processor. The heartbeat is four writes
# a second, and after the sleep one and the look before it
a_machine_that_sleeps_writes_nothing() {
	local writes awake slept
	grep -q freezer /sys/power/pm_test 2>/dev/null || skip "no trial of a sleep"
	pool asleep --multihost on "${devs[0]}"
	echo freezer >/sys/power/pm_test
	writes=$(writes_of "${devs[0]}")
	sleep 2
	awake=$(($(writes_of "${devs[0]}") - writes))
	writes=$((writes + awake))
	slept=$(date +%s%N)
	echo freeze >/sys/power/state
	writes=$(($(writes_of "${devs[0]}") - writes))
	slept=$((($(date +%s%N) - slept) / 1000000))
	echo none >/sys/power/pm_test
	[ $awake -ge 4 ] || fail "no heartbeat: $awake writes in 2 s"
	[ $slept -ge 2000 ] || fail "no sleep: $slept ms"
	[ $writes -le 6 ] || fail "$writes writes in $slept ms"
	holds asleep 2000 mpool activate asleep
	same fault "$(cat /sys/class/mpool/asleep/fault_id)" 0
	gone
}

the_demos_work_survives_the_death_of_its_loader() {
	local n=60000 done=0 loader rc=0 i
	pool demo "${devs[0]}" "${devs[1]}" --staging "${MPK_NVME:-${devs[2]}}"
	want 0 kvdb create demo
	kvdb bench demo --workload load --records $n --journal acks --progress=json >loader 2>&1 &
	loader=$!
	for ((i = 0; i < 1000; i++)); do
		sleep 0.05
		kill -0 $loader 2>/dev/null || break
		done=$(sed -n 's/.*"done":\([0-9]*\).*/\1/p' loader | tail -n 1)
		[ "${done:-0}" -ge $((n * 2 / 5)) ] && break
	done
	kill -KILL $loader || { cat loader; fail "the loader was not there any more"; }
	wait $loader || rc=$?
	same "end of the loader" $rc 137
	want 0 kvdb bench demo --check acks --threads 4
	cat "$S/out"
	want 0 kvdb bench demo --workload load,a,c --missing --records $n --ops 20000
	want 0 kvdb verify demo
	want 0 mpool verify demo
	gone
}

# size_of NAME: of its capacity class, bytes
size_of() {
	mpool df -j "$1" | sed -n 's/^ *"size": \([0-9]*\).*/\1/p' | head -n 1
}

a_disk_grows_under_a_live_pool() {
	local before after
	echo "0 262144 linear ${devs[0]} 0" | "${DM[@]}" create ktgrow
	"${DM[@]}" mknodes
	pool grow /dev/mapper/ktgrow
	before=$(size_of grow)
	"${DM[@]}" suspend ktgrow
	echo "0 524288 linear ${devs[0]} 0" | "${DM[@]}" load ktgrow
	"${DM[@]}" resume ktgrow
	want 0 mpool grow grow
	after=$(size_of grow)
	echo "# $before bytes, then $after"
	[ "$after" -ge $((before + 100 * 1024 * 1024)) ] || fail "$before bytes, then $after"
	gone
	"${DM[@]}" remove ktgrow
}

run two_classes_on_several_disks
run nvme_is_staging
run a_remote_disk_is_capacity
run another_host_is_kept_out
run a_machine_that_sleeps_writes_nothing
run a_disk_grows_under_a_live_pool
run the_demos_work_survives_the_death_of_its_loader
finish
