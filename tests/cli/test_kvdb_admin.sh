#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only OR MIT
#
# The administrator's verbs of kvdb: stores, lists, shape, dump and load.

# shellcheck disable=SC1091
. "$(dirname "$0")/lib.sh"

make_db() {
	want 0 kvdb create "./${1:-d}" --size 256M -q
}

fill() {
	local i
	for i in "$@"; do
		printf 'k%d\tvalue %d\n' "$i" "$i"
	done | kvdb load -q ./d s
}

a_store_gets_another_name_and_keeps_its_records() {
	make_db
	want 0 kvdb kvs create ./d s
	fill 1 2 3
	want 0 kvdb kvs rename ./d s people -j
	schema kvdb_kvs_rename
	want 3 kvdb get ./d s k1
	want 0 kvdb get ./d people k2
	same value "$(cat "$S/out")" "value 2"
	want 0 kvdb kvs rename ./d people s
	has out 'store people of database ./d is now s'
	want 0 kvdb verify ./d
	want 0 kvdb kvs rename -q ./d s s
	same out "$(cat "$S/out")" ""
}

renames_that_cannot_be_name_the_reason_and_the_way_out() {
	make_db
	want 0 kvdb kvs create ./d s
	want 0 kvdb kvs create ./d t
	want 5 kvdb kvs rename ./d s t
	has err 'kvs rename t: there is a store named t .*kvdb kvs list.*MP0970'
	want 3 kvdb kvs rename ./d none x
	has err 'kvs rename none: .*MP0965'
	want 2 kvdb kvs rename ./d s 'a b'
	has err '1 to 31'
	want 2 kvdb kvs rename ./d s
	want 0 kvdb kvs list ./d -H -o name
	same list "$(tr '\n' ' ' <"$S/out")" "s t "
}

stores_are_listed_with_their_size() {
	make_db
	want 0 kvdb kvs list ./d
	has err 'no store; kvdb kvs create'
	want 0 kvdb kvs create ./d s
	fill 1 2 3
	want 0 kvdb kvs list ./d
	has out '^NAME +KEYS +RUNS'
	has out '^s +3 +1 '
	want 0 kvdb kvs list ./d -j
	schema kvdb_kvs_list
	want 0 kvdb kvs list ./d -o help
	has out 'tombs'
	want 2 kvdb kvs list ./d -o colour
	want 0 kvdb kvs info ./d s
	has out '^keys +about 3$'
	want 0 kvdb kvs info ./d s -j
	schema kvdb_kvs_info
	want 3 kvdb kvs info ./d none
	one_line_error
}

tree_shows_memtables_and_runs() {
	make_db
	want 0 kvdb kvs create ./d s
	want 0 kvdb kvs create ./d t
	fill 1 2
	want 0 kvdb del ./d s k1
	head -c 100000 /dev/urandom | want_in 0 kvdb put ./d s big -
	want 0 kvdb tree ./d -j
	schema kvdb_tree
	same stores "$(field 'sorted({p["kvs"] for p in d["parts"]})')" "['s', 't']"
	# newest first: the last run alone refers to a value outside of it; the others may have
	# been merged meanwhile
	same newest "$(field '[(p["keys"], p["deletions"], p["values"], p["segments"])
		for p in d["parts"] if p["part"] == "run"][0]')" "(1, 0, 100000, 1)"
	same values "$(field 'sum(p["values"] or 0 for p in d["parts"])')" 100000
	want 0 kvdb tree ./d t -H
	same rows "$(cut -f1,2 "$S/out")" "$(printf 't\tactive')"
	want 3 kvdb tree ./d none
	has err MP0965
}

want_in() {
	local code=$1 rc=0
	shift
	"$@" >"$S/out" 2>"$S/err" || rc=$?
	same "exit of $*" $rc "$code"
}

databases_are_listed() {
	want 0 kvdb list
	has err 'no pool in this directory'
	make_db
	make_db e
	want 0 kvdb list
	has out '^\./d +clean +0 '
	has out '^\./e +clean '
	want 0 kvdb list -j
	schema kvdb_list
	want 0 kvdb list ./e -H -o db,state
	same row "$(cat "$S/out")" "$(printf './e\tclean')"
	want 3 kvdb list ./none
	one_line_error
	# a pool without a database is one; it is not an error to find it
	want 0 kvdb drop ./e -y
	want 0 kvdb list -H -o db,state
	has out "$(printf '^./e\tnone$')"
}

