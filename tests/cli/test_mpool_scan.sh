#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only OR MIT
#
# Members found, trusted, lost, recovered and wiped, on pools in files; what the verbs of the
# kernel module say without it; doctor.

# tests are called by name, and words are split on purpose
# shellcheck disable=SC2317,SC2086,SC2154,SC2119 source=admin.sh
. "$(dirname "$0")/admin.sh"

scan_groups_members() {
	pool ./a
	pool ./b
	export MPOOL_TRUST_DIR=$PWD/etc/pools.d
	want 0 mpool scan ./a/capacity.mp ./b/capacity.mp ./b/staging.mp
	has out '^a +incomplete +1 +2 +no '
	has out '^b +complete +2 +2 +no '
	want 0 mpool scan -j ./a/capacity.mp ./a/staging.mp ./b/staging.mp
	schema mpool_scan
	same states "$(field '[(p["name"], p["state"]) for p in d["pools"]]')" \
		"[('a', 'complete'), ('b', 'incomplete')]"
	same classes "$(field '[x["class"] for x in d["pools"][0]["devices"]]')" \
		"['capacity', 'staging']"
	# one file by several names is no copy of itself
	ln -s a same
	ln a/staging.mp a/linked.mp
	want 0 mpool scan -H -o state,found a/capacity.mp ./a/capacity.mp a/staging.mp \
		same/staging.mp a/linked.mp
	same once "$(cat "$S/out")" "complete	2"
	rm a/linked.mp
	cp a/staging.mp copy.mp
	want 0 mpool scan -H -o state a/capacity.mp a/staging.mp copy.mp
	same copied "$(cat "$S/out")" duplicate
	echo text >text
	truncate -s 2M text
	want 3 mpool scan ./text
	one_line_error
	want 3 mpool scan ./none
	[ ! -e etc ] || fail "something was trusted"
}

# what an add that was cut short has left does not block the pool: the core knows members
scan_takes_a_pool_whose_add_was_cut() {
	pool
	for k in $(seq 60); do
		! MPOOL_DEV=capacity:fail=write,after=$k mpool add ./p ./more.mp --size 8M || break
		[ ! -e more.mp ] || break
	done
	want 0 mpool scan -j more.mp
	same generation "$(field 'd["pools"][0]["devices"][0]["generation"] > 2')" True
	want 0 mpool scan -H -o state,members p/capacity.mp p/staging.mp more.mp
	same left "$(cat "$S/out")" "complete	2"
	want 0 mpool scan -H -o state more.mp p/staging.mp
	same "without the home device" "$(cat "$S/out")" incomplete
	# another one is in its place
	want 0 mpool add ./p ./other.mp --size 8M
	want 0 mpool scan -H -o state,members p/capacity.mp p/staging.mp more.mp other.mp
	same replaced "$(cat "$S/out")" "complete	3"
	cp other.mp copy.mp
	want 0 mpool scan -H -o state p/capacity.mp p/staging.mp other.mp copy.mp
	same copied "$(cat "$S/out")" duplicate
}

scan_trusts() {
	umask 077
	pool ./a
	export MPOOL_TRUST_DIR=$PWD/etc/pools.d
	want 0 mpool scan --trust -n ./a/capacity.mp ./a/staging.mp
	[ ! -e etc ] || fail "the plan wrote something"
	want 0 mpool scan --trust ./a/capacity.mp ./a/staging.mp
	has err 'a is trusted now'
	uuid=$(value uuid ./a)
	same modes "$(stat -c %a etc etc/pools.d "etc/pools.d/$uuid" | xargs)" "755 755 644"
	want 0 mpool scan -H -o trusted ./a/capacity.mp
	same trusted "$(cat "$S/out")" yes
	# what others may write, or a link, counts for nothing
	chmod 0666 "etc/pools.d/$uuid"
	want 0 mpool scan -H -o trusted ./a/capacity.mp
	same writable "$(cat "$S/out")" no
	rm "etc/pools.d/$uuid"
	touch file
	ln -s ../../file "etc/pools.d/$uuid"
	want 0 mpool scan -H -o trusted ./a/capacity.mp
	same link "$(cat "$S/out")" no
	rm "etc/pools.d/$uuid"
	want 0 mpool scan --trust ./a/capacity.mp
	chmod 0777 etc/pools.d
	want 0 mpool scan -H -o trusted ./a/capacity.mp
	same folder "$(cat "$S/out")" no
	want 8 mpool scan --trust ./a/capacity.mp
}

