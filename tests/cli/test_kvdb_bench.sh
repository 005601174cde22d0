#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only OR MIT
#
# bench: every workload runs and verifies, the report is typed, the pool that
# was made is gone afterwards, and a killed loader can be proven to have lost
# no more than the bound allows.

# shellcheck disable=SC1091
. "$(dirname "$0")/lib.sh"

small="--records 3000 --ops 3000 --threads 2 --size 256M --cache 64M"

every_workload_runs_verified() {
	# shellcheck disable=SC2086
	want 0 kvdb bench -j $small --workload load,a,b,c,d,e,f --verify full
	schema kvdb_bench
	same phases "$(field '[p["workload"] for p in d["phases"]]')" \
		"['load', 'a', 'b', 'c', 'd', 'e', 'f']"
	same operations "$(field '{p["operations_done"] for p in d["phases"]}')" "{3000}"
	same verified "$(field 'd["phases"][3]["values_verified"]')" 3000
	same scans "$(field 'd["phases"][5]["values_verified"] > 3000')" True
	same latest "$(field 'd["phases"][4]["distribution"]')" latest
	same user "$(field 'd["phases"][0]["user_written_bytes"] > 3000 * 1000')" True
	same amp "$(field 'd["phases"][0]["write_amplification"] >= 1')" True
	same order "$(field 'all(o["p50_ns"] <= o["p99_ns"] <= o["p999_ns"] <=
		o["p9999_ns"] <= o["max_ns"]
		for p in d["phases"] for o in p["operations"])')" True
	[ -z "$(ls -A)" ] || fail "left behind: $(ls -A)"
}

the_table_names_every_figure() {
	# shellcheck disable=SC2086
	want 0 kvdb bench $small --workload load,a
	has out '^PHASE +OPS +OPS/S +DRAINED/S +CPU-US/OP +DRAINED/OP '
	has out '^drained: .*CPU in microseconds'
	has out '^amplification: W-AMP.*SPACE'
	has out '^verified: [1-9][0-9]* values read'
	has out '^load +3000 '
	has out '^a +update '
	has out '^a +capacity '
	same stderr "$(cat "$S/err")" ""
}

queues_do_the_same_work() {
	# shellcheck disable=SC2086
	want 0 kvdb bench -j $small --workload load,a,c --verify full --in-flight 50
	schema kvdb_bench
	same in_flight "$(field 'd["config"]["in_flight"]')" 50
	same operations "$(field '{p["operations_done"] for p in d["phases"]}')" "{3000}"
	same verified "$(field 'd["phases"][2]["values_verified"]')" 3000
	same causes "$(field '" ".join(x["cause"] for x in d["phases"][0]["delays"])')" \
		"memory frozen log runs space segment gate key image frame staging"
	want 2 kvdb bench --in-flight 10001
}

waits_name_the_device() {
	# shellcheck disable=SC2086
	MPOOL_DEV=all:lat=30ms want 0 kvdb bench $small --workload load
	has out '^load +longest wait of the log for one write or flush since open: [1-9][0-9.]*m?s$'
	# shellcheck disable=SC2086
	MPOOL_DEV=all:lat=30ms want 0 kvdb bench -j $small --workload load
	same device "$(field 'd["phases"][0]["log_device_max_ns_since_open"] >= 30000000')" True
}

