#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""Run a command on a terminal of its own and type one line.

on_tty.py LINE COMMAND...   prints what the terminal showed, exits as the command
"""

import os
import pty
import select
import sys


def main():
    pid, fd = pty.fork()
    if pid == 0:
        os.execvp(sys.argv[2], sys.argv[2:])
    os.write(fd, sys.argv[1].encode() + b"\n")
    seen = b""
    while select.select([fd], [], [], 30)[0]:
        try:
            data = os.read(fd, 4096)
        except OSError:
            break
        if not data:
            break
        seen += data
    os.write(1, seen.replace(b"\r\n", b"\n"))
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))


main()
