#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""What strangers may try, as far as reading the sources and the products shows
it. What must be tried is in tests/kmod (test_ioctl, test_objfd, fuzz_ioctl,
test_lifecycle, test_udev) and tests/fuzz; tests/PROMISES.md lists all of it."""

import glob
import os
import re

from lib import O, Skip, code, functions, line_of, main, run, text, under


def products():
    """Built with the flags of a release: not the variants."""
    made = [f for f in glob.glob(O + "/bin/*") + glob.glob(O + "/lib/*.so.*.*")
            if not os.path.islink(f)]
    if not made or os.path.basename(O) in ("address", "thread", "debug", "ablate", "fuzz"):
        raise Skip("no product is built")
    return made


def products_are_position_independent_and_bound_at_start():
    for f in products():
        out = run("readelf", "-W", "-h", "-d", "-l", f).stdout
        if not re.search(r"Type:\s+DYN", out):
            yield "%s: has a fixed address" % f
        if "GNU_RELRO" not in out or not re.search(r"BIND_NOW|Flags:.*\bNOW\b", out):
            yield "%s: its tables stay writable (-z relro -z now)" % f
        if "/bin/" in f and not re.search(r"Flags:.*\bPIE\b", out):
            yield "%s: no PIE" % f
        if not re.search(r"GNU_STACK\s.*\bRW\s", out):
            yield "%s: a stack that runs" % f
        # libkvdb finds libmpool beside it, and nothing looks anywhere else
        paths = re.findall(r"\((?:RPATH|RUNPATH)\).*\[(.*)\]", out)
        if paths != (["$ORIGIN"] if "/libkvdb.so" in f else []) or "TEXTREL" in out:
            yield "%s: RPATH, RUNPATH or TEXTREL" % f


def products_check_their_stack_and_buffers():
    for f in products():
        names = run("nm", "-D", "--undefined-only", f).stdout
        if "__stack_chk_fail" not in names:
            yield "%s: no stack protector" % f
        if not re.search(r"__\w+_chk\b", names.replace("__stack_chk_fail", "")):
            yield "%s: no fortified call" % f


def fortification_is_the_best_there_is():
    flags = os.path.join(O, "flags")
    if not os.path.exists(flags):
        raise Skip("nothing is built")
    if "-D_FORTIFY_SOURCE=" not in text(flags):
        raise Skip("a variant")
    test = "#if __has_builtin(__builtin_dynamic_object_size)\nyes\n#endif\n"
    can = "yes" in run("sh", "-c", "printf '%s' '" + test + "' | ${CC:-cc} -E -P -").stdout
    if "-D_FORTIFY_SOURCE=%d" % (3 if can else 2) not in text(flags):
        yield "-D_FORTIFY_SOURCE is not %d" % (3 if can else 2)


def assertions_stay_in_products():
    """A broken invariant of the core ends the process before it writes."""
    for f in products():
        if "/libmpool.so" in f and \
           "__assert_fail" not in run("nm", "-D", "--undefined-only", f).stdout:
            yield "%s: built with NDEBUG" % f


def nothing_is_written_through_a_map():
    """Such a store has no error, no order, and no recorder sees it."""
    for f in under("libmpool/", ".c", ".h") + under("libkvdb/", ".c", ".h"):
        for m in re.finditer(r"\bMAP_SHARED\b", code(f)):
            yield "%s:%d: MAP_SHARED" % (f, line_of(f, m.start()))


def calls(f, name):
    """(line, text of the arguments) of each call; literals kept."""
    src = code(f)
    for m in re.finditer(r"(?<![\w>.])%s\s*\(" % name, src):
        depth, i = 1, m.end()
        while depth:
            depth += {"(": 1, ")": -1}.get(src[i], 0)
            i += 1
        yield line_of(f, m.start()), text(f)[m.end():i - 1]


def user_sources():
    return under("utils/", ".c") + under("libmpool/", ".c") + under("libkvdb/", ".c")


def descriptors_close_on_exec():
    for f in user_sources():
        for name in ("open", "openat"):
            for line, args in calls(f, name):
                # the three standard ones are there to be inherited
                if "O_CLOEXEC" not in args and "/dev/null" not in args and \
                   not re.search(r"\bof = O_CLOEXEC", text(f)):
                    yield "%s:%d: no O_CLOEXEC" % (f, line)
        for line, args in calls(f, "fopen"):
            if not re.search(r'"[rwa]\+?b?e"$', args.strip()):
                yield "%s:%d: fopen without e" % (f, line)


# what makes a descriptor; their twins (openat2, pipe ...) too, so that they are found when used
MAKERS = r"(?<![\w>.\"])(open(at2?|64)?|creat|socket(pair)?|accept4?|dup[23]?|eventfd|" \
         r"epoll_create1?|timerfd_create|signalfd|inotify_init1?|memfd_create|mko?stemps?|" \
         r"pipe2?|pidfd_open|shm_open|mq_open|fopen(64)?|tmpfile|opendir|popen|scandir|nftw|" \
         r"io_uring_queue_init\w*|io_uring_setup)\s*\("


def no_descriptor_of_the_libraries_is_a_standard_one():
    """A program may have closed its stderr. What makes a descriptor stands inside the call that
    moves it up; liburing's, and the module's, are moved by the function they are made in."""
    for f in under("libmpool/", ".c", ".h") + under("libkvdb/", ".c", ".h"):
        if f == "libmpool/fd.c":
            continue
        src = code(f)
        for m in re.finditer(MAKERS, src):
            if not src[:m.start()].endswith("mpool_fd_up(") and "uring" not in m.group(1):
                yield "%s:%d: %s() without mpool_fd_up()" % (f, line_of(f, m.start()), m.group(1))
        lines = src.split("\n")
        for name, first, last in functions(f):
            body = "\n".join(lines[first:last])
            if re.search(r"\bio_uring_queue_init|\bMPOOL_IOC_OPEN\s*,|\bF_DUPFD", body) and \
               not re.search(r"\b(mpool|ring)_fd_up\(", body):
                yield "%s:%d: %s() makes a descriptor, without mpool_fd_up()" % (f, first, name)


def commands_fill_the_standard_descriptors_first():
    """Then nothing that they open can become one of them."""
    body = code("utils/common/ui.c")
    main = body[body.index("int ui_main("):]
    main = main[main.index("{") + 1:]
    # declarations apart, and those call nothing
    first = re.search(r"^\t(?:\w[\w \t*]*[ *])?(\w+)\s*\(", main, re.M)
    if not first or first.group(1) != "fds_fill":
        yield "utils/common/ui.c: ui_main() does not begin with fds_fill()"
    for f in under("utils/", "/main.c"):
        if not re.search(r"int main\([^)]*\)\s*\{\s*return ui_main\(", code(f)):
            yield "%s: main() does more than ui_main()" % f


def files_are_made_where_they_are_named_and_for_their_owner():
    for f in user_sources():
        for name in ("open", "openat"):
            for line, args in calls(f, name):
                if "O_CREAT" in args and "O_NOFOLLOW" not in args:
                    yield "%s:%d: O_CREAT would follow a link" % (f, line)
        for line, args in calls(f, "mkdir"):
            mode = args.split(",")[-1].strip()
            if mode not in ("0700", "0755"):
                yield "%s:%d: mode %s" % (f, line, mode)
    if "umask(077)" not in code("utils/common/ui.c"):
        yield "utils/common/ui.c: no umask(077)"
    for f in under("utils/", ".c"):
        for line, args in calls(f, "umask"):
            if args.strip() != "077":
                yield "%s:%d: umask(%s)" % (f, line, args)


def calls_that_a_signal_may_end_are_made_again():
    """What makes a file durable, or longer, says EINTR on some file systems (FUSE), and nothing
    has failed. (posix_fallocate() returns its error, which TEMP_FAILURE_RETRY does not see.)"""
    for f in user_sources():
        src = code(f)
        for m in re.finditer(r"(?<![\w>.\"])(fsync|fdatasync|syncfs|sync_file_range|ftruncate|"
                             r"fallocate|blkid_do_wipe)\s*\(", src):
            if not src[:m.start()].endswith("TEMP_FAILURE_RETRY("):
                yield "%s:%d: %s() without TEMP_FAILURE_RETRY()" % (
                    f, line_of(f, m.start()), m.group(1))
        for name, first, last in functions(f):
            body = "\n".join(src.split("\n")[first:last])
            if re.search(r"\bposix_fallocate\s*\(", body) and "EINTR" not in body:
                yield "%s:%d: %s() ends posix_fallocate() at EINTR" % (f, first, name)


def the_environment_is_read_as_a_set_user_id_program_must():
    """The caller of such a program must not choose what its pool is made of."""
    for f in user_sources() + under("utils/", ".h") + under("libmpool/", ".h") + \
            under("libkvdb/", ".h"):
        for m in re.finditer(r"(?<!\w)(getenv|environ)\b", code(f)):
            yield "%s:%d: %s, not secure_getenv()" % (f, line_of(f, m.start()), m.group(1))


def nothing_runs_as_another_user():
    if re.search(r"install[^\n]*-m\s*[0-7]*[2467][0-7]{3}\b", text("utils/install.mk")):
        yield "utils/install.mk: installs something setuid or setgid"
    for f in user_sources():
        m = re.search(r"\b(set(e|re|res)?[ug]id|system|popen)\s*\(", code(f))
        if m:
            yield "%s:%d: %s" % (f, line_of(f, m.start()), m.group(1))


# what udev has encoded or what cannot hold a character that means something
SAFE = {"ID_FS_LABEL_ENC", "ID_FS_UUID", "ID_SERIAL", "ID_PART_ENTRY_UUID", ".MPOOL_MEMBER"}


def udev_rules_quote_every_value():
    for f in under("udev/", ".rules"):
        for n, line in enumerate(text(f).split("\n"), 1):
            if not line.strip() or line.startswith("#"):
                continue
            rest = re.sub(r'[A-Z_]+(\{[\w.]+\})?\s*(==|!=|\+=|:=|=)\s*"[^"]*"', "", line)
            if re.sub(r"[,\s]", "", rest):
                yield "%s:%d: not quoted: %s" % (f, n, rest.strip())
            for name in re.findall(r"\$env\{([\w.]+)\}", line):
                if name not in SAFE:
                    yield "%s:%d: $env{%s} may hold anything" % (f, n, name)
            if re.search(r'(RUN|PROGRAM|IMPORT)\{program\}[^"]*"[^"]*\$env', line):
                yield "%s:%d: a command with text of a stranger" % (f, n)


def the_module_says_little():
    """Ratelimited where a user can cause it, no addresses, sysfs by sysfs_emit."""
    for f in under("kmod/", ".c"):
        if f.startswith("kmod/core/"):
            continue
        for m in re.finditer(r"\b(pr_\w+|printk)\s*\(", code(f)):
            # main.c: loading, which is root's; sysfs.c: once in the life of a pool
            if m.group(1) != "pr_fmt" and "ratelimited" not in m.group(1) and \
               f not in ("kmod/main.c", "kmod/sysfs.c"):
                yield "%s:%d: %s" % (f, line_of(f, m.start()), m.group(1))
        for m in re.finditer(r"%p(?![gUV])", text(f)):
            yield "%s:%d: prints an address" % (f, line_of(f, m.start()))
    lines = code("kmod/sysfs.c").split("\n")
    for name, first, last in functions("kmod/sysfs.c"):
        body = "\n".join(lines[first:last])
        if name.endswith("_show") and re.search(r"\bs(n|cn)?printf\s*\(", body):
            yield "kmod/sysfs.c:%d: %s: not sysfs_emit" % (first, name)


def every_table_of_operations_has_its_module():
    for f in under("kmod/", ".c"):
        for m in re.finditer(r"struct file_operations \w+ = \{(.*?)\n\};", code(f), re.S):
            body = m.group(1)
            if not re.search(r"\.owner\s*=\s*THIS_MODULE", body):
                yield "%s:%d: no owner" % (f, line_of(f, m.start()))
            if ".unlocked_ioctl" in body and ".compat_ioctl" not in body:
                yield "%s:%d: no compat_ioctl" % (f, line_of(f, m.start()))


def a_superblock_is_whole_when_it_is_seen():
    """sync() and others of the kernel find it by themselves, after ->get_tree."""
    for f in under("kmod/", ".c"):
        lines = code(f).split("\n")
        for name, first, last in functions(f):
            body = "\n".join(lines[first:last])
            if "_set_readahead(" in body and not name.endswith(("_get_tree", "_set_readahead")):
                yield "%s:%d: %s" % (f, first, name)


def memory_of_callers_is_read_once():
    """A second read of a structure may find another one than was checked."""
    for f in under("kmod/", ".c"):
        lines = code(f).split("\n")
        for name, first, last in functions(f):
            body = "\n".join(lines[first:last])
            if len(re.findall(r"\b(?:copy_from_user|get_user|strndup_user)\s*\(", body)) > 1:
                yield "%s:%d: %s reads a caller's memory twice" % (f, first, name)


def callers_pay_for_their_memory():
    """In the files that take commands, whose counts are the callers'; and in the core, where
    only what an activation loads is no caller's. Under p_lock nothing waits for their limits."""
    for f in ("kmod/cmd.c", "kmod/ctl.c", "kmod/pool_dev.c", "kmod/pool_mlog.c",
              "kmod/object_io.c"):
        for m in re.finditer(r"\bGFP_(?!KERNEL_ACCOUNT\b)\w+", code(f)):
            yield "%s:%d: %s" % (f, line_of(f, m.start()), m.group(0))
    for m in re.finditer(r"\bkmem_cache_create\w*\s*\((?:[^;](?!SLAB_ACCOUNT))*;",
                         "".join(code(f) for f in under("kmod/", ".c"))):
        yield "kmod: %s" % m.group(0).split(",")[0]
    for f in ("kmod/core/batch.c", "kmod/core/mblock.c", "kmod/core/mlog.c"):
        for m in re.finditer(r"\bos_z?alloc(_io)?\s*\(", code(f)):
            yield "%s:%d: %s is the pool's" % (f, line_of(f, m.start()), m.group(0))
    for f in ("kmod/core/otab.c", "kmod/core/smap.c", "kmod/core/mclass.c"):
        for m in re.finditer(r"\bos_call_(?!zalloc_now)\w+", code(f)):
            yield "%s:%d: %s waits under p_lock" % (f, line_of(f, m.start()), m.group(0))


