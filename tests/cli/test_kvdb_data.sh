#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only OR MIT
#
# Databases, stores and records by command: what is put comes back byte for
# byte, what cannot be is refused by name and changes nothing.

# shellcheck disable=SC1091
. "$(dirname "$0")/lib.sh"

make_db() {
	want 0 kvdb -q create ./d --size 256M
	want 0 kvdb kvs create ./d s
}

# bytes N: N reproducible bytes of every value
bytes() {
	[ "$1" = 0 ] || head -c "$1" <(python3 -c 'import sys, random
random.seed(7)
sys.stdout.buffer.write(random.randbytes(1 << 24) + b"!")')
}

# letters N: a word of N bytes
letters() {
	printf "%$1s" '' | tr ' ' k
}

create_makes_a_pool_and_says_so() {
	want 0 kvdb create ./d --size 256M --staging-size 128M
	has out '^made pool \./d .*256M.*128M'
	has out '^made database \./d'
	want 0 kvdb info ./d -j
	schema kvdb_info
	same classes "$(field 'sorted(c["class"] for c in d["pool"]["classes"])')" \
		"['capacity', 'staging']"
	want 5 kvdb create ./d
	one_line_error
	want 2 kvdb create ./d --size 1G
	has err 'a pool already'
}

create_uses_a_pool_that_is_there() {
	want 0 mpool create ./d --size 256M
	want 0 kvdb create ./d -j
	schema kvdb_create
	same made "$(field 'd["made_pool"]')" False
	want 0 kvdb kvs list ./d -j
	schema kvdb_kvs_list
	same stores "$(field 'd["kvs"]')" "[]"
}

create_plan_writes_nothing() {
	want 0 kvdb create ./d -n --size 256M
	has out 'would make pool'
	want 0 kvdb create ./d -n -j --size 256M --staging-size 128M
	schema kvdb_create
	same plan "$(field 'd["plan"], [(x["path"], x["size"] >> 20) for x in d["devices"]]')" \
		"(True, [('./d/capacity.mp', 256), ('./d/staging.mp', 128)])"
	want 2 kvdb create ./d -n --segment-size 3
	same stdout "$(cat "$S/out")" ""
	[ ! -e d ] || fail "the plan made something"
	make_db
	local before
	before=$(sums d)
	want 5 kvdb create ./d -n
	unchanged "$before" d
}

# what the library refuses only when the pool is there
a_plan_ends_as_the_deed() {
	local opts rc
	for opts in '--size 2M' '--size 3M' '--size 4M' '--size 64M --cache 900T' \
		'--size 64M --segment-size 32M' '--size 64M --segment-size 16M --cache 64M' \
		'--size 5M --segment-size 4M' '--size 64M --staging-size 2M' '--size 64M'; do
		rc=0
		# shellcheck disable=SC2086
		kvdb create ./d -n $opts >"$S/out" 2>"$S/plan" || rc=$?
		[ ! -e d ] || fail "the plan made something"
		# shellcheck disable=SC2086
		want $rc kvdb create ./d $opts
		# where the pool is there
		rm -rf d
		# shellcheck disable=SC2046
		want 0 mpool create ./d $(grep -oE -- '--(staging-)?size [0-9]+M' <<<"$opts")
		# shellcheck disable=SC2046
		want $rc kvdb create ./d -n $(sed -E 's/--(staging-)?size [0-9]+M//g' <<<"$opts")
		rm -rf d
	done
	want 2 kvdb create ./d -n --size 64M --cache 900T
	has err 'cache_bytes is'
	want 1 env MPOOL_DEV=all:volatile,cut=1ms kvdb create ./d -n --size 2M
	one_line_error
	same left "$(ls)" ""
}

a_pool_without_a_database_says_how_to_make_one() {
	want 0 mpool -q create ./d --size 64M
	for verb in 'scan ./d s' 'get ./d s k' 'del ./d s k' 'info ./d' 'kvs list ./d'; do
		# shellcheck disable=SC2086
		want 3 kvdb $verb
		one_line_error
		has err ': there is no database in this pool \(create .* first: kvdb create POOL\)'
	done
}

a_pool_that_is_larger_than_its_file_system_is_said() {
	want 0 kvdb create ./d --size 900T -n
	has err '^kvdb: \./d/capacity\.mp: the file system has .* free, less than the 900T'
	want 0 mpool create ./d --size 900T -n
	has err '^mpool: \./d/capacity\.mp: the file system has .* free, less than the 900T'
	want 2 kvdb create ./d --size 16777215T -n
	has err 'no file has 18446742974197923840 bytes'
	want 2 mpool create ./d --size 8388608T -n
	has err 'no file has 9223372036854775808 bytes'
	want 0 kvdb -q create ./d --size 900T -n
	same err "$(cat "$S/err")" ""
	want 0 kvdb create ./d --size 64M
	same err "$(cat "$S/err")" ""
}

create_that_fails_says_nothing_was_made() {
	want 2 kvdb create ./d --segment-size 3 --size 256M
	same stdout "$(cat "$S/out")" ""
	one_line_error
	# a pool that has no room for a database
	want 1 kvdb create ./d --size 2M
	same stdout "$(cat "$S/out")" ""
	want 2 kvdb create ./d --size 1
	has err "'1'"
	[ ! -e d ] || fail "something was left"
}

# what is there before the first superblock is written
a_create_that_was_cut_can_be_repeated() {
	mkdir a b c
	want 0 mpool create ./a --size 64M
	cp a/pool.json b
	cp a/pool.json c/pool.json.tmp
	truncate -s 64M b/capacity.mp c/capacity.mp
	for d in b c; do
		want 0 kvdb create -n ./$d --size 64M
		want 0 kvdb create ./$d --size 64M
		has out "^made pool ./$d on plain files: capacity 64M$"
		want 0 kvdb info ./$d
	done
	# a pool that lost its first superblock is none of these
	dd if=/dev/zero of=a/capacity.mp bs=4096 count=1 conv=notrunc 2>/dev/null
	before=$(sums a)
	for opt in -n -q; do
		want 5 kvdb create $opt ./a --size 64M
		one_line_error
	done
	unchanged "$before" a
}

pools_have_the_name_that_was_asked_for() {
	want 2 kvdb create './a b' --size 256M
	has err "name taken from the path, 'a b'.*--name"
	want 2 kvdb create ./the-database-of-all-our-customers --size 256M
	has err "name taken from the path, 'the-database.*--name.*MP0123"
	want 2 kvdb create './a b' --size 256M --name 'c d'
	hasnt err 'taken from'
	want 0 kvdb create './a b' --size 256M --name ab
	want 0 kvdb info './a b' -j
	same name "$(field 'd["pool"]["name"]')" ab
	want 2 kvdb create './a b' --name ab
	has err 'is a pool already.*without them a database is made in it'
}

the_space_bound_is_kept_and_shown() {
	want 0 kvdb create ./d --size 256M --space-amp 2.25 -q
	want 0 kvdb kvs create ./d s -q
	bytes 300000 >v
	kvdb put ./d s k - <v
	kvdb put ./d s k - <v
	want 0 kvdb info ./d -j
	schema kvdb_info
	same bound "$(field 'd["space"]["space_amp_max"]')" 2.25
	same live "$(field '299000 < d["space"]["live_bytes"] < 301000')" True
	want 0 kvdb info ./d
	has out '^space .* in use, .* of values dead; about 293.* live: [0-9.]+; bound 2.25$'
	want 0 kvdb stats ./d -j
	schema kvdb_stats
	same live "$(field '[s["live_value_bytes"] >= 300000 for s in d["space"]]')" '[True, False]'
	want 0 kvdb stats ./d
	has out '^space capacity +segments [0-9]+ live [0-9]+ dead [0-9]+$'
	local x
	for x in 1 1.0x 101 nan ''; do
		want 2 kvdb create ./e --space-amp "$x"
	done
}

info_and_stats_are_typed() {
	make_db
	want 0 kvdb put ./d s k v
	want 0 kvdb info ./d
	has out '^stores +1$'
	has out '^loss bound +chosen at each open'
	has out '^cache +chosen at each open'
	want 0 kvdb stats ./d -j
	schema kvdb_stats
	same keys "$(field 'd["keys_estimate"]')" 1
	want 0 kvdb stats ./d
	has out '^keys_estimate +1$'
}

stores_are_made_listed_and_dropped() {
	make_db
	want 0 kvdb kvs create ./d another.store-2 -j
	schema kvdb_kvs_create
	want 0 kvdb kvs list ./d -H -o name
	same list "$(sort <"$S/out" | tr '\n' ' ')" "another.store-2 s "
	want 0 kvdb put ./d s k v
	want 3 kvdb get ./d another.store-2 k
	want 5 kvdb kvs drop ./d s
	has err '-y'
	want 0 kvdb kvs drop ./d s -n
	has out '^would remove store s '
	want 0 kvdb kvs drop ./d s -n -j
	schema kvdb_kvs_drop
	want 0 kvdb get ./d s k
	want 0 kvdb kvs drop ./d s -y -j
	schema kvdb_kvs_drop
	same plan "$(field 'd["plan"]')" False
	want 3 kvdb get ./d s k
	want 3 kvdb kvs drop ./d s -y
	want 5 kvdb kvs create ./d another.store-2
	local name
	for name in '' .hidden 'with space' a/b 12345678901234567890123456789012; do
		want 2 kvdb kvs create ./d "$name"
		one_line_error
	done
	want 2 kvdb kvs create ./d -- -dash
}

drop_asks_and_leaves_the_pool() {
	make_db
	want 5 kvdb drop ./d
	has err '-y'
	want 0 kvdb drop ./d -n
	has out '^would remove database ./d: about 0 keys'
	want 0 kvdb drop ./d -n -j
	schema kvdb_drop
	want 0 kvdb info ./d
	# of the pool, whatever its folder is called
	want 0 mpool rename ./d other
	want 5 python3 "$CLI/on_tty.py" d kvdb drop ./d
	has out '^This destroys the database with about 0 keys in it\.$'
	has out 'Type "other" to go on: '
	want 0 kvdb info ./d
	want 0 python3 "$CLI/on_tty.py" other kvdb drop ./d
	want 0 kvdb create ./d
	want 0 kvdb drop ./d -y -j
	schema kvdb_drop
	same plan "$(field 'd["plan"]')" False
	want 3 kvdb info ./d
	want 0 mpool verify ./d
	want 0 kvdb create ./d
}

# shown NAME BYTES: what the last command printed, as od shows it
shown() {
	same "$1" "$(od -An -c "$S/out" | tr -d ' \n')" "$2"
}

a_terminal_gets_a_newline_and_a_pipe_does_not() {
	make_db
	want 0 kvdb put ./d s k v
	printf 'line\n' >v
	kvdb put ./d s lines - <v
	want 0 kvdb put ./d s none ''
	want 0 kvdb get ./d s k
	shown pipe v
	want 0 kvdb get ./d s lines
	shown pipe 'line\n'
	want 0 kvdb get ./d s none
	shown pipe ''
	# the first newline is the echo of what on_tty.py types
	want 0 python3 "$CLI/on_tty.py" "" kvdb get ./d s k
	shown terminal '\nv\n'
	want 0 python3 "$CLI/on_tty.py" "" kvdb get ./d s lines
	shown terminal '\nline\n'
	want 0 python3 "$CLI/on_tty.py" "" kvdb get ./d s none
	shown terminal '\n\n'
}

a_value_that_is_not_delivered_exits_1() {
	local n rc
	make_db
	for n in 1 5000 1000000; do
		bytes $n >v
		kvdb put ./d s k - <v
		rc=0
		kvdb get ./d s k >/dev/full 2>"$S/err" || rc=$?
		same full $rc 1
		one_line_error
		# no other error's words
		has err '^kvdb: get: cannot write to standard output(: No space left on device)?$'
	done
}

values_of_every_size_come_back() {
	local n
	make_db
	for n in 0 1 127 128 129 4095 4096 65536 1048576 16777215 16777216; do
		bytes $n >"v$n"
		kvdb put ./d s "key$n" - <"v$n" || fail "put $n"
	done
	for n in 0 1 127 128 129 4095 4096 65536 1048576 16777215 16777216; do
		want 0 kvdb get ./d s "key$n"
		cmp "v$n" "$S/out"
	done
	want 0 kvdb verify --data ./d
}

keys_of_every_size_come_back() {
	local n
	make_db
	for n in 1 2 15 16 17 127 128 255 256 1000 1343 1344; do
		want 0 kvdb put ./d s "$(letters $n)" "value of $n"
	done
	for n in 1 2 15 16 17 127 128 255 256 1000 1343 1344; do
		want 0 kvdb get ./d s "$(letters $n)"
		same "$n" "$(cat "$S/out")" "value of $n"
	done
	want 0 kvdb verify --data ./d
}

too_long_is_refused_and_changes_nothing() {
	local before n
	make_db
	want 0 kvdb put ./d s k v
	before=$(sums d)
	for n in 1345 2000 100000; do
		want 2 kvdb put ./d s "$(letters $n)" v
		one_line_error
		has err "key.*$n bytes"
	done
	want 2 kvdb put ./d s '' v
	one_line_error
	bytes 16777217 >big
	kvdb put ./d s k - <big 2>"$S/err" && fail "a value of 16 MiB and 1 byte was taken"
	one_line_error
	has err 'value has more than 16777216 bytes'
	kvdb put ./d s k - <. 2>"$S/err" && fail "a folder was taken"
	has err 'put standard input: Is a directory'
	local rc=0
	kvdb put ./d s k - <big 2>"$S/err" || rc=$?
	same "exit code" $rc 2
	unchanged "$before" d
	want 0 kvdb get ./d s k
	same value "$(cat "$S/out")" v
}

binary_keys_and_values_by_hex() {
	make_db
	want 0 kvdb put -x -X ./d s 00ff0a 01000d0aFF
	want 0 kvdb get -x -X ./d s 00FF0A
	same value "$(cat "$S/out")" 01000d0aff
	want 0 kvdb get -j -X ./d s 00ff0a
	schema kvdb_get
	same json "$(field 'd["key_hex"], d["value_hex"], d["length"]')" \
		"('00ff0a', '01000d0aff', 5)"
	want 0 kvdb put ./d s 'ключ' 'значение'
	want 0 kvdb get -j ./d s 'ключ'
	schema kvdb_get
	same json "$(field 'd["key"], d["value"]')" "('ключ', 'значение')"
}

put_replaces_and_del_deletes() {
	make_db
	want 0 kvdb put ./d s k one
	same stdout "$(cat "$S/out")" ""
	want 0 kvdb put -j --sync ./d s k two
	schema kvdb_put
	same json "$(field 'd["db"], d["kvs"], d["key"], d["length"]')" "('./d', 's', 'k', 3)"
	want 0 kvdb get ./d s k
	same value "$(cat "$S/out")" two
	want 0 kvdb del -j ./d s k
	schema kvdb_del
	want 3 kvdb get ./d s k
	one_line_error
	want 3 kvdb del ./d s k
	want 0 kvdb put ./d s k three
	want 0 kvdb get ./d s k
	same value "$(cat "$S/out")" three
}

what_is_absent_exits_3() {
	make_db
	want 3 kvdb get ./d s nothing
	want 3 kvdb get ./d nothing k
	want 3 kvdb put ./d nothing k v
	want 3 kvdb get ./nothing s k
	want 3 kvdb verify ./nothing
	want 3 kvdb -j get ./d s nothing
	schema error err
	[ ! -e nothing ] || fail "something was made"
}

put_makes_what_is_not_there() {
	want 0 kvdb put ./new.kv fruit apple red
	has err '^kvdb: made ./new.kv: a database in pool new.kv, which grows as it is filled$'
	has err '^kvdb: made store fruit$'
	[ ! -s "$S/out" ] || fail "standard output"
	[ "$(du -sk new.kv | cut -f1)" -lt 12288 ] || fail "it takes $(du -sk new.kv)"
	want 0 kvdb get ./new.kv fruit apple
	same value "$(cat "$S/out")" red
	# in a database that is there a store's name may be mistyped
	want 3 kvdb put ./new.kv friut pear green
	want 0 kvdb put -c ./new.kv veg leek green
	has err '^kvdb: made store veg$'
	want 0 kvdb -q put -c ./new.kv veg leek white
	[ ! -s "$S/err" ] || fail "told what was there"
	# what is refused makes nothing
	want 2 kvdb put ./other fruit '' red
	want 2 kvdb put ./other fruit apple red --cache 1M
	[ ! -e other ] || fail "something was made"
	echo mine >file
	want 3 kvdb put ./file fruit apple red
	same file "$(cat file)" mine
	want 0 kvdb put "./a folder" s k v
	has err 'in pool pool-[0-9a-f-]{18}, which grows'
}

put_goes_on_from_what_was_cut() {
	want 0 kvdb put ./a s k v
	mkdir b c d e f
	for d in c d e; do
		cp a/pool.json $d
	done
	truncate -s 1G b/capacity.mp c/capacity.mp
	cp --sparse=always a/capacity.mp d
	cp --sparse=always a/capacity.mp e
	python3 "$CLI/images.py" unborn d/capacity.mp
	python3 "$CLI/images.py" early e/capacity.mp
	: >f/capacity.mp
	for d in b c d e f; do
		want 0 kvdb put ./$d s k v
		has err "^kvdb: made ./$d: a database"
		want 0 kvdb verify ./$d
	done
}

put_leaves_what_it_cannot_read() {
	mkdir far
	want 0 mpool create ./p far/cap.mp --size 64M
	want 0 kvdb create ./p
	want 0 kvdb put -c ./p s k v
	mv far away
	before=$(sums .)
	want 6 kvdb put ./p s k v
	has err 'far/cap.mp is missing'
	unchanged "$before" .
	mkdir far
	echo mine >far/cap.mp
	truncate -s 64M far/cap.mp
	before=$(sums .)
	want 3 kvdb put ./p s k v
	has err 'no pool signature'
	want 5 mpool create ./p --size 64M
	has err 'far/cap.mp is not whole'
	unchanged "$before" .
	# nor is anything made in a folder whose file is away
	want 0 kvdb put ./q s k v
	rm q/capacity.mp
	want 6 kvdb put ./q s k v
	[ ! -e q/capacity.mp ] || fail "it was made anew"
}

verify_of_a_sound_database_is_clean() {
	make_db
	bytes 300000 >v
	kvdb put ./d s k - <v
	local before
	before=$(sums d)
	want 0 kvdb verify ./d
	has out clean
	want 0 kvdb verify --data -j ./d
	schema kvdb_verify
	same clean "$(field 'd["is_clean"], d["damage"]')" "(True, 0)"
	unchanged "$before" d
}

# spoil DEVICE FILE: a bit in the middle of each copy of FILE, also of those that nothing refers to
spoil() {
	python3 - "$1" "$2" <<-'EOF'
	import sys
	data, v = open(sys.argv[1], "rb").read(), open(sys.argv[2], "rb").read()
	part, at = v[50000:51000], -1
	with open(sys.argv[1], "r+b") as f:
	    while (at := data.find(part, at + 1)) >= 0:
	        f.seek(at)
	        f.write(bytes([data[at] ^ 1]))
	EOF
}

# what a hole below a pool takes reads as zeros: said to be damaged, never to be absent
a_hole_below_is_damage_or_harmless() {
	local mib lost=0 rc
	bytes 20000 >v
	want 0 kvdb create ./d --size 64M -q
	want 0 kvdb kvs create ./d s -q
	kvdb put ./d s k - <v
	want 0 kvdb compact ./d -q
	cp --sparse=always d/capacity.mp whole
	for mib in {0..63}; do
		cp --sparse=always whole d/capacity.mp
		fallocate --punch-hole --offset "${mib}M" --length 1M d/capacity.mp
		rc=0
		kvdb get ./d s k >out 2>err || rc=$?
		case $rc in
		0) cmp -s out v || fail "hole at $mib MiB: another value" ;;
		*)
			lost=$((lost + 1))
			grep -q '\[MP[0-9]*\]$' err && ! grep -q MP0952 err ||
				fail "hole at $mib MiB: $(cat err)"
			! kvdb create ./d -q 2>err || fail "hole at $mib MiB: a new database"
			;;
		esac
	done
	[ $lost -ge 3 ] || fail "only $lost holes took something"
}

