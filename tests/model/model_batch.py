#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""Model of batches (libkvdb/txn/txn_batch.c, mem/keylock.c, invariants T15, T16, T18).

Modelled: two batches, which write the keys x and y of two stores in opposite orders, each key in a
part of its own, then a commit record. Small ones go ahead; large ones have memory by turns, and one
of them may also delete ranges, which are joined and have a key of an open transaction, whose thread
issues the other batch. A plain put of x, which looks for an owner and links its version under the
lock of x's bucket; memory, which others fill and flushes give back; epochs that end and are durable
then; a crash.
Checked: every batch comes to its end, or is refused as too large; both keys have the batches in
one order; readers, and what an open finds after a crash, have all of a batch or nothing, and of
each key what was written last.
The rules can be switched off one by one; each must then fail.

    model_batch.py            all of it: the rules hold, each ablation is found
    model_batch.py SWITCH...  one run with these rules broken
"""
import sys
from collections import namedtuple

from lib import main, search

SWITCHES = {
    "no_claims": "a batch owns nothing",
    "holds_keys": "a batch that meets an owner keeps what it has claimed",
    "keeps_first": "a claim that fails leaves the first key owned",
    "turn_first": "a large batch waits for an owner in its turn",
    "ranges_free": "the memory of ranges does not count",
    "joined_free": "that of ranges that were joined with others does not",
    "unlocked_rev": "a revision for a part is read without the bucket's lock",
    "record_first": "the commit record is logged before the last part",
    "stamp_each": "each version of a batch becomes visible by itself",
}

ORDER = ("xy", "yx")		# in which the batches claim
EPOCHS, MEMORY, OTHERS = 2, 4, 2
KEYS, RANGES, JOINED = 2, 1, 2	# memory of the first batch, if it has ranges; else of its keys

# of a batch: its step; what of its keys is claimed; its revision of x; epochs of its parts and of
# its record, 0 = none
B = namedtuple("B", "pc claimed rev part rec")
# put: of x; own: of x, of y: batch or None; txn: the transaction has its key; turn: whose; mt:
# memory of others; size: of the batches; e, d: open and durable epoch; x, y: versions in the order
# in which they were linked: (batch, epoch, rev); seen: (batch, key) that readers see
S = namedtuple("S", "up b put own txn turn mt filled size e d x y seen")
SIZES = "small", "large", "with ranges"
IDLE = B("begins", "", 0, (0, 0), 0)
ENDED = ("done", "refused")


def first(size):
    return S(True, (IDLE, IDLE), "begins", (None, None), size != "small", None, 0, False, size, 1,
             0, (), (), frozenset())


def with_batch(s, i, **changes):
    return s._replace(b=tuple(b._replace(**changes) if j == i else b for j, b in enumerate(s.b)))


def owner(s, key):
    return s.own["xy".index(key)]


def owned(s, key, who):
    return s._replace(own=tuple(who if k == key else o for k, o in zip("xy", s.own)))


def disown(s, i, but=""):
    for key in "xy":
        if owner(s, key) == i and key not in but:
            s = owned(s, key, None)
    return s


def memory(s, i, off):
    """what the batch takes, and what of it counts"""
    if i or s.size != "with ranges":
        return KEYS, KEYS
    takes = KEYS + RANGES + JOINED
    return takes, takes - (RANGES + JOINED if "ranges_free" in off else
                           JOINED if "joined_free" in off else 0)


def meets_txn(s, i):
    return i == 0 and s.txn


def claims(s, i, off):
    """the next claim of a batch, or all are made"""
    b = s.b[i]
    if "no_claims" in off or len(b.claimed) == len(ORDER[i]):
        yield "owns all", with_batch(s, i, pc="owns")
        return
    key = ORDER[i][len(b.claimed)]
    if owner(s, key) is None:
        yield "claims " + key, with_batch(owned(s, key, i), i, claimed=b.claimed + key)
    elif "holds_keys" not in off:
        kept = ORDER[i][0] if "keeps_first" in off else ""
        yield "meets an owner", with_batch(disown(s, i, kept), i, pc="waits for " + key, claimed="")


def in_turn(s, i, off):
    """it has its turn, and no memory yet"""
    takes, counted = memory(s, i, off)
    if meets_txn(s, i):
        return		# only with turn_first
    if counted > MEMORY:
        yield "is too large", with_batch(s._replace(turn=None), i, pc="refused")
    elif takes + s.mt <= MEMORY:
        yield "has memory", with_batch(s, i, pc="claims")


def logs(s, i, off):
    """its parts; that of x has the revision that the version will have"""
    b = s.b[i]
    if not b.part[0]:
        if s.put == "looked" and "unlocked_rev" not in off:
            return	# which holds the bucket's lock
        yield "logs x", with_batch(s, i, rev=len(s.x) + 1, part=(s.e, 0))
    elif not b.part[1] and "record_first" not in off:
        yield "logs y", with_batch(s, i, part=(b.part[0], s.e))
    else:
        x, y = s.x + ((i, 0, b.rev),), s.y + ((i, 0, len(s.y) + 1),)
        yield "links", with_batch(s._replace(x=x, y=y), i, pc="linked")


def committed(s, i, keys):
    s = s._replace(seen=s.seen | {(i, key) for key in keys})
    return with_batch(s, i, pc="seen" if keys == "xy" else "half seen")


def batch(s, i, off):
    b = s.b[i]
    if b.pc == "begins":
        if "turn_first" in off or not meets_txn(s, i):
            yield "begins", with_batch(s, i, pc="claims" if s.size == "small" else "wants turn")
    elif b.pc == "wants turn" and s.turn is None:
        yield "has its turn", with_batch(s._replace(turn=i), i, pc="in turn")
    elif b.pc == "in turn":
        yield from in_turn(s, i, off)
    elif b.pc == "claims":
        yield from claims(s, i, off)
    elif b.pc.startswith("waits for") and owner(s, b.pc[-1]) is None:
        yield "claims again", with_batch(s, i, pc="claims")
    elif b.pc == "owns":
        yield from logs(s, i, off)
    elif b.pc == "linked":
        yield "logs its record", with_batch(s, i, pc="recorded", rec=s.e)
    elif b.pc == "recorded":
        yield "commits", committed(s, i, "x" if "stamp_each" in off else "xy")
    elif b.pc == "half seen":
        yield "shows y", committed(s, i, "xy")
    elif b.pc == "seen":
        part = b.part if b.part[1] else (b.part[0], s.e)
        n = disown(s._replace(turn=None if s.turn == i else s.turn), i)
        yield "ends", with_batch(n, i, pc="done", claimed="", part=part)


def plain(s):
    if s.put == "begins" and owner(s, "x") is None:
        yield "put sees no owner", s._replace(put="looked")
    elif s.put == "looked":
        yield "put links", s._replace(put="done", x=s.x + (("put", s.e, len(s.x) + 1),))


def transaction(s):
    # its thread is in the other batch, or before or behind it
    if s.txn and s.b[1].pc in ("begins",) + ENDED:
        yield "transaction ends", s._replace(txn=False)


def others(s):
    if not s.filled:
        yield "others write", s._replace(filled=True, mt=OTHERS)
    if s.mt:
        yield "flush", s._replace(mt=0)


def progress(s, off):
    for i in (0, 1):
        for name, n in batch(s, i, off):
            yield "%s %s" % ("AB"[i], name), n
    yield from plain(s)
    yield from transaction(s)
    if s.mt:
        yield from others(s)


def actions(s, off):
    if not s.up:
        return
    yield from progress(s, off)
    yield from others(s)
    if s.e < EPOCHS:
        yield "epoch ends", s._replace(e=s.e + 1, d=s.e)
    yield "crash", s._replace(up=False)


def live(s):
    """what must hold while it is up: what is wrong, or None"""
    if any((i, "x") in s.seen and (i, "y") not in s.seen for i in (0, 1)):
        return "a reader sees half of a batch"
    x, y = ([v[0] for v in log if v[0] != "put"] for log in (s.x, s.y))
    if sorted(x) == sorted(y) and x != y:
        return "the keys have the batches in different orders"
    return None


def replayed(s, log):
    """what an open finds of a key, and what was written last of what it finds"""
    found = [(s.b[who].rec if who != "put" else e, rev, who) for who, e, rev in log]
    found = [v for v in found if v[0] and v[0] <= s.d]
    best = None
    for v in found:		# of equal ones the first
        if not best or v[:2] > best[:2]:
            best = v
    return (best[2], found[-1][2]) if found else (None, None)


def recover(s):
    for i, b in enumerate(s.b):
        if b.rec and b.rec <= s.d and not all(p and p <= s.d for p in b.part):
            return None, "a part of batch %s is not there" % "AB"[i]
    for key, log in (("x", s.x), ("y", s.y)):
        found, last = replayed(s, log)
        if found != last:
            return None, "%s is of %s, and not of %s" % (key, found, last)
    return None, None


def explore(off):
    total = 0
    for size in SIZES:
        found = []

        def steps(s):
            bad = s.up and live(s)
            if not bad and s.up and not any(True for _ in progress(s, off)) and \
                    not all(b.pc in ENDED for b in s.b):
                bad = "a batch waits for ever"
            if bad:
                found.append("%s: %s" % (bad, [b.pc for b in s.b]))
                return
            yield from actions(s, off)

        n, bad = search(first(size), steps, recover, "recovers")
        total += n
        bad = bad or (found[0] if found else None)
        if bad:
            return total, bad
    return total, None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], SWITCHES, explore))
