#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""Public headers: they compile alone, they are documented, and what they
declare is what the libraries export."""

import glob
import os
import re
import shutil
import tempfile

from lib import O, Skip, main, run, text, under

LIBS = {"libmpool": (["libmpool/include/mpool/mpool.h"], "mpool_"),
        "libkvdb": (["libkvdb/include/kvdb/%s.h" % h
                     for h in ("kvdb", "cq", "cursor", "sub", "txn")], "kvdb_")}
DUTIES = ("Threads:", "Blocking:", "Durability:", "Errors:")


def declared(headers, prefix):
    """{name: comment before it}"""
    src = "\n".join(text(h) for h in headers)
    out = {}
    blank = re.sub(r"/\*.*?\*/", lambda m: re.sub(r"[^\n]", " ", m.group(0)), src, flags=re.S)
    for m in re.finditer(r"^(?!typedef|#)\w[\w\s\*]*?\b(%s\w+)\s*\(" % prefix, blank, re.M):
        head = src[:m.start()].rstrip()
        comment = ""
        if head.endswith("*/"):
            comment = head[head.rindex("/*"):]
        out[m.group(1)] = comment
    return out


def compiles_alone(compiler, lang, standards):
    # it may be a wrapper and a compiler
    if not shutil.which(compiler.split()[0]):
        raise Skip("no " + compiler)
    with tempfile.TemporaryDirectory() as tmp:
        for std in standards:
            for h in under("libmpool/include/", ".h") + under("libkvdb/include/", ".h"):
                src = os.path.join(tmp, "x." + ("cc" if lang == "c++" else "c"))
                name = h.split("/include/")[1]
                inits = re.findall(r"#define (\w+_INIT) .*?(\w+_opts)\b", text(h))
                with open(src, "w") as f:
                    f.write("#include <%s>\n#include <%s>\nextern int x;\n" % (name, name))
                    for i, (init, opts) in enumerate(inits):
                        f.write("void f%d(struct %s *o);\nvoid f%d(struct %s *o)\n"
                                "{\n\tstruct %s n = %s;\n\n\t*o = n;\n}\n"
                                % (i, opts, i, opts, opts, init))
                r = run(*compiler.split(), "-std=" + std, "-Wall", "-Wextra", "-pedantic",
                        "-Wshadow", "-Werror", "-fsyntax-only", "-Ilibmpool/include",
                        "-Ilibkvdb/include", src)
                if r.returncode:
                    yield "%s as %s: %s" % (h, std, r.stderr.split("\n")[0])


def headers_compile_alone_as_c():
    return compiles_alone(os.environ.get("CC", "cc"), "c", ["c99", "c11"])


def headers_compile_alone_as_cxx():
    return compiles_alone("g++", "c++", ["c++11", "c++17"])


def every_public_function_says_its_duties():
    for headers, prefix in LIBS.values():
        names = declared(headers, prefix)
        header = headers[0]
        if len(names) < 5:
            yield "%s: only %d functions found" % (header, len(names))
        for name, comment in names.items():
            missing = [d for d in DUTIES if d not in comment]
            if not comment.startswith("/**") or name not in comment:
                yield "%s: %s has no kernel-doc of its own" % (header, name)
            elif missing:
                yield "%s: %s does not say %s" % (header, name, " ".join(missing))


def exports_map_and_header_agree():
    made = 0
    for lib, (headers, prefix) in LIBS.items():
        so = "%s/lib/%s.so" % (O, lib)
        want = set(declared(headers, prefix))
        body = re.sub(r"/\*.*?\*/", "", text("%s/%s.map" % (lib, lib)), flags=re.S)
        listed = set(re.findall(r"\b(\w+);", body.split("local:")[0]))
        for name in sorted(want ^ listed):
            yield "%s: %s is in the %s only" % (lib, name, "header" if name in want else "map")
        if not os.path.exists(so):
            continue
        made += 1
        out = run("nm", "-D", "--defined-only", so).stdout
        have = {line.split()[2].split("@")[0] for line in out.split("\n")
                if len(line.split()) == 3 and line.split()[1] != "A"}
        for name in sorted(have ^ want):
            yield "%s: %s is %s" % (lib, name, "not exported" if name in want else
                                    "exported but not declared")
    if not made:
        raise Skip("nothing is built")


def static_libraries_define_names_of_their_own():
    """A program linked with them may have a crc32c() of its own."""
    made = [O + "/lib/" + lib + ".a" for lib in LIBS if os.path.exists(O + "/lib/" + lib + ".a")]
    if not made:
        raise Skip("nothing is built")
    for a in made:
        for line in run("nm", "-g", "--defined-only", a).stdout.split("\n"):
            f = line.split()
            if len(f) == 3 and not re.match(r"(mpool|mp|mpl|os|kvdb|kv)_", f[2]):
                yield "%s: %s has no prefix of ours" % (os.path.basename(a), f[2])


def manual_shows_every_export():
    for lib in LIBS:
        body = re.sub(r"/\*.*?\*/", "", text("%s/%s.map" % (lib, lib)), flags=re.S)
        page = text("%s/man/%s.3" % (lib, lib)).replace("\\", "")
        for name in re.findall(r"\b(\w+);", body.split("local:")[0]):
            if not re.search(r"\b%s\b" % name, page):
                yield "%s.3: it lacks %s" % (lib, name)


def libraries_carry_their_soname():
    found = glob.glob(O + "/lib/lib*.so")
    if not found:
        raise Skip("nothing is built")
    for so in found:
        name = os.path.basename(so)
        if "[%s.1]" % name not in run("readelf", "-d", so).stdout:
            yield "%s: soname is not %s.1" % (so, name)


def binaries_are_hardened():
    made = [f for f in glob.glob(O + "/bin/*") + glob.glob(O + "/lib/*.so")]
    if not made:
        raise Skip("nothing is built")
    for f in made:
        dyn = run("readelf", "-dlW", f).stdout
        for mark, what in (("BIND_NOW", "immediate binding"), ("GNU_RELRO", "relro"),
                           ("DYNAMIC", "position independence")):
            if mark not in dyn and not (mark == "BIND_NOW" and "NOW" in dyn):
                yield "%s: without %s" % (f, what)
        if re.search(r"GNU_STACK.*RWE", dyn):
            yield "%s: executable stack" % f


main([headers_compile_alone_as_c, headers_compile_alone_as_cxx,
      every_public_function_says_its_duties, exports_map_and_header_agree,
      static_libraries_define_names_of_their_own, manual_shows_every_export,
      libraries_carry_their_soname, binaries_are_hardened])
