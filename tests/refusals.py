# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""Refusals: does a test fail when one check of what a caller or the media gave is gone?

A refusal is an `if` that does nothing but return one of the errors below. The
ablation build compiles copies in which each alternative of its condition (what
`||` joins) can be switched off by its number, like a guard; checks that are
guards already (CHECK) are left to those. Nothing is listed by hand: a new check
is a new refusal, and tests/ablate.py refusals wants it noticed; those of the module
tests/kmod/host_refusals.sh. What talks to the module is left out: no program here
reaches it without one."""

import re

from lib import blanked, functions_in, text, under
from switches import LAYERS, closing, named, number

ERRORS = "EINVAL EUCLEAN ENAMETOOLONG E2BIG EFBIG ERANGE EPROTONOSUPPORT EOPNOTSUPP".split()
# the tables of errors by name: X(NAME, number, ERRNO, ...
TABLES = {"MP": "kmod/core/err.h", "MPL": "libmpool/mpl_err.h"}
# a system call has more ways to say no
KERNEL = "ENOTTY EBADF EPERM EACCES EROFS EFAULT ENOTBLK".split()

# of our own mistakes, or of more than a test can make: no input comes to them; the last line
# spares calls that what is below would refuse in the same way
OURS = {
    "mp_pdev_space", "mpl_fd_rw", "write_epoch", "tree_next", "kv_pages_get", "put_out",
    "capture", "append_raw", "kv_run_build_tombs", "block_place", "kv_ctl_command",
    "write_check", "read_direct", "mpk_obj_read_iter",
}
# want a block device, and one with sectors that no kernel here takes
ELSEWHERE = {"file_check !rc && low.lo_is_block", "dev_setup md->d_sector > MP_BLOCK"}

# what another function found, or the state of the database: nothing that was given
PASSED_ON = re.compile(r"!?(rc|err)( [=!<>]=? -?\w+)?$")
IS_SWITCHED = re.compile(r"mp_ablated\(|(CHECK|CHECK_CRC|BARRIER)\(")


class Refusal:
    def __init__(self, file, line, function, start, end, cond):
        self.file, self.line, self.function = file, line, function
        self.start, self.end, self.cond = start, end, cond
        self.number = 0

    @property
    def name(self):
        return named(self.function, self.cond)


def is_kernel(file):
    return re.match(r"kmod/\w+\.c$", file) is not None


def refusal(errors):
    """What returns one of the errors, as -ERRNO or by its name."""
    named = ["%s_%s" % (prefix, name) for prefix, table in TABLES.items() for name, err in
             re.findall(r"^X\((\w+), \d+, (\w+),", text(table), re.M) if err in errors]
    return re.compile(r"\s*\{?\s*(?:return|rc =|err =)[^;?]*(?:-(?:%s)\b|err\((?:%s),)[^;]*;" % (
        "|".join(errors), "|".join(named)))


def alternatives(src, start, end):
    """(start, end) of what || joins in a condition; the whole where ?: does."""
    out, depth, begin = [], 0, start
    for i in range(start, end):
        depth += {"(": 1, "[": 1, "{": 1, ")": -1, "]": -1, "}": -1}.get(src[i], 0)
        if not depth and src[i] == "?":
            return [(start, end)]
        if not depth and src.startswith("||", i):
            out.append((begin, i))
            begin = i + 2
    return out + [(begin, end)]


def is_result(cond):
    """The condition is what a function returned: it has found the error, unless it compares."""
    m = re.match(r"(?!mem|str|.*is_)\w+\(", cond)
    return bool(m) and closing(cond, m.end() - 1) == len(cond) - 1


def in_text(file, whole):
    """The refusals of a source file, in their order."""
    src = blanked(whole)
    functions = functions_in(src)
    refuses, out, seen = refusal(ERRORS + KERNEL * is_kernel(file)), [], {}
    for m in re.finditer(r"\bif \(", src):
        end = closing(src, m.end() - 1)
        if not refuses.match(src, end + 1):
            continue
        line = src.count("\n", 0, m.start()) + 1
        function = [name for name, first, last in functions if first <= line <= last][0]
        for a, b in alternatives(src, m.end(), end):
            cond = " ".join(whole[a:b].split())
            if PASSED_ON.match(cond) or is_result(cond) or IS_SWITCHED.search(cond) or \
                    function in OURS or any(e in function + " " + cond for e in ELSEWHERE):
                continue
            r = Refusal(file, whole.count("\n", 0, a) + 1, function, a, b, cond)
            key = (function, cond)
            seen[key] = seen.get(key, 0) + 1
            r.number = number(file, function, cond, seen[key])
            out.append(r)
    return out


def sources():
    return [f for layer in LAYERS for f in under(layer, ".c")
            if "libmpool/kmod_" not in f and f != "libmpool/backend_kmod.c"]


def kernel_sources():
    return [f for f in under("kmod/", ".c") if is_kernel(f) and f != "kmod/selftest.c"]


def refusals(files=None):
    """{number: Refusal}"""
    return {r.number: r for f in files or sources() for r in in_text(f, text(f))}


def switched(file, src):
    """The text with a switch at each refusal; lines stay where they are."""
    for r in reversed(in_text(file, src)):
        a = r.start + len(src[r.start:r.end]) - len(src[r.start:r.end].lstrip())
        b = r.start + len(src[r.start:r.end].rstrip())
        src = "%s((%s) && !mp_ablated(%d))%s" % (src[:a], src[a:b], r.number, src[b:])
    return src
