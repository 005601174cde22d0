# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""What this engine is to reach on two cores, beside what a set of runs measured. Loads are
compared with all deferred work done, other workloads as acknowledged. Nothing is judged here."""

import re

# set -> workload -> (how many times better, than which; None: the best)
BETTER = {
    "memory": {"load": [(5, "rocksdb"), (5, "wiredtiger"), (5, "lmdb")], "a": [(5, None)],
               "b": [(3, None)], "c": [(1.5, "lmdb"), (4, "rocksdb")], "d": [(4, None)],
               "e": [(1.5, None)], "f": [(5, None)]},
    "large": {"load": [(5, "rocksdb")], "a": [(4, None)], "b": [(2.5, None)], "c": [(2, None)],
              "d": [(4, None)], "e": [(1.3, None)], "e settled": [(1.3, None)], "f": [(3, None)]},
    "small": {"load": [(3, "rocksdb")], "a": [(2, "rocksdb")], "c": [(2, "rocksdb")]},
    "sync": {"update": [(2, "rocksdb")]},
}
BETTER["quick"] = BETTER["memory"]

AMPLIFICATION = {"load": 1.4, "a": 1.8}
DEVICE_WRITES = 0.85   # of sequential ones, values of 16 KiB and more
DEVICE_READS = 0.90    # of random ones, uniform keys, data of four times memory
P999 = {"update": 5, "insert": 5, "read": 2}  # times less than RocksDB's
BUDGET = 1.05
RECOVERY_S = 2


def base(workload):
    """Without how many operations of it are in progress at a time, by calls that do not wait."""
    return re.sub(r" x\d+$", "", workload)


def cells_of(lines, workload, threads):
    """Engine -> line. Beside one whose calls do not wait stand the others as they are."""
    cells = {}
    if base(workload) != workload:
        cells = {x["engine"]: x for x in lines
                 if x["workload"] == base(workload) and x["engine"] not in ("hash", "kvdb")}
    cells.update((x["engine"], x) for x in lines
                 if (x["workload"], x["threads"]) == (workload, threads))
    return cells


def key_of(workload):
    return "drained_ops_per_s" if workload == "load" else "ops_per_s"


def against(cells, workload, wanted, who):
    key = key_of(workload)
    peers = {e: c[key] for e, c in cells.items() if e not in ("hash", "kvdb")}
    if who is None and peers:
        who = max(peers, key=peers.get)
    if who not in peers or not peers[who]:
        return
    yield "%s, against %s" % (workload, who), cells["kvdb"][key] / peers[who], ">= %g" % wanted


def tails(cells, cores):
    mine, other = cells["kvdb"], cells.get("rocksdb")
    if not other or mine["is_disturbed"] or other["is_disturbed"]:
        return
    if max(mine["threads"], other["threads"]) > cores:
        return
    for op, wanted in P999.items():
        if op in mine["latency"] and op in other["latency"]:
            yield ("%s, p99.9 of %s, times less than rocksdb" % (mine["workload"], op),
                   other["latency"][op]["p999_ns"] / mine["latency"][op]["p999_ns"],
                   ">= %g" % wanted)


def costs(mine):
    workload = mine["workload"]
    if base(workload) in AMPLIFICATION and mine["value_size"] == 1000:
        yield ("%s, bytes written per byte put" % workload, mine["write_amplification"],
               "<= %g" % AMPLIFICATION[base(workload)])
    if mine.get("device_write_bytes_per_s") and mine["value_size"] >= 16384:
        yield ("%s, part of the device's sequential writes" % workload, device_writes(mine),
               ">= %g" % DEVICE_WRITES)
    if mine.get("device_reads_per_s"):
        yield ("%s, part of the device's random reads" % workload,
               mine["ops_per_s"] / mine["device_reads_per_s"], ">= %g" % DEVICE_READS)
    yield ("%s, resident without the driver's own, part of the budget" % workload,
           (mine["peak_rss_bytes"] - mine["driver_bytes"]) / mine["cache_bytes"],
           "<= %g" % BUDGET)


def device_writes(line):
    """User's bytes, with all of them durable."""
    return line["user_written_bytes"] * 1e9 / line["drained_ns"] / line["device_write_bytes_per_s"]


def rows(name, cores, lines):
    """(what, figure, wanted) of a set."""
    for workload, threads in dict.fromkeys((x["workload"], x["threads"]) for x in lines):
        cells = cells_of(lines, workload, threads)
        if "kvdb" not in cells:
            continue
        if workload == "recover":
            yield "open after SIGKILL, s", cells["kvdb"]["open_ns"] / 1e9, "< %g" % RECOVERY_S
            continue
        for wanted, who in BETTER.get(name, {}).get(base(workload), []):
            yield from against(cells, workload, wanted, who)
        yield from tails(cells, cores)
        yield from costs(cells["kvdb"])