# that the file is there is what counts
trust_that_fails_is_none() {
	pool ./a
	export MPOOL_TRUST_DIR=$PWD/etc/pools.d
	mkdir -p etc/pools.d
	(
		ulimit -f 0
		exec mpool scan --trust ./a/capacity.mp
	) 2>&1 >/dev/null </dev/null | cat >"$S/err" || true
	one_line_error
	has err 'cannot note that a is trusted: File too large'
	same left "$(ls -A etc/pools.d)" ""
	want 0 mpool scan -H -o trusted ./a/capacity.mp
	same trusted "$(cat "$S/out")" no
}

# a folder and the one above it that are new are durable with it
trust_is_durable_whatever_signals_come() {
	pool ./a
	export MPOOL_TRUST_DIR=$PWD/etc/pools.d
	syncs_of "$PWD/syncs"
	want 0 env INTERRUPTED=1 mpool scan --trust ./a/capacity.mp
	synced etc etc/pools.d "etc/pools.d/$(value uuid ./a).tmp"
	grep -qx "$PWD" syncs || fail "the folder of etc was not synced"
	want 0 mpool scan -H -o trusted ./a/capacity.mp
	same trusted "$(cat "$S/out")" yes
}

scan_recovers_a_lost_first_block() {
	pool
	fill 2
	truncate -s 64M ext4.img
	mkfs.ext4 -q -F ext4.img
	want 5 mpool scan --recover -y p/capacity.mp
	one_line_error
	dd if=ext4.img of=p/capacity.mp bs=4k count=1 conv=notrunc status=none
	want 3 mpool verify ./p
	before=$(sums .)
	want 5 mpool scan --recover p/capacity.mp
	has err 'use -y'
	want 0 mpool scan --recover -n p/capacity.mp
	has out 'member 1 of 2 of pool p .*holds ext4'
	want 0 mpool scan --recover -n -j p/capacity.mp
	schema mpool_scan_recover
	unchanged "$before" .
	want 0 mpool scan --recover -y p/capacity.mp
	want 0 mpool verify --data ./p
	want 0 mpool scrub ./p
	want 5 mpool scan --recover -y p/capacity.mp
	# without any copy there is nothing to go by
	before=$(sums ext4.img)
	want 3 mpool scan --recover -y ext4.img
	unchanged "$before" ext4.img
}

# a bit of the first superblock is wrong: nothing else would ever mend that
scan_recovers_a_damaged_first_superblock() {
	# as created, with a file that is larger than the pool, grown
	for larger in true "truncate -s 128M p/capacity.mp" "mpool grow ./p --size 192M"; do
		rm -rf p
		pool
		want 0 $larger
		printf x | dd of=p/capacity.mp bs=1 seek=300 conv=notrunc status=none
		want 0 mpool set ./p label=y
		want 0 mpool verify ./p
		has out 'superblock copy at 0'
		want 0 mpool scan --recover -n p/capacity.mp
		has out 'member 1 of 2 of pool p '
		want 0 mpool scan --recover -y p/capacity.mp
		want 0 mpool verify ./p
		has out '^./p: no damage$'
		want 5 mpool scan --recover -y p/capacity.mp
	done
}

scan_recovers_a_device_that_grew() {
	pool
	want 0 mpool grow ./p --size 128M
	want 0 mpool rename ./p q
	dd if=/dev/zero of=p/capacity.mp bs=4k count=1 conv=notrunc status=none
	want 3 mpool verify ./p
	want 0 mpool scan --recover -y p/capacity.mp
	want 0 mpool verify --data ./p
	same name "$(value name)" q
}

