#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only OR MIT
#
# What every verb of mpool does with healthy pools: text, JSON, exit status,
# questions, plans.

# tests are called by name, and words are split on purpose
# shellcheck disable=SC2317,SC2086 source=lib.sh
. "$(dirname "$0")/lib.sh"

# a pool ./p of two classes
pool() {
	want 0 mpool create "${1:-./p}" --size 64M --staging-size 32M --label "a label"
}

create_makes_files_only_the_owner_reads() {
	umask 000
	pool
	has out '^created \./p: capacity [0-9.]+M, staging [0-9.]+M$'
	same stderr "$(cat "$S/err")" ""
	same files "$(ls p)" "$(printf 'capacity.mp\npool.json\nstaging.mp')"
	same mode "$(stat -c %a p)" 700
	for f in p/*; do
		same "$f" "$(stat -c %a "$f")" 600
	done
	same size "$(stat -c %s p/capacity.mp)" $((64 << 20))
	want 0 mpool verify ./p
}

create_prints_json() {
	want 0 mpool create -j ./p --size 64M --name other --mode 0640
	schema mpool_create
	same name "$(field 'd["name"]')" other
	same dry "$(field 'd["is_dry_run"]')" False
	same path "$(field 'd["devices"][0]["path"]')" ./p/capacity.mp
}

create_takes_members_by_path() {
	mkdir fast
	want 0 mpool create ./p ./elsewhere.mp --size 64M --staging ./fast --staging-size 32M
	same size "$(stat -c %s elsewhere.mp)" $((64 << 20))
	same size "$(stat -c %s fast/staging.mp)" $((32 << 20))
	want 0 mpool status -j ./p
	same paths "$(field 'len(d["pools"][0]["devices"])')" 2
	want 0 mpool destroy -y ./p
}

# as those that it names itself, however their path was typed
files_in_the_folder_move_with_it() {
	local dir
	mkdir there
	ln -s there link
	for dir in ./new ./there ./link; do
		want 0 mpool create $dir $dir/one.mp --size 64M --staging "$PWD/$dir/two.mp" \
			--staging-size 32M
		mkdir cut
		cp $dir/pool.json cut
		mv "$(readlink -f $dir)" moved
		want 0 mpool verify ./moved
		want 0 mpool destroy -y ./moved
		[ ! -e moved ] || fail "something is left of $dir"
		# a create that was cut can be repeated
		truncate -s 64M cut/one.mp
		want 0 mpool create ./cut ./cut/one.mp --size 64M --staging ./cut/two.mp \
			--staging-size 32M
		want 0 mpool destroy -y ./cut
		[ $dir != ./there ] || mkdir there
	done
}

# as a shell completes it, without another slash
create_takes_a_path_that_ends_in_its_only_slash() {
	want 0 mpool create -n p/ --size 64M
	want 0 mpool create -j p/ --size 64M
	same name "$(field 'd["name"]')" p
	want 0 mpool verify p/
	want 5 mpool create p/ --size 64M
	want 0 kvdb create d// --size 64M
	want 0 kvdb info d/
	# no name can be taken from these
	want 2 mpool create ./ --size 64M
	has err "'\.', .*--name"
	want 2 kvdb create ../ --size 64M
	want 0 mpool create ./ --name here --size 64M
	want 0 mpool destroy -y p/ d/ ./
}

create_plan_changes_nothing() {
	before=$(sums .)
	want 0 mpool create -n ./p --size 64M --staging-size 32M
	has out 'capacity +64M +\./p/capacity\.mp +new file'
	has out 'staging +32M +\./p/staging\.mp +new file'
	want 0 mpool create -n -j ./p --size 64M
	schema mpool_create
	same dry "$(field 'd["is_dry_run"]')" True
	same uuid "$(field 'd["uuid"]')" None
	unchanged "$before" .
}

# a member's folder is looked at, too
a_plan_names_a_folder_that_is_not_there() {
	local n
	touch file
	mkdir dir
	for n in -n -q; do
		want 3 mpool create $n ./p ./none/m.mp --size 64M
		has err 'none/m\.mp cannot be made: No such file'
		want 3 mpool create $n ./p ./file/m.mp --size 64M
		has err 'Not a directory'
		want 3 mpool create $n ./p ./p/none/m.mp --size 64M
		same left "$(echo ./*)" "./dir ./file"
	done
	if can_drop_override; then
		chmod 555 dir
		want 8 without_override mpool create -n ./p ./dir/m.mp --size 64M
		chmod 755 dir
	fi
	for n in ./p/m.mp p//m.mp "$PWD/p/m.mp" ./dir/../p/m.mp; do
		want 0 mpool create -n ./p/ "$n" --size 64M
		want 0 mpool create p/ "$n" --size 64M
		want 3 mpool add -n ./p ./none/m.mp --size 64M
		want 0 mpool destroy -y ./p
	done
	same left "$(echo ./*)" "./dir ./file"
}

# one file by two names, the pool's own one
no_file_is_two_things() {
	local f n
	mkdir dir
	ln -s dir link
	for n in -n -q; do
		want 2 mpool create $n ./p dir/m.mp --staging link/m.mp --size 64M \
			--staging-size 64M
		has err 'link/m\.mp is given twice'
		want 2 mpool create $n ./p --size 64M --staging p/capacity.mp --staging-size 64M
		has err 'p/capacity\.mp is given twice'
		for f in p/pool.json "$PWD/p/pool.json.tmp"; do
			want 2 mpool create $n ./p $f --size 64M
			has err 'is where the pool notes its members'
		done
		same left "$(echo ./*) $(echo dir/*)" "./dir ./link dir/*"
	done
	pool
	for n in -n -q; do
		want 2 mpool add $n ./p ./p/pool.json.tmp --size 64M
		want 2 mpool add $n ./p dir/m.mp link/m.mp --size 64M
	done
	want 0 mpool verify ./p
}

create_refuses_an_existing_pool() {
	pool
	before=$(sums .)
	for f in "" -n -j; do
		want 5 mpool create ./p --size 64M $f
	done
	want 5 mpool create ./p --size 64M
	one_line_error
	has err '\[MP[0-9]{4}\]$'
	want 5 mpool create -j ./p --size 64M
	schema error err
	unchanged "$before" .
}

# a disk that is not mounted is no reason to forget whose it is
create_refuses_a_pool_whose_member_is_away() {
	mkdir far
	want 0 mpool create ./p far/cap.mp --size 64M
	mv far away
	before=$(sums .)
	for f in "" -f -n; do
		want 5 mpool create ./p --size 64M $f
		one_line_error
		has err 'far/cap.mp'
	done
	unchanged "$before" .
	mv away far
	want 0 mpool verify ./p
	# what a create that was cut short has named is made by the next
	rm far/cap.mp
	want 0 mpool create ./p far/cap.mp --size 64M
	want 0 mpool verify ./p
}

create_names_bad_arguments() {
	want 2 mpool create ./p --size 64M --name .hidden
	one_line_error
	want 2 mpool create ./p --size 64M --name "a b"
	want 2 mpool create ./p --size 64M --name 12345678901234567890123456789012
	want 2 mpool create ./p --size 64M --label "$(printf '%064d' 0)"
	want 2 mpool create ./p --size 4K
	one_line_error
	[ ! -e p ] || fail "something was made"
	want 3 mpool create ./no/such/parent --size 64M
	one_line_error
}

list_prints_a_table() {
	pool
	want 0 mpool list ./p
	has out '^NAME +SIZE +ALLOC +FREE +CAP'
	has out '^p +[0-9.]+M .* capacity,staging +ok +a label +\./p$'
	want 0 mpool list -H -p -o name,health,size ./p
	has out "^p	ok	[0-9]{8}\$"
	same lines "$(wc -l <"$S/out")" 1
	want 0 mpool list -j ./p
	schema mpool_list
	want 0 mpool list -o help
	has out '^name '
	want 0 mpool list -j -o help
	schema mpool_columns
}

list_finds_pools_one_level_deep() {
	want 0 mpool list
	same stdout "$(cat "$S/out")" ""
	has err 'no pool'
	want 0 mpool list -j
	schema mpool_list
	pool ./a
	pool ./b
	mkdir c
	pool ./c/deep
	want 0 mpool list -H -o path
	same found "$(cat "$S/out")" "$(printf './a\n./b')"
	cd c || exit 1
	want 0 mpool list -H -o name
	same found "$(cat "$S/out")" deep
	cd deep || exit 1
	want 0 mpool list -H -o path,health
	same found "$(cat "$S/out")" "./	ok"
}

list_goes_on_after_an_error() {
	pool ./a
	want 3 mpool list -H -o name ./none ./a
	same found "$(cat "$S/out")" a
	one_line_error
	want 3 mpool list -j ./none ./a
	schema mpool_list
	schema error err
}

status_tells_health() {
	pool
	want 0 mpool status ./p
	has out '^ +health: ok$'
	has out '^capacity: .*free'
	has out 'staging .*\./p/staging\.mp|staging .*/p/staging\.mp'
	has out 'i/o: '
	want 0 mpool status -j ./p
	schema mpool_status
	same healthy "$(field 'd["pools"][0]["is_healthy"]')" True
	same format "$(field 'd["pools"][0]["format_version"]')" 256
	want 0 mpool status -x --exit ./p
	same stdout "$(cat "$S/out")" ""
	want 0 mpool status
	has out 'pool: p'
	want 3 mpool status ./none
	one_line_error
}

