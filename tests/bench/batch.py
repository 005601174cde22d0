#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""What a batch saves: loads by one thread, with batches of 100 puts and with single ones.

  batch.py [SIZE...]      of values in bytes; default 16 100 1000

B=        build folder                   DIR=      where stores are made (default: in B)
RECORDS=  default 500000                 ROUNDS=   default 3, whose medians are shown

This engine, and RocksDB where it was built. Thousand puts a second, as acknowledged, by turns;
the driver's own work counts, and checks of values do not.
"""

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile

PUTS = 100
ENGINES = ["kvdb", "rocksdb"]


def load(build, where, engine, size, batch):
    """Puts a second."""
    store = where + "/store"
    os.mkdir(store)
    cmd = [build + "/tests/bench_" + engine, "--workload", "load", "--dir", store, "--threads", "1",
           "--records", os.environ.get("RECORDS", "500000"), "--cache", "512M", "--fields", "1",
           "--field-size", str(size)] + (["--batch", str(batch)] if batch else [])
    out = subprocess.run(cmd, stdout=subprocess.PIPE, check=True).stdout
    shutil.rmtree(store)
    return json.loads(out)["ops_per_s"]


def main(sizes):
    if not all(s.isdigit() for s in sizes):
        print(__doc__, file=sys.stderr)
        return 2
    build = os.path.realpath(os.environ.get("B", "build"))
    where = tempfile.mkdtemp(prefix="batch.", dir=os.environ.get("DIR", build))
    rounds = int(os.environ.get("ROUNDS", "3"))
    print("%-8s %8s %12s %16s %8s" % ("engine", "bytes", "single puts", "batches of %d" % PUTS,
                                      "ratio"))
    try:
        for engine in ENGINES:
            if not os.path.exists(build + "/tests/bench_" + engine):
                continue
            for size in sizes:
                runs = [[load(build, where, engine, size, batch) for batch in (0, PUTS)]
                        for _ in range(rounds)]
                one, many = (statistics.median(r[i] for r in runs) / 1000 for i in (0, 1))
                print("%-8s %8s %12.0f %16.0f %8.2f" % (engine, size, one, many, many / one),
                      flush=True)
    finally:
        shutil.rmtree(where, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or ["16", "100", "1000"]))
