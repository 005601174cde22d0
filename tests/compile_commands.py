#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""From what `make -n` prints, how each file is compiled: a compilation database on stdout."""

import json
import os
import re
import sys

lines = sys.stdin.read().replace("\\\n", " ").split("\n")
found = [(m.group(1), re.sub(r"\s+", " ", line).strip()) for line in lines
         if (m := re.search(r" -c -o \S+ (\S+\.c)$", line))]
json.dump([{"directory": os.getcwd(), "file": f, "command": c} for f, c in found],
          sys.stdout, indent=0)
