# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""What compare.py shows: tables for people, and plots as SVG."""

from html import escape

import targets

ORDER = ["hash", "kvdb", "rocksdb", "wiredtiger", "lmdb"]
COLOUR = {"hash": "#999999", "kvdb": "#1a6fb0", "rocksdb": "#d1862f", "wiredtiger": "#5c9a4c",
          "lmdb": "#a05195"}
LETTER = {"read": "R", "update": "U", "insert": "I", "scan": "S", "rmw": "M"}
MIB = 1 << 20


def short(n):
    if n is None:
        return "-"
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if n >= size:
            return "%.3g%s" % (n / size, unit)
    return "%.3g" % n


def us(ns):
    n = ns / 1e3
    return "%.2f" % n if n < 10 else "%.0f" % n if n < 10000 else "%.0fm" % (n / 1e3)


def engines_of(lines):
    there = {line["engine"] for line in lines}
    return [e for e in ORDER if e in there]


def rows_of(lines):
    """(workload, threads) in the order in which they ran."""
    return list(dict.fromkeys((line["workload"], line["threads"]) for line in lines
                              if line["workload"] != "recover"))


def ratio(cell, key):
    """kvdb against the best of the others, without the hash; how many times better."""
    mine = cell.get("kvdb")
    peers = [(line[key], e) for e, line in cell.items() if e not in ("hash", "kvdb")]
    if not mine or not peers:
        return "-"
    best, who = max(peers)
    return "%.2f x %s" % (mine[key] / best, who) if best else "-"


def table(out, title, head, rows):
    """Columns as wide as they must be; the first to the left."""
    rows = [head] + rows
    width = [max(len(r[i]) for r in rows) for i in range(len(head))]
    out.write("\n%s\n" % title)
    for r in rows:
        out.write("  ".join(c.ljust(w) if not i else c.rjust(w)
                            for i, (c, w) in enumerate(zip(r, width))).rstrip() + "\n")


def by_engine(out, title, lines, fn, last=None):
    engines = engines_of(lines)
    rows = []
    for workload, threads in rows_of(lines):
        cell = targets.cells_of(lines, workload, threads)
        row = ["%s, %d" % (workload, threads)]
        row += [fn(cell[e]) if e in cell and cell[e]["workload"] == workload else "-"
                for e in engines]
        if last:
            row.append(ratio(cell, last))
        rows.append(row)
    table(out, title, ["workload, threads"] + engines + (["kvdb against best"] if last else []),
          rows)


def latencies(line):
    return "; ".join("%s %s/%s/%s/%s/%s" % (
        LETTER[op], *(us(h[q]) for q in ("p50_ns", "p99_ns", "p999_ns", "p9999_ns", "max_ns")))
        for op, h in line["latency"].items())


def print_device(out, lines):
    w = [x["device_write_bytes_per_s"] for x in lines if x.get("device_write_bytes_per_s")]
    r = [x["device_reads_per_s"] for x in lines if x.get("device_reads_per_s")]
    if w:
        out.write("the device alone, by fio: sequential writes %s bytes/s\n" % (
            " ".join(short(x) for x in w)))
    if r:
        out.write("the device alone, by fio: random reads %s/s\n" % " ".join(short(x) for x in r))


def print_recovery(out, lines):
    lines = [line for line in lines if line["workload"] == "recover"]
    if lines:
        table(out, "killed at the end of a load", ["engine", "open, ms", "records lost", "of"],
              [[line["engine"], "%.0f" % (line["open_ns"] / 1e6), "%d" % line["lost"],
                "%d" % line["records"]] for line in lines])


PURPOSES = ("log", "key", "move", "meta")
READS = ("read_log", "read_key", "read_move", "read_value")


def print_classes(out, lines):
    """Of this engine alone: the others do not say what a byte was written for."""
    rows = []
    for x in lines:
        per = x["user_written_bytes"], x["user_read_bytes"]
        for c in x.get("classes", []):
            bytes_of = [c["%s_bytes" % p] for p in PURPOSES + READS]
            if any(bytes_of):
                rows.append(["%s, %d" % (x["workload"], x["threads"]), c["class"]] +
                            ["%.3f" % (n / per[i >= 4]) if per[i >= 4] else "-"
                             for i, n in enumerate(bytes_of)])
    if rows:
        table(out, "kvdb: bytes written per byte put, bytes read per byte got",
              ["workload, threads", "class"] + list(PURPOSES + READS), rows)


def print_targets(out, about, name, lines):
    rows = [[what, "%.2f" % figure, wanted]
            for what, figure, wanted in targets.rows(name, about["cores"], lines)]
    if rows:
        table(out, "kvdb against its targets", ["what", "measured", "wanted"], rows)