status_counts_what_a_member_was_caught_at() {
	want 0 mpool create ./p --size 64M
	want 0 mpool status -j ./p
	same clean "$(field '[x[k] for x in d["pools"][0]["devices"]
		for k in ("csum_errors", "rereads", "repairs")]')" '[0, 0, 0]'
	want 0 mpool status ./p
	hasnt out 'checksum errors'
	# the superblock's copy at the end
	printf damage | dd of=p/capacity.mp bs=1 seek=$(($(stat -c %s p/capacity.mp) - 3000)) \
		conv=notrunc status=none
	want 0 mpool status ./p
	has out 'errors 0, checksum errors 1, good when read again 0, repaired 0$'
	want 0 mpool status -j ./p
	schema mpool_status
	same damage "$(field 'd["pools"][0]["devices"][0]["csum_errors"]')" 1
}

status_of_a_damaged_pool_says_what_to_do() {
	pool
	truncate -s 1M p/capacity.mp
	want 0 mpool status ./p
	has out 'health: (damaged|missing)'
	has out 'cause: .*\[MP[0-9]{4}\]'
	has out 'action: '
	want 6 mpool status --exit ./p
	want 6 mpool status -x --exit -j
	schema mpool_status
	same healthy "$(field 'd["pools"][0]["is_healthy"]')" False
}

