#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""tests/limit.py SECONDS COMMAND...

Runs COMMAND in a session of its own and ends it, with exit status 124 like
timeout(1), when it is in trouble: when its processes have used both processors
of a small machine for SECONDS, when they have done next to nothing for SECONDS,
or, whatever they do, after ten times as long by the clock. So it makes no
difference how much of the machine other programs use."""

import os
import signal
import sys

IDLE = 0.01     # of one processor
TICK = os.sysconf("SC_CLK_TCK")
AWAITED = {signal.SIGCHLD, signal.SIGINT, signal.SIGTERM}


def used(session):
    """Seconds of processor of the session's processes, and of those they have waited for."""
    total = 0
    for pid in os.listdir("/proc"):
        if pid.isdigit():
            try:
                with open("/proc/%s/stat" % pid) as f:
                    stat = f.read().rpartition(")")[2].split()
            except OSError:
                continue
            if int(stat[3]) == session:
                total += sum(map(int, stat[11:15]))
    return total / TICK


def now():
    # seconds that the machine was up: a suspended one runs no test
    return os.times().elapsed


def watch(pid, seconds):
    """The wait status of the process when it has ended; None: it is in trouble, or we are told
    to end."""
    begin = mark = now()
    had = most = 0.0
    while True:
        told = signal.sigtimedwait(AWAITED, min(5, seconds / 4))
        if told and told.si_signo != signal.SIGCHLD:
            return None
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return status
        t = now()
        most = max(most, used(pid))
        if most > 2 * seconds or t - begin > 10 * seconds:
            return None
        if most - had > IDLE * seconds:
            had, mark = most, t
        elif t - mark > seconds:
            return None


def end(pid):
    """All of its session that is in its group, in ten seconds at most."""
    os.killpg(pid, signal.SIGTERM)
    signal.sigtimedwait({signal.SIGCHLD}, 10)
    os.killpg(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


def main():
    seconds = float(sys.argv[1])
    signal.pthread_sigmask(signal.SIG_BLOCK, AWAITED)
    pid = os.fork()
    if pid == 0:
        os.setsid()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, AWAITED)
        # what this run ignores, below nohup, tests send
        for s in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
            signal.signal(s, signal.SIG_DFL)
        try:
            os.execvp(sys.argv[2], sys.argv[2:])
        except OSError as e:
            print("limit.py: %s: %s" % (sys.argv[2], e.strerror), file=sys.stderr)
            os._exit(127)
    status = watch(pid, seconds)
    if status is None:
        end(pid)
        sys.exit(124)
    code = os.waitstatus_to_exitcode(status)
    sys.exit(code if code >= 0 else 128 - code)


main()