an_open_database_is_listed_as_open() {
	make_db
	mkfifo in
	python3 "$CLI/hold.py" "$O/lib/libmpool.so" ./d <in >held &
	exec 7>in
	while [ ! -s held ] && kill -0 $! 2>/dev/null; do sleep 0.05; done
	want 0 kvdb list -H -o db,state
	has out "$(printf '^./d\topen$')"
	exec 7>&-
	wait
}

dump_and_load_give_the_same_database() {
	make_db
	make_db e
	local s
	for s in empty one two; do
		want 0 kvdb kvs create ./d $s
	done
	fill_odd | kvdb load -q ./d one
	printf 'a\tb\n' | kvdb load -q ./d two
	want 0 kvdb dump ./d
	cp "$S/out" d.dump
	schema kvdb_dump out --lines
	want 0 kvdb load --dump ./e d.dump
	has out 'loaded 8 records'
	want 0 kvdb dump ./e
	cmp "$S/out" d.dump
	# a second load changes nothing
	want 0 kvdb load -q --dump ./e d.dump
	want 0 kvdb dump ./e
	cmp "$S/out" d.dump
	# the jsonl of one store goes into a store of another name
	want 0 kvdb dump ./d one
	cp "$S/out" one.dump
	want 0 kvdb load -q -c ./e copy --format jsonl one.dump
	want 0 kvdb scan -H ./e copy
	cp "$S/out" copy.tsv
	want 0 kvdb dump ./d one --format tsv
	cmp "$S/out" copy.tsv
}

a_dump_keeps_the_options_of_stores() {
	make_db
	make_db e
	want 0 kvdb kvs create ./d all --prefix-len 3 --ttl 1h --policy capacity_only \
		--compress zstd
	want 0 kvdb kvs create ./d none
	printf 'abc\td\n' | kvdb load -q ./d all
	want 0 kvdb dump ./d
	cp "$S/out" d.dump
	schema kvdb_dump out --lines
	has out '"prefix_len":3,"ttl_s":3600,"policy":"capacity_only","compress":"zstd"}$'
	want 0 kvdb load -q --dump ./e d.dump
	want 0 kvdb dump ./e
	cmp "$S/out" d.dump
	# an older dump has none; a store that is there keeps its own
	sed 's/,"prefix_len".*}/}/' d.dump >old.dump
	want 0 kvdb load -q --dump ./e old.dump
	want 0 kvdb dump ./e
	cmp "$S/out" d.dump
	make_db f
	want 0 kvdb load -q --dump ./f old.dump
	want 0 kvdb kvs info ./f all -j
	same default "$(field 'd["prefix_len"], d["ttl_s"], d["policy"], d["compress"]')" \
		"(0, 0, 'default', 'none')"
	want 0 kvdb get ./f all abc
	make_db g
	sed 's/zstd/zip/' d.dump >bad.dump
	want 1 kvdb load -q --dump ./g bad.dump
	has err '"compress" is unknown'
	sed 's/3600/"1h"/' d.dump >bad.dump
	want 1 kvdb load -q --dump ./g bad.dump
	has err '"ttl_s" is not a number'
}

fill_odd() {
	printf 'plain\tvalue\n\\x00\\xff\t\\xfe\\x01\n\\tt\t\\n\\r\\\\\nempty\t\n'
	printf 'caf\xc3\xa9\tna\xc3\xafve\nzz\t'
	head -c 3000 /dev/zero | tr '\0' z
	printf '\n"q"\t{"a":1}\n'
}

dump_takes_a_range_of_one_store() {
	make_db
	want 0 kvdb kvs create ./d s
	fill 1 2 3 4
	want 0 kvdb dump ./d s --from k2 --to k4 --format tsv
	same keys "$(cut -f1 "$S/out" | tr '\n' ' ')" "k2 k3 "
	want 0 kvdb dump ./d s --prefix k3
	schema kvdb_dump out --lines
	same records "$(grep -c '"key"' "$S/out")" 1
	want 2 kvdb dump ./d --prefix k3
	has err 'name the store'
	want 2 kvdb dump ./d --format tsv
	want 2 kvdb dump ./d s --format tsv -j
	want 3 kvdb dump ./d none
}

a_cut_dump_is_noticed() {
	make_db
	make_db e
	want 0 kvdb kvs create ./d s
	fill 1 2 3
	kvdb dump ./d | head -n 4 >cut.dump
	want 1 kvdb load --dump ./e cut.dump
	has err 'it was cut; 2 records stored'
	printf 'k\tv\n' >not.dump
	want 1 kvdb load --dump ./e not.dump
	has err 'not.dump:1: '
	echo '{"key":"a","value":"b"}' >not.dump
	want 1 kvdb load --dump ./e not.dump
	has err 'not a line of kvdb dump'
	want 2 kvdb load --dump ./e s cut.dump
	want 2 kvdb load --dump --format tsv ./e cut.dump
	want 2 kvdb load ./e
}

