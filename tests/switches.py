# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""What the ablation build can switch off, and by which number.

Sources carry marks without numbers: BARRIER(), CHECK(), CHECK_CRC() of guard.h, refusals
(refusals.py) and the places of planted bugs (planted.py). A number is made of what it
stands for, for instance file, function and condition of a guard: it stays when others
change. The build compiles copies of the sources in which mp_ablated(NUMBER) asks whether
it is off (ablate.py copy)."""

import re
import zlib

from lib import blanked, functions_in, text, under

FIRST = 10000
LAYERS = ("kmod/core/", "libmpool/", "libkvdb/")
MARK = re.compile(r"\b(BARRIER|CHECK_CRC|CHECK)\(")


def number(*parts):
    return FIRST + zlib.crc32(" ".join(map(str, parts)).encode()) % 1000000000


def closing(src, i):
    """Where the parenthesis at i ends."""
    depth = 0
    while True:
        depth += {"(": 1, ")": -1}.get(src[i], 0)
        if not depth:
            return i
        i += 1


def named(function, cond):
    return "%s_%s" % (function, re.sub(r"\W+", "_", cond).strip("_")[:50])


class Guard:
    def __init__(self, kind, file, function, start, end, cond, nth):
        self.kind, self.file, self.start, self.end = kind, file, start, end
        self.number = number(file, function, kind, cond, nth)
        self.name = named(function, cond)


def guards_in(file, whole):
    """The guards of a source file, in their order."""
    src, out, seen = blanked(whole), [], {}
    functions = functions_in(src)
    for m in MARK.finditer(src):
        if src[src.rfind("\n", 0, m.start()) + 1:m.start()].lstrip().startswith("#"):
            continue
        end = closing(src, m.end() - 1) + 1
        line = src.count("\n", 0, m.start()) + 1
        function = [name for name, first, last in functions if first <= line <= last]
        function = function[0] if function else ""
        cond = " ".join(whole[m.end():end - 1].split())
        key = (function, m.group(1), cond)
        seen[key] = seen.get(key, 0) + 1
        out.append(Guard(m.group(1), file, function, m.start(), end, cond, seen[key]))
    return out


def guarded():
    """The files that may have guards."""
    return [f for layer in LAYERS for f in under(layer, ".c", ".h")
            if not f.endswith("/guard.h") and "/include/" not in f]


def guards(files=None):
    """{number: Guard}"""
    return {g.number: g for f in files or guarded() for g in guards_in(f, text(f))}


def with_switches(file, src):
    """The text with a switch at each guard; lines stay where they are. What a guard of what
    changes order or media returns is 0 when it is off, a check is true."""
    # the innermost first: it begins last
    for g in sorted(guards_in(file, src), key=lambda g: -g.start):
        begin = src.index("(", g.start)
        end = closing(blanked(src), begin)
        off = "mp_ablated(%d) %s" % (g.number, "? 0 :" if g.kind == "BARRIER" else "||")
        src = "%s(%s %s)%s" % (src[:g.start], off, src[begin:end + 1], src[end + 1:])
    return src