wipe_takes_our_signature_only() {
	pool
	want 0 mpool wipe -n p/staging.mp
	has out 'member of pool p'
	before=$(sums .)
	want 5 mpool wipe p/staging.mp
	one_line_error
	want 0 mpool wipe -n -j p/staging.mp
	schema mpool_wipe
	truncate -s 64M other.img
	mkfs.ext4 -q -F other.img
	cp other.img other.old
	want 3 mpool wipe -y other.img
	cmp other.img other.old
	rm other.img other.old
	unchanged "$before" .
	cp p/staging.mp before.mp
	want 0 mpool wipe -y p/staging.mp
	want 2 blkid -p p/staging.mp
	# nothing but the first bytes changed
	cmp -s before.mp p/staging.mp && fail "nothing was wiped"
	cmp -i 4096 before.mp p/staging.mp
	want 3 mpool wipe -y p/staging.mp
	want 0 mpool scan --recover -y p/staging.mp
	want 0 mpool verify ./p
}

# libblkid calls fsync(), too, before its caller does, and does not look at what that returns
a_signal_ends_no_wipe() {
	pool
	syncs_of "$PWD/syncs"
	want 0 env INTERRUPTED=2 mpool wipe -y p/staging.mp
	synced p/staging.mp
	want 2 blkid -p p/staging.mp
}

wipe_tells_no_signature_from_one_that_cannot_be_read() {
	pool
	echo 'int blkid_do_probe(void *pr) { (void)pr; return -1; }' >probe.c
	${CC:-cc} -shared -fPIC -o probe.so probe.c 2>/dev/null || skip "no compiler"
	ASAN_OPTIONS=${ASAN_OPTIONS-}:verify_asan_link_order=0 \
		want 1 env LD_PRELOAD="$PWD/probe.so" mpool wipe -y p/staging.mp
	has err 'staging.mp: cannot be examined'
}

wipe_refuses_an_open_pool() {
	[ -e "$lib" ] || skip "no shared library was built"
	pool
	mkfifo hold
	python3 "$CLI/hold.py" "$lib" ./p <hold >open &
	exec 7>hold
	for _ in $(seq 100); do
		grep -q open open && break
		sleep 0.05
	done
	want 4 mpool wipe -y p/capacity.mp
	one_line_error
	want 4 mpool set ./p label=x
	want 4 mpool grow ./p --size 128M
	want 4 mpool scrub ./p
	exec 7>&-
	wait
	want 0 mpool verify ./p
}

verbs_of_the_module_say_what_to_do() {
	[ -e /dev/mpoolctl ] && skip "the module is loaded"
	pool
	want 7 mpool activate ./p/capacity.mp
	has err 'open it by its path'
	want 7 mpool deactivate ./p
	one_line_error
	want 7 mpool deactivate db1
	one_line_error
	want 0 mpool deactivate -a
	want 0 mpool activate -a
	want 0 mpool activate -a -j
	schema mpool_activate
	want 0 mpool deactivate -a -j
	schema mpool_deactivate
	want 3 mpool activate db1
	one_line_error
	want 7 mpool iostat ./p
	one_line_error
	has err 'activate the pool'
	want 7 mpool iostat
	one_line_error
}

doctor_names_states_and_cures() {
	rc=0
	mpool doctor -j >"$S/out" 2>"$S/err" || rc=$?
	schema mpool_doctor
	same agree "$(field '6 * any(c["state"] == "wrong" for c in d["checks"])')" $rc
	same cures "$(field 'all(c["cure"] for c in d["checks"] if c["state"] != "ok")')" True
	for c in library module kernel io_uring "open files"; do
		same "$c" "$(field "'$c' in [c['check'] for c in d['checks']]")" True
	done
	mkdir -m 0777 open
	want 6 env MPOOL_TRUST_DIR="$PWD/open" mpool doctor -H -o check,state
	has out '^trusted pools	wrong$'
	rc=0
	(ulimit -n 256 && mpool doctor -H -o check,state) >"$S/out" || rc=$?
	has out '^open files	note$'
}

run scan_groups_members
run scan_takes_a_pool_whose_add_was_cut
run scan_trusts
run trust_that_fails_is_none
run trust_is_durable_whatever_signals_come
run scan_recovers_a_lost_first_block
run scan_recovers_a_damaged_first_superblock
run scan_recovers_a_device_that_grew
run wipe_takes_our_signature_only
run a_signal_ends_no_wipe
run wipe_tells_no_signature_from_one_that_cannot_be_read
run wipe_refuses_an_open_pool
run verbs_of_the_module_say_what_to_do
run doctor_names_states_and_cures
finish
