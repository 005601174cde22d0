#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""Model of the pool's metadata log: torn or damaged (kmod/core/mdload.c, INV-6, INV-22).

Modelled: one device with two regions; records, of which each is flushed before the
next frame; checkpoints of any length up to PARTS, whose parts are written without a
flush between them; power cuts, in which every frame that was not flushed is there,
torn, or what was there before it; process crashes, which keep the cache; opens that
flush, go on behind the chain that they took, and have a generation of their own; and
one fault of the medium: a frame that was durable goes bad, or turns out to be lost,
so that what was there before it is there still.
Checked at every open: without the fault it never refuses and has every acknowledged
record (so a power cut is never called damage); with it, it refuses or has every
acknowledged record, unless the bad frame is the last acknowledged one and nothing is
there of what was written later.
Not modelled: the second mirror, and opens that could not read one, for which frames
have the generation of the open that wrote them (INV-21). Here that only tells a frame
from another of its sequence.
The rules can be switched off one by one; each must then fail.

    model_mdlog.py            all of it: the rules hold, each ablation is found
    model_mdlog.py SWITCH...  one run with these rules broken
"""
import itertools
import os
import sys
from collections import namedtuple

from lib import main, search

SLOTS = 5	# frames of a region
PARTS = 2
LONG = bool(os.environ.get("TEST_LONG"))
LIM = dict(records=2, crashes=2, both=4 if LONG else 3, epochs=3)

# epoch, sequence, what was durable, generation, of the frame before (its identity), what it
# is: P a part, E the end of a checkpoint, R a record; records that are in force behind it
F = namedtuple("F", "epoch seq durable gen prev kind total")
EMPTY, TORN = None, "torn"

# regions: what reads see; under: {place: what is there if the write was not} of what is in
# the cache; was: the same of what is durable; todo: frames of the checkpoint that is being
# written ("F" is a flush); acked: records; rot: the place of the fault; last: place and sequence
# of the newest frame with an acknowledged record
S = namedtuple("S", "up regions under was epoch seq gen prev tail todo acked last rot "
                    "records crashes")

SWITCHES = {
    "begin_unseen": "a region that begins with a good frame of an older epoch has nothing newer",
    "whole_only": "parts of a checkpoint prove nothing",
    "any_newer": "any frame of a later epoch proves damage",
    "no_ahead": "what lies behind the end of the chain is not looked at",
    "no_parts_flush": "the end of a checkpoint is written with its parts",
    "no_end_flush": "a record is written with the end of the checkpoint before it",
    "no_open_flush": "what an open took is not flushed before something is built on it",
}


def put(s, frame):
    """The next frame of the epoch that is being written, into the cache."""
    place = (frame.epoch & 1, s.tail)
    regions = [list(r) for r in s.regions]
    under = dict(s.under)
    under.setdefault(place, regions[place[0]][place[1]])
    regions[place[0]][place[1]] = frame
    return s._replace(regions=tuple(map(tuple, regions)), under=tuple(sorted(under.items())),
                      epoch=frame.epoch, seq=frame.seq, prev=frame[:4], tail=s.tail + 1)


def flushed(s):
    was = dict(s.was)
    was.update(dict(s.under))
    return s._replace(under=(), was=tuple(sorted(was.items())))


def frame(s, kind, durable, epoch):
    total = s.acked + (kind == "R")
    return F(epoch, s.seq + 1, durable, s.gen, s.prev, kind, total)


def chain_of(region):
    """The longest chain that begins with a checkpoint, and whether that is complete."""
    out, whole = [], False
    for f in region:
        if f in (EMPTY, TORN) or (f.kind == "R") != whole:
            break
        if out and (f.epoch != out[-1].epoch or f.seq != out[-1].seq + 1 or f.prev != out[-1][:4]):
            break
        out.append(f)
        whole = whole or f.kind == "E"
    return out, whole


def doubts(s, chains, best, off):
    """Does a frame prove more than the best chain has?"""
    end = best[-1]
    for region, (chain, _) in zip(s.regions, chains):
        first = chain[0] if chain else None
        if first and first.epoch == end.epoch:
            seen = () if "no_ahead" in off else region[len(chain):]
            if any(f not in (EMPTY, TORN) and f.epoch == end.epoch and f.durable > end.seq
                   for f in seen):
                return True
            continue
        if first and first.epoch < end.epoch and "begin_unseen" in off:
            continue
        for f in region:
            if f in (EMPTY, TORN) or f.epoch <= end.epoch:
                continue
            if "any_newer" in off or (f.durable > end.seq and
                                      not ("whole_only" in off and f.kind == "P")):
                return True
    return False


def is_last(s):
    """Is the bad frame the last acknowledged one, and nothing there of what was written later?"""
    place, seq = s.last or (None, 0)
    return s.rot and s.rot == place and not any(
        f not in (EMPTY, TORN) and f.durable >= seq for r in s.regions for f in r)


def recover(s, off):
    """(state after it, or None when it refused; what is wrong with the answer)"""
    chains = [chain_of(r) for r in s.regions]
    whole = [c for c, is_whole in chains if is_whole]
    best = max(whole, key=lambda c: (c[-1].epoch, len(c)), default=None)
    if not best or doubts(s, chains, best, off):
        return None, None if s.rot else "a power cut is refused"
    end = best[-1]
    if end.total < s.acked and not is_last(s):
        return None, "%d of %d records are gone silently" % (s.acked - end.total, s.acked)
    s = s if "no_open_flush" in off else flushed(s)
    # what it took is acknowledged from now on
    last = ((end.epoch & 1, len(best) - 1), end.seq) if end.kind == "R" else None
    return s._replace(up=1, epoch=end.epoch, seq=end.seq, prev=end[:4], tail=len(best), todo=(),
                      gen=s.gen + 1, acked=end.total, last=last), None


def faults(s):
    """The ways in which the medium may have one durable frame no more."""
    cached = dict(s.under)
    for (r, i), before in s.was:
        if (r, i) not in cached and s.regions[r][i] not in (EMPTY, TORN):
            for what in {TORN, before}:
                regions = [list(x) for x in s.regions]
                regions[r][i] = what
                yield "%s of frame %d of region %d" % ("rot" if what == TORN else "loss", i, r), (
                    s._replace(regions=tuple(map(tuple, regions)), rot=(r, i)))


def cuts(s):
    for fate in itertools.product("NOT", repeat=len(s.under)):
        regions = [list(r) for r in s.regions]
        for ((r, i), before), how in zip(s.under, fate):
            if how != "N":
                regions[r][i] = before if how == "O" else TORN
        yield "power cut " + "".join(fate), s._replace(
            regions=tuple(map(tuple, regions)), under=(), up=0, todo=(), crashes=s.crashes + 1)


def may_write(s):
    return s.records < LIM["records"] and s.records + s.crashes < LIM["both"]


def writes(s, off):
    if s.todo:
        kind, rest = s.todo[0], s.todo[1:]
        if kind == "F":
            yield "flush", flushed(s)._replace(todo=rest)
        elif kind == "A":
            last = ((s.epoch & 1, s.tail - 1), s.seq)
            yield "tell", s._replace(todo=rest, acked=s.acked + 1, last=last)
        elif kind == "R":
            yield "record", put(s, frame(s, "R", s.seq, s.epoch))._replace(todo=rest)
        elif kind == "E":
            yield "end", put(s, frame(s, "E", s.seq, s.epoch))._replace(todo=rest)
        else:
            n, durable = kind
            yield "part", put(s, frame(s, "P", durable, n))._replace(todo=rest)
        return
    if may_write(s) and s.tail < SLOTS:
        yield "begin record", s._replace(todo=("R", "F", "A"), records=s.records + 1)
    if s.epoch < LIM["epochs"]:
        for n in range(1, PARTS + 1):
            todo = ((s.epoch + 1, s.seq),) * n + ("F", "E", "F")
            if "no_parts_flush" in off:
                todo = todo[:n] + ("E", "F")
            # nothing is cut short where no record follows
            if "no_end_flush" in off:
                if not may_write(s):
                    continue
                todo = todo[:-1] + ("R", "F", "A")
            yield "begin checkpoint %d of %d" % (s.epoch + 1, n), s._replace(
                todo=todo, tail=0, records=s.records + ("R" in todo))


def actions(s, off):
    if s.up:
        yield from writes(s, off)
    if s.crashes < LIM["crashes"] and s.records + s.crashes < LIM["both"] and (s.up or s.under):
        yield from cuts(s)
        if s.up:
            yield "process crash", s._replace(up=0, todo=(), crashes=s.crashes + 1)
    if not s.up and not s.rot:
        yield from faults(s)


def explore(off):
    part = F(1, 1, 0, 1, None, "P", 0)
    end = F(1, 2, 1, 1, part[:4], "E", 0)
    regions = ((EMPTY,) * SLOTS, (part, end) + (EMPTY,) * (SLOTS - 2))
    first = S(1, regions, (), (((1, 0), EMPTY), ((1, 1), EMPTY)), 1, 2, 1, end[:4], 2, (), 0,
              None, None, 0, 0)
    return search(first, lambda s: actions(s, off), lambda s: recover(s, off), "open")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], SWITCHES, explore))
