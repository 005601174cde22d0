#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only OR MIT
#
# The command line of kvdb: help, manual page and parser say the same, bad usage
# is named, and nothing is made by it.

# shellcheck disable=SC1091
. "$(dirname "$0")/lib.sh"

help_lists_every_verb_and_option() {
	want 0 kvdb help -j
	schema kvdb_help
	cp "$S/out" table.json
	python3 - <<-'EOF'
	import json, re, subprocess, sys
	table = json.load(open("table.json"))
	def spelled(options):
	    for o in options:
	        yield "--" + o["name"]
	        if o["short"]:
	            yield "-" + o["short"]
	everywhere = set(spelled(table["global_options"]))
	names = {v["name"] for v in table["verbs"]}
	wanted = {"create", "info", "get", "put", "del", "scan", "load", "verify", "stats", "bench",
	          "kvs create", "kvs drop", "kvs list", "kvs rename", "kvs info", "list", "tree",
	          "dump", "set", "shell", "compact", "repair", "tune", "top",
	          "drop", "help", "version"}
	bad = 0
	if wanted - names:
	    print("no such verbs:", wanted - names)
	    bad = 1
	for verb in table["verbs"]:
	    words = verb["name"].split()
	    text = subprocess.run(["kvdb"] + words + ["--help"], capture_output=True, text=True,
	                          check=True).stdout
	    shown = set()
	    for line in re.findall(r"^  +(-.*?)(?:  |$)", text, re.M):
	        shown.update(re.findall(r"(?<!\S)(--?[a-zA-Z][a-z0-9-]*)", line))
	    if shown != set(spelled(verb["options"])) | everywhere:
	        print(verb["name"], "help differs from the table")
	        bad = 1
	    for o in verb["options"]:
	        for s in spelled([o]):
	            r = subprocess.run(["kvdb"] + words + [s] + ([] if o["value"] else ["--help"]),
	                               capture_output=True, text=True, stdin=subprocess.DEVNULL)
	            if o["value"] and (r.returncode != 2 or "needs a value" not in r.stderr):
	                print(verb["name"], s, "is not parsed with a value:", r.stderr)
	                bad = 1
	            if not o["value"] and r.returncode:
	                print(verb["name"], s, "is not parsed:", r.stderr)
	                bad = 1
	sys.exit(bad)
	EOF
}

manual_page_is_made_from_the_table() {
	want 0 kvdb help --man
	cmp "$S/out" "$TOP/utils/man/kvdb.8"
	for s in NAME SYNOPSIS DESCRIPTION "EXIT STATUS" EXAMPLES FILES; do
		has out "^.SH $s\$"
	done
}

completion_is_made_from_the_table() {
	want 0 kvdb completion bash
	cmp "$S/out" "$TOP/utils/completions/kvdb"
	want 0 bash -n "$TOP/utils/completions/kvdb"
	want 0 python3 "$CLI/completion.py" kvdb "$TOP/utils/completions/kvdb"
	want 0 kvdb completion zsh
	cmp "$S/out" "$TOP/utils/completions/_kvdb"
	# the table is the same in both
	diff <(sed -n '/^_kvdb_table/,/^}/p' "$S/out") \
		<(sed -n '/^_kvdb_table/,/^}/p' "$TOP/utils/completions/kvdb")
	want 2 kvdb completion fish
	one_line_error
}

version_names_every_part() {
	want 0 kvdb --version
	has out '^kvdb [0-9]'
	has out '^library '
	want 0 kvdb version -j
	schema kvdb_version
}

bad_usage_exits_2() {
	local line
	want 2 kvdb
	has err '^Usage'
	while read -r line; do
		# shellcheck disable=SC2086
		want 2 kvdb $line
		one_line_error
		has err 'see: kvdb help'
	done <<-'EOF'
	frobnicate
	--frobnicate
	create
	create ./d --size
	create ./d --size ten
	create ./d --frob
	create ./d frob=1
	create ./d --cache 63M
	create ./d --cache 0
	create ./d --interval 10ms
	create ./d --size 1
	create ./d --segment-size 3
	create ./d --segment-size 64M
	create ./d --segment-size 32M --cache 64M
	info ./d --interval 10ms
	load ./d s --interval 10
	load ./d s --interval 1us
	load ./d s --interval soon
	create ./d --io magic
	create ./a ./b
	info
	get ./d s
	get ./d s k x
	get -X ./d s 0g
	put ./d s k
	put -x ./d s k xyz
	put -x ./d s k abc
	del ./d
	scan ./d
	scan ./d s --limit many
	scan ./d s --limit 1.5
	scan -X ./d s --prefix abc
	load ./d
	load ./d s --format xml
	verify
	stats
	kvs
	kvs frob ./d
	kvs create ./d
	kvs list
	kvs rename ./d s
	kvs info ./d
	tree
	shell
	compact
	compact ./d --wait --status
	repair
	tune
	top ./d 0
	top ./d 1 none
	set
	set ./d
	set ./d interval=0ms
	set ./d s interval=1s
	kvs create ./d s --prefix-len 1345
	kvs create ./d s --ttl 1500ms
	kvs create ./d s --policy fast
	dump
	dump ./d --format tsv
	load --dump ./d a b
	list -o colour
	drop
	bench --workload g
	bench --workload load,,a
	bench --threads 0
	bench --threads 100000
	bench --records 0
	bench --value-size 17M
	bench --distribution normal
	bench --check f
	bench ./d --keep
	bench ./a ./b
	EOF
	[ -z "$(ls -A)" ] || fail "something was made: $(ls -A)"
}

