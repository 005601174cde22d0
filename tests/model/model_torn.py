#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""Model of what recovery makes of a bad frame: torn or damaged (libkvdb/DESIGN.md, RV17).

Modelled: two logs; frames of the open epoch written before its end; an epoch
ends with a descriptor in a frame of either log, then one flush; epochs that
write nothing; a horizon; power cuts, in which every frame that was not flushed
is there, is not, or has only its header; process crashes, which keep the cache;
recoveries with sealed lengths and incarnations; and one frame that goes bad
after it was durable, whole or behind its header.
Checked at every recovery: without a bad frame it never refuses and loses no
durable epoch (so a legal crash is never called damage); with one it refuses, or
loses nothing durable, or loses the newest durable epoch alone, of which and
after which nothing else can be read: that no log can tell from a tear.
The rules can be switched off one by one; each must then fail.

    model_torn.py            all of it: the rules hold, each ablation is found
    model_torn.py SWITCH...  one run with these rules broken
"""
import itertools
import os
import sys
from collections import deque, namedtuple

from lib import main, way

# segs: ((incarnation, sealed length or -1, frames) ...); frame: (epoch, descriptor, state)
# state: C in the cache, D durable, H only its header, X nothing
# descriptor: (previous epoch, ((segment, frames) ...)); pending: closed, not flushed
S = namedtuple("S", "up segs cur epoch pending prev durable numbers horizon d inc rot "
                    "writes empties crashes")

SWITCHES = {
    "parallel": "an epoch is written before the one before it is flushed",
    "by_number": "a number that is missing is an epoch that is missing",
    "older_too": "frames behind the sealed length of older incarnations count",
    "incomplete": "an incomplete epoch is damage, whatever comes after it",
    "no_links": "links of descriptors are not looked at",
    "no_frames": "frames without their descriptor are not looked at",
    "no_tail": "what lies behind the bad frame is not looked at",
}
LOGS = 2
LIM = dict(writes=4 if os.environ.get("TEST_LONG") else 3, empties=1, crashes=2)


def put(s, log, desc):
    """A frame of the open epoch into the log's segment, which is made when it is needed."""
    segs, cur = s.segs, s.cur
    if cur[log] < 0:
        cur = cur[:log] + (len(segs),) + cur[log + 1:]
        segs += ((s.inc, -1, ()),)
    n = cur[log]
    inc, cut, frames = segs[n]
    if desc:
        ends = {i: len(fr) for i, (_, _, fr) in enumerate(segs)
                if any(f[0] == s.epoch for f in fr)}
        ends[n] = len(frames) + 1
        desc = (s.prev, tuple(sorted(ends.items())))
    segs = segs[:n] + ((inc, cut, frames + ((s.epoch, desc, "C"),)),) + segs[n + 1:]
    return s._replace(segs=segs, cur=cur, writes=s.writes + 1)


def each(s, fn):
    """The state with every frame as fn makes it."""
    return s._replace(segs=tuple((inc, cut, tuple(fn(i, j, f) for j, f in enumerate(fr)))
                                 for i, (inc, cut, fr) in enumerate(s.segs)))


def as_left(f, st):
    return (0, None, st) if st == "X" else f[:2] + (st,)


def flushed(s):
    return each(s, lambda i, j, f: f[:2] + ("D",) if f[2] == "C" else f)


def find_d(s, valid):
    """The epochs that the descriptors prove, and why nothing follows them."""
    base, prev, found = s.horizon, 0, []
    descs = sorted((f[0], f[1]) for _, f in valid if f[1])
    ends = {}
    for i, (_, cut, fr) in enumerate(s.segs):
        n = 0
        while n < len(fr) and fr[n][2] == "D" and (cut < 0 or n < cut):
            n += 1
        ends[i] = n
    for e, (before, parts) in descs:
        if e <= base:
            prev = e
            continue
        if before > base and before != prev:
            return found, "unlinked", ends
        if any(ends[i] < n for i, n in parts):
            return found, "incomplete", ends
        prev = e
        found.append(e)
    return found, None, ends


