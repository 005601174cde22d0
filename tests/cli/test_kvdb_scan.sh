#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only OR MIT
#
# scan and load: order, ranges, text forms, and what a bad line does.

# shellcheck disable=SC1091
. "$(dirname "$0")/lib.sh"

make_db() {
	want 0 kvdb -q create ./d --size 256M
	want 0 kvdb kvs create ./d s
}

# fruit: a store of 400 records in no order
fruit() {
	make_db
	python3 - >in.tsv <<-'EOF'
	import random
	random.seed(3)
	keys = ["%s%03d" % (w, i) for w in ("apple", "fig", "kiwi", "pear") for i in range(100)]
	random.shuffle(keys)
	for k in keys:
	    print("%s\tv-%s" % (k, k))
	EOF
	want 0 kvdb load ./d s in.tsv
	LC_ALL=C sort in.tsv >sorted.tsv
}

scan_is_in_key_order_both_ways() {
	fruit
	want 0 kvdb scan -H ./d s
	cmp "$S/out" sorted.tsv
	tac sorted.tsv >reversed.tsv
	want 0 kvdb scan -H --reverse ./d s
	cmp "$S/out" reversed.tsv
	want 0 kvdb scan ./d s
	same header "$(head -n 1 "$S/out")" "$(printf 'KEY\tVALUE')"
	want 0 kvdb scan -Hk ./d s
	cut -f1 sorted.tsv | cmp - "$S/out"
}

scan_obeys_prefix_and_range() {
	fruit
	want 0 kvdb scan -H --prefix fig ./d s
	grep '^fig' sorted.tsv | cmp - "$S/out"
	want 0 kvdb scan -Hr --prefix fig ./d s
	grep '^fig' sorted.tsv | tac | cmp - "$S/out"
	want 0 kvdb scan -H --from fig010 --to kiwi005 ./d s
	awk -F'\t' '$1 >= "fig010" && $1 < "kiwi005"' sorted.tsv | cmp - "$S/out"
	want 0 kvdb scan -Hr --from fig010 --to kiwi005 ./d s
	awk -F'\t' '$1 >= "fig010" && $1 < "kiwi005"' sorted.tsv | tac | cmp - "$S/out"
	want 0 kvdb scan -H --prefix kiwi --from fig --to kiwi050 ./d s
	awk -F'\t' '$1 >= "kiwi" && $1 < "kiwi050"' sorted.tsv | cmp - "$S/out"
	want 0 kvdb scan -Hr --prefix fig --to zoo ./d s
	grep '^fig' sorted.tsv | tac | cmp - "$S/out"
	want 0 kvdb scan -H --limit 7 --from pear ./d s
	grep '^pear' sorted.tsv | head -n 7 | cmp - "$S/out"
	want 0 kvdb scan -H --from b --to c ./d s
	same nothing "$(cat "$S/out")" ""
	want 0 kvdb scan -H --limit 0 ./d s
	same nothing "$(cat "$S/out")" ""
}

json_lines_obey_the_schema_and_load_again() {
	fruit
	want 0 kvdb put -xX ./d s 00fffe 0102ff
	want 0 kvdb put ./d s tab "$(printf 'a\tb\nc\\d"e')"
	want 0 kvdb put ./d s empty ''
	want 0 kvdb scan -j ./d s
	schema kvdb_scan out --lines
	cp "$S/out" all.jsonl
	same lines "$(wc -l <all.jsonl)" 404
	want 0 kvdb load -c --format jsonl ./d again all.jsonl
	want 0 kvdb scan -j ./d again
	cmp "$S/out" all.jsonl
	want 0 kvdb scan -j -x ./d s --limit 3
	schema kvdb_scan out --lines
	want 0 kvdb scan -j -k ./d s --limit 3
	schema kvdb_scan out --lines
}

tsv_escapes_are_exact() {
	make_db
	python3 -c 'import sys
for i in range(256):
    k = bytes([i, 255 - i, i])
    print("%s\t%s" % (k.hex(), bytes(range(i)).hex()))' >hex.tsv
	sed 's/[0-9a-f][0-9a-f]/\\x&/g' hex.tsv >in.tsv
	want 0 kvdb load ./d s in.tsv
	want 0 kvdb scan -Hx ./d s
	LC_ALL=C sort hex.tsv | cmp - "$S/out"
	want 0 kvdb scan -H ./d s
	cp "$S/out" out.tsv
	want 0 kvdb load -c ./d again out.tsv
	want 0 kvdb scan -Hx ./d again
	LC_ALL=C sort hex.tsv | cmp - "$S/out"
}

