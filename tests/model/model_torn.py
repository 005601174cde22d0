#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""Model of what recovery makes of a bad frame: torn or damaged (RV17, RV22).

Modelled: two logs; frames of the open epoch written before its end; an epoch
ends with a descriptor in a frame of either log, then one flush; epochs that
write nothing; a horizon, and runs that refer to what it covers; a store that was
flushed further than all others; power cuts, in
which every frame that was not flushed is there, is not, or has only its header;
process crashes, which keep the cache; recoveries with sealed lengths and
incarnations; and one frame that goes bad after it was durable, whole or behind
its header, in a segment that is open or sealed, of an epoch that the horizon
covers or not. A whole frame says in which frame its epoch begins in the
segment, and which epoch wrote last before its own.
Checked at every recovery: without a bad frame it never refuses and loses no
durable epoch (so a legal crash is never called damage); with one it refuses, or
loses nothing durable but the bad frame itself, and that only where a run has
what it held; or the bad frame is of the newest durable epoch, below no sealed length,
and of that epoch nothing else, or behind it no whole frame can be read: that no
log can tell from a tear. What is accepted is whole, and nothing durable is sealed away.
The rules can be switched off one by one; each must then fail.

    model_torn.py            all of it: the rules hold, each ablation is found
    model_torn.py SWITCH...  one run with these rules broken
