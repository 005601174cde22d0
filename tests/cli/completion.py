#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""Ask the bash completion of a tool what it offers, and compare with its table.

completion.py TOOL SCRIPT   exits 1 and says what differs
"""

import json
import subprocess
import sys


def offered(script, tool, words):
    """What bash would offer for the last of words."""
    code = ('. "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _%s; '
            'printf "%%s\\n" "${COMPREPLY[@]}"' % tool)
    r = subprocess.run(["bash", "-c", code, "bash", script] + words, capture_output=True,
                       text=True, check=True)
    return set(r.stdout.split())


def spelled(options):
    for o in options:
        yield "--" + o["name"]
        if o["short"]:
            yield "-" + o["short"]


def main():
    tool, script = sys.argv[1:]
    table = json.loads(subprocess.run([tool, "help", "-j"], capture_output=True, check=True).stdout)
    wrong = []

    def expect(words, want):
        got = offered(script, tool, [tool] + words)
        if got != want:
            wrong.append("%s: %s" % (" ".join(words), sorted(got ^ want)))

    everywhere = set(spelled(table["global_options"]))
    names = [v["name"].split() for v in table["verbs"]]
    expect([""], {n[0] for n in names})
    for first in {n[0] for n in names if len(n) > 1}:
        expect([first, ""], {n[1] for n in names if n[0] == first})
    for verb in table["verbs"]:
        words = verb["name"].split()
        expect(words + ["-"], everywhere | set(spelled(verb["options"])))
        keys = {o["key"] + "=" for o in verb["options"] if o["key"]}
        got = offered(script, tool, [tool] + words + [""])
        if not keys <= got:
            wrong.append("%s: keys %s" % (verb["name"], sorted(keys - got)))
    for w in wrong:
        print(w)
    sys.exit(1 if wrong else 0)


main()