# of a terminal U+009B is ESC [, in the bytes of UTF-8 or as one byte
no_key_drives_a_terminal() {
	make_db
	want 0 kvdb put -x -X ./d s c29b33316d c29d78
	want 0 kvdb put -X ./d s 9b33 plain
	LC_ALL=C
	want 0 kvdb scan -H ./d s
	hasnt out "$(printf '[\233\235]')"
	has out '^\\xc2\\x9b31m'
	cp "$S/out" out.tsv
	want 0 kvdb load -c ./d again out.tsv
	want 0 kvdb scan -Hx ./d s
	cp "$S/out" s.hex
	want 0 kvdb scan -Hx ./d again
	cmp s.hex "$S/out"
	want 0 kvdb scan -j ./d s
	hasnt out "$(printf '[\233\235]')"
	cp "$S/out" out.jsonl
	want 0 kvdb load -c ./d third --format jsonl out.jsonl
	want 0 kvdb scan -Hx ./d third
	cmp s.hex "$S/out"
	want 3 kvdb get ./d s "$(printf 'no\302\233key')"
	has err 'no\?\?key'
}

load_reads_standard_input() {
	make_db
	printf 'a\t1\n\nb\t2' | kvdb load -j ./d s >"$S/out"
	schema kvdb_load
	same records "$(field 'd["records"], d["lines"], d["bytes"]')" "(2, 3, 4)"
	want 0 kvdb get ./d s b
	same b "$(cat "$S/out")" 2
}