classes_are_compared() {
	want 0 kvdb bench --records 30000 --threads 2 --size 256M --classes compare
	has out '^device layers: capacity:rate=400M,write_rate=80M,lat=200us$'
	has out '^staging 3M$'
	has out '^PHASE +FIGURE +CAPACITY +BOTH +RATIO$'
	has out '^load +operations/s +[0-9]+ +[0-9]+ +[0-9.]+$'
	has out '^a +operations/s, drained +[0-9]+ +[0-9]+ +[0-9.]+$'
	has out '^a +p99.9 of read +[0-9.]+[nmu]?s +[0-9.]+[nmu]?s +[0-9.]+$'
	has out '^a +written to capacity +[0-9.]+[KMG]? +[0-9.]+[KMG]? +[0-9.]+$'
	has out '^a +at least +[0-9.]+[KMG]? +[0-9.]+$'
	has out '^a +space per living byte +[0-9.]+ +[0-9.]+ +[0-9.]+$'
	has out '^a 2 +operations/s, drained +[0-9]+ +[0-9]+ +[0-9.]+$'
	# shellcheck disable=SC2086
	MPOOL_DEV='capacity:rate=1G' want 0 kvdb bench -j $small --classes compare --workload load
	schema kvdb_bench_classes
	same layers "$(field '{r["config"]["layers"] for r in d["runs"]}')" "{'capacity:rate=1G'}"
	same staging "$(field '[r["staging_bytes"] for r in d["runs"]]')" "[0, 3145728]"
	same classes "$(field '[len(r["phases"][0]["classes"]) for r in d["runs"]]')" "[1, 2]"
	# shellcheck disable=SC2086
	want 0 kvdb bench -j $small --classes both --workload load
	schema kvdb_bench
	# shellcheck disable=SC2086
	MPOOL_DEV='capacity:rate=1G' want 0 kvdb bench -j $small --classes compare \
		--workload load,a --compressible 60 --compress zstd
	schema kvdb_bench_classes
	same packed "$(field '[r["config"]["compress"] for r in d["runs"]]')" "['zstd', 'zstd']"
	same zeros "$(field '[r["config"]["compressible_percent"] for r in d["runs"]]')" "[60, 60]"
	want 2 kvdb bench --classes both --staging-size 4M
	want 2 kvdb bench --classes some
	[ -z "$(ls -A)" ] || fail "left behind: $(ls -A)"
}

values_that_compress_verify() {
	set -- --records 3000 --ops 3000 --threads 2 --cache 64M ./d
	want 0 kvdb -q create ./d --size 256M
	want 0 kvdb bench "$@" --workload load --compressible 70 --compress lz4
	has out '^70 % of each value are zeros, compression lz4$'
	want 0 kvdb compact --wait ./d
	want 0 kvdb bench "$@" --workload a,c --compressible 70 --verify full
	# they are not what another part of zeros makes
	want 1 kvdb bench "$@" --workload c --verify full
	has err 'value differs from what was written'
	want 2 kvdb bench "$@" --workload c --compress zstd
	has err 'kvdb set changes how it is compressed'
	want 2 kvdb bench --compressible 100
	want 0 mpool destroy -y ./d
}

values_of_odd_sizes_verify() {
	local n
	for n in 0 1 7 8 15 16 17 31 100 65553 200000; do
		want 0 kvdb bench --records 60 --ops 200 --threads 2 --size 256M \
			--workload load,a --value-size $n --verify full
	done
}

a_given_database_is_used_and_kept() {
	want 0 kvdb -q create ./d --size 256M
	want 3 kvdb bench ./d --workload c --records 100
	want 3 kvdb bench ./nothing --workload load
	want 0 kvdb bench ./d --workload load --records 1000 --value-size 200
	want 0 kvdb bench ./d --workload c -j --records 1000 --ops 500
	schema kvdb_bench
	same size "$(field 'd["config"]["value_size"]')" 200
	want 2 kvdb bench ./d --workload c --records 1000 --value-size 100
	want 2 kvdb bench ./d --workload c --records 2000
	want 0 kvdb scan -Hk ./d usertable
	same keys "$(wc -l <"$S/out")" 1000
	has out '^user6284781860667377211$'
}

a_wrong_value_ends_the_run() {
	want 0 kvdb -q create ./d --size 256M
	want 0 kvdb bench ./d --workload load --records 50 --value-size 100
	want 0 kvdb get -x ./d usertable user6284781860667377211
	cp "$S/out" v
	# one bit of the last byte
	tr -d '\n' <v | sed 's/.$//' >w
	tail -c 2 v | head -c 1 | tr '0-9a-f' '1032547698badcfe' >>w
	kvdb put -x ./d usertable user6284781860667377211 - <w || fail put
	want 1 kvdb bench ./d --workload c --records 50 --ops 5000
	one_line_error
	has err 'user6284781860667377211.*differs from what was written'
	# another key's value
	kvdb get -x ./d usertable user8517097267634966620 |
		kvdb put -x ./d usertable user6284781860667377211 - || fail put
	want 1 kvdb bench ./d --workload c --records 50 --ops 5000
	has err 'belongs to another key'
}

