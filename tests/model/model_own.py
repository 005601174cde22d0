#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""Model of the heartbeat that keeps hosts apart (kmod/core/own.c, INV-25).

Modelled: one block that hosts read and write, whole but with any delay between the two;
clocks that run at one speed and are never compared; hosts that stop for as long as they
like between any two steps; openings, also two at once; crashes; clean closes. A tick is a
quarter of a second.
Checked: never may two hosts write to the pool at once, nor one that opened it before
another did; nor may one read that opened it to read while another writes, or before it did.
The rules can be switched off one by one; each must then fail.

    model_own.py            all of it: the rules hold, each ablation is found
    model_own.py SWITCH...  one run with these rules broken
"""
import os
import sys
from collections import deque, namedtuple

from lib import main, way

LATE, WATCH, VERIFY = 3, 2, 4	# ticks, as in own.c
CLAIM = VERIFY + 1		# an older claim is made again
FREE = 2 * LATE			# for so long a reader watches a free block
SILENT = CLAIM + 2 * LATE	# for so long a reader watches a claim
HOSTS = 2
OPENS = 4 if os.environ.get("TEST_LONG") else 3

SWITCHES = {
    "no_verify": "a claim counts when it is written",
    "short_verify": "a claim is looked at again before its predecessor is late",
    "no_late": "the owner of the pool writes however late its heartbeat is",
    "no_over": "a heartbeat over another's claim counts though that may have been looked at",
    "no_doubt": "the next heartbeat of a late owner counts at once",
    "no_generation": "a new claim does not ask whether the pool was opened since",
    "reader_never_looks": "a reader does not look again",
    "reader_short": "a reader looks for no longer than a claimer",
    "reader_trusts_free": "a reader does not watch a free block",
    "old_claim": "a claim counts however old it is",
    "free_is_mine": "a claim after a clean close needs no second look",
    "mine_is_mine": "a host that died with its name in the block needs no second look",
}

# what is in the block, and what a host saw or wrote: (host, label); the host is -1 when it is free,
# labels tell one write from another. Ages in ticks: since the read of this step began, since
# the last heartbeat that counted began, since a wait began. An owner first raises the pool's
# generation, which makes it active; old: another host did since
H = namedtuple("H", "pc val read good wait opens active old")
S = namedtuple("S", "block hosts")
NONE = (-1, 0)
OWNING = {"own", "beat", "beat over", "doubt", "again", "close"}


WAITS = {"verify": CLAIM + 1, "again": CLAIM + 1}


def silent(h, off):
    """how long a reader watches"""
    if h.val[0] < 0:
        return 0 if "reader_trusts_free" in off else FREE
    return WATCH if "reader_short" in off else SILENT


def may_read(h, off):
    return h.pc == "reads" and (h.good < LATE or "reader_never_looks" in off)


def may_write(h, off):
    return h.pc in OWNING and (h.good < LATE or "no_late" in off)


def fresh(s):
    """a label that is not in use"""
    used = {s.block[1]} | {h.val[1] for h in s.hosts}
    return min(set(range(HOSTS + 2)) - used)


def normal(s):
    """labels by order of appearance: only whether they are equal counts"""
    names = {}
    for who in (s.block,) + tuple(h.val for h in s.hosts):
        names.setdefault(who[1], len(names))
    return S((s.block[0], names[s.block[1]]),
             tuple(h._replace(val=(h.val[0], names[h.val[1]])) for h in s.hosts))


def idle(h):
    """nothing of before counts"""
    return h._replace(pc="idle", val=NONE, read=0, good=LATE + 1, wait=0, active=0, old=0)


def dead(h):
    return idle(h)._replace(pc="dead")


def age(h):
    """ages that are beyond every bound are one"""
    if h.pc in ("idle", "dead"):
        return h
    if h.pc in ("reader", "reads"):
        return h._replace(good=min(h.good + 1, LATE + 1), wait=min(h.wait + 1, SILENT)
                          if h.pc == "reader" else 0)
    return h._replace(read=min(h.read + 1, LATE + 1), good=min(h.good + 1, LATE + 1),
                      wait=min(h.wait + 1, WAITS.get(h.pc, VERIFY)))


def beaten(h, mine, off):
    """after the write of a heartbeat, which counts from when it began"""
    if h.pc == "beat over" and h.good > LATE and "no_over" not in off:
        return h._replace(pc="doubt", val=mine)
    return h._replace(pc="own", val=mine, good=h.read)


def step(s, i, off):
    """what host i may do next: (name, its state, the block)"""
    h, b = s.hosts[i], s.block
    mine = i, fresh(s)
    verify = LATE - 1 if "short_verify" in off else VERIFY
    if h.pc == "idle" and h.opens < OPENS:
        n = h._replace(read=0, val=b, opens=h.opens + 1)
        if b[0] < 0:
            yield "reads a free block", n._replace(pc="claim free"), b
        elif b[0] == i and "mine_is_mine" in off:
            yield "reads its own", n._replace(pc="claim own"), b
        else:
            yield "reads another's", n._replace(pc="watch"), b
        yield "reads it, to read", n._replace(pc="reader"), b
    elif h.pc == "reader" and h.wait >= silent(h, off):
        if b == h.val:
            yield "sees it silent", h._replace(pc="reads", good=0), b
        else:
            yield "sees a change", idle(h), b
    elif h.pc == "reads":
        if b == h.val:
            yield "looks", h._replace(good=0), b
        elif "reader_never_looks" not in off:
            yield "sees that another came", dead(h), b
    elif h.pc == "watch" and h.wait >= WATCH:
        if b == h.val:
            yield "sees it unchanged", h._replace(pc="claim", read=0), b
        else:
            yield "sees a change", idle(h), b
    elif h.pc.startswith("claim"):
        if ("no_verify" in off or h.pc == "claim own" or
              (h.pc == "claim free" and "free_is_mine" in off)):
            yield "claims", h._replace(pc="own", val=mine, good=h.read, old=0), mine
        else:
            yield "claims", h._replace(pc="verify", val=mine, wait=0), mine
    elif h.pc == "verify" and h.wait >= verify:
        if b == h.val and h.wait > CLAIM and "old_claim" not in off:
            yield "claims again", h._replace(val=mine, wait=0), mine
        elif b == h.val:
            yield "is the owner", h._replace(pc="own", good=0, old=0), b
        else:
            yield "was not alone", idle(h), b
    elif h.pc == "own" and h.good >= LATE and "no_doubt" not in off:
        yield "is late", h._replace(pc="doubt"), b
    elif h.pc == "own":
        if b == h.val:
            yield "reads for a heartbeat", h._replace(pc="beat", read=0), b
            yield "begins to close", h._replace(pc="close"), b
        elif h.old:
            yield "has lost", dead(h), b
        else:
            yield "reads another's name", h._replace(pc="beat over", read=0), b
    elif h.pc.startswith("beat"):
        n = beaten(h, mine, off)
        yield "beats" if n.pc == "own" else "beats too slowly", n, mine
    elif h.pc == "doubt":
        if b == h.val:
            yield "claims anew", h._replace(pc="again", val=mine, wait=0), mine
        else:
            yield "has lost", dead(h), b
    elif h.pc == "again" and h.wait >= verify:
        if b == h.val and h.wait > CLAIM and "old_claim" not in off:
            yield "is late again", h._replace(pc="doubt"), b
        elif b == h.val and (not h.old or "no_generation" in off):
            yield "is the owner still", h._replace(pc="own", good=0), b
        else:
            yield "has lost", dead(h), b
    elif h.pc == "close":
        yield "closes", idle(h), (-1, fresh(s))
    if h.pc not in ("idle", "dead"):
        yield "dies", idle(h), b


def actions(s, off):
    yield "tick", s._replace(hosts=tuple(age(h) for h in s.hosts))
    for i in range(HOSTS):
        h = s.hosts[i]
        if may_write(h, off) and not h.active and not h.old:
            yield "%s raises the generation" % "AB"[i], s._replace(hosts=tuple(
                o._replace(active=1) if j == i else
                o._replace(old=int(o.pc in OWNING or o.pc == "reads"))
                for j, o in enumerate(s.hosts)))
        for name, h, b in step(s, i, off):
            yield "%s %s" % ("AB"[i], name), S(b, s.hosts[:i] + (h,) + s.hosts[i + 1:])


def explore(off):
    first = S(NONE, (H("idle", NONE, 0, LATE + 1, 0, 0, 0, 0),) * HOSTS)
    seen = {first: None}
    todo = deque([first])
    while todo:
        s = todo.popleft()
        if sum(may_write(h, off) for h in s.hosts) > 1:
            return len(seen), "two may write: %s" % way(seen, s, "")
        if any(may_write(h, off) and h.old for h in s.hosts):
            return len(seen), "one may write that another replaced: %s" % way(seen, s, "")
        if any(may_read(h, off) and (h.old or any(may_write(o, off) for o in s.hosts))
               for h in s.hosts):
            return len(seen), "one may read what changes: %s" % way(seen, s, "")
        for name, n in actions(s, off):
            n = normal(n)
            if n not in seen:
                seen[n] = (s, name)
                todo.append(n)
    return len(seen), None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], SWITCHES, explore))
