#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only OR MIT
#
# kvdb on a database that another process has open: what it tells over its
# control socket, and what is said when none answers.

# shellcheck disable=SC1091
. "$(dirname "$0")/lib.sh"

make_db() {
	want 0 kvdb create ./d --size 256M -q
}

# hold KEYS: a process has ./d open from now on, until let_go
hold() {
	mkfifo in
	timeout 100 python3 "$CLI/hold_db.py" "$O/lib/libkvdb.so" ./d "$1" <in >held 2>held.err &
	exec 7>in
	local i
	for ((i = 0; i < 200; i++)); do
		[ -s held ] && return 0
		sleep 0.05
	done
	cat held.err
	fail "it was not opened"
}
let_go() {
	exec 7>&-
	wait
	rm -f in held
}

# what stands behind the uuid in the name of a socket
folder() {
	printf -- '-%x-%x' "$(stat -Lc %d "$1")" "$(stat -Lc %i "$1")"
}

a_live_database_tells_about_itself() {
	make_db
	want 0 kvdb info ./d -j
	schema kvdb_info
	same closed "$(field 'd["pid"]')" None
	hold 1000
	want 0 kvdb info ./d -j
	schema kvdb_info
	same pid "$(field 'd["pid"] > 1')" True
	same keys "$(field 'd["keys_estimate"]')" 1000
	want 0 kvdb info ./d
	has out "^cursors +1, the oldest snapshot "
	has out '^open +by process [0-9]+$'
	has out '^loss bound +100 ms$'
	has out '^space .* bound 1.50$'
	want 0 kvdb stats ./d -j
	schema kvdb_stats
	same puts "$(field 'd["puts"]')" 1000
	same errors "$(field '[(x["class"], x["writes"] > 0, x["errors"], x["csum_errors"],
		x["rereads"], x["repairs"]) for x in d["devices"]]')" \
		"[('capacity', True, 0, 0, 0, 0)]"
	want 0 kvdb stats ./d
	has out '^puts +1000$'
	has out '^device capacity +[^ ]+/capacity.mp: reads .*, checksum errors 0, good when read '
	has out '^use written per byte put, capacity: log [0-9.]+ key'
	has out '^use operations per second of processor time: [0-9]+$'
	want 0 kvdb tree ./d -j
	schema kvdb_tree
	same keys "$(field 'sum(p["keys"] for p in d["parts"])')" 1000
	want 0 kvdb tree ./d live
	has out '^live +active'
	want 0 kvdb kvs list ./d -j
	schema kvdb_kvs_list
	same stores "$(field '[s["name"] for s in d["kvs"]]')" "['live']"
	want 0 kvdb kvs info ./d live -j
	schema kvdb_kvs_info
	want 3 kvdb tree ./d none
	want 3 kvdb kvs info ./d none
	has err 'MP0965'
	want 0 kvdb list -H -o db,state,keys
	same row "$(cat "$S/out")" "$(printf './d\topen\t1000')"
	want 0 kvdb list -H -o format
	same format "$(cat "$S/out")" 0x0100
	want 0 kvdb list -j
	schema kvdb_list
	let_go
	want 0 kvdb info ./d -j
	same closed "$(field 'd["pid"]')" None
	same clean "$(field 'd["recovery"]["was_clean"]')" True
	[ -z "$(ls -A "$XDG_RUNTIME_DIR/kvdb")" ] || fail "a socket is left"
}

settings_change_in_use() {
	make_db
	want 3 kvdb set ./d interval=20ms
	has err 'settings are of an open database'
	want 3 kvdb set ./misspelt interval=20ms
	has err 'misspelt: No such file'
	want 3 kvdb set ./d/pool.json/d interval=20ms
	has err 'Not a directory'
	hold 1
	want 0 kvdb set ./d interval=20ms commit=on
	want 0 kvdb info ./d
	has out 'every write waits'
	want 0 kvdb set ./d --commit off --interval 20ms -j
	schema kvdb_set
	want 0 kvdb info ./d
	has out '^loss bound +20 ms$'
	want 0 kvdb set ./d interval=none log=64M -q
	want 0 kvdb info ./d
	has out '^loss bound +none'
	has out '^log +at most 64M'
	want 2 kvdb set ./d log=1K
	has err 'log_bytes: .*MP0974'
	want 3 kvdb set ./d none ttl=1h
	has err 'MP0965'
	let_go
	want 2 kvdb set ./d
	want 2 kvdb set ./d interval=0ms
	want 2 kvdb set ./d interval=soon
	want 2 kvdb set ./d ttl=1h
	has err 'name it'
	want 2 kvdb set ./d live interval=10ms
	want 2 kvdb set ./d live
	want 2 kvdb set ./d live ttl=10ms
	want 3 kvdb set ./d none ttl=1h
}

