#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""Engines side by side: one driver, one adapter each, one process for every engine and
workload, all under the same memory limit. Every value that is read is checked.

  compare.py quick|full|SET...     sets: memory large threads async small 16k 256k sync

A round runs every engine once, one after another; figures are medians over rounds. A run during
which other processes had more than 0.3 cores is repeated, a bounded number of times, and marked
when it does not get better. What is printed is also written to $OUT: JSON lines, the tables, and
plots.

B=        build folder                   DIR=      where stores are made (default: in B)
OUT=      folder for results (B/bench)   ENGINES=  of those that are built, only these
ROUNDS=   in place of the set's          RECORDS=  in place of the set's; operations follow, and
                                                   a limit that is smaller than the data
REPEATS=  of runs that were disturbed, at most, in place of the set's
WORKLOADS=  with commas: of the set's, only load and these, and no recovery
RUNTIME=, SETTLE=  seconds, in place of the set's
RUN=      a command in front of every measured process, as "chrt -r 20"
"""

import json
import mmap
import os
import platform
import shlex
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True  # nothing is written into the source folders
import tables  # noqa: E402

MIB = 1 << 20
GIB = 1 << 30
ENGINES = ["hash", "kvdb", "rocksdb", "wiredtiger", "lmdb"]
QUEUES = ["kvdb"]  # have calls that do not wait
QUEUE_THREADS = 2
YCSB = ["a", "b", "c", "f", "d", "e"]  # the order that YCSB's authors advise
YCSB_CHANGES = [w for w in YCSB if w != "c"]
DISTURBED_CORES = 0.3
SETTLED = " settled"

# limit: memory of the process and its page cache; cache: what the engine is told. An engine that
# reads through the page cache, which keeps what its own cache does not, gets half of a tight limit
# and two thirds of a wide one; own_cache: one that reads past it gets four fifths, or nine tenths.
# queued: workloads that an engine whose calls need not wait runs once more, with two threads that
# have as many operations in progress together as there are threads otherwise.
# A workload that is to be settled goes on for `settle` seconds and ends all deferred work before
# it is measured: engines may arrange data by how they are used.
SETS = {
    "quick": dict(records=100000, ops=50000, scans=2000, limit=GIB, cache=GIB // 2,
                  workloads=["load"] + YCSB + ["update", "scan"], recover=True, repeats=3),
    "memory": dict(records=2000000, ops=1000000, scans=50000, limit=6 * GIB, cache=4 * GIB,
                   own_cache=GIB * 24 // 5, workloads=["load"] + YCSB + ["update", "scan"],
                   rounds=3, recover=True),
    "large": dict(records=8000000, ops=20000000, scans=1000000, limit=2 * GIB, cache=GIB,
                  own_cache=GIB * 9 // 5, threads=32, seconds=20, is_cold=True,
                  workloads=["load", "c", "c uniform"] + YCSB_CHANGES + ["e settled"], settle=150,
                  queued=["c", "c uniform", "a", "b", "f", "d"], device=True,
                  outside=["hash"], load_outside=["wiredtiger", "lmdb"],
                  recover=["kvdb", "rocksdb"]),
    "threads": dict(records=500000, ops=400000, limit=4 * GIB, cache=2 * GIB, load_threads=4,
                    threads=[1, 2, 16, 64, 256], workloads=["load", "a", "c"]),
    # operations in progress at a time, of all threads, by calls that do not wait
    "async": dict(records=500000, ops=400000, limit=4 * GIB, cache=2 * GIB, threads=2,
                  in_flight=[2, 32, 512, 4000], workloads=["load", "a", "c", "f"],
                  engines=["kvdb"]),
    "small": dict(records=5000000, ops=2000000, fields=1, limit=6 * GIB, cache=4 * GIB,
                  own_cache=GIB * 24 // 5, workloads=["load", "a", "c"]),
    # caches that are filled at once: what memory costs at first touch is not to be measured here
    "16k": dict(records=120000, ops=60000, field_size=16384, fields=1, limit=2 * GIB,
                cache=GIB // 2, workloads=["load", "a", "c"], engines=["hash", "kvdb", "rocksdb"],
                outside=["hash"], device=True, rounds=3),
    "256k": dict(records=8000, ops=4000, field_size=262144, fields=1, limit=2 * GIB,
                 cache=GIB // 2, workloads=["load", "a", "c"], engines=["hash", "kvdb", "rocksdb"],
                 outside=["hash"], device=True, rounds=3),
    "sync": dict(records=200000, ops=5000000, limit=2 * GIB, cache=GIB, load_threads=4, threads=64,
                 seconds=10, is_sync=True, workloads=["load", "update"], rounds=3),
}
FULL = ["memory", "large", "threads", "async", "small", "16k", "256k", "sync"]


class Cgroup:
    """A memory limit for the processes of one store; page cache counts, and stays counted from one
    process to the next. `path` is None where none can be made."""

    def __init__(self):
        self.path, self.why = None, ""
        for root, limit, peak in (("/sys/fs/cgroup", "memory.max", "memory.peak"),
                                  ("/sys/fs/cgroup/memory", "memory.limit_in_bytes",
                                   "memory.max_usage_in_bytes")):
            path = "%s/kvdb-bench.%d" % (root, os.getpid())
            try:
                os.mkdir(path)
                if os.path.exists(path + "/" + limit):
                    self.path, self.limit_file, self.peak_file = path, limit, peak
                    return
                os.rmdir(path)
            except OSError as e:
                self.why = e.strerror

    def write(self, name, value):
        with open("%s/%s" % (self.path, name), "w") as f:
            f.write(str(value))

    def renew(self, limit):
        """Empty, for another store."""
        if self.path:
            self.remove()
            os.mkdir(self.path)
            self.write(self.limit_file, limit)

    def enter(self):
        """In the child."""
        if self.path:
            self.write("cgroup.procs", os.getpid())

    def forget_peak(self):
        try:
            if self.path:
                self.write(self.peak_file, 0)
        except OSError:
            pass  # an older kernel: the peak of all processes so far

    def peak(self):
        try:
            with open("%s/%s" % (self.path, self.peak_file)) as f:
                return int(f.read())
        except OSError:
            return None

    def remove(self):
        for _ in range(50):
            try:
                if self.path and os.path.isdir(self.path):
                    os.rmdir(self.path)
                return
            except OSError:
                time.sleep(0.1)


def pretouch(size):
    """A page that was never touched, or that a hypervisor took back, costs its first user:
    here, right before a process that fills its memory. A hypervisor may take free pages within
    seconds."""
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | mmap.MAP_POPULATE
    if size:
        mmap.mmap(-1, size, flags=flags).close()


class Store:
    """An engine's store, and the versions that were written to it."""

    def __init__(self, bench, engine, spec):
        self.bench, self.engine, self.spec = bench, engine, spec
        self.top = tempfile.mkdtemp(prefix=engine + ".", dir=bench.dir)
        self.dir = self.top + "/store"
        bench.cgroup.renew(spec["limit"])

    def clear(self):
        shutil.rmtree(self.dir, ignore_errors=True)

    def run(self, workload, threads, *more, in_flight=0, is_limited=True, seconds=None):
        """One process; its line of JSON, or None when it killed itself as told."""
        s = self.spec
        os.makedirs(self.dir, exist_ok=True)
        cache = s.get("own_cache", s["cache"]) if self.engine == "kvdb" else s["cache"]
        mix, *dist = workload.removesuffix(SETTLED).split()
        ops = s.get("scans", s["ops"]) if mix in ("e", "scan") else s["ops"]
        seconds = seconds or s.get("seconds", 0)
        cmd = [self.bench.program(self.engine), "--workload", mix, "--dir", self.dir,
               "--records", s["records"], "--ops", ops, "--threads", threads,
               "--fields", s.get("fields", 10), "--field-size", s.get("field_size", 100),
               "--cache", cache, "--seconds", seconds,
               "--versions", self.top + "/versions", *more]
        cmd += ["--distribution", *dist] if dist else []
        if s.get("is_cold") and self.engine != "hash":
            cmd.append("--cold")
        cmd += ["--in-flight", in_flight // threads] if in_flight else []
        if s.get("is_sync") and workload != "load":
            cmd.append("--sync")
        touch = s["cache"] if workload == "load" or self.engine == "hash" else 0
        line = self.bench.run([str(w) for w in cmd], is_limited, touch)
        if line:
            line["workload"] = workload + (" x%d" % in_flight if in_flight else "")
            line["limit_bytes"] = s["limit"] if is_limited else None
        if not is_limited:
            self.drop_page_cache()
        return line

    def drop_page_cache(self):
        """What is read again counts where it is read."""
        for name in os.listdir(self.dir):
            fd = os.open("%s/%s" % (self.dir, name), os.O_RDONLY)
            os.fsync(fd)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(fd)

    def remove(self):
        shutil.rmtree(self.top, ignore_errors=True)


class Bench:
    def __init__(self):
        self.build = os.path.realpath(os.environ.get("B", "build"))
        self.out = os.path.realpath(os.environ.get("OUT", self.build + "/bench"))
        self.front = shlex.split(os.environ.get("RUN", ""))
        os.makedirs(self.out, exist_ok=True)
        self.dir = tempfile.mkdtemp(prefix="compare.", dir=os.environ.get("DIR", self.build))
        self.cgroup = Cgroup()
        self.repeats = 0

    def program(self, engine):
        return "%s/tests/bench_%s" % (self.build, engine)

    def engines(self):
        wanted = os.environ.get("ENGINES", " ".join(ENGINES)).split()
        built = [e for e in ENGINES if e in wanted and os.path.exists(self.program(e))]
        for e in wanted:
            if e not in built:
                print("not measured: %s (no %s)" % (e, self.program(e)), flush=True)
        return built

    def run(self, cmd, is_limited, touch):
        def prepare():
            pretouch(touch)
            if is_limited:
                self.cgroup.enter()

        self.cgroup.forget_peak()
        p = subprocess.run(self.front + cmd, stdout=subprocess.PIPE, text=True,
                           preexec_fn=prepare)
        if p.returncode in (-9, 137) and "--kill" in cmd:  # itself, or the command in front
            return None
        if p.returncode:
            raise SystemExit("%s: exit code %d" % (" ".join(cmd), p.returncode))
        line = json.loads(p.stdout)
        line["cgroup_peak_bytes"] = self.cgroup.peak() if is_limited else None
        return line

    def measured(self, store, workload, threads, in_flight):
        """The least disturbed of some runs of one workload."""
        best, tries = None, 0
        if workload.endswith(SETTLED):
            store.run(workload, threads, seconds=store.spec["settle"])
        outside = store.engine in store.spec.get("outside", []) or \
            workload == "load" and store.engine in store.spec.get("load_outside", [])
        while True:
            if workload == "load":
                store.clear()
            line = store.run(workload, threads, in_flight=in_flight, is_limited=not outside)
            line["is_disturbed"] = line["other_cores"] > DISTURBED_CORES
            if not best or line["other_cores"] < best["other_cores"]:
                best = line
            tries += 1
            # a machine that is busy all the time is not waited for
            if not best["is_disturbed"] or tries > 2 or not self.repeats:
                break
            self.repeats -= 1
        best["tries"] = tries
        return best

    def recovered(self, store):
        """Open after SIGKILL at the end of a load."""
        store.clear()
        store.run("load", store.spec.get("load_threads", 4), "--kill")
        line = store.run("recover", store.spec.get("load_threads", 4))
        line["is_disturbed"] = line["other_cores"] > DISTURBED_CORES
        return line

    def device(self, spec, workload):
        """What the file system's device does by itself, right before a workload that it bounds."""
        if workload == "load":
            job = fio(self.dir, "write", "--bs=1M", "--iodepth=8", "--end_fsync=1")
            return {"device_write_bytes_per_s": job["write"]["bw_bytes"]} if job else {}
        if workload == "c uniform":
            job = fio(self.dir, "randread", "--bs=4k", "--iodepth=%d" % spec["threads"],
                      "--time_based", "--runtime=5")
            return {"device_reads_per_s": job["read"]["iops"]} if job else {}
        return {}

    def one(self, engine, spec):
        """An engine's lines of one round."""
        store = Store(self, engine, spec)
        counts = spec.get("threads", 4)
        counts = counts if isinstance(counts, list) else [counts]
        try:
            for w in spec["workloads"]:
                if engine == "hash" and w.split()[0] in ("e", "scan"):
                    continue
                for n in [spec.get("load_threads", counts[0])] if w == "load" else counts:
                    device = self.device(spec, w) if spec.get("device") else {}
                    for depth in spec.get("in_flight", [0]):
                        yield {**self.measured(store, w, n, depth), **device}
                    if engine in QUEUES and w in spec.get("queued", []):
                        yield {**self.measured(store, w, QUEUE_THREADS, n), **device}
            recover = spec.get("recover", False)
            if engine != "hash" and (recover is True or recover and engine in recover):
                yield self.recovered(store)
        finally:
            store.remove()


def fio(path, rw, *more):
    """One job on a new file of 1 GiB; None without fio."""
    if not shutil.which("fio"):
        return None
    name = path + "/fio.file"
    try:
        p = subprocess.run(["fio", "--name=device", "--filename=" + name, "--rw=" + rw,
                            "--direct=1", "--ioengine=io_uring", "--size=1G",
                            "--fallocate=native", "--output-format=json", *more],
                           stdout=subprocess.PIPE, text=True)
        return None if p.returncode else json.loads(p.stdout)["jobs"][0]
    finally:
        if os.path.exists(name):
            os.unlink(name)


def machine():
    cpu = platform.machine()
    with open("/proc/cpuinfo") as f:
        for line in f:
            if line.startswith("model name"):
                cpu = line.split(":", 1)[1].strip()
                break
    with open("/proc/meminfo") as f:
        memory_gib = int(f.readline().split()[1]) / MIB
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True)
    return {"licence": "SPDX-License-Identifier: GPL-2.0-only OR MIT", "cpu": cpu,
            "cores": os.cpu_count(), "memory_gib": round(memory_gib, 1),
            "kernel": platform.release(), "date": time.strftime("%Y-%m-%d"),
            "commit": commit.stdout.strip() or None}


