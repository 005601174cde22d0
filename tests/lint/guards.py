#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""BARRIER and CHECK: complete, noticed, and absent from the product.

The rule for flushes. A *flush point* is, in core, libmpool and libkvdb,
 - a call through a device's flush pointer, `->flush(...)`;
 - a call of *dev_flush, mpool_flush, mpool_mlog_sync, mpool_mdc_sync, fsync,
   fdatasync, syncfs, sync_file_range, io_uring_prep_fsync;
 - MP_DEV_FUA, MPOOL_SYNC, MPOOL_FLUSH or RWF_DSYNC, unless it is tested
   (after `&`, `==`, `!=` or `case`).
Each must lie inside BARRIER(), with one exception: the function that *is*
such a primitive, because then every call of it is a flush point. A function is
one when its name is on the list, when an ops table says `.flush = it`, or when
its name says `flush` and it has a flush point of its own outside BARRIER."""

import glob
import os
import re
import sys

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import ablate  # noqa: E402
import planted  # noqa: E402
from lib import B, O, Skip, code, functions, line_of, main, run, text, under  # noqa: E402
from switches import LAYERS, guarded, guards, guards_in  # noqa: E402

PRIMITIVE = r"\w*dev_flush|mpool_flush|mpool_mlog_sync|mpool_mdc_sync|fsync|fdatasync|syncfs|" \
            r"sync_file_range|io_uring_prep_fsync"
WORDS = r"MP_DEV_FUA|MPOOL_SYNC|MPOOL_FLUSH|RWF_DSYNC"
TESTED = re.compile(r"(?:&\s*~?|==|!=|\bcase)\s*$")


def spans(f, *kinds):
    """(start, end) of the guards of these kinds."""
    return [(g.start, g.end) for g in guards_in(f, text(f)) if g.kind in kinds]


def each_guard_has_a_number_of_its_own():
    places = [g for f in guarded() for g in guards_in(f, text(f))]
    if len(guards()) < len(places):
        yield "%d places have %d numbers" % (len(places), len(guards()))


def no_guard_in_a_header():
    """It would be one guard at many places, and headers have no copies."""
    for f in guarded():
        if f.endswith(".h") and guards_in(f, text(f)):
            yield f


def planted_bugs_leave_the_numbers_of_guards():
    """A copy has both: where a bug changes the text of a guard, nothing would switch that."""
    for f in sorted({b.file for b in planted.bugs()}):
        if os.path.exists(f):
            copied = {g.number for g in guards_in(f, planted.with_bugs(f, text(f)))}
            for n, g in guards([f]).items():
                if n not in copied:
                    yield "%s: %s is not in the copy" % (f, g.name)


def no_guard_inside_a_macro():
    for f in guarded():
        define = r"^[ \t]*#[ \t]*define(?:.*\\\n)*.*\b(BARRIER|CHECK|CHECK_CRC)\("
        for m in re.finditer(define, code(f), re.M):
            yield "%s:%d: a macro would be one guard at many places" % (f, line_of(f, m.start()))


def arguments(src, pos):
    """The arguments in the parentheses that open at pos."""
    out, depth, begin = [], 0, pos + 1
    for i in range(pos, len(src)):
        depth += {"(": 1, ")": -1}.get(src[i], 0)
        if depth == 0 or depth == 1 and src[i] == ",":
            out.append(" ".join(src[begin:i].split()))
            begin = i + 1
        if depth == 0:
            return out


def flush_points(names):
    """(file, line, text, enclosing function) of each flush point outside BARRIER."""
    point = re.compile(r"(?:->\s*flush|\b(?:%s))\s*\(|\b(?:%s)\b" % ("|".join(names), WORDS))
    for f in guarded():
        src = code(f)
        inside = spans(f, "BARRIER")
        for m in point.finditer(src):
            begin = src.rfind("\n", 0, m.start()) + 1
            before = src[begin:m.start()]
            if not before or not before[0].isspace() or TESTED.search(before):
                continue  # a prototype, definition or preprocessor line; or a test
            if any(a <= m.start() < b for a, b in inside):
                continue
            line = line_of(f, m.start())
            body = [n for n, first, last in functions(f) if first <= line <= last]
            if not body and re.search(r"\b(enum|=)\b|\(\*", src[begin:src.find("\n", begin)]):
                continue  # a declaration in a header
            yield f, line, m.group(0), body[0] if body else ""


def every_flush_point_is_inside_a_barrier():
    names = {PRIMITIVE}
    ops = set()
    for f in guarded():
        ops.update(re.findall(r"\.\s*flush\s*=\s*(\w+)", code(f)))
    while True:
        bad = [p for p in flush_points(sorted(names))
               if not re.fullmatch("|".join(names), p[3]) and p[3] not in ops]
        more = {p[3] for p in bad if "flush" in p[3]} - names
        if not more:
            break
        names |= more
    for f, line, what, _ in bad:
        yield "%s:%d: %s outside BARRIER" % (f, line, what)


def no_write_asks_to_be_durable_by_itself():
    """Such a write is no flush of what was written before it, so no order may rest on one: the
    layers that carry the wish pass it on, and none wishes."""
    carried = {"0", "flags", "MP_DEV_BEAT", "is_fua", "!!(flags & MP_DEV_FUA)"}
    for f in under("kmod/", ".c") + under("libmpool/", ".c"):
        src = code(f)
        for m in re.finditer(r"\bMP_DEV_FUA\b", src):
            if not TESTED.search(src[:m.start()]):
                yield "%s:%d: MP_DEV_FUA asked for" % (f, line_of(f, m.start()))
        for m in re.finditer(r"(?:->write|->writev|\bmpl_dev_writev)\s*(?=\()", src):
            args = arguments(src, m.end())
            wish = args[4] if "writev" in m.group(0) else args[-1]
            if not src[:m.start()].endswith("\nint ") and wish not in carried:
                yield "%s:%d: a write with %s" % (f, line_of(f, m.start()), wish)
        for m in re.finditer(r"\bREQ_(?:FUA|PREFLUSH)\b", src):
            # a bio without memory is a flush, and writes nothing
            if not re.search(r"(?:if \(flags & MP_DEV_FUA\)\s*opf \|= |"
                             r"bio_init\([^,]*, [^,]*, NULL, 0, REQ_OP_WRITE \| )$",
                             src[:m.start()]):
                yield "%s:%d: %s" % (f, line_of(f, m.start()), m.group(0))


def every_checksum_comparison_is_inside_a_check():
    """A comparison one of whose sides mentions a crc."""
    side = r"[\w\s\->.\[\]()&*+,]*"
    for f in guarded():
        src = code(f)
        inside = spans(f, "CHECK", "CHECK_CRC")
        for m in re.finditer(r"[!=]=", src):
            left = re.search(side + r"$", src[max(0, m.start() - 120):m.start()]).group(0)
            right = re.match(side, src[m.end():m.end() + 120]).group(0)
            left = re.split(r"\breturn\b|\bif\b", left)[-1]
            if not re.search(r"crc", left.split("\n")[-1] + right.split("\n")[0]):
                continue
            if re.match(r"\s*(NULL|0)\b", right) or any(a <= m.start() < b for a, b in inside):
                continue
            yield "%s:%d: a crc compared outside CHECK" % (f, line_of(f, m.start()))


def every_planted_bug_has_its_place():
    """A change of the lines changes tests/planted.txt too, or takes the bug out of it."""
    for b in planted.bugs():
        if not planted.is_there(b):
            yield "tests/planted.txt: %s: %s has no such lines now" % (b.name, b.file)


def what_can_be_switched_off_was_noticed():
    """tests/ablate.txt says what notices it; UPDATE=1 tests/ablate.py MODE NUMBER finds it."""
    known = ablate.remembered().keys()
    there = {n: what for part in ablate.modes().values() for n, what in part.items()}
    for n in sorted(there.keys() - known):
        yield "%s is not in tests/ablate.txt" % ablate.title(n, there[n])
    for n in sorted(known - there.keys()):
        yield "tests/ablate.txt: nothing is %d now" % n


def each_layer_has_guards():
    """The rules above must not pass because they look at nothing."""
    for layer in LAYERS:
        for kind in ("BARRIER", "CHECK"):
            if not any(g.file.startswith(layer) and g.kind == kind for g in guards().values()):
                yield "%s: no %s at all" % (layer, kind)


def products_have_no_switch():
    made = glob.glob(O + "/lib/*.a") + glob.glob(O + "/lib/*.so") + glob.glob(O + "/bin/*")
    if not made:
        raise Skip("nothing is built")
    for f in made:
        if "mp_ablated" in run("nm", f).stdout + run("nm", "-D", f).stdout:
            yield "%s: has mp_ablated" % f


def the_ablation_build_has_it():
    libs = glob.glob(B + "/ablate/lib/*.a")
    if not libs:
        raise Skip("the ablation variant is not built")
    for f in libs:
        if "mp_ablated" not in run("nm", f).stdout:
            yield "%s: no mp_ablated" % os.path.basename(f)


main([each_guard_has_a_number_of_its_own, no_guard_in_a_header, no_guard_inside_a_macro,
      planted_bugs_leave_the_numbers_of_guards, every_flush_point_is_inside_a_barrier,
      no_write_asks_to_be_durable_by_itself, every_checksum_comparison_is_inside_a_check,
      every_planted_bug_has_its_place, what_can_be_switched_off_was_noticed,
      each_layer_has_guards, products_have_no_switch,
      the_ablation_build_has_it])
