#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""What the engine asserts of itself: assertions per 100 functions, by room. The floor may only
rise; the figures are printed with -v."""

import re
import sys

from lib import blanked, functions_in, main, text, under

# a function kv_assert_x() or mp_assert_x() checks a whole structure where it is called
BELIEF = re.compile(r"(?<!void )\b(KV_ASSERT|kv_assert|os_assert|mp_assert|static_assert)\w*\(")
# assertions per 100 functions that are there
FLOOR = {"kmod/core": 33, "libkvdb": 28}


def counted(layer):
    """{room: (assertions, functions)}"""
    rooms = {}
    for f in under(layer + "/", ".c", ".h"):
        if "/include/" in f or f.endswith("/assert.h"):
            continue
        src = blanked(text(f))
        room = f.rsplit("/", 1)[0]
        n, functions = rooms.get(room, (0, 0))
        rooms[room] = (n + len(BELIEF.findall(src)), functions + len(functions_in(src)))
    return rooms


def share(pairs):
    n, functions = (sum(x) for x in zip(*pairs))
    return 100 * n // max(functions, 1)


def beliefs_are_asserted():
    for layer, floor in FLOOR.items():
        rooms = counted(layer)
        if "-v" in sys.argv:
            for room, (n, functions) in sorted(rooms.items()):
                print("# %-20s %4d in %4d functions, %3d per 100" %
                      (room, n, functions, share([(n, functions)])))
        got = share(rooms.values())
        if "-v" in sys.argv:
            print("# %s: %d per 100" % (layer, got))
        if got < floor:
            yield "%s: %d assertions per 100 functions, %d were there" % (layer, got, floor)


if __name__ == "__main__":
    main([beliefs_are_asserted])