a_live_database_makes_a_checkpoint() {
	make_db
	hold 100
	want 0 kvdb checkpoint create ./d now
	has out 'made checkpoint now of database ./d: 1 store,'
	want 5 kvdb checkpoint create ./d now
	one_line_error
	want 0 kvdb checkpoint create ./d later -q
	want 0 kvdb checkpoint list ./d -j
	schema kvdb_checkpoint_list
	same names "$(field '[c["name"] for c in d["checkpoints"]]')" "['now', 'later']"
	same rest "$(field 'd["checkpoints"][0]["state"], d["checkpoints"][0]["runs"]')" \
		"('good', 1)"
	want 0 kvdb checkpoint create ./d third -q
	want 0 kvdb checkpoint drop ./d third -n
	has out '^would remove checkpoint third'
	want 0 kvdb checkpoint drop ./d third -y
	has out '^removed checkpoint third'
	want 3 kvdb checkpoint drop ./d third -y
	let_go
	want 0 kvdb checkpoint list ./d -H
	same number "$(wc -l <"$S/out")" 2
}

a_live_database_is_compacted() {
	make_db
	want 0 kvdb compact ./d --status
	has out '^\./d: idle; '
	want 3 kvdb compact ./d --cancel
	has err 'no process has it open'
	hold 2000
	want 0 kvdb compact ./d
	has out 'compacts it now; .*--status'
	want 0 kvdb compact ./d --wait
	has out '^\./d: done, .* of .*; .* in use, about .* live: '
	want 0 kvdb compact ./d --wait -j
	schema kvdb_compact
	same state "$(field 'd["state"]')" "done"
	same all "$(field 'd["status"]["done_bytes"] <= d["status"]["todo_bytes"]')" True
	want 0 kvdb tree ./d -j
	same runs "$(field 'sum(p["part"] == "run" for p in d["parts"])')" 1
	want 0 kvdb compact ./d live --wait -q
	same quiet "$(cat "$S/out")" ""
	want 0 kvdb compact ./d --status -j
	schema kvdb_compact
	want 0 kvdb compact ./d --cancel -j
	schema kvdb_compact
	want 3 kvdb compact ./d none
	has err 'MP0965'
	let_go
	want 0 kvdb compact ./d live -j
	schema kvdb_compact
	same store "$(field 'd["kvs"]')" live
	want 3 kvdb compact ./d none
	has err 'none: .*MP0965'
}

who_reads_only_cannot_compact() {
	make_db
	hold 1000
	let_go
	# its output is not taken: it stays
	mkfifo dump
	kvdb dump ./d >dump &
	local pid=$!
	exec 8<dump
	read -r _ <&8
	want 4 kvdb compact ./d --wait
	has err 'open for reading: .*close it there'
	one_line_error
	want 0 kvdb compact ./d --status
	exec 8<&-
	wait $pid || true
	want 0 kvdb compact ./d -q
}

top_watches_a_live_database() {
	make_db
	want 3 kvdb top ./d
	has err 'no process has it open'
	hold 200
	want 0 kvdb top ./d 1 1
	has out '^PUTS +GETS.* W/BYTE +R/BYTE +OPS/CPU '
	want 0 kvdb top -j ./d 1 2
	schema kvdb_top out --lines
	same reports "$(wc -l <"$S/out")" 3
	want 0 kvdb top ./d 1 1 -H -o keys,runs
	same keys "$(cut -f1 "$S/out")" 200
	want 0 kvdb top ./d -o help
	want 2 kvdb top ./d 0
	want 2 kvdb top ./d 1 x
	let_go
}

