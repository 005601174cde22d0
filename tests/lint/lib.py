# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""What the lint programs share: the list of files, C source without its
comments, and TAP. Each rule is one function that yields complaints; it passes
when there are none. A rule must hold for every file of its folder: there is no
way to excuse a line."""

import functools
import os
import re
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
os.chdir(ROOT)
O = os.environ.get("O", "build")
B = os.environ.get("B", "build")


class Skip(Exception):
    """The rule cannot be checked here; the text says why."""


@functools.lru_cache(None)
def files():
    """Every file of the source tree: what git would commit, or, without git,
    what lies outside hidden and build folders."""
    try:
        out = subprocess.run(["git", "ls-files", "-co", "--exclude-standard", "-z"],
                             capture_output=True, check=True).stdout
        return sorted(f for f in out.decode().split("\0") if f and os.path.exists(f))
    except (OSError, subprocess.CalledProcessError):
        pass
    found = []
    for folder, dirs, names in os.walk("."):
        dirs[:] = [d for d in dirs if d not in (".git", "__pycache__")
                   and os.path.abspath(os.path.join(folder, d)) != os.path.abspath(B)]
        found += [os.path.relpath(os.path.join(folder, n)) for n in names]
    return sorted(found)


def under(prefix, *suffixes):
    return [f for f in files() if f.startswith(prefix) and (not suffixes or f.endswith(suffixes))]


@functools.lru_cache(None)
def text(path):
    with open(path, encoding="utf-8", errors="replace") as f:
        return f.read()


def _blank(match):
    return re.sub(r"[^\n]", " ", match.group(0))


def blanked(src):
    """C text with comments and the contents of literals blanked; positions and
    line numbers stay."""
    return re.sub(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'',
                  lambda m: m.group(0)[0] + _blank(m)[2:] + m.group(0)[-1]
                  if m.group(0)[0] in "\"'" else _blank(m),
                  src, flags=re.S)


@functools.lru_cache(None)
def code(path):
    return blanked(text(path))


def line_of(path, pos):
    return text(path).count("\n", 0, pos) + 1


@functools.lru_cache(None)
def functions(path):
    return functions_in(code(path))


def functions_in(src):
    """(name, first line, last line) of each function body: kernel style puts
    both braces into column 0. Of text as blanked() leaves it."""
    out, start, name = [], 0, ""
    lines = src.split("\n")
    for i, line in enumerate(lines, 1):
        if line == "{":
            start = i
            head = ""
            j = i - 2
            while j >= 0 and lines[j].strip() and not lines[j].startswith(("}", "#")):
                head = lines[j] + " " + head
                j -= 1
            m = re.search(r"(\w+)\s*\(", head)
            name = m.group(1) if m else "?"
        elif line.startswith("}") and start:
            out.append((name, start, i))
            start = 0
    return out


def run(*argv, **kw):
    return subprocess.run(argv, capture_output=True, text=True, stdin=subprocess.DEVNULL, **kw)


def main(rules):
    """Runs every rule as one TAP test."""
    failed = 0
    for n, rule in enumerate(rules, 1):
        name = rule.__name__
        try:
            bad = list(rule())
        except Skip as why:
            print("ok %d - %s # SKIP %s" % (n, name, why))
            continue
        for line in bad[:40]:
            print("# " + line)
        if len(bad) > 40:
            print("# and %d more" % (len(bad) - 40))
        failed += bool(bad)
        print("%s %d - %s" % ("not ok" if bad else "ok", n, name), flush=True)
    print("1..%d" % len(rules))
    sys.exit(1 if failed else 0)
