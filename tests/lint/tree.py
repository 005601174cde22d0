#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""Shape of the source tree: what lies where, how long, how it begins."""

import json
import re

from lib import files, functions, main, text, under

TOP = {"kmod", "libmpool", "libkvdb", "utils", "udev", "tests",
       "Makefile", "dkms.conf", "README.md", "COPYING"}
# spelled in halves so that this file does not name them itself
WORDS = ["TO" + "DO", "FIX" + "ME", "XX" + "X", "HA" + "CK"]
PHRASES = ["for " + "now", "not " + "implemented", "place" + "holder", "/wo" + "rk/"]
# what programs wrote: images and their texts
DATA = ("tests/golden/",)
PLAIN = (".c", ".h", ".py", ".sh", ".map", ".in", ".rules", ".md", ".conf", ".objs", ".mk")


def is_source(f):
    return f.endswith(PLAIN) or f.rsplit("/", 1)[-1] in ("Makefile", "Kbuild", "run")


def top_level_is_exactly_as_designed():
    seen = {f.split("/")[0] for f in files() if not f.startswith(".")}
    for name in sorted(seen ^ TOP):
        yield "%s: %s" % (name, "missing" if name in TOP else "does not belong here")


def every_file_names_its_licence():
    for f in files():
        if f in ("COPYING", "README.md") or f.endswith((".md", ".json")) or f.startswith("."):
            continue
        if f.startswith(DATA) and not is_source(f):
            continue
        head = text(f)[:400]
        if "SPDX-License-Identifier: " not in head and "\0" not in head:
            yield "%s: no SPDX-License-Identifier" % f


def every_source_says_what_it_is_for():
    for f in under("", ".c", ".h"):
        if not re.match(r"(/\*[^*]*SPDX[^\n]*\*/|// SPDX[^\n]*)\n\s*/\*.{30,}?\*/", text(f), re.S):
            yield "%s: does not begin with SPDX and a comment on what it is for" % f


def files_are_at_most_1200_lines():
    for f in files():
        n = text(f).count("\n")
        if n > 1200 and is_source(f) and not f.endswith(".md"):
            yield "%s: %d lines" % (f, n)


def functions_are_at_most_100_lines():
    for f in under("", ".c", ".h"):
        for name, first, last in functions(f):
            if last - first + 1 > 100:
                yield "%s:%d: %s() has %d lines" % (f, first, name, last - first + 1)


def lines_are_at_most_100_columns():
    for f in under("", ".c", ".h", ".sh", ".py"):
        for n, line in enumerate(text(f).split("\n"), 1):
            # a kernel-doc line of one sentence may not be breakable
            if len(line.expandtabs(8)) > 100 and not line.startswith(("/** ", " * ")):
                yield "%s:%d: %d columns" % (f, n, len(line.expandtabs(8)))


def no_trailing_space_and_a_last_newline():
    for f in files():
        if not is_source(f):
            continue
        for n, line in enumerate(text(f).split("\n"), 1):
            if line != line.rstrip():
                yield "%s:%d: trailing space" % (f, n)
        if text(f) and not text(f).endswith("\n"):
            yield "%s: no newline at the end" % f


def no_leftover_words():
    words = re.compile(r"\b(%s)\b" % "|".join(WORDS))
    phrases = re.compile("|".join(map(re.escape, PHRASES)), re.I)
    for f in files():
        if f == "COPYING" or (f.startswith(DATA) and not is_source(f)):
            continue
        for n, line in enumerate(text(f).split("\n"), 1):
            m = words.search(line) or phrases.search(line)
            if m:
                yield "%s:%d: \"%s\"" % (f, n, m.group(0))


def the_module_names_what_it_means():
    """A comment that says who may do something leaves the reader to guess: a host, a thread, a
    caller, a reader of the pool?"""
    for f in under("kmod/", ".c", ".h"):
        for n, line in enumerate(text(f).split("\n"), 1):
            m = re.search(r"\b(whoever|nobody|somebody|anybody)\b", line, re.I)
            if m:
                yield "%s:%d: \"%s\"" % (f, n, m.group(0))


def dkms_version_is_the_module_version():
    mine = re.search(r'MP_VERSION "(.*)"', text("kmod/version.h")).group(1)
    dkms = re.search(r'PACKAGE_VERSION="(.*)"', text("dkms.conf")).group(1)
    if mine != dkms:
        yield "kmod/version.h says %s, dkms.conf says %s" % (mine, dkms)


def json_files_parse():
    for f in under("", ".json"):
        try:
            json.loads(text(f))
        except ValueError as e:
            yield "%s: %s" % (f, e)


def sources_have_no_absolute_machine_paths():
    for f in under("", ".c", ".h"):
        for n, line in enumerate(text(f).split("\n"), 1):
            if re.search(r'"/(home|root|mnt|media)/', line):
                yield "%s:%d: %s" % (f, n, line.strip())


main([top_level_is_exactly_as_designed, every_file_names_its_licence,
      every_source_says_what_it_is_for, files_are_at_most_1200_lines,
      functions_are_at_most_100_lines, lines_are_at_most_100_columns,
      no_trailing_space_and_a_last_newline, no_leftover_words, the_module_names_what_it_means,
      dkms_version_is_the_module_version, json_files_parse,
      sources_have_no_absolute_machine_paths])