verbs_that_need_it_closed_say_who_has_it() {
	make_db
	hold 1
	want 4 kvdb get ./d live key0
	one_line_error
	want 4 kvdb drop ./d -y
	want 4 kvdb shell ./d
	want 4 kvdb verify --deep ./d
	has err 'has it open .*--checkpoint'
	want 4 kvdb kvs create ./d x
	let_go
	want 0 kvdb get ./d live key0
}

without_a_socket_the_way_out_is_told() {
	make_db
	hold 1
	local v
	for v in info stats tree 'kvs list'; do
		# shellcheck disable=SC2086
		want 4 env XDG_RUNTIME_DIR=/nowhere kvdb $v ./d
		has err 'another process has it open and no control socket tells about it.*close it'
		one_line_error
	done
	want 4 env XDG_RUNTIME_DIR=/nowhere kvdb info ./d -j
	schema error err
	let_go
}

# a copy has the uuid of its pool, and so the name of its socket
a_copy_is_not_answered_for() {
	local v
	make_db
	want 0 kvdb kvs create ./d s
	want 0 kvdb checkpoint create ./d monday
	cp -r d copy
	want 0 kvdb kvs create ./copy mine
	ln -s d same
	hold 1
	want 0 kvdb kvs list ./copy -H -o name
	same stores "$(cat "$S/out")" "$(printf 'mine\ns')"
	want 0 kvdb list ./copy -H -o state
	has out '^clean$'
	want 3 kvdb set ./copy interval=20ms
	want 0 kvdb set ./copy s ttl=1h
	want 0 kvdb checkpoint drop -y ./copy monday
	want 0 kvdb compact ./copy
	has out '^\./copy: .* used'
	# the other one is as it was, under each of its names
	want 0 kvdb checkpoint list ./d -H -o name
	has out '^monday$'
	want 0 kvdb kvs info ./same/ s
	hasnt out 'time to live'
	want 0 kvdb set "$PWD/d" interval=20ms
	let_go
}

somebody_elses_socket_is_not_believed() {
	[ "$(id -u)" = 0 ] || skip "needs root"
	[ -x /usr/bin/python3 ] || skip "no python3 for another user"
	make_db
	want 0 kvdb info ./d -j
	local uuid
	uuid=$(field 'd["pool"]["uuid"]')
	hold 1
	# another user pretends to be the database
	rm "$XDG_RUNTIME_DIR/kvdb/$uuid$(folder ./d).sock"
	chmod 755 "$XDG_RUNTIME_DIR"
	chmod 777 "$XDG_RUNTIME_DIR/kvdb"
	setpriv --reuid 65534 --regid 65534 --clear-groups /usr/bin/python3 - \
		"$XDG_RUNTIME_DIR/kvdb/$uuid$(folder ./d).sock" <<-'EOF' &
	import socket, sys, time
	s = socket.socket(socket.AF_UNIX)
	s.bind(sys.argv[1])
	s.listen()
	time.sleep(20)
	EOF
	local pid=$! i
	for ((i = 0; i < 100; i++)); do
		[ -S "$XDG_RUNTIME_DIR/kvdb/$uuid$(folder ./d).sock" ] && break
		sleep 0.05
	done
	want 8 timeout 10 kvdb info ./d
	kill $pid
	let_go
}

# impostor: a process that says it has ./d open. What answer() of the program on standard
# input makes of a line is sent; without a newline at its end it hangs up behind that.
impostor() {
	local uuid pid
	uuid=$(sed -n 's/.*"uuid": *"\([^"]*\)".*/\1/p' d/pool.json)
	mkdir -p "$XDG_RUNTIME_DIR/kvdb"
	cat >answer.py
	cat >>answer.py <<-'EOF'
	import socket, sys
	s = socket.socket(socket.AF_UNIX)
	s.bind(sys.argv[1])
	s.listen()
	print("listens", flush=True)
	while True:
	    c = s.accept()[0]
	    try:
	        for line in c.makefile():
	            a = answer(line)
	            c.sendall(a)
	            if not a.endswith(b"\n"):
	                break
	    except OSError:
	        pass
	    c.close()
	EOF
	python3 answer.py "$XDG_RUNTIME_DIR/kvdb/$uuid$(folder ./d).sock" >ready &
	pid=$!
	# shellcheck disable=SC2064
	trap "kill $pid" EXIT
	while [ ! -s ready ] && kill -0 $! 2>/dev/null; do sleep 0.05; done
}