def median(lines):
    """One line from those of several rounds: the median of each number, the rest of the first."""
    out = dict(lines[0])
    for key, first in out.items():
        values = [line.get(key) for line in lines]
        if isinstance(first, dict):
            out[key] = median([v for v in values if v is not None])
        elif isinstance(first, (int, float)) and not isinstance(first, bool):
            out[key] = statistics.median(v for v in values if v is not None)
        elif key == "is_disturbed":
            out[key] = any(values)
    return out


def run_set(bench, name, log):
    spec = dict(SETS[name])
    if os.environ.get("RECORDS"):
        scale = int(os.environ["RECORDS"]) / spec["records"]
        for key in ("records", "ops", "scans") + (("limit", "cache", "own_cache")
                                                  if spec.get("is_cold") else ()):
            if key in spec:
                spec[key] = max(1000, int(spec[key] * scale))
    if os.environ.get("WORKLOADS"):
        only = os.environ["WORKLOADS"].split(",")
        spec["workloads"] = [w for w in spec["workloads"] if w in ["load"] + only]
        spec["recover"] = False
    for key, variable in (("seconds", "RUNTIME"), ("settle", "SETTLE")):
        if key in spec:
            spec[key] = int(os.environ.get(variable, spec[key]))
    engines = [e for e in bench.engines() if e in spec.get("engines", ENGINES)]
    rounds = int(os.environ.get("ROUNDS", spec.get("rounds", 1)))
    bench.repeats = int(os.environ.get("REPEATS", spec.get("repeats", 12) * rounds))
    lines = {}
    for n in range(rounds):
        if n:
            spec["recover"] = False
        for engine in engines:
            for line in bench.one(engine, spec):
                line.update(set=name, round=n + 1)
                log.write(json.dumps(line) + "\n")
                log.flush()
                key = (line["workload"], line["threads"], engine)
                lines.setdefault(key, []).append(line)
                print("  %-10s %-8s %4d threads %12.0f/s%s" % (
                    engine, line["workload"], line["threads"], line["ops_per_s"],
                    " !" if line["is_disturbed"] else ""), file=sys.stderr, flush=True)
    return [median(v) for v in lines.values()]


def main(names):
    if not names or any(n not in SETS and n != "full" for n in names):
        print(__doc__, file=sys.stderr)
        return 2
    title = "-".join(names)
    names = FULL if names == ["full"] else names
    bench, about = Bench(), machine()
    base = "%s/%s-%s" % (bench.out, about["date"], title)
    about["memory_limit"] = "cgroup, page cache counted" if bench.cgroup.path else \
        "engine settings only: no memory cgroup (%s)" % bench.cgroup.why
    if bench.front:
        about["run_by"] = " ".join(bench.front)
    try:
        with open(base + ".jsonl", "w") as log, open(base + ".txt", "w") as text:
            log.write(json.dumps(about) + "\n")
            for name in names:
                lines = run_set(bench, name, log)
                for out in (sys.stdout, text):
                    tables.print_set(out, about, name, lines)
                tables.plot_set("%s-%s.svg" % (base, name), about, name, lines)
    finally:
        bench.cgroup.remove()
        shutil.rmtree(bench.dir, ignore_errors=True)
    print("\n%s.jsonl .txt .svg" % base)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