missing_loads_only_what_is_not_there() {
	want 0 kvdb -q create ./d --size 256M
	want 0 kvdb bench ./d --workload load --records 1000
	want 0 kvdb bench ./d --workload load --records 1500 --missing -j
	same loaded "$(field 'd["phases"][0]["operations_done"], d["phases"][0]["skipped"]')" \
		"(500, 1000)"
	want 0 kvdb scan -Hk ./d usertable
	same keys "$(wc -l <"$S/out")" 1500
}

a_whole_load_is_proven_whole() {
	want 0 kvdb -q create ./d --size 256M
	want 0 kvdb bench ./d --workload load --records 2000 --journal acks
	want 0 kvdb bench ./d --check acks -j
	schema kvdb_bench_check
	same lost "$(field 'd["check"]["acknowledged"], d["check"]["lost"]')" "(2000, 0)"
}

a_killed_loader_is_proven() {
	want 0 kvdb -q create ./d --size 2G
	kvdb bench ./d --workload load --records 2M --value-size 500 --journal acks \
		>"$S/out" 2>&1 </dev/null &
	local pid=$! i
	for i in $(seq 100); do
		sleep 0.1
		# the journal's entries fill; a count of some thousand is the middle
		[ -s acks ] && [ "$i" -ge 7 ] && break
	done
	kill -KILL $pid 2>/dev/null || fail "the loader ended by itself: $(cat "$S/out")"
	wait $pid 2>/dev/null || true
	want 0 kvdb bench ./d --check acks -j
	schema kvdb_bench_check
	same proven "$(field 'd["check"]["is_proven"]')" True
	same some "$(field 'd["check"]["found"] > 0')" True
	want 0 kvdb verify ./d
}

a_power_cut_is_proven() {
	want 0 kvdb -q create ./d --size 2G
	local rc=0
	MPOOL_DEV='all:volatile,cut=1s,seed=5' kvdb bench ./d --workload load --records 2M \
		--value-size 500 --journal acks >"$S/out" 2>&1 </dev/null || rc=$?
	same "exit code" $rc 137
	want 0 kvdb bench ./d --check acks -j
	schema kvdb_bench_check
	same proven "$(field 'd["check"]["is_proven"]')" True
	same some "$(field 'd["check"]["found"] > 0')" True
	want 0 kvdb verify ./d
}

# a hole in the middle of history: the proof must fail
a_hole_in_history_is_noticed() {
	want 0 kvdb -q create ./d --size 256M
	want 0 kvdb bench ./d --workload load --records 500 --journal acks
	want 0 kvdb del ./d usertable user6284781860667377211
	want 1 kvdb bench ./d --check acks
	one_line_error
	has err 'later record was found'
}

# key NUMBER: YCSB's name of a record
key() {
	python3 -c 'import sys
n, h = int(sys.argv[1]), 0xcbf29ce484222325
for i in range(8):
    h = ((h ^ (n >> 8 * i & 255)) * 1099511628211) % 2**64
print("user%d" % min(h, 2**64 - h))' "$1"
}

# only the end of history is gone, and it is short
a_lost_end_within_the_bound_is_accepted() {
	local i
	want 0 kvdb -q create ./d --size 256M
	want 0 kvdb bench ./d --workload load --records 40 --threads 1 --interval 10s --journal acks
	for i in 37 38 39; do
		want 0 kvdb del ./d usertable "$(key $i)"
	done
	want 0 kvdb bench ./d --check acks -j
	schema kvdb_bench_check
	same lost "$(field 'd["check"]["found"], d["check"]["lost"]')" "(37, 3)"
	same span "$(field '0 < d["check"]["loss_span_ns"] < 10**10')" True
}

# one thread's whole history is gone, the other's is there
a_loss_of_one_thread_is_noticed() {
	local i
	want 0 kvdb -q create ./d --size 256M
	want 0 kvdb bench ./d --workload load --records 16 --threads 2 --journal acks \
		--value-size 1M
	for i in 0 2 4 6 8 10 12 14; do
		want 0 kvdb del ./d usertable "$(key $i)"
	done
	want 1 kvdb bench ./d --check acks
	has err 'begun after a lost one was acknowledged'
}