# The owner of a pool may answer for it, to root too.
what_a_process_answers_drives_no_terminal() {
	local v
	make_db
	impostor <<-'EOF'
	import json
	bad = "x\x1b[31m\u009by"
	def answer(line):
	    a = {"ok": True, "pid": 7, "fault": bad, "parts": [{"kvs": "s", "kind": 1}],
	         "pool": {"name": bad, "io": bad}, "stores": [{"name": bad}]}
	    if "\"none\"" in line:
	        a = {"ok": False, "error": {"id": bad, "err": -2, "text": bad, "cure": bad}}
	    return json.dumps(a).encode() + b"\n"
	EOF
	LC_ALL=C
	for v in 'info ./d' 'kvs info ./d s' 'kvs list ./d' 'list' 'stats ./d' 'info -j ./d' \
		'kvs info -j ./d s'; do
		# shellcheck disable=SC2086
		want 0 kvdb $v
		hasnt out "$(printf '[\033\233]')"
	done
	want 3 kvdb kvs info ./d none
	hasnt err "$(printf '[\033\233]')"
}

# Of each verb that asks: its end is one of its exit statuses, in text and in JSON.
ask_all() {
	local verb v rc
	for verb in 'info ./d' 'stats ./d' 'list' 'kvs list ./d' 'kvs info ./d s' 'tree ./d' \
		'tree ./d s' 'checkpoint list ./d' 'checkpoint create ./d c' \
		'checkpoint drop -y ./d c' 'compact ./d' 'compact --wait ./d' \
		'compact --status ./d' 'compact --cancel ./d' 'set ./d interval=20ms' \
		'set ./d s ttl=1h' "$@"; do
		for v in "$verb" "$verb -j"; do
			rc=0
			# shellcheck disable=SC2086
			timeout 20 kvdb $v >"$S/out" 2>"$S/err" </dev/null || rc=$?
			[ $rc -le 8 ] || fail "kvdb $v exited $rc: $(head -c 300 "$S/err")"
		done
	done
}

# wrong kinds, lengths and numbers where the client looks; and what is no answer at all
what_a_process_answers_is_not_believed() {
	local i
	make_db
	want 0 kvdb kvs create ./d s
	impostor <<-'EOF'
	import json
	names = ["pool", "classes", "stores", "io", "space", "delays", "devices", "recovery",
	         "checkpoints", "parts", "error", "fault", "uuid", "name", "kvs", "kind", "err",
	         "is_damaged", "interval_ms", "space_amp_max_percent", "policy", "compress",
	         "ttl_s", "puts", "cpu_ns", "stalls", "time_ns", "todo_bytes", "done_bytes"]
	huge = 1 << 64
	# of every kind, and the lists as they should be but with such items
	kinds = [7, -7, huge, -huge, 1.5, -1e300, "text", "9" * 30, True, None, [], {},
	         [7, None, "s"], [[[]]],
	         [{"kvs": "s", "kind": 1 << 30, "class": 9, "slot": huge, "name": 7}],
	         [{"kvs": "s" * 5000, "kind": -1, "name": "s" * 5000, "path": "p" * 9000}]]
	def line_of(**more):
	    return json.dumps({"ok": True, "pid": 7, **more}).encode() + b"\n"
	answers = [line_of(**{n: k for n in names}) for k in kinds]
	answers += [line_of(pool={n: k for n in names}, recovery={n: k for n in names},
	                    parts=[{"kvs": "s", **{n: k for n in names if n != "kvs"}}])
	            for k in kinds]
	# a refusal with such an error
	answers += [json.dumps({"ok": False, "error": {"id": k, "err": k, "text": k, "cure": k}})
	            .encode() + b"\n" for k in kinds]
	answers += [json.dumps({"ok": k, "pid": k}).encode() + b"\n" for k in kinds]
	# more stores and items than there can be
	answers.append(line_of(**{n: [{"kvs": "s%d" % i, "name": "c%d" % i, "kind": i % 5}
	                              for i in range(3000)] for n in names}))
	whole = line_of(parts=[{"kvs": "s", "kind": 1}])
	answers += [b"\n", b"", b"7\n", b"null\n", b"[]\n", b"{}\n", b"\0" + whole, whole[:-1],
	            whole[:-5], whole[:-5] + b"\n", whole.replace(b"7", b"1e999"),
	            whole.replace(b"7", b"\0"), whole.replace(b"s", b"\xff\xfe"),
	            b"[" * 100000 + b"\n", b'{"ok":' * 5000 + b"\n", b"x" * (9 << 20) + b"\n"]
	open("count", "w").write(str(len(answers)))
	def answer(line):
	    return answers[int(open("which").read())]
	EOF
	for ((i = 0; i < $(cat count); i++)); do
		echo "answer $i"
		echo $i >which
		ask_all
	done
	# one of each that is asked without an end
	for i in 2 6 14 15 17; do
		echo $i >which
		ask_all 'top ./d 1 1'
	done
}

