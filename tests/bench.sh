#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only OR MIT
#
# The figures that README.md speaks of, measured on this machine: the YCSB
# workloads on a pool of plain files, the same under a small memory budget, the
# pool itself, where threads wait (tests/bench/contention.py), then the engines
# side by side (tests/bench/compare.py). Prints tables; nothing is judged here.
#
# B=        build folder
# RECORDS=  records of 1000 bytes to load (default 2000000)
# DIR=      where the pools are made (default: inside the build folder); they need
#           about 1.5 KiB of free space per record, other engines up to 20 GiB

set -eu
cd "$(dirname "$0")/.."
B=$(realpath -m "${B:-build}")
RECORDS=${RECORDS:-2000000}
dir=$(mktemp -d "${DIR:-$B}/bench.XXXXXX")
trap 'rm -rf "$dir"' EXIT
trap 'exit 130' INT TERM

show() {
	printf '\n$ %s\n' "${*/#$B/build}"
	"$@"
}

memory=$(awk '/MemTotal/ { printf "%.1f GiB", $2 / 1048576 }' /proc/meminfo)
echo "$(uname -sr), $(nproc) cores, $memory, load $(cut -d' ' -f1-3 /proc/loadavg)," \
	"file system $(stat -f -c %T "$dir")"
bench=("$B/bin/kvdb" bench --dir "$dir" --records "$RECORDS" --value-size 1000 --threads 4)
show "${bench[@]}" --workload load,c
show "${bench[@]}" --workload load,a,b,d,e,f --ops $((RECORDS / 10))
show "${bench[@]}" --workload load,a --ops $((RECORDS / 10)) --cache 64M

# what fio reaches: the measure for bench_pool's appends
if command -v fio > /dev/null; then
	printf '\n$ fio: 1 GiB appended to a new file, 1 MiB blocks, depth 8, O_DIRECT, flushed\n'
	fio --name=append --filename="$dir/fio.file" --rw=write --bs=1M --iodepth=8 --direct=1 \
		--ioengine=io_uring --size=1G --fallocate=native --end_fsync=1 \
		--output-format=json | python3 -c '
import json, sys
w = json.load(sys.stdin)["jobs"][0]["write"]
print("fio append %.0f MB/s" % (w["bw_bytes"] / 1e6))'
	rm -f "$dir/fio.file"
fi

TMPDIR=$dir show "$B/tests/bench_pool"
DIR=$dir B=$B show tests/bench/contention.py
DIR=$dir B=$B show tests/bench/batch.py
DIR=$dir B=$B show tests/bench/compare.py full
