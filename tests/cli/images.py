#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""Write what other tools leave at the beginning of a device.

images.py KIND FILE     kinds: ext4 xfs luks lvm gpt swap micron; unborn, early: a member of
                        a pool is as the creation of the pool leaves it that was cut, early:
                        before the first superblock

The file exists and keeps its size; like mkfs, only the places that matter are
written. ext4 and swap are made by their own tools when these are present. Every
image is one that libblkid recognises.
"""

import os
import shutil
import struct
import subprocess
import sys
import uuid
import zlib

ID = uuid.UUID("8d3f0c52-1f0e-4a7b-9c2d-5b6a7e8f9012").bytes


def tool(*cmd):
    path = shutil.which(cmd[0], path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")
    if not path:
        return False
    subprocess.run([path] + list(cmd[1:]), check=True, stdout=subprocess.DEVNULL,
                   stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL)
    return True


def put(path, *pieces):
    with open(path, "r+b") as f:
        for offset, data in pieces:
            f.seek(offset, os.SEEK_SET if offset >= 0 else os.SEEK_END)
            f.write(data)


def ext4(path, size):
    if tool("mkfs.ext4", "-q", "-F", "-L", "home", path):
        return
    sb = bytearray(1024)
    struct.pack_into("<IIII", sb, 0, 16, size // 4096, 0, size // 4096 - 10)
    struct.pack_into("<I", sb, 24, 2)                       # 4 KiB blocks
    struct.pack_into("<H", sb, 56, 0xef53)
    struct.pack_into("<I", sb, 76, 1)                       # dynamic revision
    struct.pack_into("<III", sb, 92, 4, 0x40, 0)            # journal, extents
    sb[104:120] = ID
    sb[120:124] = b"home"
    put(path, (0, bytes(1024)), (1024, bytes(sb)))


def xfs(path, size):
    blocks = 16384
    sb = bytearray(512)
    struct.pack_into(">4sIQQQ", sb, 0, b"XFSB", 4096, blocks, 0, 0)
    sb[32:48] = ID
    struct.pack_into(">QQQQ", sb, 48, 8192, 128, 129, 130)
    struct.pack_into(">IIIII", sb, 80, 1, blocks // 4, 4, 0, 1000)
    struct.pack_into(">HHHH", sb, 100, 0xb4a4, 512, 512, 8)
    sb[108:112] = b"data"
    sb[120:128] = bytes([12, 9, 9, 3, 12, 0, 0, 25])
    put(path, (0, bytes(sb)))


def luks(path, size):
    header = bytearray(592)
    struct.pack_into(">6sH32s32s32sII", header, 0, b"LUKS\xba\xbe", 1, b"aes", b"xts-plain64",
                     b"sha256", 4096, 64)
    header[168:204] = str(uuid.UUID(bytes=ID)).encode()
    put(path, (0, bytes(header)))


def lvm(path, size):
    label = bytearray(512)
    label[0:8] = b"LABELONE"
    struct.pack_into("<Q", label, 8, 1)
    struct.pack_into("<I", label, 20, 32)
    label[24:32] = b"LVM2 001"
    label[32:64] = b"abcdefghijklmnopqrstuvwxyzABCDEF"
    struct.pack_into("<QQQQQQ", label, 64, size, 1048576, 0, 0, 4096, 1044480)
    crc = zlib.crc32(bytes(label[20:]), 0xf597a6cf ^ 0xffffffff) ^ 0xffffffff
    struct.pack_into("<I", label, 16, crc)
    put(path, (0, bytes(2048)), (512, bytes(label)))


def gpt(path, size):
    last = size // 512 - 1
    mbr = bytearray(512)
    mbr[446:462] = struct.pack("<B3sB3sII", 0, b"\0\2\0", 0xee, b"\xff\xff\xff", 1, last)
    mbr[510:512] = b"\x55\xaa"
    entry = struct.pack("<16s16sQQQ72s", uuid.UUID(int=0x0fc63daf8483).bytes_le, ID, 2048,
                        last - 2048, 0, "data".encode("utf-16le"))
    entries = entry + bytes(128 * 128 - len(entry))

    def header(mine, other, table):
        h = struct.pack("<8sIIIIQQQQ16sQIII", b"EFI PART", 0x10000, 92, 0, 0, mine, other, 34,
                        last - 33, ID, table, 128, 128, zlib.crc32(entries))
        return h[:16] + struct.pack("<I", zlib.crc32(h)) + h[20:]

    put(path, (0, bytes(mbr)), (512, header(1, last, 2)), (1024, entries),
        ((last - 32) * 512, entries), (last * 512, header(last, 1, last - 32)))


def swap(path, size):
    if tool("mkswap", path):
        return
    put(path, (0, bytes(1024)), (1024, struct.pack("<III", 1, size // 4096 - 1, 0) + ID),
        (4086, b"SWAPSPACE2"))


def crc32c(data):
    crc = 0xffffffff
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82f63b78 if crc & 1 else 0)
    return crc ^ 0xffffffff


def micron(path, size):
    head = struct.pack("<8s32s16sHI", b"mpoolDev", b"old", ID, 1, 1)
    put(path, (0, head + struct.pack("<I", crc32c(head))))


def unborn(path, size):
    for at in (size // 2 // 65536 * 65536, size - 4096):
        with open(path, "rb") as f:
            f.seek(at)
            sb = bytearray(f.read(4096))
        sb[147] = 1                                         # creating
        struct.pack_into("<Q", sb, 128, 2)                  # generation
        struct.pack_into("<I", sb, 58, 2)
        struct.pack_into("<I", sb, 62, crc32c(sb[:62]))
        struct.pack_into("<I", sb, 72, 0)
        struct.pack_into("<I", sb, 72, crc32c(sb))
        put(path, (at, bytes(sb)))


def early(path, size):
    unborn(path, size)
    put(path, (0, bytes(4096)))


def main():
    kinds = {f.__name__: f for f in (ext4, xfs, luks, lvm, gpt, swap, micron, unborn, early)}
    kinds[sys.argv[1]](sys.argv[2], os.path.getsize(sys.argv[2]))


main()
