# SPDX-License-Identifier: Apache-2.0
"""With which interpreters an end-to-end test runs, unless all are asked for (--all-versions).

Each version of CPython has a layout, line tables and allocators of its own, so a test that runs
with any version can run with eight, and with a debug build; others name those that they are about.
A run takes two of a test's versions: the newest, or for every other test the oldest, and one of the
rest, which is another one for each test. A test's other parameters seldom have to do with the
version, so its further sets of them run with one version each, in turn. So every version runs with
a part of the tests. Builds of CPython, container runtimes and their storage drivers are chosen
likewise. make e2e-all has all of them.
"""
import collections
import os
import zlib

import pythons


def _spread(names, turn, first):
    """The first or the last, and another one, for a test's first set of parameters; else one."""
    if not first:
        return {names[turn % len(names)]}
    end = names[-(turn % 2)]  # of 0 and -1
    others = [name for name in names if name != end]
    return {end, *([others[turn // 2 % len(others)]] if others else [])}


def _sets(items, fixture):
    """({parameter of the fixture: item}, turn, whether it is the first set) for each test and each
    set of its other parameters. The turn counts the sets of a test; it does not vary from run to
    run."""
    sets, turns = collections.defaultdict(dict), collections.Counter()
    for item in items:
        params = item.callspec.params if hasattr(item, "callspec") else {}
        if fixture in params:
            others = repr([pair for pair in params.items() if pair[0] != fixture])
            sets[item.parent.nodeid, item.originalname, others][params[fixture]] = item
    for (file, test, _), items_of in sets.items():
        turn = zlib.crc32(os.path.basename(file).encode() + test.encode()) + turns[file, test]
        turns[file, test] += 1
        yield items_of, turn, turns[file, test] == 1


def left_out(items):
    """The items that a run without --all-versions leaves out."""
    found = pythons.unstripped()
    for named, turn, first in _sets(items, "python"):
        kept = _spread([name for name in named if name in found] or list(named), turn, first)
        yield from (item for name, item in named.items() if name not in kept)
    if "TRACER_ROOTS" not in os.environ:  # the caller selected them
        for named, turn, first in _sets(items, "root_python"):
            kept = _spread(list(named), turn, first)
            yield from (item for name, item in named.items() if name not in kept)
    # Each container runtime, with one of its storage drivers.
    for named, turn, _ in _sets(items, "runtime"):
        for i, client in enumerate(("docker", "podman")):
            drivers = [name for name in named if name.startswith(client)]
            kept = drivers[(turn + i) % len(drivers)] if drivers else None
            yield from (named[name] for name in drivers if name != kept)
    # Each build, in one of the modes.
    for named, turn, _ in _sets((i for i in items if "cpython" in i.fixturenames), "mode"):
        kept = list(named)[turn % len(named)]
        yield from (item for name, item in named.items() if name != kept)
