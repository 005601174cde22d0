#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only OR MIT
#
# The driver of the comparison (tests/bench): its workloads run and check what
# they read, and a value that is wrong, old or gone ends them.

# shellcheck disable=SC1091
. "$(dirname "$0")/lib.sh"

key=user6284781860667377211 # YCSB's record 0

# engine NAME WORKLOAD OPTION...
engine() {
	local name=$1 workload=$2
	shift 2
	"$O/tests/bench_$name" --dir s --records 3000 --ops 3000 --threads 3 --cache 64M \
		--workload "$workload" --versions v "$@"
}

hash_runs_every_workload() {
	local w
	for w in load a b c d f update; do
		want 0 engine hash $w
		same operations "$(field 'd["operations"]')" 3000
	done
	same verified "$(field 'd["values_verified"]')" 0
	want 1 engine hash e
	has err 'hash has no order'
}

kvdb_runs_every_workload() {
	local w
	want 0 engine kvdb load
	same insert "$(field 'd["latency"]["insert"]["count"]')" 3000
	# what is written to memory is no disk's
	[ "$(stat -f -c %T .)" = tmpfs ] ||
		same amp "$(field '1 <= d["write_amplification"] < 3')" True
	for w in a b c d f update; do
		want 0 engine kvdb $w
		same operations "$(field 'd["operations"]')" 3000
		same checked "$(field 'd["values_verified"] == sum(d["latency"].get(n, {"count": 0})
			["count"] for n in ("read", "rmw"))')" True
	done
	for w in e scan; do
		want 0 engine kvdb $w
		same scanned "$(field 'd["values_verified"] > 50000')" True
	done
	same order "$(field 'all(o["p50_ns"] <= o["p99_ns"] <= o["p999_ns"] <= o["p9999_ns"] <=
		o["max_ns"] for o in d["latency"].values())')" True
}

calls_that_do_not_wait_are_checked_too() {
	local w
	want 0 engine kvdb load --in-flight 100
	same insert "$(field 'd["latency"]["insert"]["count"]')" 3000
	for w in a c d f update; do
		want 0 engine kvdb $w --in-flight 1000
		same operations "$(field 'd["operations"], d["in_flight"]')" '(3000, 1000)'
		same checked "$(field 'd["values_verified"] == sum(d["latency"].get(n, {"count": 0})
			["count"] for n in ("read", "rmw"))')" True
	done
	want 0 engine kvdb update --sync --in-flight 64
	want 0 kvdb del ./s/pool usertable $key
	want 1 engine kvdb c --in-flight 10
	has err '^error: record 0 is lost'
	want 1 engine kvdb scan --in-flight 10
	has err 'calls that do not wait'
	want 1 engine hash c --in-flight 10
	want 1 engine kvdb c --in-flight 2000
	has err 'more than 4095'
}

a_put_waits_until_it_is_durable() {
	want 0 engine kvdb load
	same bound "$(field 'd["is_sync"], d["crash_loses"][:5]')" "(False, 'power')"
	want 0 engine kvdb update --sync --threads 64
	same operations "$(field 'd["operations"]')" 3000
	same bound "$(field 'd["is_sync"], d["crash_loses"]')" \
		"(True, 'nothing that was acknowledged')"
	has out 'commit=1'
}

a_wrong_byte_is_noticed() {
	want 0 engine kvdb load
	want 0 kvdb get ./s/pool usertable $key
	# the last byte of the noise is another one
	{ head -c 999 "$S/out"; tail -c 1 "$S/out" | tr '\000-\377' '\001-\377\000'; } >wrong
	kvdb put ./s/pool usertable $key - <wrong
	want 1 engine kvdb c
	has err "^error: key $key: bytes that were never written"
}

the_value_of_another_key_is_noticed() {
	want 0 engine kvdb load
	want 0 kvdb get ./s/pool usertable user8517097267634966620
	kvdb put ./s/pool usertable $key - <"$S/out"
	want 1 engine kvdb scan
	has err "never written|another key"
	want 1 engine kvdb c
	has err "^error: key $key: the value of another key"
}

a_lost_update_is_noticed() {
	want 0 engine kvdb load
	want 0 kvdb get ./s/pool usertable $key
	mv "$S/out" first
	want 0 engine kvdb update --ops 40000
	kvdb put ./s/pool usertable $key - <first
	want 1 engine kvdb c
	has err "^error: key $key: an older version than was acknowledged"
}

a_lost_record_is_noticed() {
	want 0 engine kvdb load
	want 0 kvdb del ./s/pool usertable $key
	want 1 engine kvdb c
	has err '^error: record 0 is lost'
}

a_killed_loader_loses_an_end_only() {
	want 137 engine kvdb load --kill
	want 0 engine kvdb recover
	same sum "$(field 'd["found"] + d["lost"]')" 3000
	has out '"open_ns"'
}

run hash_runs_every_workload
run kvdb_runs_every_workload
run calls_that_do_not_wait_are_checked_too
run a_put_waits_until_it_is_durable
run a_wrong_byte_is_noticed
run the_value_of_another_key_is_noticed
run a_lost_update_is_noticed
run a_lost_record_is_noticed
run a_killed_loader_loses_an_end_only
finish
