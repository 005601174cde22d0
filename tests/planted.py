# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""Planted bugs: does the programme notice what a tired engineer would write?

tests/planted.txt lists them: file, name, the lines as they are ("-") and as
they are with the bug ("+"), where PLANTED is 1 while the bug is on. The
ablation build compiles copies of those files with all bugs in them (ablate.py
copy); the sources know nothing of it.

tests/ablate.py planted switches each on, and a general suite (crash, model,
conform) must notice it."""

import os
import re
import sys

from switches import number

LIST = os.path.join(os.path.dirname(os.path.abspath(__file__)), "planted.txt")


class Bug:
    def __init__(self, file, name):
        self.number, self.file, self.name = number(file, name), file, name
        self.old, self.new = [], []


def bugs():
    found = []
    for line in open(LIST, encoding="utf-8"):
        line = line.rstrip("\n")
        m = re.match(r"(\S+/\S+) (\w+)$", line)
        if m:
            found.append(Bug(m.group(1), m.group(2)))
        elif line[:1] == "-":
            found[-1].old.append(line[1:])
        elif line[:1] == "+":
            found[-1].new.append(line[1:])
        elif line and not line.startswith("#"):
            sys.exit("planted.txt: not understood: %s" % line)
    return found


def is_there(bug):
    """The place is in the source, once."""
    old = "\n" + "\n".join(bug.old) + "\n"
    return os.path.exists(bug.file) and open(bug.file, encoding="utf-8").read().count(old) == 1


def with_bugs(file, src):
    """The text with all bugs of the file in it."""
    src = "\n" + src
    for bug in bugs():
        if bug.file != file or not is_there(bug):
            continue
        if "\n" + "\n".join(bug.old) + "\n" not in src:
            sys.exit("planted.txt: %s is where another one is" % bug.name)
        new = "\n".join(bug.new).replace("PLANTED", "mp_ablated(%d)" % bug.number)
        src = src.replace("\n" + "\n".join(bug.old) + "\n", "\n" + new + "\n")
    return src[1:]