a_loss_beyond_the_bound_is_noticed() {
	want 0 kvdb -q create ./d --size 256M
	want 0 kvdb bench ./d --workload load --records 20000 --interval 1ms --journal acks
	want 0 kvdb kvs drop ./d usertable -y
	want 0 kvdb kvs create ./d usertable
	want 1 kvdb bench ./d --check acks
	has err 'span more than the loss bound'
}

what_nobody_put_is_noticed() {
	want 0 kvdb -q create ./d --size 256M
	want 0 kvdb bench ./d --workload load --records 40 --journal acks
	want 0 kvdb put ./d usertable stranger here
	want 1 kvdb bench ./d --check acks
	has err 'never put'
}

# what was not looked at must not be taken for lost
interrupted_check_gives_no_verdict() {
	local sig pid rc i
	want 0 kvdb -q create ./d --size 1G
	want 0 kvdb bench ./d --workload load --records 600000 --value-size 300 --journal acks
	for sig in INT HUP; do
		rc=0
		# what the run before has left there is no sign of this one
		: >"$S/err"
		kvdb bench ./d --check acks --threads 1 --progress=json \
			>"$S/out" 2>"$S/err" </dev/null &
		pid=$!
		for i in $(seq 200); do
			grep -q '"done"' "$S/err" && break
			sleep 0.01
		done
		kill -$sig $pid 2>/dev/null || fail "it ended before the signal: $(cat "$S/out")"
		wait $pid || rc=$?
		same "exit code of $sig" $rc 1
		has err interrupted
		hasnt err 'lost|never put'
		same stdout "$(cat "$S/out")" ""
	done
	want 0 kvdb bench ./d --check acks
}

no_journal_is_named() {
	want 0 kvdb -q create ./d --size 256M
	head -c 8192 /dev/zero >acks
	want 2 kvdb bench ./d --check acks
	has err 'no journal'
	want 3 kvdb bench ./d --check nothing
}

only_a_journal_is_overwritten() {
	local before n
	want 0 kvdb -q create ./d --size 256M
	for n in 1 8 8192; do
		head -c $n /dev/zero >mine
		before=$(sums mine)
		want 5 kvdb bench ./d --workload load --records 100 --journal mine
		one_line_error
		has err 'mine: there is a file already'
		unchanged "$before" mine
	done
	want 0 kvdb help bench
	has out '^  5  '
	: >mine
	want 0 kvdb bench ./d --workload load --records 100 --journal mine
	want 0 kvdb bench ./d --check mine
	want 0 kvdb kvs drop ./d usertable -y
	want 0 kvdb bench ./d --workload load --records 50 --journal mine
	want 0 kvdb bench ./d --check mine -j
	same acknowledged "$(field 'd["check"]["acknowledged"]')" 50
}

interrupted_bench_removes_its_pool() {
	kvdb bench --records 20M --size 512M --value-size 10 >"$S/out" 2>"$S/err" </dev/null &
	local pid=$! rc=0 i
	for i in $(seq 50); do
		sleep 0.1
		[ -n "$(ls -A)" ] && [ "$i" -gt 5 ] && break
	done
	kill -INT $pid 2>/dev/null || fail "it ended by itself: $(cat "$S/err")"
	wait $pid || rc=$?
	# a shell without job control starts background commands with SIGINT ignored;
	# the handler replaces that
	same "exit code" $rc 1
	has err interrupted
	[ -z "$(ls -A)" ] || fail "left behind: $(ls -A)"
}

run every_workload_runs_verified
run the_table_names_every_figure
run queues_do_the_same_work
run waits_name_the_device
run classes_are_compared
run values_that_compress_verify
run values_of_odd_sizes_verify
run a_given_database_is_used_and_kept
run a_wrong_value_ends_the_run
run missing_loads_only_what_is_not_there
run a_whole_load_is_proven_whole
run a_killed_loader_is_proven
run a_power_cut_is_proven
run a_hole_in_history_is_noticed
run a_lost_end_within_the_bound_is_accepted
run a_loss_of_one_thread_is_noticed
run a_loss_beyond_the_bound_is_noticed
run what_nobody_put_is_noticed
run interrupted_check_gives_no_verdict
run no_journal_is_named
run only_a_journal_is_overwritten
run interrupted_bench_removes_its_pool
finish