def what_all_wait_for_is_no_callers_io():
    """A bio that is made in dev_bio.c is shared; elsewhere only data is sent to devices."""
    own = {"dev_zero", "dev_discard"}
    data = {("kmod/object_io.c", "part_add"), ("kmod/object_io.c", "read_piece")}
    for f in under("kmod/", ".c"):
        lines = code(f).split("\n")
        for name, first, last in functions(f):
            body = "\n".join(lines[first:last])
            is_shared = f == "kmod/dev_bio.c" and "bio_share(" in body
            if re.search(r"\bbio_(alloc|init)\s*\(", body) and not is_shared and \
               (f, name) not in data:
                yield "%s:%d: %s: whose bio?" % (f, first, name)
            m = re.search(r"\bblkdev_issue_\w+", body)
            if m and name not in own:
                yield "%s:%d: %s: %s is the caller's" % (f, first, name, m.group(0))


def the_path_of_writes_waits_for_no_write():
    """Memory that is freed by writing through us must not be waited for while we write."""
    for f in ("kmod/dev_bio.c", "kmod/os_kern.h"):
        lines = code(f).split("\n")
        for name, first, last in functions(f):
            m = re.search(r"\bGFP_(?!NOIO\b|NOFS\b|NOWAIT\b)\w+", "\n".join(lines[first:last]))
            if m and name != "dev_new":
                yield "%s:%d: %s: %s" % (f, first, name, m.group(0))


main([products_are_position_independent_and_bound_at_start,
      products_check_their_stack_and_buffers, fortification_is_the_best_there_is,
      assertions_stay_in_products, nothing_is_written_through_a_map, descriptors_close_on_exec,
      no_descriptor_of_the_libraries_is_a_standard_one,
      commands_fill_the_standard_descriptors_first,
      files_are_made_where_they_are_named_and_for_their_owner,
      calls_that_a_signal_may_end_are_made_again,
      the_environment_is_read_as_a_set_user_id_program_must, nothing_runs_as_another_user,
      udev_rules_quote_every_value, the_module_says_little,
      every_table_of_operations_has_its_module, a_superblock_is_whole_when_it_is_seen,
      memory_of_callers_is_read_once,
      callers_pay_for_their_memory, what_all_wait_for_is_no_callers_io,
      the_path_of_writes_waits_for_no_write])
