#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""Model of deletes of ranges in transactions (libkvdb/txn/txn_range.c, invariants T12 to T14).

Modelled: a transaction that deletes a range of two keys and then puts the second one; a plain put
of the first key, step by step; another transaction that puts the second key; a reader with a
view and a get of the newest state. A thread that meets the slot when it is prepared stamps it.
Checked: every view sees all of the transaction or nothing, at every moment the second key has a
value, and whatever was acknowledged lies before the transaction's view or behind its commit; also
in what a crash after the commit leaves, where stamps alone say what hides what.
The rules can be switched off one by one; each must then fail.

    model_txnrange.py            all of it: the rules hold, each ablation is found
    model_txnrange.py SWITCH...  one run with these rules broken
"""
import sys
from collections import deque, namedtuple

from lib import main, way

SWITCHES = {
    "no_grace": "the look for newer keys does not wait for puts that saw no claim",
    "no_scan": "keys that were written since the view are not looked for",
    "late_claim": "the range is claimed behind the look for newer keys",
    "put_is_blind": "a plain put does not look at claims of ranges",
    "lock_is_blind": "a writer of a key does not look at claims of ranges",
    "claim_is_blind": "a claim of a range does not look at keys that others own",
    "early_release": "the range is given up before the commit has a stamp",
    "one_stamp": "the tombstone has the stamp of the transaction's puts",
    "help_by_load": "a helper takes no stamps, but those that come next",
    "apart": "tombstone and puts become visible one after the other",
    "keys_first": "a get looks for versions before it looks for tombstones",
}

NOW = 99
# tr: the transaction's step, slot: A(ctive), P(repared) or its stamp, tomb: of "apart";
# inside: the plain put entered before the claim; put: its step, p: its stamp;
# other: the second transaction's step; views of readers and what they saw
S = namedtuple("S", "seq tr view slot tomb inside put p other oview ostamp readers get")
FIRST = S(1, "begin", 0, "A", 0, 0, "out", 0, "begin", 0, 0, ((0, ()),), "idle")
CLAIMED = ("claimed", "alone", "quiet", "ready", "linked", "prepared", "stamped")
OWNS = ("locked", "checked", "committed")


def claimed(s, off):
    """does a claim of the range meet the caller?"""
    if "late_claim" in off and s.tr in ("alone", "quiet"):
        return False
    if "early_release" in off and s.tr in ("prepared", "stamped"):
        return False
    return s.tr in CLAIMED


def stamps(s, off):
    """tombstone's and puts' stamp of a slot that is final"""
    return (s.slot if "one_stamp" in off else s.slot - 1), s.slot


def helped(s, off):
    """a thread that meets it stamps what is prepared"""
    if s.slot != "P":
        return s
    if "help_by_load" in off:
        return s._replace(slot=s.seq, tomb=1)
    return s._replace(slot=s.seq + 1, seq=s.seq + 2, tomb=1)


def pending(s):
    return s._replace(put="stamped", p=s.seq) if s.put == "linked" else s


def hidden(s, view, off):
    """stamp of the tombstone, when the view sees it"""
    if not isinstance(s.slot, int) or not s.tomb:
        return -1
    t = stamps(s, off)[0]
    return t if t <= view else -1


def newest(s, key, view, off):
    """(stamp, whose) of the newest version that the view sees"""
    have = [(0, "old")]
    if key == 0 and s.put in ("stamped", "acked"):
        have.append((s.p, "put"))
    if key == 1 and s.ostamp:
        have.append((s.ostamp, "other"))
    if key == 1 and isinstance(s.slot, int):
        have.append((stamps(s, off)[1], "own"))
    return max(h for h in have if h[0] <= view)


def read(s, key, view, off):
    v = newest(s, key, view, off)
    return "none" if v[0] <= hidden(s, view, off) else v[1]


def transaction(s, off):
    late = "late_claim" in off
    if s.tr == "begin":
        yield "view", s._replace(tr="viewed", view=s.seq, seq=s.seq + 1)
    elif s.tr == "viewed":
        yield "claims", s._replace(tr="claimed", inside=int(s.put in ("in", "looked", "linked",
                                                                       "stamped")))
    elif s.tr == "claimed":
        if s.other in OWNS and "claim_is_blind" not in off:
            yield "meets an owner", s._replace(tr="cancelled")
        else:
            yield "is alone", s._replace(tr="alone")
    elif s.tr == "alone" and (not s.inside or "no_grace" in off or late):
        yield "has waited", s._replace(tr="quiet")
    elif s.tr == "quiet":
        s = pending(s)
        new = s.p > s.view or s.ostamp > s.view
        if new and "no_scan" not in off:
            yield "finds a newer key", s._replace(tr="cancelled")
        else:
            yield "finds nothing newer", s._replace(tr="ready")
    elif s.tr == "ready":
        yield "links", s._replace(tr="linked")
    elif s.tr == "linked":
        yield "prepares", s._replace(tr="prepared", slot="P")
    elif s.tr == "prepared" and "apart" in off and isinstance(s.slot, int):
        yield "stamps the tombstone", s._replace(tr="stamped", tomb=1)
    elif s.tr == "prepared":
        # its own stamps are taken whether another was faster or not
        n = s._replace(seq=s.seq + 2)
        if s.slot == "P":
            n = n._replace(slot=s.seq + 1, tomb=int("apart" not in off))
        yield "stamps", n._replace(tr="prepared" if "apart" in off else "stamped")
    elif s.tr == "stamped":
        yield "gives up its claim", s._replace(tr="done")


def plain_put(s, off):
    if s.put == "out":
        yield "put enters", s._replace(put="in")
    elif s.put == "in":
        if claimed(s, off) and "put_is_blind" not in off:
            yield "put is refused", s._replace(put="refused", inside=0)
        else:
            yield "put sees no owner", s._replace(put="looked")
    elif s.put == "looked":
        yield "put links", s._replace(put="linked")
    elif s.put == "linked":
        yield "put stamps", pending(s)
    elif s.put == "stamped":
        yield "put returns", s._replace(put="acked", inside=0)


def other(s, off):
    if s.other == "begin":
        yield "other's view", s._replace(other="viewed", oview=s.seq, seq=s.seq + 1)
    elif s.other == "viewed":
        if claimed(s, off) and "lock_is_blind" not in off:
            yield "other is refused", s._replace(other="cancelled")
        else:
            yield "other takes the key", s._replace(other="locked")
    elif s.other == "locked":
        s = helped(s, off)
        new = isinstance(s.slot, int) and stamps(s, off)[1] > s.oview
        yield "other looks", s._replace(other="cancelled" if new else "checked")
    elif s.other == "checked":
        yield "other commits", s._replace(other="committed", ostamp=s.seq, seq=s.seq + 1)
    elif s.other == "committed":
        yield "other ends", s._replace(other="done")


def readers(s, off):
    for i, (view, seen) in enumerate(s.readers):
        def put(n, r):
            return n._replace(readers=n.readers[:i] + (r,) + n.readers[i + 1:])
        if not view:
            yield "view %d" % i, put(s._replace(seq=s.seq + 1), (s.seq, ()))
            continue
        for key in (0, 1):
            if any(k == key for k, _ in seen):
                continue
            n = helped(pending(s) if key == 0 else s, off) if s.tr == "prepared" or \
                s.put == "linked" else s
            got = read(n, key, view, off)
            yield "view %d reads %d: %s" % (i, key, got), put(n, (view, seen + ((key, got),)))


def get(s, off):
    """of the second key, newest: two looks"""
    first = "keys_first" in off
    if s.get == "idle":
        n = helped(s, off)
        look = newest(n, 1, NOW, off)[0] if first else hidden(n, NOW, off)
        yield "get looks", n._replace(get=look)
    elif isinstance(s.get, int):
        n = helped(s, off)
        t, v = (hidden(n, NOW, off), s.get) if first else (s.get, newest(n, 1, NOW, off)[0])
        yield "get ends", n._replace(get="none" if v <= t else "some")


def wrong(s, off):
    if s.get == "none":
        return "a get found nothing where a value always was"
    for _, seen in s.readers:
        d = dict(seen)
        if d.get(1) == "none":
            return "a view has neither the old nor the new value"
        if len(d) == 2 and d[1] == "own" and d[0] == "old":
            return "a view sees the put and not the delete"
        if len(d) == 2 and d[1] == "old" and d[0] == "none":
            return "a view sees the delete and not the put"
    if isinstance(s.slot, int) and s.tr in ("stamped", "done"):
        t, v = stamps(s, off)
        for who, st in (("put", s.p), ("other", s.ostamp)):
            if s.view < st <= v:
                return "the %s came between view and commit" % who
        # what a crash leaves: stamps alone
        if read(s._replace(tomb=1), 1, NOW, off) == "none":
            return "after a crash the put is hidden by its own transaction"
        if s.put == "acked" and s.p > v and read(s, 0, NOW, off) != "put":
            return "a later put is hidden"
    return None


def explore(off):
    seen = {FIRST: None}
    todo = deque([FIRST])
    while todo:
        s = todo.popleft()
        for part in (transaction, plain_put, other, readers, get):
            for name, n in part(s, off):
                if n in seen:
                    continue
                seen[n] = (s, name)
                bad = wrong(n, off)
                if bad:
                    return len(seen), "%s: %s" % (bad, way(seen, n, ""))
                todo.append(n)
    return len(seen), None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], SWITCHES, explore))
