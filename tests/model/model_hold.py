#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""Model of what a cursor holds, and how it is taken away (libkvdb/tree/HOLDS.md, HO1 and HO4).

Modelled: one cursor with its owner, which begins and ends calls, renews and closes
it; the keeper, which takes what the cursor holds between two calls, in all its
steps; a thread that drops the store; and a close of the database, beside which
the owner makes no call, as its contract says. Each access to a shared word is a step.
Checked: a call finds what the cursor holds until it ends; what is held is let go
of once; no thread touches a cursor that was freed; no store is dropped and no
database closed beneath a cursor that needs it; and all is let go of in the end.
The rules can be switched off one by one; each must then fail.

    model_hold.py            all of it: the rules hold, each ablation is found
    model_hold.py SWITCH...  one run with these rules broken
"""
import sys
from collections import namedtuple

from lib import main, search

# word: idle, busy, taken, gone, or freed; holds: references that the cursor has on a tree;
# owner, keeper, drop, close: the next step of each, "" between two; cursors, gone: the store's
# counts; store: open, dropping, dropped; was_there: what the close of the cursor found
S = namedtuple("S", "up bad word holds owner keeper drop close cursors gone store was_there "
                    "renewals")

SWITCHES = {
    "take_busy": "the keeper takes what a call is using",
    "no_wait": "the end of a cursor does not wait for the keeper",
    "early_word": "the word says that it has gone before it has",
    "count_late": "a cursor is not the store's any more before it counts as gone",
    "look_first": "a renewal looks for the store before it counts as its cursor",
    "count_all": "what has gone counts at a drop as if it had not",
    "close_past": "a close of the database does not count what has gone",
}
FIRST = S(True, "", "idle", 1, "", "", "", "", 1, 0, "open", True, 0)


def wrong(s, what):
    return s._replace(up=False, bad=what)


def owner(s, off):
    """A call, the close, a renewal: (name, next)."""
    if s.word == "freed" or s.close:
        return
    is_gone = s.word == "gone" or (s.word == "taken" and "no_wait" in off)
    if not s.owner:
        if s.word == "idle":
            yield "a call begins", s._replace(word="busy", owner="call")
        if s.word == "idle" or is_gone:
            there = s.word == "idle"
            n = s._replace(was_there=there, word="busy" if there else s.word)
            yield "close begins", n._replace(owner="close")
            if s.renewals < 2:
                yield "renewal begins", n._replace(owner="fresh" if there else "count",
                                                   renewals=s.renewals + 1)
    elif s.owner == "call":
        if s.holds != 1:
            yield "a look", wrong(s, "a call finds nothing")
        yield "a call ends", s._replace(word="idle", owner="")
    elif s.owner == "close":
        n = s._replace(word="freed", holds=0, owner="")
        if s.holds < 0 or (s.keeper and s.holds):
            n = wrong(s, "let go of twice")
        elif s.was_there:
            n = n._replace(cursors=s.cursors - 1)
        else:
            n = n._replace(gone=s.gone - 1)
        yield "close ends", n
    elif s.owner == "count" and "look_first" in off:
        yield "looks", s._replace(owner="late" if s.store == "open" else "")
    elif s.owner == "late":
        yield "counts", s._replace(cursors=s.cursors + 1, owner="ungone")
    elif s.owner == "count":
        yield "counts", s._replace(cursors=s.cursors + 1, owner="look")
    elif s.owner == "look" and s.store != "open":
        yield "finds it dropped", s._replace(cursors=s.cursors - 1, owner="")
    elif s.owner == "look":
        yield "looks", s._replace(owner="ungone")
    elif s.owner == "ungone":
        yield "is not gone", s._replace(gone=s.gone - 1, owner="fresh")
    elif s.owner == "fresh":
        n = s._replace(holds=1, word="idle", owner="")
        if s.store == "dropped":
            n = wrong(s, "a cursor of a dropped store is renewed")
        yield "renewal ends", n


def keeper(s, off):
    if not s.keeper:
        if s.word == "idle" or (s.word == "busy" and s.holds and "take_busy" in off):
            word = "gone" if "early_word" in off else "taken"
            yield "the keeper takes", s._replace(word=word, keeper="let go")
        return
    if s.word == "freed":
        yield "the keeper goes on", wrong(s, "the keeper touches a cursor that was freed")
        return
    first, second = ("uncount", "gone") if "count_late" in off else ("gone", "uncount")
    if s.keeper == "let go":
        n = s._replace(holds=s.holds - 1, keeper=first)
        yield "lets go", n if s.holds == 1 else wrong(s, "let go of twice")
    elif s.keeper == "gone":
        yield "counts as gone", s._replace(gone=s.gone + 1,
                                           keeper=second if first == "gone" else "word")
    elif s.keeper == "uncount":
        yield "does not count", s._replace(cursors=s.cursors - 1,
                                           keeper=second if first == "uncount" else "word")
    else:
        yield "says that it has gone", s._replace(word="gone", keeper="")


def dropper(s, off):
    held = s.cursors + (s.gone if "count_all" in off else 0)
    if s.store == "open" and not s.close:
        yield "a drop begins", s._replace(store="dropping")
    elif s.store == "dropping" and held:
        n = s._replace(store="open")
        # T11, HO4: a cursor that has lost what it showed, and makes no call, blocks nothing
        if not s.keeper and not s.owner and s.word == "gone":
            n = wrong(s, "a cursor without a snapshot keeps its store")
        yield "a drop is refused", n
    elif s.store == "dropping":
        n = s._replace(store="dropped")
        if s.word in ("idle", "busy") and s.holds:
            n = wrong(s, "a store is dropped beneath a cursor")
        yield "a drop ends", n


def closer(s, off):
    if not s.close and not s.owner and s.store != "dropping":
        yield "a close looks", s._replace(close="gone" if not s.cursors else "no")
    elif s.close == "no":
        yield "a close is refused", s._replace(close="")
    elif s.close == "gone" and s.gone and "close_past" not in off:
        yield "a close is refused", s._replace(close="")
    elif s.close == "gone":
        n = s._replace(close="done")
        if s.word != "freed":
            n = wrong(s, "a database is closed beneath a cursor")
        elif s.holds or s.cursors or s.gone:
            n = wrong(s, "something is left")
        yield "a close ends", n


def explore(off):
    def actions(s):
        if not s.up:
            return
        for who in (owner, keeper, dropper, closer):
            yield from who(s, off)
    return search(FIRST, actions, lambda s: (None, s.bad), "that is wrong")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], SWITCHES, explore))
