#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""Model of relocation: every order of a bounded number of writes, syncs,
flushes, merges, relocations in their steps, snapshots, deletions of blocks and
crashes (libkvdb/DESIGN.md, invariants G1 to G7).

Modelled: one store, two keys, one version per key and run; a log block per
memtable; a relocation that merges the runs [first, last] as they were at its
start without what the runs in front of them hide, writes the values of one
victim block into a new one, makes that durable, commits one edit, and only
then shows the new list. Snapshots hold the
list of memtable and runs as a whole, as cursors do.
Checked in every state: what a get finds, at every snapshot and now, is what a
map says, in a block that exists; after a crash the same for what was durable.
The rules can be switched off one by one; each must then fail.

    model_reloc.py            all of it: the rules hold, each ablation is found
    model_reloc.py SWITCH...  one run with these rules broken
"""
import sys
from collections import deque, namedtuple

from lib import main, way

# mem: ((key, seq or -seq for a delete, block) ...); run: the same; lists newest first
# media: what a crash leaves
S = namedtuple("S", "mem runs job views seq cur sealed gone fresh "
                    "m_log m_runs m_vals hist synced writes relocs crashes opens")

SWITCHES = {name: "without its rule " + name for name in (
    "edit_before_flush", "free_pinned", "free_before_edit", "job_on_top",
    "trust_memtable", "drop_tombs", "free_new", "drop_above")}
LIM = dict(writes=3, relocs=1, views=1, crashes=1)
KEYS = 2


def find(mem, runs, key, seq):
    for part in (mem,) + runs:
        for k, s, b in part:
            if k == key and abs(s) <= seq:
                return s, b
    return 0, 0


def want(hist, key, seq):
    best = 0
    for k, s in hist:
        if k == key and abs(s) <= seq and abs(s) > abs(best):
            best = s
    return best


def blocks(runs):
    return {b for r in runs for _, s, b in r if s > 0}


def check(s):
    for mem, runs, v, hist in ((s.mem, s.runs, 99, s.hist),) + s.views:
        for k in range(KEYS):
            got, b = find(mem, runs, k, v)
            w = want(hist, k, v)
            if (got if got > 0 else 0) != (w if w > 0 else 0):
                return "key %d at %d: found %d, want %d" % (k, v, got, w)
            if got > 0 and b in s.gone:
                return "key %d at %d lies in the deleted block %d" % (k, v, b)
    return None


def put_in(mem, key, seq, blk):
    return ((key, seq, blk),) + tuple(e for e in mem if e[0] != key)


def merged(runs, holds_oldest, off):
    out = {}
    for r in runs:
        for k, s, b in r:
            out.setdefault(k, (k, s, b))
    return tuple(e for e in sorted(out.values())
                 if e[1] > 0 or not (holds_oldest or "drop_tombs" in off))


def held(s):
    """Blocks that something in memory refers to."""
    h = blocks((s.mem,)) | blocks(s.runs) | {s.cur}
    for mem, runs, _, _ in s.views:
        h |= blocks((mem,)) | blocks(runs)
    return h


def next_block(s):
    """Numbers of blocks are never used again."""
    return max({s.cur} | s.sealed | s.fresh | s.gone) + 1


def crash(s, off):
    mem = ()
    for k, q, b in s.m_log:        # records above the horizon, oldest first
        mem = put_in(mem, k, q, b)
    lost = (blocks(s.m_runs) | blocks((mem,))) - s.m_vals
    if lost:
        return s, "block %d is referred to on media and was never durable" % min(lost)
    cur = next_block(s)
    n = s._replace(mem=mem, runs=s.m_runs, job=None, views=(), cur=cur,
                   sealed=frozenset(s.m_vals | s.fresh | {s.cur}) - s.gone,
                   fresh=frozenset(), hist=s.synced, crashes=s.crashes + 1,
                   m_vals=s.m_vals | {cur})
    return n, None


def in_front(s):
    """How many runs lie in front of the job's input."""
    victim, _, src, _ = s.job
    first = next(i for i, r in enumerate(src) if victim in blocks((r,)))
    return len(s.runs) - (len(src) - first)


def merges(s, n, off):
    """Merges of neighbours among the first @n runs."""
    for i in range(n):
        for j in range(i + 1, n):
            out = merged(s.runs[i:j + 1], j + 1 == len(s.runs), off)
            runs = s.runs[:i] + ((out,) if out else ()) + s.runs[j + 1:]
            yield "merge %d..%d" % (i, j), s._replace(runs=runs, m_runs=runs)