a_deep_check_names_the_damage() {
	make_db
	bytes 100000 >v
	kvdb put ./d s "k	1" - <v
	want 0 kvdb put ./d s l small
	want 0 kvdb compact ./d -q
	want 0 kvdb checkpoint create ./d c -q
	want 0 kvdb verify --deep -j ./d
	schema kvdb_verify
	same findings "$(field 'd["findings"], d["deep"], d["data"]')" "([], True, True)"
	want 0 kvdb verify --deep --checkpoint c ./d
	want 3 kvdb verify --deep --checkpoint none ./d
	spoil d/capacity.mp v
	want 6 kvdb verify --deep ./d
	has out "^damage: store s: run [0-9]+: 1 value cannot be read: .*; keys from 'k.t1' to "
	has out 'damage.* \[MP0960\]$'
	want 6 kvdb verify --deep --checkpoint c -j ./d
	schema kvdb_verify
	same store "$(field 'd["findings"][0]["kvs"]')" s
	same key "$(field 'd["findings"][0]["from"] == "k\t1"')" True
}

repair_brings_over_what_is_left() {
	make_db
	want 0 kvdb create ./e --size 256M -q
	bytes 100000 >v
	kvdb put ./d s k - <v
	kvdb put ./d s l - <"$CLI/lib.sh"
	want 0 kvdb put ./d s m small
	want 0 kvdb repair ./d
	has out 'can be brought over; uncertain among them: 0$'
	has out 'nothing is lost'
	spoil d/capacity.mp v
	local before
	before=$(sums d)
	want 6 kvdb repair ./d -j
	schema kvdb_repair
	same lost "$(field 'd["lost_values"], d["keys"], d["to"], d["plan"]')" "(1, 2, None, True)"
	want 6 kvdb repair -n ./d ./e
	want 0 kvdb kvs list ./e -H
	same none "$(cat "$S/out")" ""
	want 6 kvdb repair ./d ./e
	has out "^damage: store s: 1 value .*; keys from 'k' to "
	has out '2 keys of 1 store, .* brought to ./e'
	unchanged "$before" d
	want 0 kvdb verify --deep ./e
	want 0 kvdb get ./e s m
	want 3 kvdb get ./e s k
	want 5 kvdb repair ./d ./e
	has err 'has stores'
	want 3 kvdb repair ./nothing
	want 3 kvdb repair ./d ./nothing
}

