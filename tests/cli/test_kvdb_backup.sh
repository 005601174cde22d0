#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only OR MIT
#
# Backup, restore and copy: what comes back is what was there, and what is
# damaged, cut or missing is said and not used.

# shellcheck disable=SC1091
. "$(dirname "$0")/lib.sh"

make_db() {
	want 0 kvdb -q create ./d --size 256M
	want 0 kvdb kvs create ./d s
	want 0 kvdb kvs create ./d u
	seq -f 'k%06g' 3000 | awk '{ printf "%s\t%s%0300d\n", $1, $1, NR }' >lines
	want 0 kvdb -q load ./d s lines
	want 0 kvdb put ./d u x y
}

# dump_of DB FILE
dump_of() {
	want 0 kvdb dump "$1"
	cp "$S/out" "$2"
}

# restored DIR FILE [OPTION...]: the backups in DIR give the database that FILE is the dump of
restored() {
	local dir=$1 file=$2
	shift 2
	rm -rf ./r
	want 0 kvdb -q create ./r --size 256M
	want 0 kvdb restore "$dir" ./r -j "$@"
	schema kvdb_restore
	dump_of ./r r.dump
	cmp r.dump "$file" || fail "what was restored from $dir differs from $file"
}

one_record_is_not_one_records() {
	want 0 kvdb -q create ./d --size 64M
	want 0 kvdb kvs create ./d s
	want 0 kvdb put ./d s k v
	want 0 kvdb backup ./d ./bk
	has out '^wrote ./bk/.*: full, 1 record, 0 deletions, [0-9]+ bytes$'
	want 0 kvdb -q create ./r --size 64M
	want 0 kvdb restore ./bk ./r
	has out '^restored 1 store, 1 record, 2 bytes into ./r; checked$'
	want 0 kvdb put ./d s l w
	want 0 kvdb del ./d s k
	want 0 kvdb backup ./d ./bk
	has out 'incremental, 1 record, 1 deletion, [0-9]+ bytes$'
}

full_and_incremental_come_back() {
	make_db
	dump_of ./d 1.dump
	want 0 kvdb backup ./d ./bk -j
	schema kvdb_backup
	same first "$(field 'd["kind"], d["number"], d["records"]')" "('full', 1, 3001)"
	want 0 kvdb put ./d s k000003 new
	want 0 kvdb del ./d s k000004
	want 0 kvdb kvs create ./d v
	want 0 kvdb put ./d v a b
	want 0 kvdb kvs drop ./d u -y
	dump_of ./d 2.dump
	want 0 kvdb backup ./d ./bk -j
	same second "$(field 'd["kind"], d["records"], d["deletions"]')" "('incremental', 2, 1)"
	# the name comes back, the store does not
	want 0 kvdb kvs create ./d u
	want 0 kvdb put ./d u second time
	want 0 kvdb put ./d s k000003 newer
	dump_of ./d 3.dump
	want 0 kvdb backup ./d ./bk --incremental
	# one checkpoint is kept, the one that the next backup needs
	want 0 kvdb checkpoint list ./d -H -o name
	same kept "$(wc -l <"$S/out")" 1
	restored ./bk 3.dump
	restored ./bk 2.dump --to 2
	restored ./bk 1.dump --to 1
	want 3 kvdb restore ./bk ./r --to 9
	want 3 kvdb restore ./bk ./r --to 4294967297
	want 0 kvdb backup ./d ./bk --full -j
	same full "$(field 'd["kind"], d["number"]')" "('full', 4)"
	rm bk/000001.kvb
	restored ./bk 3.dump
	want 3 kvdb restore ./bk ./r --to 2
	want 0 kvdb verify --data ./d
}

