#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only OR MIT
#
# mpool bench on a file, with the real fio: what it measures, what it refuses,
# that it leaves nothing behind, and that its advice follows from its figures.

# tests are called by name
# shellcheck disable=SC2317,SC2086 source=lib.sh
. "$(dirname "$0")/lib.sh"

need_fio() {
	command -v fio >/dev/null || skip "no fio"
}

bench_measures_a_file() {
	need_fio
	want 0 mpool bench -j ./trial --size 16M --runtime 1s
	schema mpool_bench
	same left "$(ls)" ""
	python3 - "$S/out" <<-'EOF'
	import json, sys
	d = json.load(open(sys.argv[1]))
	r = {(x["job"], x["op"]): x for x in d["results"]}
	want = {("sequential-write", "write"), ("sequential-read", "read"),
	        ("random-read-1", "read"), ("random-read-32", "read"),
	        ("write-and-flush", "write"), ("write-and-flush", "flush"),
	        ("mixed-70-30", "read"), ("mixed-70-30", "write")}
	assert set(r) == want, set(r) ^ want
	for x in r.values():
	    assert 0 < x["p50"] <= x["p99"] <= x["p999"], x
	    assert (x["bandwidth"] or 0) > 0 or x["op"] == "flush", x
	flush = r["write-and-flush", "flush"]["p999"]
	assert d["flush_p999_ns"] == flush
	assert d["min_interval_ms"] == max(1, -(-2 * flush // 1000000)), (d, flush)
	EOF
}

bench_says_what_it_means() {
	need_fio
	want 0 mpool bench ./trial --size 8M --runtime 1s
	has out '^JOB +OP +BANDWIDTH'
	has out '^verified: '
	has out '^loss bound: [0-9]+ ms or more'
	has out '^staging: '
	has out '^endurance: '
	same left "$(ls)" ""
}

bench_refuses() {
	echo data >there
	before=$(sums .)
	want 5 mpool bench ./there --size 8M
	one_line_error
	mkdir folder
	want 5 mpool bench ./folder
	rmdir folder
	want 3 mpool bench ./no/such/folder/file
	want 0 mpool bench -n ./trial
	has out 'would make and remove a file'
	want 0 mpool bench -n -j ./trial
	schema mpool_bench_plan
	unchanged "$before" .
}

bench_names_fio_when_it_is_absent() {
	mkdir bin
	ln -s "$(command -v mpool)" bin/mpool
	want 7 env PATH="$PWD/bin" mpool bench ./trial --size 8M --runtime 1s
	one_line_error
	has err 'fio is not installed'
	[ ! -e trial ] || fail "the file was left behind"
}

# a fio that reads back something else than it has written
bench_believes_the_comparison() {
	mkdir bin
	cat >bin/fio <<-'EOF'
	#!/bin/sh
	echo 'verify: bad magic header 0, wanted acca at file trial offset 0' >&2
	echo '{"jobs":[{"error":84}]}'
	exit 1
	EOF
	chmod +x bin/fio
	want 6 env PATH="$PWD/bin:$PATH" mpool bench ./trial --size 8M --runtime 1s
	one_line_error
	has err 'not what was written'
	[ ! -e trial ] || fail "the file was left behind"
}

bench_removes_its_file_when_interrupted() {
	need_fio
	mpool bench ./trial --size 16M --runtime 20s >out 2>err &
	pid=$!
	sleep 2
	pkill -INT -P $pid fio
	kill -INT $pid
	rc=0
	wait $pid || rc=$?
	same interrupted $rc 1
	grep -q interrupted err || fail "it does not say so: $(cat err)"
	[ ! -e trial ] || fail "the file was left behind"
}

# the second of three pieces, where that takes as long as writing them
bench_removes_what_it_had_not_allocated_yet() {
	cat >stop.c <<-'END'
	#include <errno.h>
	#include <signal.h>
	#include <stdlib.h>
	int posix_fallocate(int fd, long off, long len)
	{
		if (off)
			raise(atoi(getenv("STOP_BY")));
		return off && getenv("STOP_IS_NOTICED") ? EINTR : 0;
	}
	int posix_fallocate64(int fd, long off, long len)
	{
		return posix_fallocate(fd, off, len);
	}
	END
	${CC:-cc} -shared -fPIC -o stop.so stop.c 2>/dev/null || skip "no compiler"
	local sig
	for sig in 1 2 15; do
		for how in A= STOP_IS_NOTICED=1; do
			want 1 env LD_PRELOAD="$PWD/stop.so" STOP_BY=$sig $how \
				ASAN_OPTIONS=verify_asan_link_order=0 \
				mpool bench ./trial --size 192M --runtime 1s
			one_line_error
			has err 'trial: interrupted$'
			[ ! -e trial ] || fail "the file was left behind"
		done
	done
}

run bench_measures_a_file
run bench_says_what_it_means
run bench_refuses
run bench_names_fio_when_it_is_absent
run bench_believes_the_comparison
run bench_removes_its_file_when_interrupted
run bench_removes_what_it_had_not_allocated_yet
finish
