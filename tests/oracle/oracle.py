# SPDX-License-Identifier: Apache-2.0
"""Computes with the tracemalloc of the Python that runs this script. Reads jobs as a JSON list from
stdin and writes their results as a JSON list to stdout.

A job is {"op": …} with these fields; its result follows the arrow:
    statistics    file, group_by, cumulative, filters
                  -> [[frames, size, count], …] in order, frames most recent first
    compare       new, old, group_by, cumulative, filters
                  -> [[frames, size, size_diff, count, count_diff], …]
    traces        file
                  -> [traceback_limit, [[domain, size, frames, total_nframe], …]]
    same          a, b
                  -> whether two files hold equal traces in the same order
    random        file, seed, protocol
                  -> null; writes a random snapshot
    format        sizes
                  -> [_format_size(size, sign), …]
filters: [{"inclusive", "pattern", "lineno", "all_frames"} or {"inclusive", "domain"}, …]; null
means no filter.
"""
import json
import pickle
import random
import sys
import tracemalloc

CACHE = {}


def load(path):
    """Loads a snapshot of any version: each trace gets the number of fields of this version."""
    if path not in CACHE:
        snapshot = tracemalloc.Snapshot.load(path)
        fields = 4 if sys.version_info >= (3, 9) else 3
        snapshot.traces._traces = [(t + (None,))[:fields] for t in snapshot.traces._traces]
        CACHE[path] = snapshot
    return CACHE[path]


def filtered(path, filters):
    if filters is None:
        return load(path)
    made = []
    for f in filters:
        if "domain" in f:
            made.append(tracemalloc.DomainFilter(f["inclusive"], f["domain"]))
        else:
            made.append(
                tracemalloc.Filter(
                    f["inclusive"], f["pattern"], f.get("lineno"), f.get("all_frames", False)
                )
            )
    key = path, json.dumps(filters)
    if key not in CACHE:
        CACHE[key] = load(path).filter_traces(made)
    return CACHE[key]


def frames(traceback):
    return [[f.filename, f.lineno] for f in reversed(list(traceback))]


def statistics(job):
    return [
        [frames(s.traceback), s.size, s.count]
        for s in filtered(job["file"], job["filters"]).statistics(
            job["group_by"], job["cumulative"]
        )
    ]


def compare(job):
    new, old = (filtered(job[k], job["filters"]) for k in ("new", "old"))
    return [
        [frames(s.traceback), s.size, s.size_diff, s.count, s.count_diff]
        for s in new.compare_to(old, job["group_by"], job["cumulative"])
    ]


def traces(job):
    snapshot = load(job["file"])
    return [
        snapshot.traceback_limit,
        [[t[0], t[1], t[2], t[3] if len(t) > 3 else None] for t in snapshot.traces._traces],
    ]


def same(job):
    a, b = (tracemalloc.Snapshot.load(job[k]) for k in "ab")
    return a.traces == b.traces and a.traceback_limit == b.traceback_limit


def make_random(job):
    """Uses few names and lines, so that groups are large and ties are frequent. Some names are
    prefixes of others, or have characters whose order depends on the encoding."""
    rng = random.Random(job["seed"])
    names = [
        "a",
        "ab",
        "a.py",
        "b.py",
        "b.pyc",
        "\xe9.py",
        "\ue000",
        "\U0001f40d",
        "\udcff",
        "d/a.py",
        "A.py",
        "",
        "[x]",
        "a-b",
        "a!",
    ]
    lines, sizes = rng.choice(((0, 1, 2), (1, 300, 70000, 4294967295))), rng.choice(
        ((0, 8), (1, 256, 65536, 1 << 31, 1 << 40))
    )
    limit = rng.choice((1, 2, 5))
    pool = [
        tuple((rng.choice(names), rng.choice(lines)) for _ in range(rng.randint(1, limit)))
        for _ in range(rng.choice((1, 5, 60)))
    ]
    made = [
        (
            rng.choice((0, 0, 0, 7, 1 << 20)),
            rng.choice(sizes),
            rng.choice(pool),
            rng.choice((limit, limit, 9)),
        )
        for _ in range(rng.choice((0, 1, 2, 50, 2500)))
    ]
    if made and rng.random() < 0.2:
        made += rng.choices(made, k=10)  # the same objects again, out of order
    if rng.random() < 0.1:
        made = tuple(made)
    with open(job["file"], "wb") as file:
        pickle.dump(tracemalloc.Snapshot(made, limit), file, job["protocol"])


def formatted(job):
    return [tracemalloc._format_size(size, sign) for size in job["sizes"] for sign in (False, True)]


OPS = {
    "statistics": statistics,
    "compare": compare,
    "traces": traces,
    "same": same,
    "random": make_random,
    "format": formatted,
}
json.dump([OPS[job["op"]](job) for job in json.load(sys.stdin)], sys.stdout)