# A process makes three values durable, one by one, and dies; then the second goes bad.
damage_the_log() {
	local i pid
	mkfifo in
	kvdb shell ./d <in >out 2>&1 &
	pid=$!
	exec 7>in
	printf 'use s\n' >&7
	for i in 1 2 3; do
		head -c 51000 /dev/zero | tr '\0' "$i" >v$i
		printf 'put k%d %s\nsync\n' "$i" "$(cat v$i)" >&7
	done
	printf 'count\n' >&7
	for ((i = 0; i < 200; i++)); do
		grep -q '^3' out && break
		sleep 0.05
	done
	kill -KILL $pid
	wait $pid || :
	exec 7>&-
	spoil d/capacity.mp v2
}

a_damaged_log_can_end_before_the_damage() {
	local good
	make_db
	damage_the_log
	want 6 kvdb get ./d s k1
	has err 'the log is damaged at .*MP0907'
	good=$(sed -n 's/.*the last good one is \([0-9]*\).*/\1/p' "$S/err")
	want 6 kvdb repair ./d --rollback $((good + 1))
	want 2 kvdb repair ./d ./e --rollback "$good"
	want 0 kvdb repair ./d --rollback "$good" -n
	has out 'can end at epoch'
	want 6 kvdb verify ./d
	want 0 kvdb repair ./d --rollback "$good" -j
	schema kvdb_repair_rollback
	want 0 kvdb verify --deep ./d
	want 0 kvdb get ./d s k1
	cmp -s "$S/out" v1 || fail "another value"
	want 3 kvdb get ./d s k2
	want 3 kvdb get ./d s k3
	want 2 kvdb repair ./d --rollback "$good"
	has err 'its log is not damaged'
}

