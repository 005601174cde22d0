#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""Documents are checked like code: what they name must exist, the C example
must compile, and manual pages must format cleanly."""

import functools
import os
import re
import shutil
import tempfile

from lib import O, Skip, files, main, run, text, under


def documents():
    return under("", ".md")


@functools.lru_cache(None)
def words():
    """Every identifier of the sources."""
    out = set()
    for f in under("", ".c", ".h", ".py", ".sh") + ["Makefile", "utils/install.mk"]:
        out.update(re.findall(r"\w+", text(f)))
    return out


def links_lead_somewhere():
    for f in documents():
        for target in re.findall(r"\]\(([^)\s]+)\)", text(f)):
            if re.match(r"[a-z]+:|#", target):
                continue
            path = os.path.normpath(os.path.join(os.path.dirname(f), target.split("#")[0]))
            if not os.path.exists(path):
                yield "%s: link to %s" % (f, target)


def paths_named_exist():
    top = {f.split("/")[0] for f in files()}
    for f in documents():
        for name in re.findall(r"`([\w.-]+/[\w./-]*)`", text(f)):
            here = os.path.join(os.path.dirname(f), name)
            if name.split("/")[0] in top and not os.path.exists(name) and \
               not os.path.exists(here):
                yield "%s: %s" % (f, name)


def symbols_named_exist():
    for f in documents():
        for name in re.findall(r"`(\w+)\(\)`", text(f)):
            if name not in words():
                yield "%s: %s()" % (f, name)
        for name in re.findall(r"`((?:mpool|kvdb|mp|kv|mpl)_\w+)`", text(f)):
            if name not in words():
                yield "%s: %s" % (f, name)


def places_named_are_there():
    """WHERE.md: each function is in the file named before it."""
    for line in text("libkvdb/WHERE.md").split("\n"):
        place = None
        for link, name in re.findall(r"\]\(([^)\s]+)\)|`(\w+)\(\)`", line):
            if link:
                place = os.path.normpath(os.path.join("libkvdb", link))
            elif not place or not re.search(r"\b%s\(" % name, text(place)):
                yield "libkvdb/WHERE.md: %s() is not in %s" % (name, place)


def tests_named_exist():
    """A renamed test is renamed in the tables of tests/PROMISES.md, and each row has a test."""
    ran = set(re.findall(r"\w+", " ".join(text(f) for f in under("tests/", ".c", ".py", ".sh"))))
    stems = {os.path.basename(f).split(".")[0] for f in under("tests/")}
    tables = text("tests/PROMISES.md")
    rows = [r.split("|")[1:3] for r in re.findall(r"^\| (?!-).*\|$", tables, re.M)]
    if len(rows) < 40:
        yield "tests/PROMISES.md: its tables have %d rows" % len(rows)
    for what, proof in rows:
        names = re.findall(r"`([a-z]\w+)`", proof)
        if "`" not in proof and proof.strip() not in ("test", "where"):
            yield "tests/PROMISES.md: no test: %s" % what.strip()
        for name in names:
            if name not in ran and name not in stems:
                yield "tests/PROMISES.md: %s: %s" % (what.strip(), name)


def what_rooms_name_exists():
    """Tests, fields and locks: a document of a room names nothing that is gone."""
    stems = {os.path.basename(f).split(".")[0] for f in under("tests/")}
    for f in under("libkvdb/", ".md"):
        if f == "libkvdb/README.md":
            continue        # it names other engines' calls
        for name in re.findall(r"`([a-z][a-z0-9]*_\w+)(?:\(\))?`", text(f)):
            if name not in words() and name not in stems:
                yield "%s: %s" % (f, name)


def make_targets_named_exist():
    targets = set(re.findall(r"^([a-z-]+):", text("Makefile") + text("utils/install.mk"),
                             re.M))
    for f in documents():
        for name in re.findall(r"(?:`|^    |^\$ )make ([a-z][a-z-]*)(?![\w=])", text(f), re.M):
            if name not in targets:
                yield "%s: make %s" % (f, name)


def readme_example_compiles_and_runs():
    m = re.search(r"```c\n(.*?)```", text("README.md"), re.S)
    if not m:
        yield "README.md: no C example"
        return
    libs = ["%s/lib/libkvdb.a" % O, "%s/lib/libmpool.a" % O]
    if not all(map(os.path.exists, libs)):
        raise Skip("libraries are not built")
    with tempfile.TemporaryDirectory() as tmp:
        src, prog = os.path.join(tmp, "fruit.c"), os.path.join(tmp, "fruit")
        with open(src, "w") as f:
            f.write(m.group(1))
        pkgs = run("pkg-config", "--libs", "liburing", "blkid", "libudev", "json-c", "liblz4",
                   "libzstd", "libxxhash").stdout.split()
        r = run(*os.environ.get("CC", "cc").split(), "-std=c11", "-Wall", "-Wextra", "-Werror",
                "-Ilibmpool/include", "-Ilibkvdb/include", src, "-o", prog, *libs, *pkgs,
                "-lm", "-pthread")
        if r.returncode:
            yield "README.md: " + r.stderr[:600].replace("\n", " | ")
            return
        # the commands that README shows above it, then the example itself
        steps = re.findall(r"^build/(bin/kvdb (?:create|kvs create|put) \./mydb.*)$",
                           text("README.md"), re.M)
        if not os.path.exists(O + "/bin/kvdb"):
            raise Skip("compiled; not run: kvdb is not built")
        for step in steps + [prog]:
            path = step if step == prog else os.path.join(os.path.abspath(O), step)
            r = run("sh", "-c", path, cwd=tmp, timeout=50)
            if r.returncode:
                yield "README.md: %s exits %d: %s" % (step, r.returncode, r.stderr[:200])
                return
        if "apple is red" not in r.stdout:
            yield "README.md: the example prints " + r.stdout[:100]


def manual_pages():
    return [f for f in files() if re.search(r"/man/[^/]+\.[1-8]$", f)]


def manual_pages_format_without_warning():
    if not shutil.which("man"):
        raise Skip("no man")
    if not manual_pages():
        yield "no manual page at all"
    for f in manual_pages():
        r = run("man", "--warnings", "-E", "UTF-8", "-l", "-Tutf8", "-Z", f,
                env=dict(os.environ, LC_ALL="C.UTF-8", MANROFFSEQ="", MANWIDTH="80"))
        if r.returncode or r.stderr.strip():
            yield "%s: %s" % (f, r.stderr.strip().split("\n")[0])


def each_command_has_a_page():
    pages = {os.path.basename(f).rsplit(".", 1)[0] for f in manual_pages()}
    for name in ("mpool", "kvdb", "libmpool", "libkvdb"):
        if name not in pages:
            yield name


main([links_lead_somewhere, paths_named_exist, symbols_named_exist,
      places_named_are_there, tests_named_exist,
      what_rooms_name_exists, make_targets_named_exist, readme_example_compiles_and_runs,
      manual_pages_format_without_warning, each_command_has_a_page])
