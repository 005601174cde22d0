#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""Hold a pool open until standard input ends.

hold.py LIBMPOOL.SO PATH [OBJECTS]  prints "open" when it is; allocates and
commits OBJECTS mblocks first
"""

import ctypes
import sys


class Alloc(ctypes.Structure):
    _fields_ = [("kind", ctypes.c_uint32), ("mclass", ctypes.c_uint32),
                ("flags", ctypes.c_uint32), ("pad", ctypes.c_uint32),
                ("capacity", ctypes.c_uint64), ("tag", ctypes.c_uint64)]


class Op(ctypes.Structure):
    _fields_ = [("type", ctypes.c_uint32), ("flags", ctypes.c_uint32),
                ("obj", ctypes.c_void_p), ("id", ctypes.c_uint64),
                ("length", ctypes.c_uint64), ("crc", ctypes.c_uint32), ("pad", ctypes.c_uint32)]


class Iovec(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("len", ctypes.c_size_t)]


def call(what, rc):
    if rc:
        sys.exit("%s: %d" % (what, rc))


def fill(lib, mp, count):
    """Commit objects of 64 KiB whose content carries a checksum."""
    room = ctypes.create_string_buffer(b"\xa5" * (65536 + 4096))
    base = (ctypes.addressof(room) + 4095) & ~4095
    iov = Iovec(base, 65536)
    lib.mpool_crc32c.restype = ctypes.c_uint32
    crc = lib.mpool_crc32c(0, ctypes.c_void_p(base), ctypes.c_size_t(65536))
    for _ in range(count):
        obj = ctypes.c_void_p()
        req = Alloc(1, 0, 0, 0, 65536, 7)
        call("mpool_alloc", lib.mpool_alloc(mp, ctypes.byref(req), 1, ctypes.byref(obj)))
        call("mpool_write", lib.mpool_write(obj, ctypes.c_uint64(0), ctypes.byref(iov), 1))
        op = Op(1, 8, obj, 0, 65536, crc, 0)
        call("mpool_batch", lib.mpool_batch(mp, ctypes.byref(op), 1))
        lib.mpool_obj_close(obj)


def main():
    lib = ctypes.CDLL(sys.argv[1])
    mp = ctypes.c_void_p()
    call("mpool_open", lib.mpool_open(sys.argv[2].encode(), None, ctypes.byref(mp)))
    if len(sys.argv) > 3:
        fill(lib, mp, int(sys.argv[3]))
    print("open", flush=True)
    sys.stdin.read()
    call("mpool_close", lib.mpool_close(mp))


main()