a_damaged_database_can_be_dropped() {
	make_db
	damage_the_log
	want 6 kvdb info ./d
	want 5 kvdb drop ./d
	has err 'destroys the database, which is damaged'
	want 0 kvdb drop ./d -n
	has out '^would remove database ./d: damaged; '
	want 0 kvdb drop ./d -y -j
	schema kvdb_drop
	same keys "$(field 'd["keys_estimate"]')" None
	want 3 kvdb info ./d
	want 0 mpool verify ./d
	want 0 kvdb create ./d
}

reading_verbs_write_nothing() {
	make_db
	want 0 kvdb put ./d s k v
	local before
	before=$(sums d)
	want 0 kvdb get ./d s k
	want 0 kvdb scan ./d s
	want 0 kvdb info ./d
	want 0 kvdb stats ./d
	want 0 kvdb kvs list ./d -H -o name
	unchanged "$before" d
}

# closed for a weekend: the database does not open until the clock is confirmed
a_clock_that_is_right_can_be_confirmed() {
	local before
	make_db
	python3 "$CLI/past_db.py" "$O/lib/libkvdb.so" ./d s 60
	before=$(sums d)
	want 1 kvdb get ./d s long
	has err 'clock is [0-9]+ hours ahead .*--time-jump.*MP0936'
	want 1 kvdb drop ./d -y
	unchanged "$before" d
	want 0 kvdb get --time-jump ./d s long
	want 3 kvdb get --time-jump ./d s short
	want 0 kvdb info --time-jump ./d
	want 1 kvdb info ./d
	# a write records the time
	want 0 kvdb put --time-jump ./d s k v
	want 0 kvdb get ./d s long
	want 3 kvdb get ./d s short
}

