# SPDX-License-Identifier: Apache-2.0
"""With which interpreters an end-to-end test runs, unless all are asked for (--all-versions).

Each version of CPython has a layout, line tables and allocators of its own, so a test that runs
with any version can run with eight, and with a debug build; others name those that they are about.
A run takes one of a test's versions, another one for each test and for each set of its other
parameters, and every third time the newest: it differs from the others most, and is in use longest.
So every version runs with a part of the tests. Of a test that traces, two sets of parameters run.
Builds of CPython, container runtimes and their storage drivers are chosen
likewise. make e2e-all has all of them.
"""
import collections
import os
import zlib

import pythons

SETS = 2  # of a test's parameters, unless it is marked as unprivileged or whole


def _chosen(names, turn):
    """The name that is kept."""
    return names[-1] if turn % 3 == 0 else names[turn // 3 % len(names)]


def _sets(items, fixture):
    """({parameter of the fixture: item}, turn) for each test and each set of its other parameters.
    The turn counts the sets of a test; it does not vary from run to run."""
    sets, turns = collections.defaultdict(dict), collections.Counter()
    for item in items:
        params = item.callspec.params if hasattr(item, "callspec") else {}
        if fixture in params:
            others = repr([pair for pair in params.items() if pair[0] != fixture])
            sets[item.parent.nodeid, item.originalname, others][params[fixture]] = item
    for (file, test, _), items_of in sets.items():
        turn = zlib.crc32(os.path.basename(file).encode() + test.encode()) + turns[file, test]
        turns[file, test] += 1
        yield items_of, turn


def left_out(items):
    """The items that a run without --all-versions leaves out."""
    found = pythons.unstripped()
    for named, turn in _sets(items, "python"):
        kept = _chosen([name for name in named if name in found] or list(named), turn)
        yield from (item for name, item in named.items() if name != kept)
    if "TRACER_ROOTS" not in os.environ:  # the caller selected them
        for named, turn in _sets(items, "root_python"):
            kept = _chosen(list(named), turn)
            yield from (item for name, item in named.items() if name != kept)
    # Each container runtime, with one of its storage drivers.
    for named, turn in _sets(items, "runtime"):
        for i, client in enumerate(("docker", "podman")):
            drivers = [name for name in named if name.startswith(client)]
            kept = drivers[(turn + i) % len(drivers)] if drivers else None
            yield from (named[name] for name in drivers if name != kept)
    # Each build, in one of the modes.
    for named, turn in _sets((i for i in items if "cpython" in i.fixturenames), "mode"):
        kept = list(named)[turn % len(named)]
        yield from (item for name, item in named.items() if name != kept)


def beyond(items):
    """Of the items that are left, those beyond SETS of a test. Which ones stay differs from test to
    test."""
    sets = collections.defaultdict(list)
    for item in items:
        marks = map(item.get_closest_marker, ("unprivileged", "whole"))
        if hasattr(item, "callspec") and not any(marks):
            sets[item.parent.nodeid, item.originalname].append(item)
    for (_, test), found in sets.items():
        turn = zlib.crc32(test.encode())
        kept = {(turn + i * len(found) // SETS) % len(found) for i in range(SETS)}
        yield from (item for i, item in enumerate(found) if i not in kept)