a_dump_that_cannot_be_written_fails() {
	make_db
	want 0 kvdb kvs create ./d s
	fill 1
	local rc=0
	kvdb dump ./d >/dev/full 2>"$S/err" || rc=$?
	same full $rc 1
	has err 'standard output'
}

# script CODE LINE...: the lines are the shell's input
script() {
	local code=$1 rc=0
	shift
	printf '%s\n' "$@" | kvdb shell ./d >"$S/out" 2>"$S/err" || rc=$?
	same "exit of the script" $rc "$code"
}

a_script_works_on_stores() {
	make_db
	script 0 'create s' 'put a 1' 'put "b c" "x \"y\" \x00z"' '# remark' '' 'get a' \
		'get "b c"' 'count' 'scan b' 'del a' 'del a' 'count' 'rename s t' 'list' 'sync' \
		'quit' 'not run'
	same out "$(cat "$S/out")" "$(printf '1\nx "y" \\x00z\n2\nb c\tx "y" \\x00z\n1\nt')"
	want 0 kvdb get ./d t 'b c' -x
	same value "$(cat "$S/out")" 782022792220007a
	script 0 'use t' 'put k1 v' 'put k2 v' 'put k3 v' 'scan k 2' 'scan "" 1' 'stats' \
		'drop t' 'list'
	has out '^k2	v$'
	hasnt out '^k3'
	has out '^puts +3$'
	script 0 'help'
	has out '^put KEY VALUE +store a value'
	want 0 kvdb shell ./d
	same out "$(cat "$S/out")" ""
}

a_script_ends_at_the_first_failure() {
	make_db
	want 0 kvdb kvs create ./d s
	script 3 'use s' 'put a 1' 'get b' 'put c 1'
	has err 'shell line 3: no such key'
	want 0 kvdb get ./d s a
	want 3 kvdb get ./d s c
	script 2 'get a'
	has err 'no store is chosen \(use NAME'
	script 2 'use s' 'put a'
	has err 'line 2: it is: put KEY VALUE'
	script 2 'frobnicate'
	has err 'no command frobnicate'
	script 2 'use "s'
	has err 'quote'
	script 2 'use s' 'put \q 1'
	has err 'escape'
	script 3 'use none'
	has err MP0965
	script 2 'list a b c d e f g h i'
	has err 'too many words'
	printf 'use none\nuse s\nput z 1\n' | kvdb shell -k ./d 2>"$S/err" && fail "no failure told"
	want 0 kvdb get ./d s z
	want 2 kvdb shell -j ./d
	want 3 kvdb shell ./d none
	local line rc
	for line in 'put r 1' 'del z' 'create t' 'drop s' 'rename s t' 'begin
put r 1'; do
		rc=0
		echo "$line" | kvdb shell -r -q ./d s 2>"$S/err" || rc=$?
		same "$line" $rc 2
		has err 'reading only'
	done
}

# with -k: what was meant for another store does not go into the one before
a_failed_use_leaves_no_store_chosen() {
	local line rc
	make_db
	want 0 kvdb kvs create ./d s
	want 0 kvdb kvs create ./d t
	for line in 'use none' 'use' 'use t t' 'use s\x00t' 'create t' 'create .t' \
		'use "t'; do
		rc=0
		printf '%s\n' 'use s' "$line" 'put a 1' 'use t' 'put b 1' |
			kvdb shell -k ./d 2>"$S/err" || rc=$?
		[ $rc -ne 0 ] || fail "no failure told"
		has err '^kvdb: no store is chosen until the next use or create$'
		has err 'line 3: no store is chosen'
		same lines "$(wc -l <"$S/err")" 3
		want 3 kvdb get ./d s a
		want 0 kvdb get ./d t b
	done
	# a terminal shows it
	want 0 python3 "$CLI/on_tty.py" "$(printf 'use s\nuse none\nput a 1\nquit')" kvdb shell ./d
	want 0 kvdb get ./d s a
}