what_the_environment_says_wrong_is_named() {
	make_db
	want 2 env MPOOL_IO=magic kvdb info ./d
	has err 'MPOOL_IO.*"magic".*uring or sync'
	want 2 env MPOOL_DEV=all:speed=3 kvdb info ./d
	has err 'MPOOL_DEV.*speed=3|speed=3.*MPOOL_DEV'
}

run create_makes_a_pool_and_says_so
run create_uses_a_pool_that_is_there
run create_plan_writes_nothing
run a_plan_ends_as_the_deed
run a_pool_without_a_database_says_how_to_make_one
run a_pool_that_is_larger_than_its_file_system_is_said
run a_create_that_was_cut_can_be_repeated
run create_that_fails_says_nothing_was_made
run pools_have_the_name_that_was_asked_for
run the_space_bound_is_kept_and_shown
run info_and_stats_are_typed
run stores_are_made_listed_and_dropped
run drop_asks_and_leaves_the_pool
run a_terminal_gets_a_newline_and_a_pipe_does_not
run a_value_that_is_not_delivered_exits_1
run values_of_every_size_come_back
run keys_of_every_size_come_back
run too_long_is_refused_and_changes_nothing
run binary_keys_and_values_by_hex
run put_replaces_and_del_deletes
run what_is_absent_exits_3
run put_makes_what_is_not_there
run put_goes_on_from_what_was_cut
run put_leaves_what_it_cannot_read
run verify_of_a_sound_database_is_clean
run a_hole_below_is_damage_or_harmless
run a_deep_check_names_the_damage
run repair_brings_over_what_is_left
run a_damaged_log_can_end_before_the_damage
run a_damaged_database_can_be_dropped
run reading_verbs_write_nothing
run a_clock_that_is_right_can_be_confirmed
run what_the_environment_says_wrong_is_named
finish
