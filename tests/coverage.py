#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""What the suites reach of the core and of recovery: lines and branches, by gcov.

B=build tests/coverage.py [SUITE...] runs the suites (default: unit conform, shortened unless
TEST_LONG is set) from B/cover, then prints a table. Exits with 1 when a suite fails or a target
is missed. Processes that are killed count for nothing.
"""

import glob
import os
import re
import subprocess
import sys

LINES, BRANCHES = 90, 80  # percent, of all files together
SOURCES = ["kmod/core/*.c"] + ["libkvdb/*/%s.c" % f for f in (
    "recover", "log", "frame", "mdc", "mdc_omf", "mdc_fold", "salvage", "repair",
    "ckpt", "ckpt_omf")]


def gcov(obj, source):
    """(lines, lines reached, branches, branches taken) of one file."""
    out = subprocess.run(["gcov", "-n", "-b", "-o", os.path.join(obj, os.path.dirname(source)),
                          os.path.abspath(source)], cwd=obj, stdout=subprocess.PIPE,
                         stderr=subprocess.DEVNULL, universal_newlines=True).stdout
    own = re.search(r"File '[^']*%s'\n(.*?)\n(\n|$)" % re.escape(source), out, re.S)
    if not own:
        sys.exit("%s: gcov says nothing of it" % source)
    got = []
    for what in ("Lines executed", "Taken at least once"):
        m = re.search(what + r":([\d.]+)% of (\d+)", own.group(1))
        n = int(m.group(2)) if m else 0
        got += [n, round(float(m.group(1)) * n / 100) if m else 0]
    return got


def percent(n, of):
    return 100.0 * n / of if of else 100.0


def main():
    build = os.path.abspath(os.environ.get("B", "build"))
    cover = os.path.join(build, "cover")
    obj = os.path.join(cover, "obj")
    for f in glob.glob(obj + "/**/*.gcda", recursive=True):
        os.remove(f)
    env = dict(os.environ, B=build, O=cover)
    if "TEST_LONG" not in env:
        env["TEST_SHORT"] = "1"
    failed = subprocess.run(["tests/run.sh"] + (sys.argv[1:] or ["unit", "conform"]),
                            env=env).returncode
    total = [0, 0, 0, 0]
    print("\n%-28s %13s %16s" % ("file", "lines", "branches"))
    for source in sorted(f for pat in SOURCES for f in glob.glob(pat)):
        n = gcov(obj, source)
        total = [a + b for a, b in zip(total, n)]
        print("%-28s %6d %5.1f %% %8d %5.1f %%" % (source, n[0], percent(n[1], n[0]), n[2],
                                                 percent(n[3], n[2])))
    lines, branches = percent(total[1], total[0]), percent(total[3], total[2])
    print("# figure: coverage | core and recovery: %.1f %% of %d lines, %.1f %% of %d branches | "
          % (lines, total[0], branches, total[2]))
    return 1 if failed or lines < LINES or branches < BRANCHES else 0


if __name__ == "__main__":
    os.chdir(os.path.dirname(os.path.abspath(__file__)) + "/..")
    sys.exit(main())
