#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""beat.py DEVICE NAME: the heartbeat of a host, by what kmod/core/omf.h says of it alone."""
import os
import struct
import sys
import time

TABLE = []
for n in range(256):
    for _ in range(8):
        n = n >> 1 ^ (0x82f63b78 if n & 1 else 0)
    TABLE.append(n)


def crc32c(data):
    crc = 0xffffffff
    for b in data:
        crc = TABLE[(crc ^ b) & 255] ^ crc >> 8
    return crc ^ 0xffffffff


def block(uuid, claim, count, name):
    rest = struct.pack("<I16sQQ64s400x", 0x100, uuid, claim, count, name)
    head = b"mpoolHst"
    return head + struct.pack("<I", crc32c(head + bytes(4) + rest)) + rest + bytes(4096 - 512)


fd = os.open(sys.argv[1], os.O_RDWR)
pool = os.pread(fd, 16, 40)
for i in range(1000):
    os.pwrite(fd, block(pool, 4711, i, sys.argv[2].encode()), 4096)
    time.sleep(0.1)