verify_dump_and_map_write_nothing() {
	pool
	before=$(sums .)
	want 0 mpool verify ./p
	has out 'no damage'
	want 0 mpool verify -q ./p
	same stdout "$(cat "$S/out")" ""
	want 0 mpool verify --data -j ./p
	schema mpool_verify
	want 0 mpool dump ./p
	has out '[Ss]uperblock|uuid'
	want 0 mpool dump -j ./p
	schema mpool_dump
	want 0 mpool map ./p
	has out '^DEVICE +OFFSET +LENGTH'
	has out 'metadata'
	want 0 mpool map -j ./p
	schema mpool_map out --lines
	want 0 mpool map -o help -j ./p
	schema mpool_columns
	unchanged "$before" .
}

map_shows_objects_that_do_not_overlap() {
	pool
	lib=$O/lib/libmpool.so
	[ -e "$lib" ] || skip "no shared library was built"
	want 0 python3 "$CLI/hold.py" "$lib" ./p 5
	want 0 mpool list -H -o objects ./p
	# the pool's history is two logs
	same objects "$(cat "$S/out")" 7
	want 0 mpool verify --data ./p
	want 0 mpool map -H -p ./p
	python3 - "$S/out" <<-'EOF'
	import sys
	end = {}
	objects = set()
	for line in open(sys.argv[1]):
	    dev, off, length, kind, ident, what = line.rstrip("\n").split("\t")
	    off, length = int(off), int(length)
	    assert off >= end.get(dev, 0), "overlap or disorder: " + line
	    assert length > 0 and off % 4096 == 0, line
	    end[dev] = off + length
	    if kind == "mblock":
	        objects.add(ident)
	        assert length == 65536, line
	assert len(objects) == 5, objects
	EOF
}

