#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""Ablation: is every guard needed, and would the suites notice its loss?

Runs test programs of the ablation build with one guard (BARRIER, CHECK or CHECK_CRC,
see guard.h) switched off by MP_ABLATE=NUMBER (switches.py). A guard is noticed when a program that
passes with all guards on reports a failed test, dies or hangs; the first "not
ok" ends it. Prints TAP, one test per guard.

  tests/ablate.py full          every guard against every program until one notices
  tests/ablate.py short         what tests/ablate.txt knows, within SECONDS_MAX
                                (default 60), in an order that SEED chooses
  tests/ablate.py full N...     these guards only
  tests/ablate.py refusals [N..] each check of what a caller or the media gave (refusals.py), by
                                the programs in which it ever refuses anything
  tests/ablate.py planted [N..] the planted bugs (planted.py): each must be noticed by a general
                                suite (conformance, model, crash, soak), never by a test of its own

PIECE=i/n takes only each n-th of them, from the i-th on.

tests/ablate.txt remembers which program noticed which of them, and whether that
was slow, so that it is tried first; UPDATE=1 rewrites it, for a part of them too. O is the
ablation build's folder. For the Makefile:

  tests/ablate.py copies        the sources that have switches or planted bugs
  tests/ablate.py copy FILE     one with them, to standard output

Which program notices what at a place is off (number, program, name; no build is needed):

  tests/ablate.py where PLACE   a file, FILE:LINE, or a function

