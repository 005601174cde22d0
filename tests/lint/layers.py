#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""Which layer may know which: by #include, by #ifdef and by symbol."""

import glob
import os
import re

from lib import O, Skip, code, line_of, main, run, text, under

PUBLIC = {"mpool/mpool.h", "mpool/provider.h", "kvdb/kvdb.h", "kvdb/cq.h", "kvdb/cursor.h",
          "kvdb/sub.h", "kvdb/txn.h"}
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*([<"])([^>"]+)[>"]', re.M)
# what the compiler itself may call for plain C, and its hardened forms
COMPILER = re.compile(r"(__)?(mem(cpy|move|set|cmp)|strlen|str(n)?cmp)(_chk)?$|"
                      r"__stack_chk_fail$|_GLOBAL_OFFSET_TABLE_$")


def includes(path):
    return [(m.group(1), m.group(2), line_of(path, m.start()))
            for m in INCLUDE.finditer(text(path))]


def core():
    return under("kmod/core/", ".c", ".h")


def core_includes_nothing_but_core():
    own = {os.path.basename(f) for f in core()}
    for f in core():
        if f == "kmod/core/os.h":
            continue
        for mark, name, line in includes(f):
            if mark == "<" or name not in own:
                yield "%s:%d: includes %s" % (f, line, name)


def core_is_what_its_object_list_says():
    listed = set(re.findall(r"(\w+)\.o\b", text("kmod/core/Makefile.objs")))
    there = {os.path.basename(f)[:-2] for f in under("kmod/core/", ".c")}
    for name in sorted(listed ^ there):
        yield "kmod/core/%s.c: %s" % (name, "missing" if name in listed else "not in Makefile.objs")


def core_asks_for_the_kernel_in_os_h_only():
    for f in core():
        m = re.search(r"__KERNEL__|\bMODULE\b|LINUX_VERSION_CODE", code(f))
        if m and f != "kmod/core/os.h":
            yield "%s:%d: %s" % (f, line_of(f, m.start()), m.group(0))


def core_has_no_floating_point_and_no_libc_names():
    for f in core():
        if f == "kmod/core/os.h":
            continue
        for m in re.finditer(r"\b(float|double|malloc|calloc|free|printf|fprintf|abort|exit|"
                             r"pthread_\w+|errno)\b(?!\s*:)", code(f)):
            yield "%s:%d: %s" % (f, line_of(f, m.start()), m.group(0))


def core_objects_link_to_core_and_os_only():
    """Undefined symbols of the core's objects are the core's own, the user half
    of os.h, or the compiler's. os.h may name libc functions in its inlines."""
    objs = glob.glob(O + "/obj/kmod/core/*.o")
    if not objs:
        raise Skip("core is not built")
    os_objs = glob.glob(O + "/obj/libmpool/os_user*.o")
    contract = " ".join(text(f) for f in ["kmod/core/os.h"] + under("libmpool/os_user", ".h"))
    allowed = set(re.findall(r"\w+", contract))
    for line in run("nm", "-g", "--defined-only", *objs, *os_objs).stdout.split("\n"):
        if len(line.split()) == 3:
            allowed.add(line.split()[2])
    for obj in objs:
        for line in run("nm", "-u", obj).stdout.split("\n"):
            name = line.split()[-1] if line.split() else ""
            if name and name not in allowed and not COMPILER.match(name):
                yield "%s: %s" % (os.path.basename(obj), name)


def libmpool_includes_core_and_its_own():
    own = {os.path.basename(f) for f in under("libmpool/", ".h") + under("kmod/core/", ".h")}
    for f in under("libmpool/", ".c", ".h"):
        for mark, name, line in includes(f):
            if mark == "<" and name.startswith("kvdb/") or \
               mark == '"' and os.path.basename(name) not in own:
                yield "%s:%d: includes %s" % (f, line, name)


def libkvdb_sees_only_the_public_header_of_libmpool():
    own = {f.split("/", 1)[1] for f in under("libkvdb/", ".h")}
    for f in under("libkvdb/", ".c", ".h"):
        for mark, name, line in includes(f):
            if mark == '"' and name not in own or \
               name.startswith(("mpool/", "../")) and name not in PUBLIC:
                yield "%s:%d: includes %s" % (f, line, name)


def libkvdb_does_no_io_of_its_own():
    calls = r"\b(open|openat|creat|pread|pwrite|preadv|pwritev|fdatasync|fsync|mmap64|" \
            r"io_uring_\w+|fopen)\s*\("
    for f in under("libkvdb/", ".c"):
        for m in re.finditer(r"(?<![\w>.])" + calls, code(f)):
            at = text(f)[m.end():m.end() + 40]
            # facts about the machine (memory limits) are not media
            if not re.match(r'\s*"/(proc|sys)/|\s*path', at):
                yield "%s:%d: %s" % (f, line_of(f, m.start()), m.group(1))


def commands_include_public_headers_only():
    own = {os.path.basename(f) for f in under("utils/", ".h")}
    for f in under("utils/", ".c", ".h"):
        for mark, name, line in includes(f):
            if mark == '"' and os.path.basename(name) not in own or \
               name.startswith(("mpool/", "kvdb/")) and name not in PUBLIC:
                yield "%s:%d: includes %s" % (f, line, name)


def libraries_neither_print_nor_exit_nor_catch_signals():
    calls = r"(?<![\w>.])(printf|fprintf|puts|putchar|perror|exit|_exit|signal|sigaction|atexit|" \
            r"syslog)\s*\("
    for f in under("libmpool/", ".c") + under("libkvdb/", ".c"):
        for m in re.finditer(calls, code(f)):
            yield "%s:%d: %s()" % (f, line_of(f, m.start()), m.group(1))


main([core_includes_nothing_but_core, core_is_what_its_object_list_says,
      core_asks_for_the_kernel_in_os_h_only, core_has_no_floating_point_and_no_libc_names,
      core_objects_link_to_core_and_os_only,
      libmpool_includes_core_and_its_own, libkvdb_sees_only_the_public_header_of_libmpool,
      libkvdb_does_no_io_of_its_own, commands_include_public_headers_only,
      libraries_neither_print_nor_exit_nor_catch_signals])
