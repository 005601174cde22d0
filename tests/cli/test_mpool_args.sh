#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only OR MIT
#
# The command line of mpool: parser, help and manual page say the same, bad
# usage is named, and output that is not delivered is an error.

# tests are called by name, and words are split on purpose
# shellcheck disable=SC2317,SC2086 source=lib.sh
. "$(dirname "$0")/lib.sh"

tool=mpool

# Every option of the table (help -j) is in the text of the help, and the other
# way round; every one is known to the parser.
help_and_parser_agree() {
	want 0 $tool help -j
	schema ${tool}_help
	cp "$S/out" table.json
	python3 - $tool <<-'EOF'
	import json, re, subprocess, sys
	tool = sys.argv[1]
	table = json.load(open("table.json"))
	def spelled(options):
	    for o in options:
	        yield "--" + o["name"]
	        if o["short"]:
	            yield "-" + o["short"]
	everywhere = set(spelled(table["global_options"]))
	bad = 0
	for verb in table["verbs"]:
	    words = verb["name"].split()
	    text = subprocess.run([tool] + words + ["--help"], capture_output=True, text=True,
	                          check=True).stdout
	    assert text == subprocess.run([tool, "help"] + words, capture_output=True, text=True,
	                                  check=True).stdout
	    shown = set()
	    for line in re.findall(r"^  +(-.*?)(?:  |$)", text, re.M):
	        shown.update(re.findall(r"(?<!\S)(--?[a-zA-Z][a-z0-9-]*)", line))
	    listed = set(spelled(verb["options"])) | everywhere
	    if shown != listed:
	        print(verb["name"], "help differs from the table:", shown ^ listed)
	        bad = 1
	    given = [(s, o) for o in verb["options"] + table["global_options"]
	             for s in spelled([o])]
	    for s, o in given:
	        # --help after it stops the verb, but not the parser
	        r = subprocess.run([tool] + words + [s] + ([] if o["value"] else ["--help"]),
	                           capture_output=True, text=True, stdin=subprocess.DEVNULL)
	        if o["value"] and (r.returncode != 2 or "needs a value" not in r.stderr):
	            print(verb["name"], s, "is not parsed as an option with a value:", r.stderr)
	            bad = 1
	        if not o["value"] and r.returncode:
	            print(verb["name"], s, "is not parsed:", r.stderr)
	            bad = 1
	    # no short option beyond those in the help
	    known = {s[1] for s in listed if len(s) == 2}
	    for c in "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ":
	        r = subprocess.run([tool] + words + ["-" + c, "--help"], capture_output=True,
	                           text=True)
	        if c not in known and (r.returncode != 2 or "unknown option" not in r.stderr):
	            print(verb["name"], "takes -%s, which is not in its help" % c)
	            bad = 1
	sys.exit(bad)
	EOF
}

manual_page_is_made_from_the_table() {
	want 0 $tool help --man
	cmp "$S/out" "$TOP/utils/man/$tool.8"
	for s in NAME SYNOPSIS DESCRIPTION "EXIT STATUS" EXAMPLES FILES; do
		has out "^.SH $s\$"
	done
}

completion_is_made_from_the_table() {
	want 0 $tool completion bash
	cmp "$S/out" "$TOP/utils/completions/$tool"
	want 0 bash -n "$TOP/utils/completions/$tool"
	want 0 python3 "$CLI/completion.py" $tool "$TOP/utils/completions/$tool"
	want 0 $tool completion zsh
	cmp "$S/out" "$TOP/utils/completions/_$tool"
	# the table is the same in both
	diff <(sed -n '/^_mpool_table/,/^}/p' "$S/out") \
		<(sed -n '/^_mpool_table/,/^}/p' "$TOP/utils/completions/$tool")
	want 2 $tool completion fish
	one_line_error
}

every_verb_has_a_schema() {
	local v
	want 0 $tool help -j
	for v in $(field '" ".join(x["name"] for x in d["verbs"])'); do
		# it prints a script
		[ $v = completion ] && continue
		grep -q "^    \"${v//-/_}\": {" "$TOP/utils/schema/mpool.json" ||
			fail "no schema for $v"
	done
}

help_needs_no_pool() {
	want 0 $tool --help
	has out '^Usage: mpool'
	want 0 $tool help create
	has out '--staging-size'
	want 0 $tool -h
	want 3 $tool help frobnicate
	one_line_error
}

version_names_every_part() {
	want 0 $tool --version
	has out '^mpool [0-9]'
	has out '^library '
	has out '^module '
	has out '^format +0x0100'
	want 0 $tool version -j
	schema mpool_version
	want 0 $tool -j --version
	schema mpool_version
}

explain_knows_identifiers() {
	want 0 $tool explain MP0401
	has out '^MP0401 '
	has out 'cure:'
	want 0 $tool explain mp0401
	want 0 $tool -j explain 0401
	schema mpool_explain
	want 0 $tool explain 401
	has out '^MP0401 '
	want 3 $tool explain MP9999
	one_line_error
	want 3 $tool explain MP04011
	want 3 $tool explain ''
}