"""
import itertools
import os
import sys
from collections import namedtuple

from lib import main, search

# segs: ((incarnation, sealed length or -1, frames) ...)
# frame: (epoch, descriptor, begin, previous epoch, state), of which a reader has what the state
# leaves: C in the cache, D durable, H only its header, X nothing
# descriptor: (previous epoch, ((segment, frames) ...)); pending: closed, not flushed
# rot: the frame that went bad, (segment, frame), or None
# floor: what the store that was flushed last has in runs; horizon: what all have
S = namedtuple("S", "up segs cur epoch pending prev durable numbers horizon floor d inc rot "
                    "writes empties crashes")
EPOCH, DESC, BEGIN, PREV, STATE = range(5)

SWITCHES = {
    "parallel": "an epoch is written before the one before it is flushed",
    "by_number": "a number that is missing is an epoch that is missing",
    "older_too": "frames behind the sealed length of older incarnations count",
    "incomplete": "an incomplete epoch is damage, whatever comes after it",
    "no_links": "nothing says which epoch wrote before another",
    "no_frames": "frames without their descriptor are not looked at",
    "no_tail": "what lies behind the bad frame is not looked at",
    "from_floor": "what one store has in runs is what the mark of a frame may name",
    "no_prev": "descriptors alone say which epoch wrote before theirs",
    "from_start": "an epoch needs its segments from their start: behind a bad frame is no end",
    "from_first": "an epoch begins with the first frame of it that can be read",
    "pass_any": "a bad frame below a sealed length is passed over, whatever it held",
    "seal_short": "a segment is sealed in front of its first bad frame",
    "seal_last": "a segment is sealed behind its last good frame, though runs refer to a bad one",
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
                if any(f[EPOCH] == s.epoch for f in fr)}
        ends[n] = len(frames) + 1
        desc = (s.prev, tuple(sorted(ends.items())))
    begin = next((j for j, f in enumerate(frames) if f[EPOCH] == s.epoch), len(frames))
    frame = (s.epoch, desc, begin, s.prev, "C")
    segs = segs[:n] + ((inc, cut, frames + (frame,)),) + segs[n + 1:]
    return s._replace(segs=segs, cur=cur, writes=s.writes + 1)


def each(s, fn):
    """The state with every frame as fn makes it."""
    return s._replace(segs=tuple((inc, cut, tuple(fn(i, j, f) for j, f in enumerate(fr)))
                                 for i, (inc, cut, fr) in enumerate(s.segs)))


def as_left(f, st):
    """What a power cut leaves of a frame that was never durable; its number may come again."""
    return ((-f[EPOCH],) + f[1:STATE] if st == "X" else f[:STATE]) + (st,)


def gone_bad(f, st):
    return f[:STATE] + (st,)


def flushed(s):
    return each(s, lambda i, j, f: as_left(f, "D") if f[STATE] == "C" else f)


def has_epoch(fr, e, end, off):
    """The frames of epoch e in a segment are whole, one behind the other, up to its end."""
    whole = [j for j, f in enumerate(fr[:end]) if f[STATE] == "D" and f[EPOCH] == e]
    if not whole or whole[-1] != end - 1:
        return False
    begin = fr[whole[0]][BEGIN]
    if "from_start" in off:
        begin = 0
    if "from_first" in off:
        begin = whole[0]
    return all(f[STATE] == "D" for f in fr[begin:end])


def find_d(s, seen, off):
    """The epochs that the descriptors prove, and why nothing follows them."""
    prev, found = 0, []
    for e, (before, parts) in sorted((f[EPOCH], f[DESC]) for _, _, f in seen
                                     if f[STATE] == "D" and f[DESC]):
        if e <= s.horizon:
            prev = e
            continue
        if before > s.horizon and before != prev:
            return found, "unlinked"
        if not all(has_epoch(s.segs[i][2], e, n, off) for i, n in parts):
            return found, "incomplete"
        prev = e
        found.append(e)
    return found, None


def readable(s, off):
    """The frames of which something can be read: (segment, number, frame)."""
    out = []
    for i, (_, cut, fr) in enumerate(s.segs):
        whole = True
        for j, f in enumerate(fr if cut < 0 or "older_too" in off else fr[:cut]):
            whole = whole and f[STATE] == "D"
            if f[STATE] in "DH" and (whole or "no_tail" not in off):
                out.append((i, j, f))
    return out


def holes(s, d):
    """Bad frames below sealed lengths that may hold what no run has."""
    for i, (_, cut, fr) in enumerate(s.segs):
        for j in range(max(cut, 0)):
            next_e = [f[EPOCH] for f in fr[j:cut] if f[STATE] in "DH"]
            if fr[j][STATE] != "D" and (not next_e or next_e[0] > d):
                yield i, j


def refuses(s, seen, why, d, off):
    heads = [f[EPOCH] for _, _, f in seen]
    newest = max(heads, default=0)
    most = max(d, s.floor)
    named = most if "from_floor" in off else d
    return (most < s.d or
            any(d < e <= most for e in heads) or
            ("pass_any" not in off and any(holes(s, d))) or
            ("no_frames" not in off and any(most < e < newest for e in heads)) or
            ("no_links" not in off and why == "unlinked") or
            (not {"no_prev", "no_links"} & off and any(f[PREV] > named for _, _, f in seen
                                          if f[STATE] == "D" and f[EPOCH] > most)) or
            ("by_number" in off and newest > most + 1) or
            ("incomplete" in off and why == "incomplete"))


def seal(s, d, off):
    """The segments with their sealed lengths, and what of them stays readable."""
    segs, keeps = [], []
    for i, (inc, cut, fr) in enumerate(s.segs):
        n = 0
        for j, f in enumerate(fr):
            if f[STATE] == "D" and f[EPOCH] <= d:
                n = j + 1
            elif "seal_short" in off:
                break
        n = n if cut < 0 else cut
        has_run = any(f[EPOCH] <= s.horizon for f in fr)
        segs.append((inc, n, fr))
        keeps.append(len(fr) if has_run and not {"seal_last", "seal_short"} & off else n)
    return tuple(segs), keeps


def judge(s, found, d, segs, keeps):
    """What is wrong with an answer; the model knows what the frames held."""
    rot = s.rot and s.segs[s.rot[0]][2][s.rot[1]]
    lost = [e for e in s.durable if e > d]
    if lost:
        last = max(s.durable)
        seen = [f for _, _, fr in s.segs for f in fr if f[STATE] in "DH"]
        if not rot:
            return "durable epochs are gone: %s" % lost
        if (lost != [last] or rot[EPOCH] != last or s.rot[1] < s.segs[s.rot[0]][1] or
                any(f[EPOCH] > last and f[STATE] == "D" for f in seen) or
                (any(f[EPOCH] == last for f in seen) and any(f[EPOCH] > last for f in seen))):
            return "epochs %s are gone silently" % lost
    for i, (inc, cut, fr) in enumerate(segs):
        for j, f in enumerate(fr):
            if ((inc == s.inc and -f[EPOCH] in found) or f[EPOCH] in found) and f[STATE] != "D":
                return "epoch %d has a hole" % abs(f[EPOCH])
            if (s.horizon < f[EPOCH] <= d and f[EPOCH] in s.durable and
                    (j >= cut or f[STATE] != "D")):
                return "frame %d of segment %d is not replayed" % (j, i)
            if f[EPOCH] <= s.horizon and f[EPOCH] in s.durable and j >= keeps[i]:
                return "frame %d of segment %d is sealed away" % (j, i)
    return None


def recover(s, off):
    """(state after it, or None when it refused; what is wrong with the answer)"""
    s = flushed(s)
    seen = readable(s, off)
    found, why = find_d(s, seen, off)
    d = max(found, default=s.horizon)
    if refuses(s, seen, why, d, off):
        return None, None if s.rot else "a legal crash is refused"
    segs, keeps = seal(s, d, off)
    bad = judge(s, found, d, segs, keeps)
    if bad or any(e > d for e in s.durable):
        return None, bad
    most = max(d, s.floor)
    numbers = max([f[EPOCH] for _, _, fr in s.segs for f in fr if f[STATE] in "DH"] +
                  [most, s.numbers])
    return s._replace(up=1, segs=segs, cur=(-1,) * LOGS, epoch=numbers + 1, pending=(),
                      prev=most, d=most, inc=s.inc + 1, numbers=numbers,
                      durable=tuple(sorted(set(s.durable) | set(found)))), None


def actions(s, off):
    cached = [(i, j) for i, (_, _, fr) in enumerate(s.segs)
              for j, f in enumerate(fr) if f[STATE] == "C"]
    if s.crashes < LIM["crashes"] and (s.up or cached):
        t = s._replace(up=0, crashes=s.crashes + 1, pending=())
        for fate in itertools.product("DXH", repeat=len(cached)):
            what = dict(zip(cached, fate))
            yield "power cut " + "".join(fate), each(
                t, lambda i, j, f: as_left(f, what[i, j]) if (i, j) in what else f)
        if s.up and cached:
            yield "process crash", t
    if not s.up:
        if not s.rot:
            for i, (_, _, fr) in enumerate(s.segs):
                for j, f in enumerate(fr):
                    for st in "HX" if f[STATE] == "D" else "":
                        yield "frame %d of segment %d goes bad: %s" % (j, i, st), each(
                            s._replace(rot=(i, j)),
                            lambda a, b, g: gone_bad(g, st) if (a, b) == (i, j) else g)
        return
    if not s.pending or "parallel" in off:
        for log in range(LOGS):
            if s.writes < LIM["writes"]:
                yield "write to log %d, epoch %d" % (log, s.epoch), put(s, log, None)
                t = put(s, log, True)
                yield "end epoch %d in log %d" % (s.epoch, log), t._replace(
                    pending=s.pending + (s.epoch,), prev=s.epoch, epoch=s.epoch + 1)
        if s.empties < LIM["empties"] and not any(f[EPOCH] == s.epoch for _, _, fr in s.segs
                                                  for f in fr):
            yield "end epoch %d, empty" % s.epoch, s._replace(epoch=s.epoch + 1,
                                                              empties=s.empties + 1)
    if s.pending:
        yield "flush", flushed(s)._replace(pending=(), durable=s.durable + s.pending)
    elif s.durable and s.horizon < s.durable[-1]:
        last = s.durable[-1]
        yield "horizon %d" % last, s._replace(horizon=last, floor=last)
        if s.floor < last:
            yield "one store's horizon %d" % last, s._replace(floor=last)
    if not s.pending:
        for n, (inc, cut, fr) in enumerate(s.segs):
            if cut < 0 and fr and all(f[EPOCH] in s.durable for f in fr):
                yield "seal segment %d" % n, s._replace(
                    segs=s.segs[:n] + ((inc, len(fr), fr),) + s.segs[n + 1:],
                    cur=tuple(-1 if c == n else c for c in s.cur))


def explore(off):
    first = S(1, (), (-1,) * LOGS, 1, (), 0, (), 0, 0, 0, 0, 1, None, 0, 0, 0)
    return search(first, lambda s: actions(s, off), lambda s: recover(s, off), "recover")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], SWITCHES, explore))