bad_lines_are_named_with_their_number() {
	local line
	make_db
	while read -r line; do
		printf 'a\t1\n%b\nz\t1\n' "$line" >bad.tsv
		want 1 kvdb load ./d s bad.tsv
		one_line_error
		has err 'bad\.tsv:2: '
		want 3 kvdb get ./d s z
	done <<-'EOF'
	no tab here
	\tvalue without a key
	k\ta\\q
	k\ta\\x4
	k\ta\\
	EOF
	while read -r line; do
		printf '{"key":"a","value":"1"}\n%s\n{"key":"z","value":"1"}\n' "$line" >bad.jsonl
		want 1 kvdb load --format jsonl ./d s bad.jsonl
		one_line_error
		has err 'bad\.jsonl:2: '
		want 3 kvdb get ./d s z
	done <<-'EOF'
	{"key":"k","value":
	{"key":"k"}
	{"value":"v"}
	{"key":1,"value":"v"}
	{"key":"k","value_hex":"0"}
	{"key":"k","value":"v"} more
	["key","value"]
	nonsense
	{"key":"","value":"v"}
	EOF
	want 1 kvdb load ./d s bad.tsv
	has err 'stopped after 1 record '
	# however long its path
	line=$(printf '%0200d' 0)
	mkdir -p "$line/$line"
	mv bad.tsv "$line/$line"
	want 1 kvdb load ./d s "$line/$line/bad.tsv"
	has err '/bad\.tsv:2: '
}

interrupted_load_keeps_what_it_read() {
	local sig pid rc
	make_db
	mkfifo pipe
	for sig in INT TERM; do
		rc=0
		# standard input stays open: the loader waits for a third line
		exec 7<>pipe
		printf 'a%s\t1\nb%s\t2\n' $sig $sig >&7
		kvdb load ./d s --progress=json <pipe >"$S/out" 2>"$S/err" 7>&- &
		pid=$!
		sleep 1
		kill -$sig $pid 2>/dev/null || fail "it ended by itself: $(cat "$S/err")"
		wait $pid || rc=$?
		exec 7>&-
		same "exit code of $sig" $rc 1
		has err 'interrupted after 2 records'
		want 0 kvdb get ./d s b$sig
	done
	want 0 kvdb verify ./d
}

# the kernel tells of a terminal that has gone, and so does the shell that it leaves
a_hangup_that_comes_twice_ends_a_load_once() {
	local pid rc=0
	make_db
	mkfifo pipe
	exec 7<>pipe
	printf 'a\t1\n' >&7
	env --default-signal=HUP kvdb load ./d s <pipe >"$S/out" 2>"$S/err" 7>&- &
	pid=$!
	sleep 1
	for _ in $(seq 100000); do
		kill -HUP $pid 2>/dev/null || break
	done
	wait $pid || rc=$?
	exec 7>&-
	same "exit code" $rc 1
	has err 'interrupted after 1 record'
	want 0 kvdb get ./d s a
	want 0 kvdb list ./d -H -o state
	has out '^clean$'
}

a_load_that_nohup_began_outlives_its_terminal() {
	local pid rc=0
	make_db
	mkfifo pipe
	exec 7<>pipe
	nohup kvdb load ./d s <pipe >"$S/out" 2>"$S/err" 7>&- &
	pid=$!
	printf 'a\t1\n' >&7
	sleep 1
	kill -HUP $pid
	printf 'b\t2\n' >&7
	sleep 0.3
	kill -TERM $pid || fail "it ended: $(cat "$S/err")"
	wait $pid || rc=$?
	exec 7>&-
	same "exit code" $rc 1
	has err 'interrupted after 2 records'
}

# a line that is longer than memory is not the end of the file
a_line_without_end_is_no_end_of_the_file() {
	make_db
	(
		# ASan takes terabytes of addresses, and has a bound of its own
		export ASAN_OPTIONS=allocator_may_return_null=1:max_allocation_size_mb=1000
		! (ulimit -v 1500000 && kvdb --version) >"$S/version" 2>&1 || ulimit -v 1500000
		want 1 kvdb load --cache 64M --io sync ./d s /dev/zero
	)
	has err 'stopped after 0 records'
}

too_long_lines_are_refused() {
	make_db
	python3 -c 'print("a\t1\n" + "k" * 1345 + "\tv\nz\t1")' >k.tsv
	want 1 kvdb load ./d s k.tsv
	has err 'k\.tsv:2: the key has 1345 bytes'
	python3 -c 'print("a\t1\nk\t" + "v" * 16777217 + "\nz\t1")' >v.tsv
	want 1 kvdb load ./d s v.tsv
	has err 'v\.tsv:2: the value has 16777217 bytes'
	want 3 kvdb get ./d s k
	want 3 kvdb get ./d s z
	python3 -c 'print("k\t" + "v" * 16777216)' >v.tsv
	want 0 kvdb load ./d s v.tsv
}

# what Python's json writes of file names that are not UTF-8
half_a_surrogate_pair_is_a_bad_line() {
	make_db
	python3 -c 'import json
for k in b"\xff", b"\x80", b"ok\\\\udc80", "\U0001f600".encode():
	print(json.dumps({"key": k.decode(errors="surrogateescape"), "value": "v"}))
print(json.dumps({"key": "v", "value": "\ud83d"}))' >in.jsonl
	want 1 kvdb load --skip-bad --format jsonl ./d s in.jsonl
	for i in 1 2 5; do
		has err "in\\.jsonl:$i: half a surrogate pair"
	done
	has out 'loaded 2 records.*left out 3'
	want 0 kvdb scan -Hk ./d s
	same keys "$(tr '\n' ' ' <"$S/out")" 'ok\\\\udc80 '$'\xf0\x9f\x98\x80 '
}

skip_bad_goes_on_and_says_so() {
	make_db
	printf 'a\t1\nbad\nb\t2\nworse\nc\t3\n' >in.tsv
	want 1 kvdb load --skip-bad ./d s in.tsv
	has err 'in\.tsv:2: '
	has err 'in\.tsv:4: '
	has out 'loaded 3 records.*left out 2'
	want 0 kvdb scan -Hk ./d s
	same keys "$(tr '\n' ' ' <"$S/out")" "a b c "
}

load_needs_its_file_and_store() {
	make_db
	want 3 kvdb load ./d s nothing.tsv
	one_line_error
	printf 'a\t1\n' >in.tsv
	want 3 kvdb load ./d none in.tsv
	want 0 kvdb load --create ./d none in.tsv
	want 0 kvdb get ./d none a
}

run scan_is_in_key_order_both_ways
run scan_obeys_prefix_and_range
run json_lines_obey_the_schema_and_load_again
run tsv_escapes_are_exact
run no_key_drives_a_terminal
run load_reads_standard_input
run bad_lines_are_named_with_their_number
run interrupted_load_keeps_what_it_read
run a_hangup_that_comes_twice_ends_a_load_once
run a_load_that_nohup_began_outlives_its_terminal
run a_line_without_end_is_no_end_of_the_file
run too_long_lines_are_refused
run half_a_surrogate_pair_is_a_bad_line
run skip_bad_goes_on_and_says_so
run load_needs_its_file_and_store
finish