def job_steps(s, off):
    victim, new, src, step = s.job
    holds = [i for i, r in enumerate(src) if victim in blocks((r,))]
    first, last = holds[0], holds[-1]
    # the runs in front are read for what they hide, and stay
    above = {k for r in src[:first] for k, _, _ in r}
    out = tuple(e for e in merged(src[first:last + 1], last + 1 == len(src), off)
                if e[0] not in above)
    moved = []
    for k, q, b in out:
        if "trust_memtable" in off and any(e[0] == k for e in s.mem) and b == victim:
            continue
        moved.append((k, q, new if b == victim and q > 0 else b))
    run = (tuple(moved),) if moved else ()
    at = in_front(s)                # flushed or merged meanwhile: newer, stays in front
    rest = s.runs[at + last + 1 - first:]
    if "job_on_top" in off:
        after = run + s.runs[:at] + rest
    elif "drop_above" in off:
        after = s.runs[:max(at - first, 0)] + run + rest
    else:
        after = s.runs[:at] + run + rest
    if step == "written":
        n = s._replace(job=(victim, new, src, "durable"), m_vals=s.m_vals | {new})
        yield "make the new block durable", n
        if "edit_before_flush" in off:
            yield "edit", s._replace(job=(victim, new, src, "edited"), m_runs=after)
    elif step == "durable":
        yield "edit", s._replace(job=(victim, new, src, "edited"), m_runs=after)
    elif step == "edited":
        yield "show", s._replace(job=None, runs=after, sealed=s.sealed | {new},
                                 fresh=s.fresh - {new})


def actions(s, off):
    q = s.seq + 1
    for k in range(KEYS):
        if s.writes < LIM["writes"]:
            yield "put %d" % k, s._replace(mem=put_in(s.mem, k, q, s.cur), seq=q,
                                           hist=s.hist + ((k, q),), writes=s.writes + 1)
            yield "del %d" % k, s._replace(mem=put_in(s.mem, k, -q, 0), seq=q,
                                           hist=s.hist + ((k, -q),), writes=s.writes + 1)
    if s.hist != s.synced:
        done = {e for e in s.m_log}
        log = s.m_log + tuple(e for e in sorted(s.mem, key=lambda e: abs(e[1]))
                              if e not in done)
        yield "sync", s._replace(synced=s.hist, m_log=log)
    if s.mem and s.hist == s.synced:
        run = tuple(sorted(s.mem))
        cur = next_block(s)
        committing = s.job and s.job[3] == "edited"
        if not committing:          # k_edit_lock
            yield "flush", s._replace(mem=(), runs=(run,) + s.runs, m_runs=(run,) + s.m_runs,
                                      m_log=(), cur=cur, sealed=s.sealed | {s.cur},
                                      m_vals=s.m_vals | {cur})
    if not s.job:
        yield from merges(s, len(s.runs), off)
        if s.relocs < LIM["relocs"]:
            for b in sorted(blocks(s.runs) & s.sealed):
                new = next_block(s)
                yield "relocate block %d" % b, s._replace(
                    job=(b, new, s.runs, "written"), relocs=s.relocs + 1,
                    fresh=s.fresh | {new})
    else:
        if s.job[3] != "edited":    # k_edit_lock; rn_taken
            yield from merges(s, in_front(s), off)
        yield from job_steps(s, off)
    if s.opens < LIM["views"]:
        yield "open snapshot", s._replace(views=s.views + ((s.mem, s.runs, s.seq, s.hist),),
                                          opens=s.opens + 1)
    for i in range(len(s.views)):
        yield "close snapshot", s._replace(views=s.views[:i] + s.views[i + 1:])
    for b in sorted(s.sealed | (s.fresh if "free_new" in off else set())):
        h = held(s)
        if "free_pinned" in off:
            h = blocks(s.runs) | {s.cur} | blocks((s.mem,))
        durable = blocks(s.m_runs) | blocks((s.m_log,))
        if "free_before_edit" in off and s.job and b == s.job[0]:
            h, durable = set(), set()
        if s.job and "free_new" not in off:
            h = h | {s.job[1]}
        if b not in h and b not in durable:
            yield "delete block %d" % b, s._replace(
                sealed=s.sealed - {b}, fresh=s.fresh - {b}, gone=s.gone | {b},
                m_vals=s.m_vals - {b})


def explore(off, most=3000000):
    z = frozenset()
    first = S((), (), None, (), 0, 1, z, z, z, (), (), frozenset([1]), (), (), 0, 0, 0, 0)
    seen = {first: None}
    todo = deque([first])
    while todo:
        s = todo.popleft()
        nexts = list(actions(s, off))
        why = None
        if s.crashes < LIM["crashes"]:
            n, why = crash(s, off)
            nexts.append(("crash", n))
        for name, n in nexts:
            if n in seen and not (name == "crash" and why):
                continue
            bad = why if name == "crash" and why else check(n)
            if n not in seen:
                seen[n] = (s, name)
            if bad:
                return len(seen), "%s: %s" % (bad, way(seen, s, name))
            todo.append(n)
        if len(seen) > most:
            return len(seen), None
    return len(seen), None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], SWITCHES, explore))
