#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""libkvdb's rooms: one idea each, and one direction. A file may use its own room and those
below it; what it tells those above goes through db/hooks.h. No include looks up, no symbol, no
header is long, and of the files of a room few need each other."""

import glob
import re

from lib import O, Skip, line_of, main, run, text, under

# from the bottom to the top
ROOMS = ("base", "db", "cache", "seg", "mem", "run", "tree", "log", "meta", "compact", "background",
         "read", "txn", "op", "cq", "ctl", "open")
HEADER_LINES = 300
KNOT_FILES = 3
HEIGHT = {room: i for i, room in enumerate(ROOMS)}
INCLUDE = re.compile(r'^#include "(\w+)/\w+\.h"', re.M)


def sources():
    return [f for f in under("libkvdb/", ".c", ".h") if not f.startswith("libkvdb/include/")]


def room_of(path):
    return path.split("/")[-2]


def each_file_lies_in_a_room():
    for f in sources():
        if f.count("/") != 2 or room_of(f) not in HEIGHT:
            yield "%s: not in a room (tests/lint/rooms.py)" % f


def includes_look_down():
    for f in sources():
        for m in INCLUDE.finditer(text(f)):
            if HEIGHT[m.group(1)] > HEIGHT[room_of(f)]:
                yield "%s:%d: %s" % (f, line_of(f, m.start()), m.group(0))


def headers_are_short():
    for f in sources():
        lines = text(f).count("\n")
        if f.endswith(".h") and lines > HEADER_LINES:
            yield "%s: %d lines" % (f, lines)


def uses():
    """(object, symbol, object that has it) of each symbol of the library that another one uses."""
    objs = glob.glob(O + "/obj/libkvdb/*/*.o")
    if not objs:
        raise Skip("libkvdb is not built")
    home, used = {}, []
    for line in run("nm", "-A", "-g", *objs).stdout.splitlines():
        obj, kind, name = re.match(r"(.*):[0-9a-f ]*([A-Za-z]) (\S+)", line).groups()
        if kind == "U":
            used.append((obj, name))
        else:
            home[name] = obj
    return [(obj, name, home[name]) for obj, name in used if name in home]


def symbols_look_down():
    for obj, name, owner in uses():
        if HEIGHT[room_of(owner)] > HEIGHT[room_of(obj)]:
            yield "%s uses %s of %s" % ("/".join(obj.split("/")[-2:]), name, room_of(owner))


def few_files_need_each_other():
    needs = {}
    for obj, _, owner in uses():
        needs.setdefault(obj, set()).add(owner)

    def reached(obj):
        seen, todo = set(), [obj]
        while todo:
            new = needs.get(todo.pop(), set()) - seen
            seen |= new
            todo += new
        return seen
    reach = {obj: reached(obj) for obj in needs}
    knots = {tuple(sorted(o for o in reach[obj] if obj in reach.get(o, ()))) for obj in needs}
    for knot in sorted(knots):
        if len(knot) > KNOT_FILES:
            yield "need each other: %s" % " ".join("/".join(o.split("/")[-2:]) for o in knot)


main([each_file_lies_in_a_room, includes_look_down, headers_are_short, symbols_look_down,
      few_files_need_each_other])