bad_usage_exits_2() {
	local line
	want 2 $tool
	has err '^Usage'
	while read -r line; do
		want 2 $tool $line
		one_line_error
		has err 'see: mpool help'
	done <<-'EOF'
	frobnicate
	--frobnicate
	create
	create ./p
	create ./p --size
	create ./p --size ten
	create ./p --size -1
	create ./p --size 1e6
	create ./p --size 10X
	create ./p --size 0
	create ./p --size 1
	create ./p --size 4M --staging-size 1
	create ./p --size 1G --size 2G
	create ./p --size 99999999999P
	create ./p --size 1G --mode 999
	create ./p --size 1G --spare 101
	create ./p --size 1G --uid no-such-user-here
	create ./p --size 1G --frob
	create ./p --size 1G -Z
	create ./p --size 1G frob=1
	create ./p capsz=1G capsz=1G
	create ./p --staging ./x.mp --size 1G
	create ./p --size 1G --yes=1
	create ./p --size 1G --no-activate
	create db1 --name db2 ./x.mp --size 64M
	activate
	activate -a db1
	deactivate
	deactivate -a db1
	get
	set
	rename ./p
	rename ./p a b
	add ./p
	add ./p --staging --capacity ./x.mp --size 64M
	add ./p ./x.mp
	add ./p ./x.mp --size 1M
	grow
	grow ./p ./q
	objects ./p --type frob
	objects ./p -o frob
	df
	scrub ./p --rate 0
	scrub ./p --from frob
	scrub ./p --from +5
	scrub ./p --from -1
	wipe
	history
	history ./p -o frob
	iostat 0
	iostat 1 0
	iostat -o frob
	bench
	bench ./p --size 1M
	bench ./p --runtime 0
	bench ./p --runtime 5
	scan --recover
	scan --recover --trust ./p
	completion
	completion fish
	list --output nonsense
	list -o name,,size
	list --progress=sometimes
	verify
	verify ./a ./b
	map
	dump
	destroy
	explain
	EOF
	[ ! -e p ] || fail "something was made"
}

bad_usage_is_json_with_j() {
	want 2 $tool create -j --frobnicate
	schema error err
	want 2 $tool --frobnicate --json
	schema error err
	same stdout "$(cat "$S/out")" ""
}

# the command says what a size means without doing anything
size_of() {
	want 0 $tool create ./p -n -j --size "$1"
	field 'd["devices"][0]["size"]'
}
sizes_are_1024_based() {
	same 64M "$(size_of 64M)" 67108864
	same 65536K "$(size_of 65536K)" 67108864
	same 65536KiB "$(size_of 65536KiB)" 67108864
	same 65536kb "$(size_of 65536kb)" 67108864
	same 0.0625G "$(size_of 0.0625G)" 67108864
	same plain "$(size_of 67108864)" 67108864
	want 2 $tool create ./p -n --size 99999999999999999999
	has err "'99999999999999999999' is too large"
}

key_value_words_are_options() {
	want 0 $tool create ./p -n -j capsz=64M stgsz=32M uid=12 gid=13 mode=640 label=two=words
	schema mpool_create
	same uid "$(field 'd["uid"]')" 12
	same gid "$(field 'd["gid"]')" 13
	same mode "$(field 'd["mode"]')" 416
	same label "$(field 'd["label"]')" two=words
	same classes "$(field '[x["class"] for x in d["devices"]]')" "['capacity', 'staging']"
	same sizes "$(field '[x["size"] for x in d["devices"]]')" "[67108864, 33554432]"
}

options_stand_anywhere() {
	want 0 $tool -j create -n --size=64M ./p
	cp "$S/out" a
	want 0 $tool create ./p -njs64M
	cmp a "$S/out"
	want 0 $tool create -n --size 64M -j -- ./p
	cmp a "$S/out"
}

names_without_a_slash_belong_to_the_module() {
	local v
	for v in status list verify dump map "destroy -y" "create --size 64M"; do
		want 7 $tool $v db1
		one_line_error
		has err '\./(db1|NAME)'
	done
	[ ! -e db1 ] || fail "something was made"
}

undelivered_output_exits_1() {
	local rc=0
	$tool help >/dev/full 2>"$S/err" || rc=$?
	same full $rc 1
	has err 'standard output'
	rc=0
	$tool help >&- 2>"$S/err" || rc=$?
	same closed $rc 1
	has err 'standard output'
	rc=0
	$tool help -j >/dev/full 2>"$S/err" || rc=$?
	same json $rc 1
	schema error err
}

run help_and_parser_agree
run manual_page_is_made_from_the_table
run completion_is_made_from_the_table
run every_verb_has_a_schema
run help_needs_no_pool
run version_names_every_part
run explain_knows_identifiers
run bad_usage_exits_2
run bad_usage_is_json_with_j
run sizes_are_1024_based
run key_value_words_are_options
run options_stand_anywhere
run names_without_a_slash_belong_to_the_module
run undelivered_output_exits_1
finish