transactions_are_whole_or_not_at_all() {
	make_db
	script 0 'create s' 'put a 1' 'begin' 'put a 2' 'put b 2' 'get a' 'count' 'abort' 'get a' \
		'count'
	same aborted "$(tr '\n' ' ' <"$S/out")" "2 2 1 1 "
	script 0 'use s' 'begin' 'del a' 'put b 3' 'scan' 'commit' 'scan'
	same committed "$(tr '\n' ' ' <"$S/out")" "$(printf 'b\t3 b\t3 ')"
	# the end of the input does not commit
	script 0 'use s' 'begin' 'put c 1'
	has err 'transaction was aborted'
	want 3 kvdb get ./d s c
	want 0 kvdb get ./d s b
	script 2 'commit'
	has err 'no transaction is open \(begin opens one'
	script 2 'abort'
	script 5 'begin' 'create t'
	has err 'commit or abort first'
	script 5 'begin' 'begin'
}

# The line that !1 repeats is the one that goes from a list of a hundred that is full.
a_full_history_repeats_its_oldest_line() {
	want 0 kvdb -q create ./d --size 64M
	want 0 python3 "$CLI/on_tty.py" \
		"$(seq -f 'count this_is_line_number_%g' 100; printf '!1\nhistory\nquit')" \
		kvdb shell ./d
	has out '^ +99  count this_is_line_number_100$'
	has out '^ +100  count this_is_line_number_1$'
}

a_terminal_gets_a_prompt_and_goes_on_after_errors() {
	make_db
	want 0 kvdb kvs create ./d s
	want 0 python3 "$CLI/on_tty.py" "$(printf 'get x\nput a 1\n!!\nhistory\n!1\n!99\nquit')" \
		kvdb shell ./d s
	has out '^help lists the commands'
	has out 's> '
	has out '    3  put a 1'
	has out 'no such key'
	has out 'no such line'
	want 0 kvdb get ./d s a
}

compact_leaves_one_run_and_less_space() {
	make_db
	want 0 kvdb kvs create ./d s
	local i
	for i in 1 2 3; do
		fill 1 2 3
	done
	want 0 kvdb compact ./d -j
	schema kvdb_compact
	same fewer "$(field 'd["after"]["runs"] <= d["before"]["runs"]')" True
	want 0 kvdb compact ./d
	has out '^\./d: .* used, was .*; [0-9]+ runs, was [0-9]+$'
	want 0 kvdb compact -q ./d
	same out "$(cat "$S/out")" ""
	want 0 kvdb scan -H ./d s
	same records "$(wc -l <"$S/out")" 3
	want 3 kvdb compact ./none
	want 3 kvdb compact ./d none
	want 3 kvdb compact ./d none --status
	has err 'compact none: .*MP0965'
	want 0 kvdb compact ./d s --status
}

tune_gives_a_reason_for_every_option() {
	make_db
	want 0 kvdb tune ./d
	has out '^OPTION +DEFAULT +ADVICE +WHY'
	has out '^cache_bytes '
	want 0 kvdb tune ./d -j
	schema kvdb_tune
	same reasons "$(field 'all(len(o["why"]) > 10 for o in d["options"])')" True
	same unmeasured "$(field 'd["bench"]')" None
	want 3 kvdb tune ./none
}

# The files of /proc that name the groups are other ones for the command alone.
tune_counts_what_the_control_group_leaves() {
	make_db
	mkdir -p cg/a
	echo "0::/a" >group
	echo "34 24 0:30 / $PWD/cg rw - cgroup2 cgroup2 rw" >mounts
	echo 314572800 >cg/a/memory.max
	echo "100000 100000" >cg/cpu.max
	# shellcheck disable=SC2016
	unshare -rm sh -c 'mount --bind group /proc/$$/cgroup' 2>"$S/err" ||
		skip "no mounts in a namespace of one's own: $(cat "$S/err")"
	# shellcheck disable=SC2016
	want 0 unshare -rm sh -c 'mount --bind group /proc/$$/cgroup &&
		mount --bind mounts /proc/$$/mountinfo && exec kvdb tune ./d -j'
	same memory "$(field 'd["ram_bytes"]')" 314572800
	same cores "$(field 'd["cores"]')" 1
	same cache "$(field '{o["option"]: o["default"] for o in d["options"]}["cache_bytes"]')" 75M
}

# bench_says FLUSH_NS LEAST_MS READS_PER_S - as mpool bench prints it
bench_says() {
	python3 - "$@" <<-'EOF'
	import json, sys
	flush, ms, read = map(int, sys.argv[1:])
	print(json.dumps({"output_version": {"command": "mpool bench", "major": 1, "minor": 0},
	    "is_for_staging": True, "flush_p999_ns": flush, "min_interval_ms": ms, "results": [
	    {"job": "sequential-write", "op": "write", "bandwidth": read},
	    {"job": "sequential-read", "op": "read", "bandwidth": read},
	    {"job": "random-read-1", "op": "read", "p50": 80000}]}))
	EOF
}

