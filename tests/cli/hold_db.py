#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""Hold a database open for writing until standard input ends.

hold_db.py LIBKVDB.SO PATH KEYS   prints "open" when it is; puts KEYS records into
the store "live" first, which is made, and opens a cursor there
"""

import ctypes
import os
import sys


def call(what, rc):
    if rc:
        sys.exit("%s: %d" % (what, rc))


def fill(lib, db, count):
    kvs = ctypes.c_void_p()
    if lib.kvdb_kvs_open(db, b"live", ctypes.byref(kvs)):
        call("kvdb_kvs_create", lib.kvdb_kvs_create(db, b"live", None))
        call("kvdb_kvs_open", lib.kvdb_kvs_open(db, b"live", ctypes.byref(kvs)))
    for i in range(count):
        key = b"key%d" % i
        call("kvdb_put", lib.kvdb_put(kvs, key, ctypes.c_size_t(len(key)), b"v" * 500,
                                      ctypes.c_size_t(500)))
    cur = ctypes.c_void_p()
    call("kvdb_cursor_open", lib.kvdb_cursor_open(kvs, 0, None, ctypes.c_size_t(0),
                                                  ctypes.byref(cur)))
    return cur


def main():
    # found by its soname from then on, installed or not
    ctypes.CDLL(os.path.join(os.path.dirname(sys.argv[1]), "libmpool.so.1"), ctypes.RTLD_GLOBAL)
    lib = ctypes.CDLL(sys.argv[1])
    db = ctypes.c_void_p()
    call("kvdb_open", lib.kvdb_open(sys.argv[2].encode(), None, ctypes.byref(db)))
    cur = fill(lib, db, int(sys.argv[3]))
    print("open", flush=True)
    sys.stdin.read()
    lib.kvdb_cursor_close(cur)
    call("kvdb_close", lib.kvdb_close(db))


main()
