#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""Model of the room that descriptors of epochs have on a full pool (libkvdb/log/LARGE.md, E7).

Modelled: writers of large records, whose frames no log covers, in a segment that they
share; one log, whose first segment may come while an epoch is being closed; epochs,
of which one is written while the next one is open; segments for descriptors, of SLOTS
each; and a pool of which others take what is free.
Checked: the end of an epoch finds room for its descriptor without asking the pool, behind
the last frame of the log or in a segment for descriptors; and when no thread writes
and nothing waits for its end, no room is promised.
The rules can be switched off one by one; each must then fail.

    model_desc.py            all of it: the rules hold, each ablation is found
    model_desc.py SWITCH...  one run with these rules broken
"""
import sys
from collections import namedtuple

from lib import main, search

SLOTS = 2	# descriptors in a segment for them
WRITERS = 2
FREE = 3	# segments that the pool has left
SHARED = 3	# records that a shared segment takes
ROOM = 2	# frames that a segment of the log takes

# free: segments of the pool; shared: records that still fit; slots, promised: of descriptors;
# writers: "" or "made"; log: frames that fit, "none", or "ready": it has a segment and no
# record yet; late: the log's last frame of the open epoch has filled its segment but for its tail
# epoch: what the open one has: own records, frames of the log, a promise; end: the same of the one
# that is being ended, or None; step: of the end: "close", "write"; carrier: it was found
S = namedtuple("S", "up bad free shared slots promised writers log epoch end step carrier")
E = namedtuple("E", "own logged promise")
NOTHING = E(False, False, False)

SWITCHES = {
    "one_each": "a segment takes one descriptor and is closed",
    "no_promise": "a record is made whether or not its epoch has room for a descriptor",
    "one_for_all": "writers share one promise before their records have an epoch",
    "epoch_none": "the promise of a record is given back when the record is logged",
    "closed_none": "the promise of an epoch is given back when it is closed",
    "kept": "what is given up keeps its promise",
    "look_first": "the log that carries is chosen before the logs are closed, and no other may",
}


def wrong(s, what):
    return s._replace(up=False, bad=what)


def with_slot(s, off):
    """The state with room for one descriptor more than is promised, or None."""
    if s.slots > s.promised or "no_promise" in off:
        return s
    return s._replace(free=s.free - 1, slots=s.slots + SLOTS) if s.free else None


def writer(s, i, off):
    def now(what, **new):
        return s._replace(writers=s.writers[:i] + (what,) + s.writers[i + 1:], **new)

    if not s.writers[i]:
        n = with_slot(s, off)
        if n and not n.shared:
            n = n._replace(free=n.free - 1, shared=SHARED) if n.free else None
        if n:
            some = "one_for_all" in off and any(s.writers)
            none = some or "no_promise" in off
            s = n._replace(shared=n.shared - 1, promised=n.promised + (not none))
            yield "writer %d makes its record" % i, now("made")
        return
    given = int(s.promised > 0)
    if s.epoch.promise or "epoch_none" in off or "no_promise" in off:
        yield "writer %d logs, another promised" % i, now(
            "", promised=s.promised - given, epoch=s.epoch._replace(own=True))
    else:
        yield "writer %d logs" % i, now("", epoch=s.epoch._replace(own=True, promise=True))
    kept = 0 if "kept" in off else given
    yield "writer %d gives up" % i, now("", promised=s.promised - kept)


def log(s, off):
    """Its epoch is the open one, or the one that is being closed as long as the log is not."""
    if s.log == "none" and s.free:
        yield "the log gets a segment", s._replace(free=s.free - 1, log="ready")
    elif s.log == "ready" and s.step == "close":
        yield "the log's first record, of the epoch that ends", s._replace(
            log=ROOM - 1, end=s.end._replace(logged=True))
    elif s.log == "ready" or (s.log != "none" and s.log > 0 and not s.epoch.logged):
        left = ROOM if s.log == "ready" else s.log
        yield "the log gets a record", s._replace(log=left - 1, epoch=s.epoch._replace(logged=True))


def carries(s):
    """A descriptor fits behind the frame: each segment has a tail for one; or in an empty one."""
    return s.end.logged or (s.log not in ("none", "ready") and s.log > 0)


def flusher(s, off):
    if not s.step:
        n = s._replace(end=s.epoch, epoch=NOTHING, step="close")
        yield "an epoch ends", n._replace(carrier=carries(n))
    elif s.step == "close":
        found = s.carrier or ("look_first" not in off and s.end.logged)
        n = s._replace(carrier=found, step="write")
        if "closed_none" in off and s.end.promise:
            n = n._replace(promised=s.promised - 1, end=s.end._replace(promise=False))
        yield "the logs are closed", n
    else:
        n = s._replace(step="", end=None, carrier=False)
        if s.end.promise:
            n = n._replace(promised=n.promised - 1)
        if s.end != NOTHING and not s.carrier and not (s.end.own and s.slots):
            n = wrong(s, "an epoch has no room for its descriptor")
        elif s.end.own and not s.carrier:
            left = n.slots - 1
            n = n._replace(slots=left // SLOTS * SLOTS if "one_each" in off else left)
        if n.up and n.log == 0 and not n.epoch.logged:
            n = n._replace(log="none")
        if n.up and not any(n.writers) and n.epoch == NOTHING and n.promised:
            n = wrong(n, "room is promised to nobody")
        yield "its descriptor is written", n


def actions(s, off):
    if not s.up:
        return
    if s.free:
        yield "others take the pool", s._replace(free=s.free - 1)
    for i in range(WRITERS):
        yield from writer(s, i, off)
    yield from log(s, off)
    yield from flusher(s, off)


def explore(off):
    first = S(True, "", FREE, 0, 0, 0, ("",) * WRITERS, "none", NOTHING, None, "", False)
    return search(first, lambda s: actions(s, off), lambda s: (None, s.bad), "end")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], SWITCHES, explore))
