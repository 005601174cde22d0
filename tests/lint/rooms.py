#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""Rooms of libkvdb and layers of the core: one idea each, and one direction. A file may use its
own room and those below it; what libkvdb tells those above goes through db/hooks.h. No include
looks up, no symbol, no header is long, and of the files of a room few need each other."""

import glob
import os
import re

from lib import O, Skip, line_of, main, run, text, under

# from the bottom to the top
ROOMS = ("base", "db", "cache", "seg", "mem", "run", "tree", "log", "meta", "compact", "background",
         "read", "txn", "op", "cq", "ctl", "open")
# the core lies in one folder, as kbuild likes it; pool.h and obj.h are its interface
LAYERS = {
    "base": "os.h dev.h pool.h obj.h err.c err.h guard.h tree.c tree.h",
    "media": "omf.c omf.h omf_check.h codec.h smap.c smap.h text.c",
    "member": "core.h member.h sb.c own.c fault.c recover.c",
    "durable": "durable.h mclass.c otab.c mdlog.c mdload.c mblock.c batch.c mlog.c",
    "pool": "open.h pool.c create.c admin.c open.c verify.c dump.c",
}
HEADER_LINES = 300
KNOT_FILES = 3
HEIGHT = {room: i for i, room in enumerate(ROOMS)}
LAYER = {name: i for i, names in enumerate(LAYERS.values()) for name in names.split()}
INCLUDE = re.compile(r'^#include "([\w/]+\.h)"', re.M)


def sources():
    return [f for f in under("libkvdb/", ".c", ".h") if not f.startswith("libkvdb/include/")]


def core():
    return under("kmod/core/", ".c", ".h")


def height(path):
    """Of a source, an object or what an include names."""
    if "/" in path and not path.startswith("kmod/core/"):
        return HEIGHT.get(path.split("/")[-2])
    return LAYER.get(path.split("/")[-1])


def each_file_has_its_place():
    for f in sources() + core():
        if height(f) is None or f.startswith("libkvdb/") and f.count("/") != 2:
            yield "%s: not in a room or layer (tests/lint/rooms.py)" % f
    for name in sorted(set(LAYER) - {f.split("/")[-1] for f in core()}):
        yield "kmod/core/%s is not there" % name


def includes_look_down():
    for f in sources() + core():
        for m in INCLUDE.finditer(text(f)):
            up = height(m.group(1))
            if up is not None and up > height(f):
                yield "%s:%d: %s" % (f, line_of(f, m.start()), m.group(0))


def headers_are_short():
    for f in sources() + core():
        lines = text(f).count("\n")
        if f.endswith(".h") and lines > HEADER_LINES:
            yield "%s: %d lines" % (f, lines)


def uses():
    """(source, symbol, source that has it) of each symbol that another one of them uses."""
    found = []
    for pattern in ("libkvdb/*/*.o", "kmod/core/*.o"):
        objs = glob.glob(O + "/obj/" + pattern)
        if not objs:
            raise Skip("%s is not built" % pattern.split("/")[0])
        home, used = {}, []
        for line in run("nm", "-A", "-g", *objs).stdout.splitlines():
            obj, kind, name = re.match(r"(.*):[0-9a-f ]*([A-Za-z]) (\S+)", line).groups()
            source = obj[len(O + "/obj/"):-2] + ".c"
            if kind == "U":
                used.append((source, name))
            else:
                home[name] = source
        found += [(source, name, home[name]) for source, name in used if name in home]
    return [u for u in found if os.path.exists(u[0])]


def symbols_look_down():
    for source, name, owner in uses():
        if height(owner) > height(source):
            yield "%s uses %s of %s" % (source, name, owner)


def few_files_need_each_other():
    needs = {}
    for source, _, owner in uses():
        needs.setdefault(source, set()).add(owner)

    def reached(source):
        seen, todo = set(), [source]
        while todo:
            new = needs.get(todo.pop(), set()) - seen
            seen |= new
            todo += new
        return seen
    reach = {s: reached(s) for s in needs}
    knots = {tuple(sorted(o for o in reach[s] if s in reach.get(o, ()))) for s in needs}
    for knot in sorted(knots):
        if len(knot) > KNOT_FILES:
            yield "need each other: %s" % " ".join(knot)


main([each_file_has_its_place, includes_look_down, headers_are_short, symbols_look_down,
      few_files_need_each_other])
