#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""Ablation: is every guard needed, and would the suites notice its loss?

Runs test programs of the ablation build with one guard (BARRIER or CHECK, see
guard.h) switched off by MP_ABLATE=n. A guard is noticed when a program that
passes with all guards on reports a failed test, dies or hangs; the first "not
ok" ends it. Prints TAP, one test per guard.

  tests/ablate.py full          every guard against every program until one notices
  tests/ablate.py short         what tests/ablate.txt knows, within SECONDS_MAX
                                (default 60), in an order that SEED chooses
  tests/ablate.py full N...     these guards only
  tests/ablate.py planted [N..] the planted bugs (planted.py): each must be noticed by a general
                                suite (conformance, model, crash, soak), never by a test of its own

PIECE=i/n takes only each n-th of them, from the i-th on.

tests/ablate.txt remembers which program noticed which guard after how many
milliseconds, so that it is tried first; `full` with UPDATE=1 rewrites it. O is
the ablation build's folder."""

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
from lib import O, spans, text, under  # noqa: E402

MEMORY = "tests/ablate.txt"
LIMIT = 300 if os.environ.get("TEST_LONG") else 60  # seconds for one program
JOBS = int(os.environ.get("JOBS", "2"))
# the short run takes what was noticed this fast, so that a busy machine changes nothing
QUICK_MS = 5000


def guards():
    """{number: (kind, file)} of the product's sources, from the same scanner as lint."""
    found = {}
    for prefix in ("kmod/core/", "libmpool/", "libkvdb/"):
        for f in under(prefix, ".c", ".h"):
            if f.endswith("/guard.h"):
                continue
            for kind in ("BARRIER", "CHECK"):
                for _, _, n in spans(f, kind):
                    if n.isdigit():
                        found[int(n)] = (kind, f)
    return found


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
    """{guard: (program, milliseconds)}"""
    out = {}
    if os.path.exists(MEMORY):
        for line in open(MEMORY):
            m = re.match(r"(\d+)\s+([\w:]+)(?:\s+(\d+))?$", line)
            if m:
                out[int(m.group(1))] = (m.group(2), int(m.group(3) or 0))
    return out


def kill(proc):
    try:
        os.killpg(proc.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def run(program, guard):
    """How the program noticed that the guard is off, or None: it passed or was skipped."""
    tmp = tempfile.mkdtemp(dir=os.environ.get("TMPDIR"))
    # the same crash states and the same random numbers with and without the guard
    env = dict(os.environ, MP_ABLATE=str(guard), TEST_SHORT="1", TMPDIR=tmp, SEED="1")
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
    with open(MEMORY, "w") as out:
        out.write("# SPDX-License-Identifier: GPL-2.0-only OR MIT\n"
                  "# guard, the program that noticed its absence, milliseconds "
                  "(UPDATE=1 make ablate)\n")
        for n in sorted(found):
            out.write("%d %s %d\n" % (n, found[n][0], found[n][2]))


def main():
    mode = sys.argv[1] if len(sys.argv) > 1 else "short"
    wanted = [int(a) for a in sys.argv[2:]]
    bugs = {b.number: b for b in planted.bugs()} if mode == "planted" else {}
    all_guards = {n: ("planted", b.file) for n, b in bugs.items()} or guards()
    if bugs:
        progs = programs(("crash", "conform", "model", "soak"))
    else:
        progs = programs(("unit", "conform", "crash"))
    memory = remembered()
    if not progs or not all_guards:
        print("1..0 # SKIP %s" % ("no test program in %s/tests" % O if not progs else "no guard"))
        return 77
    todo = sorted(wanted or all_guards)
    deadline = 0
    if mode == "short":
        deadline = time.monotonic() + float(os.environ.get("SECONDS_MAX", "60"))
        seed = int(os.environ.get("SEED", "0"), 0) or int(time.time())
        print("# SEED=%d" % seed)
        random.Random(seed).shuffle(todo)
        todo = [n for n in todo if memory.get(n, ("", 0))[0] in progs and
                memory[n][1] <= QUICK_MS]
    whole = len(todo)
    first, step = map(int, os.environ.get("PIECE", "0/1").split("/"))
    todo = todo[first::step]
    baseline = Baseline()
    count = failed = 0
    found = {}
    with concurrent.futures.ThreadPoolExecutor(JOBS) as pool:
        def one(n):
            first = [memory[n][0]] if n in memory and memory[n][0] in progs else []
            rest = [] if mode == "short" else [p for p in progs if p not in first]
            return n, noticed_by(n, first + rest, baseline, deadline)
        for n, by in pool.map(one, todo):
            if by is None:
                continue
            count += 1
            kind, f = all_guards.get(n, ("guard", "?"))
            if by:
                found[n] = by
            else:
                failed += 1
            print("%s %d - %s_%d_%s_is_noticed%s" % (
                "ok" if by else "not ok", count, kind.lower(), n,
                bugs[n].name if bugs else "of_" + re.sub(r"\W", "_", os.path.basename(f)),
                " # %s %s, %d ms" % by if by else ""), flush=True)
    for p, ok in baseline.known.items():
        if not ok:
            count += 1
            failed += 1
            print("not ok %d - %s_passes_with_every_guard_on" % (count, p))
    print("1..%d" % count)
    print("# %d of %d %s" % (len(found), len(all_guards), "planted bugs" if bugs else "guards"))
    print("# figure: %s | %d of %d noticed%s | %s" % (
        "planted bugs" if bugs else "ablation", len(found), whole,
        "" if bugs or mode == "full" else ", of %d guards" % len(all_guards),
        seed if mode == "short" else 1))
    if not wanted and mode != "short" and os.environ.get("UPDATE"):
        others = {n: (p, "", ms) for n, (p, ms) in memory.items() if (n > 1000) != bool(bugs)}
        write_memory({**others, **found})
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