def print_set(out, about, name, lines):
    first = lines[0]
    out.write("\n# SPDX-License-Identifier: GPL-2.0-only OR MIT\n"
              "set %s: %d records of %d bytes, loss bound %d ms\n" % (
                  name, min(line["records"] for line in lines), first["value_size"],
                  first["interval_ms"]))
    out.write("%s, %d cores, %.1f GiB, Linux %s, %s, commit %s\n" % (
        about["cpu"], about["cores"], about["memory_gib"], about["kernel"], about["date"],
        about["commit"]))
    out.write("memory limit %d MiB (%s)%s\n" % (
        max(line["limit_bytes"] or 0 for line in lines) / MIB, about["memory_limit"],
        ", run by " + about["run_by"] if "run_by" in about else ""))
    for e in engines_of(lines):
        line = next(x for x in lines if x["engine"] == e)
        out.write("%s %s: %s; a crash loses: %s\n" % (
            e, line["version"], line["settings"] or "-", line["crash_loses"]))
    print_device(out, lines)
    disturbed = "; ! = other processes had more than 0.3 cores"
    by_engine(out, "operations/s, acknowledged" + disturbed, lines,
              lambda x: short(x["ops_per_s"]) + "!" * x["is_disturbed"], "ops_per_s")
    by_engine(out, "operations/s, with all deferred work done and durable", lines,
              lambda x: short(x["drained_ops_per_s"]), "drained_ops_per_s")
    by_engine(out, "processor time, us per operation, drained", lines,
              lambda x: "%.2f" % x["drained_cpu_us_per_op"])
    by_engine(out, "operations per second of processor time, drained", lines,
              lambda x: short(x["drained_ops_per_cpu_s"]))
    by_engine(out, "bytes written per byte put, drained", lines,
              lambda x: "%.2f" % x["write_amplification"] if x["user_written_bytes"] else "-")
    print_classes(out, lines)
    by_engine(out, "space per living byte", lines, lambda x: "%.2f" % x["space_amplification"])
    by_engine(out, "resident at most, MiB (with page cache, where a cgroup says)", lines,
              lambda x: "%d (%s)" % (x["peak_rss_bytes"] / MIB, "%d" % (
                  x["cgroup_peak_bytes"] / MIB) if x["cgroup_peak_bytes"] else "-"))
    by_engine(out, "cores that other processes had", lines, lambda x: "%.2f" % x["other_cores"])
    out.write("\nlatency in us: p50/p99/p99.9/p99.99/max "
              "(Read, Update, Insert, Scan, read-Modify-write)\n")
    for workload, threads in rows_of(lines):
        for e in engines_of(lines):
            for x in lines:
                if (x["workload"], x["threads"], x["engine"]) == (workload, threads, e):
                    out.write("%-8s %4d %-10s %s\n" % (workload, threads, e, latencies(x)))
    print_recovery(out, lines)
    print_targets(out, about, name, lines)
    out.write("\nvalues read and checked: %d\n" % sum(x["values_verified"] for x in lines))


# ---- plots -----------------------------------------------------------------------------

def text(x, y, s, anchor="start", size=11):
    return '<text x="%.0f" y="%.0f" text-anchor="%s" font-size="%d">%s</text>' % (
        x, y, anchor, size, escape(s))


def bars(lines, title, value, unit, top):
    """A group of bars per workload, each group scaled to its own largest: they differ widely."""
    engines, out = engines_of(lines), [text(10, top + 16, title, size=13)]
    for i, (workload, threads) in enumerate(rows_of(lines)):
        cell = {x["engine"]: value(x) for x in lines
                if (x["workload"], x["threads"]) == (workload, threads)}
        most = max(cell.values()) or 1
        left = 40 + i * 110
        for k, e in enumerate(engines):
            if e not in cell:
                continue
            h = 120 * cell[e] / most
            x = left + k * 18
            out.append('<rect x="%d" y="%.1f" width="15" height="%.1f" fill="%s"><title>%s %s %s'
                       '</title></rect>' % (x, top + 160 - h, h, COLOUR[e], e, short(cell[e]),
                                            unit))
            out.append('<text transform="translate(%d %.1f) rotate(-60)" font-size="8">%s</text>' %
                       (x + 9, top + 157 - h, short(cell[e])))
        out.append(text(left + 40, top + 175, "%s (%d)" % (workload, threads), "middle"))
    return out


def worst_p999_us(line):
    return max((h["p999_ns"] for h in line["latency"].values()), default=0) / 1e3


def plot_set(path, about, name, lines):
    body = []
    panels = (("operations/s, drained", lambda x: x["drained_ops_per_s"], "/s"),
              ("p99.9 of the slowest kind of operation, us", worst_p999_us, "us"),
              ("processor time per operation, us", lambda x: x["drained_cpu_us_per_op"], "us"),
              ("write amplification", lambda x: x["write_amplification"], ""))
    for i, (title, value, unit) in enumerate(panels):
        body += bars(lines, title, value, unit, 40 + i * 195)
    for i, e in enumerate(engines_of(lines)):
        body.append('<rect x="%d" y="14" width="12" height="12" fill="%s"/>' % (
            10 + i * 100, COLOUR[e]))
        body.append(text(26 + i * 100, 24, e))
    width = max(560, 60 + 110 * len(rows_of(lines)))
    body.append(text(10, 40 + 195 * len(panels), "%s; %s, %d cores, %s, commit %s" % (
        name, about["cpu"], about["cores"], about["date"], about["commit"])))
    with open(path, "w") as f:
        f.write('<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" '
                'font-family="sans-serif">\n<!-- SPDX-License-Identifier: GPL-2.0-only OR MIT -->\n'
                '<rect width="100%%" height="100%%" fill="white"/>\n%s\n</svg>\n' % (
                    width, 60 + 195 * len(panels), "\n".join(body)))