For tests/kmod/host_refusals.sh:

  tests/ablate.py module        number, name and programs of each refusal of the module
  tests/ablate.py remember      notes lines "NUMBER PROGRAM MILLISECONDS" of standard input"""

import concurrent.futures
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "lint"), HERE]
sys.dont_write_bytecode = True
import planted  # noqa: E402
import refusals  # noqa: E402
import switches  # noqa: E402
from lib import O, text, under  # noqa: E402

MEMORY = "tests/ablate.txt"
LIMIT = 300 if os.environ.get("TEST_LONG") else 60  # seconds for one program
JOBS = int(os.environ.get("JOBS", "2"))
# the short run takes what was noticed this fast, so that a busy machine changes nothing
QUICK_MS = 5000


def modes():
    """What each mode takes away: {mode: {number: what}}; "module": by host_refusals.sh."""
    return {"guards": switches.guards(), "planted": {b.number: b for b in planted.bugs()},
            "refusals": refusals.refusals(),
            "module": refusals.refusals(refusals.kernel_sources())}


def workloads(name):
    """Those of a program of tests/crash: in its own file, or in that of its work."""
    files = ["tests/crash/%s.c" % name, name.replace("crash_", "tests/crash/") + "_work.c"]
    return [w for f in files if os.path.exists(f) for w in re.findall(r'_WL\("(\w+)"', text(f))]


def programs(folders):
    """Quick ones first. Each workload of the crash programs is one by itself."""
    out = []
    for folder in folders:
        for f in under("tests/%s/" % folder, ".c"):
            name = os.path.basename(f)[:-2]
            works = workloads(name) if folder == "crash" else []
            if works:
                out += ["%s:%s" % (name, w) for w in works]
            elif name.startswith(("test_", "crash_", "model_", "stress_")):
                out.append(name)
    return [p for p in out if os.path.exists(os.path.join(O, "tests", p.split(":")[0]))]


def remembered():
    """{number: (program, is_slow)}"""
    out = {}
    if os.path.exists(MEMORY):
        for line in open(MEMORY):
            m = re.match(r"(\d+) ([\w:]+)( slow)?$", line)
            if m:
                out[int(m.group(1))] = (m.group(2), bool(m.group(3)))
    return out


def kill(proc):
    try:
        os.killpg(proc.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def run(program, guard, **more):
    """How the program noticed that the guard is off, or None: it passed or was skipped."""
    tmp = tempfile.mkdtemp(dir=os.environ.get("TMPDIR"))
    # the same crash states and the same random numbers with and without the guard
    env = dict(os.environ, MP_ABLATE=str(guard), TEST_SHORT="1", TMPDIR=tmp, SEED="1", **more)
    env.pop("TEST_LONG", None)
    name, *args = program.split(":")
    proc = subprocess.Popen([os.path.join(O, "tests", name)] + args, stdin=subprocess.DEVNULL,
                            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=env,
                            start_new_session=True)
    timer = threading.Timer(LIMIT, kill, [proc])
    timer.start()
    failed = False
    try:
        for line in proc.stdout:
            if line.startswith(b"not ok"):
                failed = True
                break
        if not failed:
            rc = proc.wait()
    finally:
        # children of the test hold the pipe and the folder: all of them go
        kill(proc)
        proc.stdout.close()
        proc.wait()
        late = not timer.is_alive()
        timer.cancel()
        shutil.rmtree(tmp, ignore_errors=True)
    if failed:
        return "fails"
    if rc in (0, 77):
        return None
    return "hangs" if late else "dies"


class Baseline:
    """Programs that pass with every guard on; others can notice nothing."""

    def __init__(self):
        self.known = {}

    def good(self, program):
        if program not in self.known:
            # twice: a busy machine can fail a test that looks at time
            self.known[program] = run(program, 0) is None or run(program, 0) is None
        return self.known[program]


class Seen:
    """Which programs come to which switches, those that take least time first: where a check
    never refuses, its absence is not noticed."""

    def __init__(self, progs):
        self.progs, self.lock, self.by = progs, threading.Lock(), None

    def programs(self, number):
        with self.lock:
            if self.by is None:
                self.by = {}
                with concurrent.futures.ThreadPoolExecutor(JOBS) as pool:
                    for _, p, numbers in sorted(pool.map(self.look, self.progs)):
                        for n in numbers:
                            self.by.setdefault(n, []).append(p)
        return self.by.get(number, [])

    @staticmethod
    def look(program):
        """(seconds, program, sorted numbers)"""
        with tempfile.NamedTemporaryFile("r") as f:
            t = time.monotonic()
            run(program, 0, MP_ABLATE_SEEN=f.name)
            return time.monotonic() - t, program, sorted({int(n) for n in f.read().split()})


def noticed_by(guard, order, baseline, deadline):
    """(program, how, milliseconds); None: no time; (): nothing noticed."""
    for p in order:
        if deadline and time.monotonic() > deadline:
            return None
        if not baseline.good(p):
            continue
        t = time.monotonic()
        how = run(p, guard)
        if how:
            return p, how, int(1000 * (time.monotonic() - t))
    return ()


def write_memory(found):
    """In place of what was known of them; what is not in the sources now is forgotten."""
    found = {**remembered(), **found}
    known = set().union(*modes().values())
    with open(MEMORY, "w") as out:
        out.write("# SPDX-License-Identifier: GPL-2.0-only OR MIT\n"
                  "# guard, planted bug or refusal, and the program that noticed it "
                  "(UPDATE=1 make ablate)\n")
        for n in sorted(found.keys() & known):
            out.write("%d %s%s\n" % (n, found[n][0], " slow" if found[n][1] else ""))


def title(n, what):
    """What a test of the number is called."""
    if isinstance(what, refusals.Refusal):
        return "refusal_%d_%s" % (n, what.name)
    if isinstance(what, planted.Bug):
        return "planted_%d_%s" % (n, what.name)
    return "%s_%d_%s" % (what.kind.lower(), n, what.name)


def copy(file):
    src = refusals.switched(file, planted.with_bugs(file, text(file)))
    src = switches.with_switches(file, src)
    if refusals.is_kernel(file):
        return ('extern int mp_off;\n#define mp_ablated(n) (mp_off == (n))\n'
                '#line 1 "%s"\n%s' % (file, src))
    return 'int mp_ablated(int n);\n#line 1 "%s"\n%s' % (file, src)


def module():
    """The one that noticed comes first, then the others that abuse the module, quick ones first."""
    progs = "test_ioctl test_uring test_cross test_objfd test_lifecycle test_customs".split()
    memory = remembered()
    for n, r in sorted(modes()["module"].items()):
        first = [p for p in progs if n in memory and p == memory[n][0]]
        print(n, title(n, r), *first, *(p for p in progs if p not in first))


def where(place):
    """Prints each switch at FILE, FILE:LINE or in a function, and the program that noticed it."""
    file, _, line = place.partition(":")
    memory, found = remembered(), {n: w for known in modes().values() for n, w in known.items()}
    for n, w in sorted(found.items()):
        first = getattr(w, "line", 0) or text(w.file).count("\n", 0, getattr(w, "start", 0)) + 1
        if (w.file.endswith(file) and line in ("", str(first))) or w.name.startswith(place + "_"):
            print(n, memory.get(n, ("(none)", False))[0], "%s:%d" % (w.file, first), title(n, w))
    return 0


def remember(lines):
    write_memory({int(n): (p, int(ms) > QUICK_MS)
                  for n, p, ms in (line.split() for line in lines)})


def main():
    mode = sys.argv[1] if len(sys.argv) > 1 else "short"
    if mode == "copies":
        print("\n".join(sorted({what.file for mode in ("guards", "planted", "refusals")
                                for what in modes()[mode].values()})))
        return 0
    if mode == "copy":
        sys.stdout.write(copy(sys.argv[2]))
        return 0
    if mode == "module":
        return module()
    if mode == "where":
        return where(sys.argv[2])
    if mode == "remember":
        return remember(sys.stdin)
    wanted = [int(a) for a in sys.argv[2:]]
    line = mode if mode in ("planted", "refusals") else "guards"
    known = modes()[line]
    progs = programs(("crash", "conform", "model", "soak") if mode == "planted" else
                     ("unit", "conform", "crash"))
    memory = remembered()
    if not progs or not known:
        print("1..0 # SKIP %s" % ("no test program in %s/tests" % O if not progs else "no guard"))
        return 77
    for n in wanted:
        if n not in known:
            sys.exit("ablate.py: there is no %d among the %s" % (n, line))
    todo = sorted(wanted or known)
    deadline = 0
    if mode == "short":
        deadline = time.monotonic() + float(os.environ.get("SECONDS_MAX", "60"))
        seed = os.environ.get("SEED") or os.environ.get("TEST_SEED") or str(int(time.time()))
        seed = int(seed, 0)
        print("# SEED=%d" % seed)
        random.Random(seed).shuffle(todo)
        todo = [n for n in todo if memory.get(n, ("", 0))[0] in progs and
                not memory[n][1]]
    whole = len(todo)
    first, step = map(int, os.environ.get("PIECE", "0/1").split("/"))
    todo = todo[first::step]
    baseline = Baseline()
    seen = Seen([p for p in progs if ":" not in p])
    count = failed = 0
    found = {}
    with concurrent.futures.ThreadPoolExecutor(JOBS) as pool:
        def one(n):
            order = [memory[n][0]] if n in memory and memory[n][0] in progs else []
            by = noticed_by(n, order, baseline, deadline)
            if by == () and mode != "short":
                rest = seen.programs(n) if mode == "refusals" else progs
                until = time.monotonic() + LIMIT if mode == "refusals" else 0
                by = noticed_by(n, [p for p in rest if p not in order], baseline, until) or ()
            return n, by
        for n, by in pool.map(one, todo):
            if by is None:
                continue
            count += 1
            if by:
                found[n] = by
            else:
                failed += 1
            print("%s %d - %s_is_noticed%s" % (
                "ok" if by else "not ok", count, title(n, known[n]),
                " # %s %s, %d ms" % by if by else
                " # no program comes to it" if seen.by and not seen.by.get(n) else ""), flush=True)
    for p, ok in baseline.known.items():
        if not ok:
            count += 1
            failed += 1
            print("not ok %d - %s_passes_with_every_guard_on" % (count, p))
    print("1..%d" % count)
    print("# figure: %s | %d of %d noticed%s | %s" % (
        {"guards": "ablation", "planted": "planted bugs"}.get(line, line), len(found), whole,
        ", of %d guards" % len(known) if mode == "short" else "", seed if mode == "short" else 1))
    if mode != "short" and os.environ.get("UPDATE"):
        write_memory({n: (p, ms > QUICK_MS) for n, (p, _, ms) in found.items()})
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