tune_advises_by_what_was_measured() {
	local advice='{o["option"]: o["advice"] for o in d["options"]}'
	make_db
	bench_says 400000 1 2000000000 >fast
	bench_says 200000000 400 67108864 >slow
	want 0 kvdb tune ./d --bench fast -j
	schema kvdb_tune
	same bound "$(field "${advice}[\"interval_ms\"]")" None
	want 0 kvdb tune ./d --bench slow -j
	same bound "$(field "${advice}[\"interval_ms\"]")" 400ms
	want 0 kvdb tune ./d -b slow
	has out 'an open after a crash reads at most this much at 64M a second'
	has out 'flushes in 200ms \(p99.9\), so 400ms is the smallest'
	want 3 kvdb tune ./d --bench ./none
	head -c 100 fast >part
	want 2 kvdb tune ./d --bench part
	has err 'part: this is not what mpool bench printed'
	sed 's/mpool bench/mpool list/' fast >other
	want 2 kvdb tune ./d --bench other
	want 2 kvdb tune ./d --bench .
	if command -v fio >/dev/null; then
		mpool bench -j ./trial --size 8M --runtime 1s >real
		want 0 kvdb tune ./d --bench real -j
		same bench "$(field 'd["bench"]')" real
	fi
}

nothing_of_a_script_is_left_out_in_silence() {
	local rc=0
	make_db
	want 0 kvdb kvs create ./d s
	printf 'put a x\0y\n' | kvdb shell ./d s >"$S/out" 2>"$S/err" || rc=$?
	same status $rc 2
	has err 'shell line 1: a zero byte \(\\x00 stands for it\)'
	want 3 kvdb get ./d s a
	rc=0
	kvdb shell ./d s <. >"$S/out" 2>"$S/err" || rc=$?
	same status $rc 1
	has err 'shell standard input: Is a directory'
	one_line_error
	# the last line needs no end
	printf 'put a z' | kvdb shell ./d s
	want 0 kvdb get ./d s a
	same value "$(cat "$S/out")" z
}

# what stands before it is the name of another store
a_zero_byte_ends_no_name() {
	local line
	make_db
	want 0 kvdb kvs create ./d s
	want 0 kvdb put ./d s a 1
	for line in 'drop s\x00x' 'use s\x00x' 'rename s\x00x t' 'rename s t\x00x' \
		'create t\x00x'; do
		script 2 "$line"
		has err 'line 1: a zero byte in a name'
	done
	script 2 'list\x00x'
	has err 'line 1: there is no command list'
	want 0 kvdb kvs list ./d -H -o name
	same stores "$(cat "$S/out")" s
	script 0 'use s' 'put a\x00b c\x00d' 'get a\x00b' 'scan a\x00 1' 'count a\x00'
	same value "$(cat "$S/out")" "$(printf 'c\\x00d\na\\x00b\tc\\x00d\n1')"
	script 2 'use s' 'scan a 1\x000'
	for line in '{"kvs":"s\u0000x"}' '{"kvs":"s\u0000x","key":"a","value":"2"}' \
		'{"kvs":"t","compress":"lz4\u0000x"}'; do
		printf '%s\n' "$line" '{"end":true}' >zero.dump
		want 1 kvdb load --dump ./d zero.dump
		has err 'zero.dump:1: '
		one_line_error
	done
	want 0 kvdb kvs list ./d -H -o name
	same stores "$(cat "$S/out")" s
	want 0 kvdb get ./d s a
	same value "$(cat "$S/out")" 1
}

run a_script_works_on_stores
run a_script_ends_at_the_first_failure
run a_failed_use_leaves_no_store_chosen
run nothing_of_a_script_is_left_out_in_silence
run a_zero_byte_ends_no_name
run transactions_are_whole_or_not_at_all
run a_terminal_gets_a_prompt_and_goes_on_after_errors
run a_full_history_repeats_its_oldest_line
run compact_leaves_one_run_and_less_space
run tune_gives_a_reason_for_every_option
run tune_counts_what_the_control_group_leaves
run tune_advises_by_what_was_measured
run a_store_gets_another_name_and_keeps_its_records
run renames_that_cannot_be_name_the_reason_and_the_way_out
run stores_are_listed_with_their_size
run tree_shows_memtables_and_runs
run databases_are_listed
run an_open_database_is_listed_as_open
run dump_and_load_give_the_same_database
run a_dump_keeps_the_options_of_stores
run dump_takes_a_range_of_one_store
run a_cut_dump_is_noticed
run a_dump_that_cannot_be_written_fails
finish
