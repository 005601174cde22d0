# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""What the models in Python share: a run with all rules, and one without each of them."""

from collections import deque


def way(seen, state, last):
    """How the exploration came to a state, and what then happened."""
    path = [last]
    while seen[state]:
        state, step = seen[state]
        path.append(step)
    return " | ".join(reversed(path))


def search(first, actions, recover, step):
    """Breadth first from a state: (states, what is wrong). actions(s) yields (name, next);
    recover(s), of a state that is not up, gives (next or None, what is wrong): named @step."""
    seen = {first: None}
    todo = deque([first])
    while todo:
        s = todo.popleft()
        nexts = list(actions(s))
        bad = None
        if not s.up:
            n, bad = recover(s)
            if n:
                nexts.append((step, n))
        if bad:
            return len(seen), "%s: %s" % (bad, way(seen, s, step))
        for name, n in nexts:
            if n not in seen:
                seen[n] = (s, name)
                todo.append(n)
    return len(seen), None


def main(argv, switches, explore):
    """switches: name -> what it breaks; explore(set of names) -> (states, what is wrong)."""
    if argv:
        unknown = [a for a in argv if a not in switches]
        if unknown:
            print("unknown: " + " ".join(unknown))
            return 2
        n, bad = explore(set(argv))
        print("%d states: %s" % (n, bad or "holds"))
        return 1 if bad else 0
    print("1..%d" % (1 + len(switches)))
    n, bad = explore(set())
    print("%sok 1 - the rules hold in %d states%s" % ("not " if bad else "", n,
                                                      ": " + bad if bad else ""))
    failed = bool(bad)
    for i, name in enumerate(switches):
        n, bad = explore({name})
        print("%sok %d - %s: is found (%d states)" % ("" if bad else "not ", i + 2,
                                                      switches[name], n))
        failed |= not bad
    return 1 if failed else 0