destroy_asks() {
	pool
	before=$(sums .)
	want 5 mpool destroy ./p
	one_line_error
	has err 'use -y'
	want 5 mpool destroy -j ./p
	schema error err
	want 0 mpool destroy -n ./p
	has out '^pool p \(\./p\): 2 objects'
	want 0 mpool destroy -n -j ./p
	schema mpool_destroy
	want 5 python3 "$CLI/on_tty.py" q mpool destroy ./p
	has out 'not confirmed'
	unchanged "$before" .
	want 0 python3 "$CLI/on_tty.py" p mpool destroy ./p
	has out 'destroyed \./p'
	[ ! -e p/capacity.mp ] || fail "capacity.mp is still there"
	want 3 mpool status ./p
}

destroy_by_a_link_removes_the_folder() {
	local link
	for link in ./link link/; do
		pool
		ln -s p link
		want 0 mpool destroy -y $link
		same left "$(ls)" link
		rm link
	done
}

destroy_checks_all_before_the_first() {
	pool ./a
	before=$(sums a)
	want 3 mpool destroy -y ./a ./none
	one_line_error
	unchanged "$before" a
	want 2 mpool destroy -y ./a a/
	one_line_error
	has err 'a/: .*given twice'
	unchanged "$before" a
	pool ./b
	want 0 mpool destroy -y -j ./a ./b
	schema mpool_destroy
	same pools "$(field 'len(d["pools"])')" 2
	want 0 mpool list -H
	same stdout "$(cat "$S/out")" ""
}

destroy_keeps_what_it_cannot_remove() {
	can_drop_override || skip "modes of files do not count here"
	mkdir far
	pool
	want 0 mpool create ./q ./far/m.mp --size 64M
	chmod 555 p far
	want 8 without_override mpool destroy -y ./p
	has err 'cannot be removed: Permission denied'
	want 8 without_override mpool destroy -y ./q
	has err 'far/m\.mp cannot be removed'
	chmod 755 p far
	want 0 mpool verify ./p
	want 0 mpool verify ./q
	chmod 555 q
	want 8 without_override mpool destroy -y ./q
	has err 'pool\.json cannot be removed'
	chmod 755 q
	want 0 mpool destroy -y ./p ./q
	[ ! -e p ] && [ ! -e q ] && [ ! -e far/m.mp ] || fail "something is left"
}

