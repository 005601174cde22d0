#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""Rules with a number: each one that a source, a test or a document cites is defined once, in a
document; and sentences that cannot be read once, which a regular expression can find."""

import collections
import re

from lib import files, main, text, under

GROUPS = ("INV- FLT- CUR- RUN- PAGE- SLAB- PIN- GAP- TH- RD- CQ- CTL MEM LF LE RV RP VF PI PK WM "
          "HO FS OP B C D E G H L M P R S T U X").split()
TAG = r"(?:%s)[1-9]\d?" % "|".join(GROUPS)
NO_RULE = {
    "C11",              # the language
    "P50", "P99",       # percentiles
}
# A definition: "- **L1** ..." in a list, or the first cell of such a table: "| INV-1 | ..."
DEFINITION = re.compile(r"^(?:\s*- \*\*(%s)\*\*|\| ((?:INV-|R|P)\d+)(?: [^|]*)? \|)" % TAG,
                        re.M)
CITATION = re.compile(r"(?<![\w.%%-])(%s)(?: to (%s))?(?![\w%%])" % (TAG, TAG))
COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.S)


def definitions_in(path):
    return [a or b for a, b in DEFINITION.findall(text(path))]


def citations(src, is_c):
    """(tag, offset). Of C only comments count: its names have other meanings."""
    comments = [(m.start(), m.group(0)) for m in COMMENT.finditer(src)]
    for at, part in comments if is_c else [(0, src)]:
        for m in CITATION.finditer(part):
            for tag in m.groups():
                if tag and tag not in NO_RULE:
                    yield tag, at + m.start()


def undefined(src, is_c, defined):
    """(tag, line) of each citation that leads nowhere."""
    for tag, at in citations(src, is_c):
        if tag not in defined:
            yield tag, src.count("\n", 0, at) + 1


def documents():
    return under("libkvdb/", ".md") + under("kmod/core/", ".md") + ["tests/PROMISES.md"]


def each_rule_cited_is_defined():
    defined = {tag for f in documents() for tag in definitions_in(f)}
    for f in documents() + under("libkvdb/", ".c", ".h") + under("kmod/", ".c", ".h") + \
            under("libmpool/", ".c", ".h") + under("tests/", ".c", ".h", ".py", ".txt"):
        if f.startswith("tests/lint/"):
            continue
        for tag, line in undefined(text(f), f.endswith((".c", ".h")), defined):
            yield "%s:%d: %s is defined nowhere" % (f, line, tag)


def one_that_is_not_defined_is_noticed():
    """The rule above, of text in which one is missing."""
    planted = 'x = "L1"; /* L1, RV98 to RV99 */'
    found = list(undefined(planted, True, {"L1", "RV98"}))
    if found != [("RV99", 1)] or list(undefined("see L1", False, {"L2"})) != [("L1", 1)]:
        yield "found %s" % found


def each_rule_is_defined_once():
    where = collections.defaultdict(list)
    for f in documents():
        for tag in definitions_in(f):
            where[tag].append(f)
    if len(where) < 150:
        yield "only %d rules found" % len(where)
    for tag, places in sorted(where.items()):
        if len(places) > 1:
            yield "%s: %s" % (tag, ", ".join(places))


# A definition in a comment: " *  L1  text", which would be a second one.
STATED = re.compile(r"^ \*  (%s)  \S" % TAG, re.M)

# Words that make a sentence hard to read: a thread, a caller, a reader is called so.
RIDDLE = re.compile(r"\b(?:whoever|nobody|somebody|anybody|everybody|for who|of then|of now)\b"
                    r"|\bwho (?:cannot|needs|waits|asks|has|is|comes)\b", re.I)
# In a comment only a person is one who does something.
PERSON = re.compile(r"\b(?:attacker|people|person|user|users|root),? who\b")
HE = re.compile(r"\b(?:who|whom|he|him|his)\b", re.I)
SHELL_COMMENT = re.compile(r"(?:^|\s)#\s(.*)$", re.M)
HASH = re.compile(r"\b(?=[0-9a-f]*\d)(?=[0-9a-f]*[a-f])[0-9a-f]{7,40}\b")
DATE = re.compile(r"\b20\d\d-[01]\d-[0-3]\d\b")


def no_comment_states_a_rule():
    for f in under("libkvdb/", ".c", ".h"):
        for m in STATED.finditer(text(f)):
            yield "%s: %s belongs into a document of the room" % (f, m.group(1))


def prose():
    """(file, line number, line) of documents for readers."""
    for f in under("", ".md"):
        for n, line in enumerate(text(f).split("\n"), 1):
            yield f, n, line


def comments():
    """(file, line number, line) of comments of the sources."""
    for f in under("", ".c", ".h"):
        for m in COMMENT.finditer(text(f)):
            at = text(f).count("\n", 0, m.start()) + 1
            for n, line in enumerate(m.group(0).split("\n"), at):
                yield f, n, line
    for f in under("tests/", ".py", ".sh"):
        if not f.startswith("tests/lint/"):
            for m in SHELL_COMMENT.finditer(text(f)):
                yield f, text(f).count("\n", 0, m.start(1)) + 1, m.group(1)


def sentences_can_be_read_once():
    for f, n, line in prose():
        m = RIDDLE.search(line)
        if m:
            yield "%s:%d: \"%s\"" % (f, n, m.group(0))


def riddles(lines):
    """(file, line number, word) of comments that leave open which thread is meant."""
    for f, n, line in lines:
        line = PERSON.sub("", line)
        m = RIDDLE.search(line) or HE.search(line)
        if m:
            yield f, n, m.group(0)


def comments_name_the_thread():
    for found in riddles(comments()):
        yield "%s:%d: \"%s\"" % found
    planted = ["who waits is told", "whoever asks", "an attacker who writes", "its owner waits"]
    found = [word for _, _, word in riddles(("", 0, line) for line in planted)]
    if found != ["who waits", "whoever"]:
        yield "of planted comments %s" % found


def documents_have_no_hash_and_no_date():
    for f in under("", ".md"):
        if f.startswith("tests/bench/results"):
            continue
        for n, line in enumerate(text(f).split("\n"), 1):
            for m in list(HASH.finditer(line)) + list(DATE.finditer(line)):
                yield "%s:%d: %s" % (f, n, m.group(0))


if __name__ == "__main__":
    main([each_rule_cited_is_defined, one_that_is_not_defined_is_noticed,
          each_rule_is_defined_once, no_comment_states_a_rule, sentences_can_be_read_once,
          comments_name_the_thread, documents_have_no_hash_and_no_date])