# a socket whose queue is full, as that of a process that is stopped
who_takes_no_call_is_not_waited_for() {
	local uuid
	make_db
	uuid=$(sed -n 's/.*"uuid": *"\([^"]*\)".*/\1/p' d/pool.json)
	mkdir -p "$XDG_RUNTIME_DIR/kvdb"
	python3 - "$XDG_RUNTIME_DIR/kvdb/$uuid$(folder ./d).sock" >ready <<-'EOF' &
	import socket, sys, time
	s = socket.socket(socket.AF_UNIX)
	s.bind(sys.argv[1])
	s.listen(0)
	calls = []
	try:
	    while True:
	        calls.append(socket.socket(socket.AF_UNIX))
	        calls[-1].setblocking(False)
	        calls[-1].connect(sys.argv[1])
	except BlockingIOError:
	    print("full", flush=True)
	time.sleep(100)
	EOF
	local pid=$!
	# shellcheck disable=SC2064
	trap "kill $pid" EXIT
	while [ ! -s ready ] && kill -0 $! 2>/dev/null; do sleep 0.05; done
	want 0 timeout 30 kvdb info ./d
	has out '^last close +clean'
}

a_description_that_is_no_file_is_not_waited_for() {
	local v
	make_db
	mv d/pool.json kept
	mkfifo d/pool.json
	for v in 'info ./d' 'stats ./d' 'kvs list ./d' 'checkpoint create ./d c' 'top ./d 1 1'; do
		# shellcheck disable=SC2086
		want 6 timeout 20 kvdb $v
		one_line_error
	done
	want 3 timeout 20 kvdb set ./d interval=20ms
	want 0 timeout 20 kvdb list
	rm d/pool.json
	mv kept d/pool.json
	want 0 kvdb info ./d
}

# Its devices fail every write from the N-th on: which that is in a life like this is tried.
doctor_names_databases_that_fail() {
	local n i state
	make_db
	hold 10
	mpool doctor -H -o check,state,text >"$S/out"
	has out '^database d	ok	open by process [0-9]+$'
	let_go
	for ((n = 6; n < 30; n++)); do
		rm -rf d
		make_db
		mkfifo in
		MPOOL_DEV=capacity:fail=write,after=$n,err=EIO timeout 100 python3 \
			"$CLI/hold_db.py" "$O/lib/libkvdb.so" ./d 1000 <in >held 2>held.err &
		exec 7>in
		for ((i = 0; i < 100; i++)); do
			[ -s held ] || ! kill -0 $! 2>/dev/null && break
			sleep 0.05
		done
		kvdb compact ./d --wait >"$S/out" 2>&1 || :
		mpool doctor -H -o check,state,text >"$S/out" || :
		state=$(grep -c '^database d	wrong	open by process' "$S/out" || :)
		let_go
		[ "$state" = 0 ] || return 0
	done
	fail "no failure was told"
}

run a_live_database_tells_about_itself
run doctor_names_databases_that_fail
run settings_change_in_use
run a_live_database_makes_a_checkpoint
run a_live_database_is_compacted
run who_reads_only_cannot_compact
run top_watches_a_live_database
run verbs_that_need_it_closed_say_who_has_it
run without_a_socket_the_way_out_is_told
run a_copy_is_not_answered_for
run somebody_elses_socket_is_not_believed
run what_a_process_answers_drives_no_terminal
run what_a_process_answers_is_not_believed
run a_description_that_is_no_file_is_not_waited_for
run who_takes_no_call_is_not_waited_for
finish