# each moment of the removal of the files: hard links keep what the destroy wrote into them
a_destroy_that_was_cut_can_be_repeated() {
	want 0 mpool create ./p --size 16M --staging-size 8M
	want 0 mpool add ./p ./p/more.mp --size 8M
	mkdir kept
	ln p/*.mp kept
	cp p/pool.json kept
	want 0 mpool destroy -y ./p
	for left in "capacity.mp staging.mp more.mp pool.json" "capacity.mp staging.mp pool.json" \
		"capacity.mp pool.json" "capacity.mp"; do
		mkdir p
		for f in $left; do
			cp --sparse=always kept/$f p
		done
		before=$(sums p)
		want 3 mpool status ./p
		one_line_error
		has err "pool 'p' was destroyed \\(.*mpool destroy.*\\[MP0112\\]$"
		want 5 mpool destroy ./p
		has err 'what is left of a destroyed pool'
		want 0 mpool -j destroy -n ./p
		schema mpool_destroy
		unchanged "$before" p
		want 0 mpool destroy -y ./p
		[ ! -e p ] || fail "something is left: $(ls p)"
	done
}

a_directory_without_a_slash_is_explained() {
	want 0 mpool create ./.hidden --name h --size 16M
	want 2 mpool status .hidden
	one_line_error
	has err '\./\.hidden'
	want 2 mpool create . --size 16M
	has err "'\./\.'"
}

a_terminal_gets_colour_unless_told() {
	pool
	want 0 python3 "$CLI/on_tty.py" "" mpool status ./p
	has out "$(printf '\033')"
	want 0 env NO_COLOR=1 python3 "$CLI/on_tty.py" "" mpool status ./p
	hasnt out "$(printf '\033')"
	want 0 mpool status ./p
	hasnt out "$(printf '\033')"
}

a_label_is_text() {
	want 2 mpool create ./p --size 64M --label "$(printf 'x\033[31my')"
	one_line_error
	hasnt err "$(printf '\033')"
	[ ! -e p ] || fail "something was made"
	want 0 mpool create ./p --size 64M --label "Größe 1"
	want 0 mpool list ./p
	has out 'Größe 1'
	want 0 mpool list -j ./p
	same label "$(field 'd["pools"][0]["label"]')" "Größe 1"
}

a_member_drives_no_terminal() {
	want 0 mpool -q create ./p "$(printf './m\033]0;x\302\233y.mp')" --size 64M
	LC_ALL=C
	want 0 mpool status ./p
	hasnt out "$(printf '[\033\233]')"
	has out 'm\?]0;x\?\?y'
	want 0 mpool destroy ./p -n
	hasnt out "$(printf '[\033\233]')"
}

# the name in a signature can be any
a_foreign_signature_drives_no_terminal() {
	want 0 mpool -q create ./p --size 64M
	python3 - p/capacity.mp <<-'EOF'
	import struct, sys
	f = open(sys.argv[1], "r+b")
	head = bytearray(f.read(62))
	head[8:16] = b"\x1b[3m\xc2\x9bxy"
	crc = 0xffffffff
	for byte in head:
	    crc ^= byte
	    for _ in range(8):
	        crc = crc >> 1 ^ (0x82f63b78 if crc & 1 else 0)
	f.seek(0)
	f.write(head + struct.pack("<I", crc ^ 0xffffffff))
	EOF
	LC_ALL=C
	want 0 mpool wipe -n p/capacity.mp
	has out 'member of pool \?\[3m\?\?x'
	hasnt out "$(printf '[\033\233]')"
}

closed_output_does_not_reach_a_pool() {
	pool
	before=$(sums .)
	rc=0
	mpool status ./p >&- 2>&- <&- || rc=$?
	same status $rc 1
	rc=0
	mpool dump ./p >/dev/full 2>/dev/null || rc=$?
	same full $rc 1
	unchanged "$before" .
}

run create_makes_files_only_the_owner_reads
run create_prints_json
run create_takes_members_by_path
run files_in_the_folder_move_with_it
run create_takes_a_path_that_ends_in_its_only_slash
run create_plan_changes_nothing
run a_plan_names_a_folder_that_is_not_there
run no_file_is_two_things
run create_refuses_an_existing_pool
run create_refuses_a_pool_whose_member_is_away
run create_names_bad_arguments
run list_prints_a_table
run list_finds_pools_one_level_deep
run list_goes_on_after_an_error
run status_tells_health
run status_counts_what_a_member_was_caught_at
run status_of_a_damaged_pool_says_what_to_do
run verify_dump_and_map_write_nothing
run map_shows_objects_that_do_not_overlap
run destroy_asks
run destroy_by_a_link_removes_the_folder
run destroy_checks_all_before_the_first
run destroy_keeps_what_it_cannot_remove
run a_destroy_that_was_cut_can_be_repeated
run a_directory_without_a_slash_is_explained
run a_terminal_gets_colour_unless_told
run a_label_is_text
run a_member_drives_no_terminal
run a_foreign_signature_drives_no_terminal
run closed_output_does_not_reach_a_pool
finish