what_cannot_be_is_refused() {
	make_db
	want 5 kvdb backup ./d ./bk --incremental
	want 2 kvdb backup ./d ./bk --incremental --full
	want 3 kvdb backup ./d ./none/bk
	has err 'backup ./none/bk: the folder .* is not there \(make that first\)'
	want 3 kvdb backup ./d ./bk --checkpoint none
	want 0 kvdb checkpoint list ./d -H -o name
	same none "$(cat "$S/out")" ""
	want 0 kvdb backup ./d ./bk
	want 5 kvdb restore ./bk ./d
	one_line_error
	want 0 kvdb -q create ./e --size 256M
	want 5 kvdb backup ./e ./bk
	has err 'another database'
	want 3 kvdb restore ./nothing ./e
	want 3 kvdb restore ./bk ./nothing
	# without the checkpoint there is nothing to compare with
	want 0 kvdb checkpoint list ./d -H -o name
	want 0 kvdb checkpoint drop ./d "$(cat "$S/out")" -y
	want 5 kvdb backup ./d ./bk --incremental
	want 0 kvdb backup ./d ./bk
	has err 'this one is full'
	has out ': full,'
}

# damage FILE AT: another byte there
damage() {
	python3 -c 'import sys
f = open(sys.argv[1], "r+b")
f.seek(int(sys.argv[2]))
b = f.read(1)
f.seek(int(sys.argv[2]))
f.write(bytes([b[0] ^ 4]))' "$1" "$2"
}

