#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""Model of large transactions (libkvdb/txn/txn_parts.c, txn_bulk.c, invariants T7, T8, T15 to T17).

Modelled: a transaction of two keys, each in a part of its own in one segment of the value log,
then its commit record; plain puts of the first key before and after it; epochs that end and are
durable then; memtables that switch at such an end and are flushed, and another store, which may be
behind; the segment, which is freed when nothing holds it and its epochs are below all horizons; a
byte of a part that rots; crashes, also after an open, and repair.
Checked: all of the transaction is there or nothing, and all once its epoch is durable; of the
first key what was written last; a damaged part is named, or repair takes nothing of its
transaction; a program that does not know parts sees that it does not; the committer comes to an
end, however often memtables switch, and waits for nothing that it holds up itself.
The rules can be switched off one by one; each must then fail.

    model_bigtxn.py            all of it: the rules hold, each ablation is found
    model_bigtxn.py SWITCH...  one run with these rules broken
"""
import sys
from collections import namedtuple

from lib import main, search

SWITCHES = {
    "no_pin": "the transaction does not hold the segment of its parts",
    "late_pin": "it holds that only once the part is in the log",
    "no_mt_pin": "the memtable does not hold it",
    "no_replay_pin": "a memtable that was replayed does not hold it",
    "record_first": "the commit record is logged before the last part",
    "late_feature": "the feature is announced behind the commit record",
    "no_hold": "memtables switch while a large transaction is linked",
    "hold_while_waiting": "they do not while it waits for room for its record, either",
    "first_rev": "what is in a part has the revision of a key's first version",
    "unlocked_rev": "it is read while a put that saw no owner of the key is about to link",
    "flushed_parts": "parts are read of a store that has the transaction in runs",
    "unchecked": "recovery takes what it finds of a part",
    "repair_takes_half": "repair takes the parts that are whole",
}

EPOCHS, SWITCHED, RESTARTS = 4, 3, 1
# tr: the transaction's step; e: open epoch, d: durable one; h: horizon, b: the smallest of all;
# mt: number of the active memtable, frozen: (boundary, number) of those that wait; p: epochs of
# the parts, 0 = none; seg: the segment is there, pin: the transaction holds it, mtpin: memtables
# that do; c: epoch of the record; log: (epoch, rev, what) of the first key's records; head: the
# newest rev in mt
S = namedtuple("S", "up tr e d h b mt frozen p seg pin mtpin c feat hold room log head rev linked "
                    "restarts rotten old")
FIRST = S(True, "begin", 1, 0, 0, 0, 1, (), (0, 0), False, False, (), 0, False, False, False, (), 0,
          0, 0, 0, False, False)


def put(s, what):
    """a plain put of the first key; when it looked for an owner there was none"""
    rev = s.head + 1
    return s._replace(log=s.log + ((s.e, rev, what),), head=rev)


def plain(s, off):
    # look and link are one under the bucket's lock, which the look at the revision takes, too
    if not s.log and (s.tr == "begin" or (s.tr == "owns" and "unlocked_rev" in off)):
        yield "put before", put(s, "before")
    if s.tr == "done" and s.log[-1][2] == "txn":
        yield "put after", put(s, "after")


def part(s, i, off):
    p = tuple(s.e if j == i else s.p[j] for j in (0, 1))
    pin = s.pin or not off & {"no_pin", "late_pin"}
    return s._replace(p=p, seg=s.seg or not any(s.p), pin=pin)


def transaction(s, off):
    first = "record_first" in off
    if s.tr == "begin":
        rev = 1 if "first_rev" in off else s.head + 1
        yield "owns", s._replace(tr="owns", rev=rev, feat="late_feature" not in off)
    elif s.tr == "owns":
        yield "part", part(s, 0, off)._replace(tr="pin" if "late_pin" in off else "half")
    elif s.tr == "pin":
        yield "pins", s._replace(tr="half", pin=True)
    elif s.tr == "half":
        n = s if first else part(s, 1, off)
        yield "part", n._replace(tr="logged")
    elif s.tr == "logged":
        yield "holds", s._replace(tr="held", hold="no_hold" not in off)
    elif s.tr == "held":
        pins = s.mtpin if "no_mt_pin" in off or not s.seg else s.mtpin + (s.mt,)
        yield "links", s._replace(tr="linked", linked=s.mt, mtpin=pins)
    elif s.tr == "linked" and s.linked != s.mt:
        yield "restarts", s._replace(tr="held", restarts=s.restarts + 1)
    elif s.tr == "linked" and not s.room:
        yield "finds no room", s._replace(tr="waits", hold=s.hold and "hold_while_waiting" in off)
    elif s.tr == "linked":
        rev = max(s.head + 1, s.rev)
        n = s._replace(tr="recorded", c=s.e, log=s.log + ((s.e, s.rev, "txn"),), head=rev)
        yield "logs its record", n
    elif s.tr == "waits" and s.room:
        yield "has room", s._replace(tr="logged")
    elif s.tr == "recorded":
        n = part(s, 1, off) if first else s
        yield "is done", n._replace(tr="done", hold=False, pin=False, feat=True)


def engine(s):
    if s.e < EPOCHS:
        n = s._replace(e=s.e + 1, d=s.e)
        yield "epoch ends", n
        if s.mt < SWITCHED and not s.hold:
            yield "memtable switches", n._replace(mt=s.mt + 1, frozen=s.frozen + ((s.e, s.mt),),
                                                  head=0)
    if s.frozen:
        (boundary, mt), rest = s.frozen[0], s.frozen[1:]
        yield "flush", s._replace(h=boundary, frozen=rest, room=True,
                                  mtpin=tuple(m for m in s.mtpin if m != mt))
    if s.b < s.h:
        yield "the other store is flushed", s._replace(b=s.b + 1)
    if s.seg and not s.pin and not s.mtpin and max(s.p) <= s.b and max(s.p):
        yield "segment is freed", s._replace(seg=False)
    if s.c and s.c <= s.d and not s.rotten:
        yield "a part rots", s._replace(rotten=True)
    # there is always something to flush, and room then
    if not s.room and not s.frozen and s.mt == SWITCHED:
        yield "room comes", s._replace(room=True)


def crash(s):
    yield "crash", s._replace(up=False)


def actions(s, off):
    if not s.up:
        return
    if s.tr != "open":
        yield from plain(s, off)
        yield from transaction(s, off)
    yield from engine(s)
    if not s.old:
        yield from crash(s)


def replayed(log):
    """what an open finds of the first key: the greatest (epoch, rev), of equal ones the first"""
    best = None
    for r in log:
        if not best or r[:2] > best[:2]:
            best = r
    return best[2] if best else None


def judge(s, off):
    """what an open finds of the crash: bad, or None"""
    log = tuple(r for r in s.log if r[0] <= s.d)
    is_there = s.c and s.c <= s.d
    if is_there and s.c > s.b and (s.c > s.h or "flushed_parts" in off):
        if not s.feat:
            return "an older program takes the commit record for damage"
        parts = [bool(s.seg and p and p <= s.d) for p in s.p]
        if not all(parts):
            return "a part of a durable transaction is gone"
        if s.rotten and off & {"unchecked", "repair_takes_half"}:
            return "half of a transaction"
        if s.rotten:
            return None
    # what is in runs is what memtables had: (epoch, rev) decides among what is replayed
    tail = tuple(r for r in log if r[0] > s.h)
    if tail and replayed(tail) != tail[-1][2]:
        return "the first key has %s, not %s" % (replayed(tail), tail[-1][2])
    return None


def recover(s, off):
    bad = judge(s, off)
    if bad or s.rotten:
        return None, bad
    is_there = s.c and s.c <= s.d
    pins = (1,) if is_there and s.c > s.h and "no_replay_pin" not in off else ()
    log = tuple(r for r in s.log if r[0] <= s.d)
    # epochs go on; what was open is gone, and its segment an orphan
    return s._replace(up=True, tr="open", e=s.d + 1, d=s.d, mt=1, frozen=(), pin=False, mtpin=pins,
                      c=s.c if is_there else 0, seg=s.seg and bool(is_there), log=log, head=0,
                      hold=False, rotten=False, old=False), None


def stuck(s):
    if s.restarts > RESTARTS:
        return "memtables overtake the committer for ever"
    if s.tr == "waits" and s.hold:
        return "it waits for a flush that its hold keeps off"
    return None


def explore(off):
    found = []

    def steps(s):
        bad = stuck(s)
        if bad:
            found.append(bad)
            return
        yield from actions(s, off)

    n, bad = search(FIRST, steps, lambda s: recover(s, off), "recovers")
    return n, bad or (found[0] if found else None)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], SWITCHES, explore))
