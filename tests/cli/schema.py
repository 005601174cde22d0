#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""Check JSON from standard input against a schema of utils/schema, without other modules.

schema.py FILE NAME [--lines]   against definition NAME of FILE.json; with --lines
                                the first line is, every further one is checked
                                against NAME_line

Knows the part of JSON Schema that the schemas use: type, properties, required,
additionalProperties, items, enum, const, pattern, minimum, maximum, minItems,
oneOf, and $ref to a definition of the same or another file. Any other keyword is
an error, so that a schema cannot say something that is not checked. Stricter than
JSON Schema: unless a schema says otherwise an object has all properties that the
schema names, and no other.
"""

import functools
import json
import os
import re
import sys

KNOWN = {"type", "properties", "required", "additionalProperties", "items", "enum", "const",
         "pattern", "minimum", "maximum", "minItems", "$ref", "oneOf", "title", "description"}
SCHEMAS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../utils/schema")

TYPES = {
    "object": lambda v: isinstance(v, dict),
    "array": lambda v: isinstance(v, list),
    "string": lambda v: isinstance(v, str),
    "integer": lambda v: isinstance(v, int) and not isinstance(v, bool),
    "number": lambda v: isinstance(v, (int, float)) and not isinstance(v, bool),
    "boolean": lambda v: isinstance(v, bool),
    "null": lambda v: v is None,
}


@functools.lru_cache(None)
def definitions(file):
    with open(os.path.join(SCHEMAS, file)) as f:
        return json.load(f)["$defs"]


def is_same(a, b):
    """As JSON has it: true is not 1."""
    return json.dumps(a, sort_keys=True) == json.dumps(b, sort_keys=True)


def check_object(v, s, file, at):
    props = s.get("properties", {})
    # no "required" means that all are
    for name in s.get("required", props):
        if name not in v:
            yield "%s: %s is missing" % (at, name)
    for name, item in v.items():
        extra = s.get("additionalProperties", False)
        if name in props:
            yield from check(item, props[name], file, at + "." + name)
        elif isinstance(extra, dict):
            yield from check(item, extra, file, at + "." + name)
        elif not extra:
            yield "%s: %s is not in the schema" % (at, name)


def check_scalar(v, s, at):
    if "enum" in s and v not in s["enum"]:
        yield "%s: %r is none of %r" % (at, v, s["enum"])
    if "const" in s and not is_same(v, s["const"]):
        yield "%s: %r is not %r" % (at, v, s["const"])
    if isinstance(v, str) and "pattern" in s and not re.search(s["pattern"], v):
        yield "%s: %r does not match %s" % (at, v, s["pattern"])
    if TYPES["number"](v):
        if "minimum" in s and v < s["minimum"]:
            yield "%s: %r is less than %r" % (at, v, s["minimum"])
        if "maximum" in s and v > s["maximum"]:
            yield "%s: %r is more than %r" % (at, v, s["maximum"])


def check(v, s, file, at="$"):
    """Yields what is wrong with v."""
    for word in sorted(set(s) - KNOWN):
        yield "%s: schema keyword %s is not known" % (at, word)
    if "$ref" in s:
        other, _, name = s["$ref"].partition("#/$defs/")
        file = other or file
        s = definitions(file)[name]
    if "oneOf" in s:
        results = [list(check(v, one, file, at)) for one in s["oneOf"]]
        good = sum(not r for r in results)
        if good != 1:
            yield "%s: obeys %d of the alternatives" % (at, good)
            if not good:
                yield from min(results, key=len)
    if "type" in s:
        types = s["type"] if isinstance(s["type"], list) else [s["type"]]
        if not any(TYPES[t](v) for t in types):
            yield "%s: %r is not %s" % (at, v, " or ".join(types))
            return
    yield from check_scalar(v, s, at)
    if isinstance(v, dict) and ("properties" in s or "additionalProperties" in s):
        yield from check_object(v, s, file, at)
    if isinstance(v, list):
        if len(v) < s.get("minItems", 0):
            yield "%s: %d items, wanted %d" % (at, len(v), s["minItems"])
        for i, item in enumerate(v):
            yield from check(item, s.get("items", {}), file, "%s[%d]" % (at, i))


def parse(text, where):
    """Strict JSON: no NaN, no repeated member."""
    def pairs(items):
        names = [n for n, _ in items]
        if len(names) != len(set(names)):
            raise ValueError("a member is repeated")
        return dict(items)

    def constant(name):
        raise ValueError("%s is not JSON" % name)

    try:
        return json.loads(text, object_pairs_hook=pairs, parse_constant=constant)
    except ValueError as e:
        sys.exit("%s: %s" % (where, e))


def main():
    file, name = sys.argv[1] + ".json", sys.argv[2]
    data = sys.stdin.buffer.read().decode("utf-8")
    wrong = []
    if "--lines" in sys.argv[3:]:
        for n, text in enumerate(data.splitlines(), 1):
            ref = {"$ref": "#/$defs/" + name + ("_line" if n > 1 else "")}
            wrong += check(parse(text, "line %d" % n), ref, file, "line %d" % n)
        if not data:
            wrong.append("there is no line")
    else:
        wrong += check(parse(data, "document"), {"$ref": "#/$defs/" + name}, file)
    for w in wrong[:20]:
        print(w)
    sys.exit(1 if wrong else 0)


main()
