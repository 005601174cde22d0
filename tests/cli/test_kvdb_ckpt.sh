#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only OR MIT
#
# Checkpoints by command.

# shellcheck disable=SC1091
. "$(dirname "$0")/lib.sh"

make_db() {
	want 0 kvdb -q create ./d --size 256M
	want 0 kvdb kvs create ./d s
	want 0 kvdb put ./d s alice one
}

create_list_and_drop() {
	make_db
	want 0 kvdb checkpoint list ./d -j
	schema kvdb_checkpoint_list
	same none "$(field 'd["checkpoints"]')" "[]"
	want 0 kvdb checkpoint create ./d monday
	has out '^made checkpoint monday of database \./d: 1 store,'
	want 0 kvdb put ./d s alice two
	want 0 kvdb checkpoint create ./d tuesday -j
	schema kvdb_checkpoint_create
	same name "$(field 'd["checkpoint"], d["stores"]')" "('tuesday', 1)"
	want 0 kvdb checkpoint list ./d -j
	schema kvdb_checkpoint_list
	same names "$(field '[(c["name"], c["state"]) for c in d["checkpoints"]]')" \
		"[('monday', 'good'), ('tuesday', 'good')]"
	want 0 kvdb checkpoint list ./d -H -o name,stores
	same list "$(cat "$S/out")" "$(printf 'monday\t1\ntuesday\t1')"
	want 0 kvdb checkpoint drop ./d monday -n -j
	schema kvdb_checkpoint_drop
	same plan "$(field 'd["plan"]')" True
	want 0 kvdb checkpoint drop ./d monday -y
	has out '^removed checkpoint monday'
	want 0 kvdb checkpoint list ./d -H -o name
	same list "$(cat "$S/out")" tuesday
	want 0 kvdb verify --data ./d
	want 0 kvdb get ./d s alice
	same value "$(cat "$S/out")" two
}

what_cannot_be_is_refused() {
	make_db
	want 0 kvdb checkpoint create ./d monday
	want 5 kvdb checkpoint create ./d monday
	one_line_error
	has err 'MP0983'
	want 2 kvdb checkpoint create ./d a/b
	one_line_error
	want 3 kvdb checkpoint drop ./d tuesday -y
	one_line_error
	want 3 kvdb checkpoint list ./e
	want 5 kvdb checkpoint drop ./d monday
	has err '-y'
	want 0 kvdb checkpoint list ./d -H -o name
	same list "$(cat "$S/out")" monday
}

load_of_sorted_lines() {
	want 0 kvdb -q create ./d --size 256M
	seq -f 'k%06g' 20000 | awk '{ printf "%s\t%s%0200d\n", $1, $1, NR }' >lines
	want 0 kvdb load -c --sorted ./d s lines
	has out '^loaded 20000 records'
	want 0 kvdb get ./d s k012345
	has out '^k0123450'
	want 0 kvdb scan -H ./d s
	cmp "$S/out" lines || fail "scan differs from what was loaded"
	# over what is there
	printf 'k000007\tnew\n' >later.txt
	want 0 kvdb load --sorted ./d s later.txt
	want 0 kvdb get ./d s k000007
	same value "$(cat "$S/out")" new
	want 0 kvdb verify --data ./d
	want 0 kvdb dump ./d
	cp "$S/out" dump
	want 0 kvdb -q create ./e --size 256M
	want 0 kvdb load --dump --sorted ./e dump
	want 0 kvdb dump ./e
	cmp "$S/out" dump || fail "the dump differs"
}

load_of_unsorted_lines_stores_none() {
	make_db
	printf 'a\t1\nc\t2\nb\t3\n' >lines
	want 1 kvdb load --sorted ./d s lines
	has err 'lines:3: .*not greater'
	has err 'nothing of store s was stored'
	want 3 kvdb get ./d s a
	want 0 kvdb get ./d s alice
	want 1 kvdb load --sorted --skip-bad ./d s lines
	want 3 kvdb get ./d s b
	want 0 kvdb get ./d s c
}

run load_of_sorted_lines
run load_of_unsorted_lines_stores_none
run create_list_and_drop
run what_cannot_be_is_refused
finish
