#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""Where threads wait for each other: workloads on this engine with more and more threads, and
for each count what it did and which functions waited for mutexes.

  contention.py [WORKLOAD...]      default: a c

B=        build folder                   DIR=      where stores are made (default: in B)
THREADS=  default "1 2 16 64 256"        RECORDS=  default 200000

Waits are counted by a library that stands before pthread_mutex_lock() (preload/lock_waits.c);
every run is made without it first. A wait includes the time until a core is free for the waiter.
Then, where the processor can sample them (perf c2c), the cache lines that threads share most.
"""

import collections
import json
import os
import shutil
import subprocess
import sys
import tempfile

SHOWN = 6


class Contention:
    def __init__(self):
        self.build = os.path.realpath(os.environ.get("B", "build"))
        self.records = os.environ.get("RECORDS", "200000")
        self.dir = tempfile.mkdtemp(prefix="contention.", dir=os.environ.get("DIR", self.build))
        self.library = self.dir + "/lock_waits.so"
        source = os.path.dirname(os.path.abspath(__file__)) + "/preload/lock_waits.c"
        subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", self.library, source], check=True)

    def run(self, workload, threads, waits=None, front=()):
        env = dict(os.environ)
        if waits:
            env.update(LD_PRELOAD=self.library, LOCK_WAITS=waits)
        store = self.dir + "/store"
        os.makedirs(store, exist_ok=True)
        cmd = [*front, self.build + "/tests/bench_kvdb", "--workload", workload, "--dir", store,
               "--records", self.records, "--ops", self.records, "--threads", str(threads),
               "--versions", self.dir + "/versions"]
        return json.loads(subprocess.run(cmd, env=env, stdout=subprocess.PIPE, check=True).stdout)

    def shared_lines(self, workload, threads):
        """What perf c2c says of the lines that are shared most, or why it cannot."""
        data = self.dir + "/c2c"
        try:
            events = subprocess.run(["perf", "mem", "record", "-e", "list"], capture_output=True,
                                    text=True)
        except FileNotFoundError:
            return "no perf"
        if events.returncode or "failed" in events.stderr:
            return events.stderr.strip()
        self.run(workload, threads, front=["perf", "c2c", "record", "-q", "-o", data, "--"])
        report = subprocess.run(["perf", "c2c", "report", "-i", data, "--stdio"],
                                capture_output=True, text=True).stdout
        at = report.find("Shared Data Cache Line Table")
        return "\n".join(report[at:].splitlines()[:SHOWN + 8])

    def remove(self):
        shutil.rmtree(self.dir, ignore_errors=True)


def functions(path):
    """(waits, ns) by function, the longest first."""
    by_object, sums = collections.defaultdict(list), collections.Counter()
    waits = collections.Counter()
    with open(path) as f:
        for line in f:
            at, n, ns, name = line.rstrip("\n").split(" ", 3)
            by_object[name].append((at, int(n), int(ns)))
    for name, found in by_object.items():
        out = subprocess.run(["addr2line", "-f", "-e", name] + [at for at, _, _ in found],
                             stdout=subprocess.PIPE, text=True).stdout.split("\n")[::2]
        for (_, n, ns), function in zip(found, out):
            sums[function] += ns
            waits[function] += n
    return [(function, waits[function], ns) for function, ns in sums.most_common()]


def main(workloads):
    if any(w not in ("a", "b", "c", "d", "e", "f", "update", "scan") for w in workloads):
        print(__doc__, file=sys.stderr)
        return 2
    counts = [int(n) for n in os.environ.get("THREADS", "1 2 16 64 256").split()]
    c = Contention()
    try:
        c.run("load", 4)
        print("%s records, %d cores" % (c.records, os.cpu_count()))
        for workload in workloads:
            print("\n%-8s %7s %12s %12s %9s %12s" % ("workload", "threads", "operations/s",
                                                     "counted", "waits", "waited, ms"))
            for threads in counts:
                plain = c.run(workload, threads)
                line = c.run(workload, threads, c.dir + "/waits")
                waits = functions(c.dir + "/waits")
                print("%-8s %7d %12.0f %12.0f %9d %12.1f" % (
                    workload, threads, plain["ops_per_s"], line["ops_per_s"],
                    sum(n for _, n, _ in waits), sum(ns for _, _, ns in waits) / 1e6))
                for function, n, ns in waits[:SHOWN]:
                    print("%38s %-24s %9d %12.1f" % ("", function, n, ns / 1e6), flush=True)
            print("shared cache lines of %s, %d threads: %s" % (
                workload, counts[-1], c.shared_lines(workload, counts[-1])), flush=True)
    finally:
        c.remove()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or ["a", "c"]))