damaged_files_are_said_and_not_used() {
	local size at
	make_db
	want 0 kvdb backup ./d ./bk
	want 0 kvdb put ./d s more and
	want 0 kvdb backup ./d ./bk
	cp -r bk good
	size=$(stat -c %s bk/000001.kvb)
	for at in 0 9 20 40 70 5000 $((size / 2)) $((size - 1)); do
		cp good/*.kvb bk
		damage bk/000001.kvb "$at"
		rm -rf ./r
		want 0 kvdb -q create ./r --size 256M
		want 6 kvdb restore ./bk ./r
		one_line_error
	done
	for at in 30 64 $((size / 2)) $((size - 1)); do
		cp good/*.kvb bk
		truncate -s "$at" bk/000001.kvb
		rm -rf ./r
		want 0 kvdb -q create ./r --size 256M
		want 6 kvdb restore ./bk ./r
	done
	cp good/*.kvb bk
	echo >>bk/000001.kvb
	rm -rf ./r
	want 0 kvdb -q create ./r --size 256M
	want 6 kvdb restore ./bk ./r
	# a file of another chain
	rm -rf ./r
	want 0 kvdb -q create ./r --size 256M
	want 0 kvdb backup ./d ./other
	cp other/000001.kvb bk
	want 6 kvdb restore ./bk ./r
	has err 'does not build upon'
}

# forge FILE NAME: a backup file without damage, of one store with this name, of which \0 is NUL
forge() {
	python3 -c 'import struct, sys
def crc32c(data, crc=0):
    crc ^= 0xffffffff
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82f63b78 if crc & 1 else 0)
    return crc ^ 0xffffffff
def record(kind, key, value):
    return struct.pack("<BBHI", kind, 0, len(key), len(value)) + key + value
name = sys.argv[2].encode().replace(b"\\0", b"\0")
head = struct.pack("<8sII16sIIQQI", b"KVDBBAK\n", 1, 0, b"u" * 16, 1, 0, 1, 1, 0)
crc = crc32c(head)
body = record(1, name, bytes(24)) + record(2, b"k", b"v") + record(5, b"", struct.pack("<Q", 2))
with open(sys.argv[1], "wb") as f:
    f.write(head + struct.pack("<I", crc))
    f.write(struct.pack("<II", len(body), crc32c(body, crc)) + body)' "$1" "$2"
}

a_name_that_none_can_be_is_damage() {
	mkdir bk
	forge bk/000001.kvb s
	want 0 kvdb -q create ./r --size 64M
	want 0 kvdb restore ./bk ./r
	want 0 kvdb get ./r s k
	forge bk/000001.kvb 's\0x'
	want 0 kvdb -q create ./q --size 64M
	want 6 timeout 20 kvdb restore ./bk ./q
	one_line_error
}

an_interrupted_one_is_begun_anew() {
	make_db
	dump_of ./d 1.dump
	mkdir bk
	head -c 100000 /dev/urandom >bk/.part
	want 0 kvdb backup ./d ./bk
	restored ./bk 1.dump
	[ ! -e bk/.part ] || fail "a part is left"
}

# made_here: how many checkpoints of ./d backup made and keeps
made_here() {
	want 0 kvdb checkpoint list ./d -H -o name
	grep -c '^backup' "$S/out" || true
}

# ckpts: the names of the checkpoints of ./d, if they can be read
ckpts() {
	kvdb checkpoint list ./d -H -o name 2>/dev/null || true
}

# killed N COMMAND...: killed once ./d has N checkpoints, others than before
killed() {
	local pid n=$1 was now
	shift
	was=$(ckpts)
	"$@" >"$S/out" 2>"$S/err" </dev/null &
	pid=$!
	for _ in $(seq 100); do
		sleep 0.05
		now=$(ckpts)
		[ "$(wc -l <<<"$now")" != "$n" ] || [ "$now" = "$was" ] || break
	done
	kill -KILL $pid || fail "it ended by itself: $(cat "$S/err")"
	wait $pid || true
	same "number of checkpoints" "$(ckpts | wc -l)" "$n"
}

# interrupt COMMAND...: ended by a signal once ./d has a checkpoint
interrupt() {
	local pid rc=0
	"$@" >"$S/out" 2>"$S/err" </dev/null &
	pid=$!
	for _ in $(seq 100); do
		sleep 0.05
		[ "$(kvdb checkpoint list ./d -H -o name 2>/dev/null | wc -l)" = 0 ] || break
	done
	kill -TERM $pid || fail "it ended by itself: $(cat "$S/err")"
	wait $pid || rc=$?
	same "exit code" $rc 1
	has err 'interrupted'
}

an_interrupted_backup_leaves_no_checkpoint() {
	make_db
	# nothing reads from it: the backup waits
	mkdir bk
	mkfifo bk/.part
	interrupt kvdb backup ./d ./bk
	want 0 kvdb checkpoint list ./d -H -o name
	same none "$(cat "$S/out")" ""
	rm -f bk/.part
	want 0 kvdb backup ./d ./bk
	has out ': full, 3001 records'
}

an_interrupted_copy_leaves_no_checkpoint() {
	want 0 kvdb -q create ./d --size 1G
	want 0 kvdb kvs create ./d s
	head -c 300M /dev/zero | tr '\0' x | fold -w 100000 |
		awk '{ printf "%06d\t%s\n", NR, $0 }' | kvdb -q load ./d s --sorted
	want 0 kvdb -q create ./e --size 1G
	MPOOL_IO=sync interrupt kvdb copy ./d ./e
	want 0 kvdb checkpoint list ./d -H -o name
	same none "$(cat "$S/out")" ""
	# that of one that was killed goes with the next, whatever becomes of that
	want 0 kvdb checkpoint create ./d copy.1
	want 0 kvdb -q create ./f --size 1G
	MPOOL_IO=sync killed 2 kvdb copy ./d ./f
	want 5 kvdb copy ./d ./e
	want 0 kvdb checkpoint list ./d -H -o name
	same "the user's own" "$(cat "$S/out")" copy.1
}

the_checkpoint_of_a_killed_backup_goes_with_the_next() {
	make_db
	want 0 kvdb backup ./d ./bk
	want 0 kvdb checkpoint create ./d mine
	# nothing reads from it: the backup has made its checkpoint and waits
	mkfifo bk/.part
	killed 3 kvdb backup ./d ./bk
	# the next one does not get far either
	killed 3 kvdb backup ./d ./bk
	rm bk/.part
	want 0 kvdb backup ./d ./bk
	has out 'incremental'
	same kept "$(made_here)" 1
	has out '^mine$'
	[ ! -e bk/.checkpoint ] || fail "a note is left"
	# nor does it take the user's own
	python3 -c 'import sys
sys.stdout.buffer.write(open(sys.argv[1], "rb").read(32)[16:] + b"mine".ljust(32, b"\0"))' \
		bk/000001.kvb >bk/.checkpoint
	want 0 kvdb backup ./d ./bk
	same kept "$(made_here)" 1
	has out '^mine$'
}

a_chain_is_longer_than_the_limit_of_open_files() {
	local i
	want 0 kvdb -q create ./d --size 64M
	want 0 kvdb kvs create ./d s
	for i in $(seq 30); do
		want 0 kvdb put ./d s "k$i" v
		want 0 kvdb backup ./d ./bk
	done
	want 0 kvdb -q create ./r --size 64M
	(
		ulimit -Sn 24
		want 0 kvdb restore ./bk ./r --io sync
	)
	want 0 kvdb get ./r s k30
}

# a removal of old files, by their age say, loses nothing that comes after them
a_chain_that_lost_a_file_begins_anew() {
	local i
	want 0 kvdb -q create ./d --size 64M
	want 0 kvdb kvs create ./d s
	for i in 1 2 3; do
		want 0 kvdb put ./d s "k$i" v
		want 0 kvdb backup ./d ./bk
	done
	rm bk/000001.kvb
	want 5 kvdb backup ./d ./bk --incremental
	has err 'missing or damaged .*--full'
	want 0 kvdb backup ./d ./bk
	has out '000004.kvb: full, 3 records'
	has err 'this one is full: a file .* is missing'
	want 0 kvdb put ./d s k4 v
	want 0 kvdb backup ./d ./bk
	has out '000005.kvb: incremental, 1 record'
	want 0 kvdb -q create ./r --size 64M
	want 0 kvdb restore ./bk ./r
	has out '4 records'
}

# lengthen DIR COUNT: its two files are those of a chain of so many, by their headers
lengthen() {
	python3 -c 'import os, struct, sys
def crc32c(data, crc=0):
    crc ^= 0xffffffff
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82f63b78 if crc & 1 else 0)
    return crc ^ 0xffffffff
path = sys.argv[1] + "/%06u.kvb"
last = open(path % 2, "rb").read()
base = open(path % 1, "rb").read()[60:64]
for n in range(2, int(sys.argv[2]) + 1):
    head = last[:32] + struct.pack("<I", n) + base + last[40:60]
    base = struct.pack("<I", crc32c(head))
    open(path % n, "wb").write(head + base + last[64:])' "$1" "$2"
}

# A pool that was put back to an older state (cp, a snapshot of its disk) gives numbers of
# checkpoints a second time. The one of that number is not what the last file ends at.
a_database_that_went_back_is_no_base() {
	want 0 kvdb -q create ./d --size 64M
	want 0 kvdb kvs create ./d s
	want 0 kvdb put ./d s a 1
	want 0 kvdb backup ./d ./bk
	cp -r d before
	want 0 kvdb put ./d s a 2
	want 0 kvdb put ./d s b 2
	want 0 kvdb backup ./d ./bk --incremental
	rm -r d
	mv before d
	want 0 kvdb put ./d s c 3
	want 0 kvdb put ./d s e 3
	want 0 kvdb checkpoint create ./d mine
	want 0 kvdb put ./d s f 4
	want 5 kvdb backup ./d ./bk --incremental
	want 0 kvdb backup ./d ./bk -j
	same kind "$(field 'd["kind"], d["number"]')" "('full', 3)"
	dump_of ./d 3.dump
	restored ./bk 3.dump
	want 0 kvdb checkpoint list ./d -H -o name
	has out '^mine$'
}

# each restore reads all of a chain: one that grew for ever could not be restored in the end
a_chain_does_not_grow_for_ever() {
	want 0 kvdb -q create ./d --size 64M
	want 0 kvdb kvs create ./d s
	want 0 kvdb put ./d s k v
	want 0 kvdb backup ./d ./bk
	want 0 kvdb put ./d s l v
	want 0 kvdb backup ./d ./bk
	lengthen bk 499
	want 0 kvdb backup ./d ./bk
	has out '000500.kvb: incremental'
	want 0 kvdb backup ./d ./bk
	has out '000501.kvb: full, 2 records'
	has err 'this one is full: .* 500 files'
	want 0 kvdb backup ./d ./bk
	has out '000502.kvb: incremental'
	want 0 kvdb -q create ./r --size 64M
	want 0 kvdb restore ./bk ./r
	has out '2 records'
}

a_checkpoint_is_backed_up_beside_a_writer() {
	local pid
	make_db
	dump_of ./d 1.dump
	want 0 kvdb checkpoint create ./d monday
	mkfifo pipe
	kvdb -q load ./d s <pipe &
	pid=$!
	exec 7>pipe
	printf 'k000001\tother\n' >&7
	# until the loader has it open
	for _ in $(seq 50); do
		kvdb info ./d -j | grep -q '"pid":[0-9 ]*[0-9]' && break
		sleep 0.1
	done
	want 4 kvdb backup ./d ./bk
	want 0 kvdb backup ./d ./bk --checkpoint monday
	want 0 kvdb -q create ./c --size 256M
	want 0 kvdb copy ./d ./c --checkpoint monday
	exec 7>&-
	wait "$pid"
	restored ./bk 1.dump
	dump_of ./c c.dump
	cmp c.dump 1.dump || fail "the copy differs"
}

a_backup_of_ones_own_checkpoint_leaves_none_behind() {
	make_db
	want 0 kvdb backup ./d ./bk
	want 0 kvdb put ./d s a b
	want 0 kvdb checkpoint create ./d monday
	want 0 kvdb backup ./d ./bk --checkpoint monday --incremental
	want 0 kvdb put ./d s c d
	dump_of ./d 3.dump
	want 0 kvdb backup ./d ./bk --incremental
	same kept "$(made_here)" 1
	# those of another folder are not touched
	want 0 kvdb backup ./d ./other
	want 0 kvdb backup ./d ./bk --full
	same kept "$(made_here)" 2
	want 0 kvdb backup ./d ./other --incremental
	want 0 rm bk/000004.kvb
	restored ./bk 3.dump
}

compressed_values_come_back() {
	want 0 kvdb -q create ./d --size 256M --segment-size 64K
	want 0 kvdb kvs create ./d s --compress zstd
	seq -f 'k%06g' 3000 | awk '{ printf "%s\t%s%0300d\n", $1, $1, NR }' >lines
	want 0 kvdb -q load ./d s lines
	want 0 kvdb backup ./d ./bk
	for i in 2 3; do
		awk -v i="$i" 'NR % i' lines >some
		want 0 kvdb -q load ./d s some
		want 0 kvdb compact ./d
	done
	want 0 kvdb backup ./d ./bk
	dump_of ./d d.dump
	restored ./bk d.dump
	want 0 kvdb kvs info ./r s -j
	same option "$(field 'd["compress"]')" zstd
	want 0 kvdb -q create ./c --size 256M
	want 0 kvdb copy ./d ./c
	dump_of ./c c.dump
	cmp c.dump d.dump || fail "the copy differs"
	want 0 kvdb verify ./d
}

large_values_come_back() {
	want 0 kvdb -q create ./d --size 256M
	want 0 kvdb kvs create ./d s
	python3 -c 'import random, sys
sys.stdout.buffer.write(random.Random(7).randbytes(1 << 24))' >v
	kvdb put ./d s k - <v || fail "a value of 16 MiB was refused"
	want 0 kvdb put ./d s l small
	dump_of ./d 1.dump
	want 0 kvdb backup ./d ./bk
	restored ./bk 1.dump
	want 0 kvdb -q create ./e --size 256M
	want 0 kvdb load --dump ./e 1.dump
	kvdb get ./e s k >w || fail "it is not there"
	cmp v w || fail "what was loaded differs"
}

copy_gives_the_same() {
	make_db
	want 0 kvdb -q create ./e --size 256M
	want 0 kvdb copy ./d ./e -j
	schema kvdb_copy
	same stores "$(field 'd["stores"], d["records"]')" "(2, 3001)"
	dump_of ./d d.dump
	dump_of ./e e.dump
	cmp d.dump e.dump || fail "the copy differs"
	want 5 kvdb copy ./d ./e
	want 0 kvdb checkpoint list ./d -H -o name
	same none "$(cat "$S/out")" ""
}

a_new_folder_is_durable_with_what_is_in_it() {
	make_db
	mkdir sub
	syncs_of "$PWD/syncs"
	# each is interrupted by a signal at first, as on FUSE
	want 0 env INTERRUPTED=1 kvdb backup ./d ./sub/bk
	synced sub sub/bk sub/bk/.part
}

# not writable: what is to be saved need not be held by a checkpoint
media_that_can_only_be_read_are_backed_up_and_copied() {
	local own='' cmd='mount --bind d d && mount -o remount,bind,ro d && exec "$@"'
	[ "$(id -u)" = 0 ] || own=-r
	make_db
	unshare -m $own bash -c "$cmd" - true 2>/dev/null || skip "nothing can be mounted"
	dump_of ./d d.dump
	want 0 unshare -m $own bash -c "$cmd" - kvdb backup ./d ./bk
	has out ': full, 3001 records, 0 deletions, '
	restored ./bk d.dump
	want 5 unshare -m $own bash -c "$cmd" - kvdb backup ./d ./bk --incremental
	has err 'can only be read'
	want 0 kvdb -q create ./c --size 256M
	want 0 unshare -m $own bash -c "$cmd" - kvdb copy ./d ./c
	dump_of ./c c.dump
	cmp c.dump d.dump || fail "what was copied differs"
	# where it can be written to again the next one is full, and the one behind that is not
	want 0 kvdb backup ./d ./bk
	has out ': full, '
	want 0 kvdb backup ./d ./bk
	has out ': incremental, 0 records'
}

# below sysfs no folder can be synced, as below autofs
a_folder_mounted_where_none_can_be_synced_is_taken() {
	local own='' cmd='mount -t tmpfs none /sys/kernel && exec "$@"'
	[ "$(id -u)" = 0 ] || own=-r
	unshare -m $own bash -c "$cmd" - true 2>/dev/null || skip "nothing can be mounted"
	want 0 kvdb -q create ./d --size 64M
	want 0 unshare -m $own bash -c "$cmd" - kvdb backup ./d /sys/kernel
	want 0 unshare -m $own bash -c "$cmd" - kvdb backup ./d /sys/kernel/bk
}

run one_record_is_not_one_records
run full_and_incremental_come_back
run what_cannot_be_is_refused
run damaged_files_are_said_and_not_used
run a_name_that_none_can_be_is_damage
run an_interrupted_one_is_begun_anew
run an_interrupted_backup_leaves_no_checkpoint
run an_interrupted_copy_leaves_no_checkpoint
run the_checkpoint_of_a_killed_backup_goes_with_the_next
run a_chain_is_longer_than_the_limit_of_open_files
run a_chain_that_lost_a_file_begins_anew
run a_database_that_went_back_is_no_base
run a_chain_does_not_grow_for_ever
run a_checkpoint_is_backed_up_beside_a_writer
run a_backup_of_ones_own_checkpoint_leaves_none_behind
run compressed_values_come_back
run large_values_come_back
run copy_gives_the_same
run a_new_folder_is_durable_with_what_is_in_it
run media_that_can_only_be_read_are_backed_up_and_copied
run a_folder_mounted_where_none_can_be_synced_is_taken
finish