def recover(s, off):
    """(state after it, or None when it refused; what is wrong with the answer)"""
    s = flushed(s)
    heads, valid = [], []
    for i, (inc, cut, fr) in enumerate(s.segs):
        whole = True
        for j, f in enumerate(fr):
            if cut >= 0 and j >= cut and "older_too" not in off:
                break
            whole = whole and f[2] == "D"
            if f[2] in "DH" and (whole or "no_tail" not in off):
                heads.append(f[0])
                if f[2] == "D":
                    valid.append((i, f))
    found, why, ends = find_d(s, valid)
    d = max(found, default=s.horizon)
    newest = max(heads, default=0)
    refuse = d < s.d or any(ends[i] < cut for i, (_, cut, _) in enumerate(s.segs))
    if "no_frames" not in off:
        refuse = refuse or any(d < e < newest for e in heads)
    if "no_links" not in off:
        refuse = refuse or why == "unlinked"
    if "by_number" in off:
        refuse = refuse or newest > d + 1
    if "incomplete" in off:
        refuse = refuse or why == "incomplete"
    if refuse:
        return None, None if s.rot else "a legal crash is refused"
    lost = [e for e in s.durable if e > d]
    if lost and not s.rot:
        return None, "durable epochs are gone: %s" % lost
    if lost:
        last = max(s.durable)
        seen = [f for _, _, fr in s.segs for f in fr if f[2] in "DH"]
        later = [f for f in seen if f[0] > last and f[1] and f[2] == "D"]
        same = [f for f in seen if f[0] == last]
        if lost != [last] or later or (same and any(f[0] > last for f in seen)):
            return None, "epochs %s are gone silently" % lost
        return None, None
    seen = max([f[0] for _, _, fr in s.segs for f in fr if f[2] in "DH"] + [d, s.numbers])
    segs = []
    for i, (inc, cut, fr) in enumerate(s.segs):
        n = max([j + 1 for j, f in enumerate(fr[:ends[i]]) if f[0] <= d], default=0)
        segs.append((inc, n if cut < 0 else cut, fr))
    return s._replace(up=1, segs=tuple(segs), cur=(-1,) * LOGS, epoch=seen + 1, pending=(),
                      prev=d, d=d, inc=s.inc + 1, numbers=seen,
                      durable=tuple(sorted(set(s.durable) | set(found)))), None


def actions(s, off):
    cached = [(i, j) for i, (_, _, fr) in enumerate(s.segs)
              for j, f in enumerate(fr) if f[2] == "C"]
    if s.crashes < LIM["crashes"] and (s.up or cached):
        t = s._replace(up=0, crashes=s.crashes + 1, pending=())
        for fate in itertools.product("DXH", repeat=len(cached)):
            what = dict(zip(cached, fate))
            yield "power cut " + "".join(fate), each(
                t, lambda i, j, f: as_left(f, what.get((i, j), f[2])))
        if s.up and cached:
            yield "process crash", t
    if not s.up:
        if not s.rot:
            for i, (_, _, fr) in enumerate(s.segs):
                for j, f in enumerate(fr):
                    for st in "HX" if f[2] == "D" else "":
                        yield "frame %d of segment %d goes bad: %s" % (j, i, st), each(
                            s._replace(rot=1),
                            lambda a, b, g: as_left(g, st) if (a, b) == (i, j) else g)
        return
    if not s.pending or "parallel" in off:
        for log in range(LOGS):
            if s.writes < LIM["writes"]:
                yield "write to log %d, epoch %d" % (log, s.epoch), put(s, log, None)
                t = put(s, log, True)
                yield "end epoch %d in log %d" % (s.epoch, log), t._replace(
                    pending=s.pending + (s.epoch,), prev=s.epoch, epoch=s.epoch + 1)
        if s.empties < LIM["empties"] and not any(f[0] == s.epoch for _, _, fr in s.segs
                                                  for f in fr):
            yield "end epoch %d, empty" % s.epoch, s._replace(epoch=s.epoch + 1,
                                                              empties=s.empties + 1)
    if s.pending:
        yield "flush", flushed(s)._replace(pending=(), durable=s.durable + s.pending)
    elif s.durable and s.horizon < s.durable[-1]:
        yield "horizon %d" % s.durable[-1], s._replace(horizon=s.durable[-1])


def explore(off):
    first = S(1, (), (-1,) * LOGS, 1, (), 0, (), 0, 0, 0, 1, 0, 0, 0, 0)
    seen = {first: None}
    todo = deque([first])
    while todo:
        s = todo.popleft()
        nexts = list(actions(s, off))
        bad = None
        if not s.up:
            n, bad = recover(s, off)
            if n:
                nexts.append(("recover", n))
        if bad:
            return len(seen), "%s: %s" % (bad, way(seen, s, "recover"))
        for name, n in nexts:
            if n not in seen:
                seen[n] = (s, name)
                todo.append(n)
    return len(seen), None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], SWITCHES, explore))