half_a_verb_is_named_with_its_other_half() {
	local words='wanted kvs create, kvs drop, kvs list, kvs rename or kvs info'
	want 2 kvdb kvs
	has err "'kvs' .*$words"
	want 2 kvdb kvs frob ./d
	has err "$words"
	want 3 kvdb help kvs
	has err "$words"
	want 3 kvdb help kvs frob
	has err "$words"
	want 3 kvdb help frob
	hasnt err wanted
}

a_mistyped_verb_or_option_is_recognised() {
	want 2 kvdb crate ./d
	has err "'crate', did you mean 'create'\?"
	want 2 kvdb lsit
	has err "did you mean 'list'\?"
	want 2 kvdb checkpiont create ./d now
	has err "did you mean 'checkpoint'\?"
	want 3 kvdb help verfy
	has err "did you mean 'verify'\?"
	want 3 kvdb help kvs craete
	has err 'wanted kvs create'
	want 2 kvdb create ./d --sise 1G
	has err 'unknown option --sise, did you mean --size\?'
	want 2 kvdb get ./d s k --jsn
	has err 'did you mean --json\?'
	# what is near to nothing is not guessed
	for w in frobnicate x ls remove; do
		want 2 kvdb $w ./d
		hasnt err 'did you mean'
	done
	want 2 kvdb create ./d --frobnicate
	hasnt err 'did you mean'
}

operands_like_options_are_told_the_way() {
	want 2 kvdb get ./d s -5
	has err 'unknown option -5 .*use -- before it'
	want 3 kvdb get ./d s -- -5
}

values_of_choices_are_in_the_help() {
	want 0 kvdb help bench
	for s in 'sync or uring' 'zipfian, latest or uniform' 'sample \(' 'full \('; do
		tr -s ' \n' ' ' <"$S/out" | grep -qE "$s" || fail "no $s"
	done
	want 0 kvdb help load
	has out 'tsv or jsonl'
}

identifiers_are_known_in_every_spelling() {
	local id
	for id in MP0965 mp0965 Mp0965 0965; do
		want 0 kvdb explain $id
		has out '^MP0965 '
	done
}

bad_usage_is_json_with_j() {
	want 2 kvdb create -j --frobnicate
	schema error err
}

data_operands_are_never_options() {
	want 0 kvdb put ./new s cache=1G io=sync
	want 0 kvdb get ./new s cache=1G
	same value "$(cat "$S/out")" io=sync
	want 3 kvdb get ./none s interval=5
	want 0 kvdb put ./new s -- -k -v
	want 0 kvdb get ./new s -- -k
	same value "$(cat "$S/out")" -v
}

# which verb exits with what is a promise of help and manual page
exits_that_happen_are_promised() {
	local verb code
	want 0 kvdb -q create ./d --size 64M
	want 0 kvdb kvs create ./d s
	want 0 kvdb -q create ./e --size 64M
	want 0 kvdb kvs create ./e s
	touch file
	while read -r code verb; do
		# shellcheck disable=SC2086
		want "$code" kvdb $verb
		want 0 kvdb help "${verb%% *}"
		has out "^  $code  "
	done <<-'EOF'
	3 create ./file --size 64M
	5 create ./d
	5 repair ./d ./e
	5 copy ./d ./e
	3 restore ./none ./e
	3 backup ./d ./file
	EOF
	code=0
	echo 'create s' | kvdb shell ./d 2>"$S/err" || code=$?
	same "exit of the shell" $code 5
	want 0 kvdb help shell
	has out '^  5  '
	# what a killed one of the same number has left; numbers come again
	want 5 sh -c 'mpool -q create ./kvdb-bench.$$ --size 16M && exec kvdb bench --records 1'
	has err 'is a pool already'
	want 0 kvdb help bench
	has out '^  5  '
}

undelivered_output_exits_1() {
	local rc=0
	kvdb help >/dev/full 2>"$S/err" || rc=$?
	same full $rc 1
	has err 'standard output'
}

run help_lists_every_verb_and_option
run manual_page_is_made_from_the_table
run completion_is_made_from_the_table
run version_names_every_part
run bad_usage_exits_2
run half_a_verb_is_named_with_its_other_half
run a_mistyped_verb_or_option_is_recognised
run operands_like_options_are_told_the_way
run values_of_choices_are_in_the_help
run identifiers_are_known_in_every_spelling
run bad_usage_is_json_with_j
run data_operands_are_never_options
run exits_that_happen_are_promised
run undelivered_output_exits_1
finish
