#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""Put records that expire into a store, as if it were some hours ago.

past_db.py LIBKVDB.SO PATH STORE HOURS   the record "short" lives for an hour,
"long" for a hundred days
"""

import ctypes
import os
import sys
import time

NOW = ctypes.CFUNCTYPE(ctypes.c_uint64, ctypes.c_void_p)
SLEEP = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_uint64)
MANUAL = 0x2  # nothing calls back from another thread


class Clock(ctypes.Structure):
    _fields_ = [("now_ns", NOW), ("sleep_until_ns", SLEEP), ("arg", ctypes.c_void_p),
                ("wall_ns", NOW)]


class Opts(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t)] + [
        (name, ctypes.c_uint32) for name in (
            "flags", "interval_ms", "commit", "logs", "threads", "view_max_age_ms")] + [
        (name, ctypes.c_uint64) for name in ("cache_bytes", "log_bytes", "segment_bytes")] + [
        ("space_amp_max", ctypes.c_double), ("clock", ctypes.POINTER(Clock)),
        ("pool", ctypes.c_void_p), ("checkpoint", ctypes.c_char_p),
        ("rollback", ctypes.c_uint64), ("size_max", ctypes.c_uint64)]


def call(what, rc):
    if rc:
        sys.exit("%s: %d" % (what, rc))


def put(lib, kvs, key, hours):
    call("kvdb_put_ttl", lib.kvdb_put_ttl(kvs, key, ctypes.c_size_t(len(key)), b"v",
                                          ctypes.c_size_t(1), ctypes.c_uint64(hours * 3600)))


def main():
    path, store, ago = sys.argv[2].encode(), sys.argv[3].encode(), int(sys.argv[4])
    clock = Clock(NOW(lambda arg: time.monotonic_ns()), SLEEP(lambda arg, t: None), None,
                  NOW(lambda arg: time.time_ns() - ago * 3600 * 10 ** 9))
    opts = Opts(size=ctypes.sizeof(Opts), flags=MANUAL, clock=ctypes.pointer(clock))
    # found by its soname from then on, installed or not
    ctypes.CDLL(os.path.join(os.path.dirname(sys.argv[1]), "libmpool.so.1"), ctypes.RTLD_GLOBAL)
    lib = ctypes.CDLL(sys.argv[1])
    db, kvs = ctypes.c_void_p(), ctypes.c_void_p()
    call("kvdb_open", lib.kvdb_open(path, ctypes.byref(opts), ctypes.byref(db)))
    call("kvdb_kvs_open", lib.kvdb_kvs_open(db, store, ctypes.byref(kvs)))
    put(lib, kvs, b"short", 1)
    put(lib, kvs, b"long", 2400)
    call("kvdb_close", lib.kvdb_close(db))


main()
