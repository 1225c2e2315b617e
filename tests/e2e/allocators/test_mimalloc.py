# SPDX-License-Identifier: Apache-2.0
"""`tracer memory` reads the heap of mimalloc as the program's own sums, and its visitor, have it."""
import glob
import json
import os

import pytest

from harness import Target, environment
from memory_trees import (
    allocator,
    ask,
    check_allocator,
    find,
    python_reading,
    read,
    readings_under_load,
)

pytestmark = pytest.mark.unprivileged


@pytest.mark.parametrize("threads", (1, 4))
def test_books(replaced, mimalloc_environment, run_tracer, threads):
    """Blocks that other threads freed are free, too."""
    with Target(replaced, None, threads, env=mimalloc_environment) as target:
        for command in ("tell", "free"):
            own = ask(target, command)
            target.wait_reading()
            tree = read(run_tracer, target.pid)
            heap = allocator(tree, "mimalloc")
            check_allocator(tree, heap)
            print(own, {key: value for key, value in heap.items() if key != "sizes"})
            # The C library has blocks of its own: threads' and those of stdio.
            assert own["blocks"] <= heap["used_count"] <= own["blocks"] + 20
            spare = 16384 if heap["version"][0] == "2" else 65536
            assert own["usable"] <= heap["used"] <= 1.005 * own["usable"] + spare
            assert not heap["unread"] and not heap["lists_cut"]
            # Those of mimalloc 3 are found by no page.
            assert heap["caches"] == (threads + 1 if heap["version"][0] == "2" else 0)
            assert find(tree, "other anonymous memory")["size"] < 0.01 * tree["size"]


@pytest.mark.parametrize("threads", (1, 4))
def test_purge(replaced, mimalloc_environment, run_tracer, threads):
    """What it says that a collection returns is by how much Rss falls. Up to 2.1.2 pages that are
    freed in a collection are returned with it only if it lasts, as it does in several threads.
    Some releases of mimalloc 3 return whole pages of 2 MiB only, so it is at most that."""
    with Target(replaced, None, threads, env=mimalloc_environment) as target:
        before = ask(target, "free")["rss"]
        tree = read(run_tracer, target.pid)
        estimate = find(tree, "mimalloc")["trimmable"]
        fall = before - ask(target, "purge")["rss"]
        print(estimate, fall)
        if allocator(tree, "mimalloc")["version"][0] == "2":
            assert 4 << 20 < estimate <= 1.05 * fall
            assert threads > 1 or estimate >= 0.95 * fall
        else:
            assert 4 << 20 < fall <= 1.05 * estimate
            assert fall >= 0.5 * estimate


def test_runs_on(replaced, mimalloc_environment, run_tracer):
    """Threads allocate and free, and others collect, all the time."""
    with Target(replaced, None, env=mimalloc_environment) as target:
        for _, heap, own in readings_under_load(target, run_tracer, "mimalloc"):
            assert own["blocks"] <= 1.01 * heap["used_count"]
            assert heap["used_count"] <= own["blocks"] + 60000
            assert heap["unread"] <= 0.1 * heap["used"]


@pytest.mark.versions("3.11")
def test_python(mimalloc_environment, run_tracer, python):
    with Target(python, "replaced.py", env=mimalloc_environment) as target:
        own, heap = python_reading(target, run_tracer, "mimalloc")
        print(own, heap["used"], heap["used_count"])
        # The visitor of 3.0 leaves out full pages, which no thread owns.
        more = 1.1 if heap["version"].startswith("3.0") else 1.005
        assert 0.995 * own["used"] <= heap["used"] <= more * own["used"]
        assert 0.995 * own["used_count"] <= heap["used_count"] <= more * own["used_count"]


def test_two_allocators(replaced, mimalloc_environment, run_tracer):
    """Both are there; the first has all blocks."""
    found = glob.glob("/usr/lib/x86_64-linux-gnu/libtcmalloc_minimal.so.4")
    if not found:
        pytest.skip("libtcmalloc-minimal4 is not installed")
    env = environment(LD_PRELOAD=found[0] + " " + mimalloc_environment["LD_PRELOAD"])
    with Target(replaced, None, env=env) as target:
        own = ask(target)
        target.wait_reading()
        tree = read(run_tracer, target.pid)
        heap = allocator(tree, "tcmalloc")
        check_allocator(tree, heap)
        assert abs(heap["used"] - own["generic.current_allocated_bytes"]) <= 32768
        for other in tree["allocators"]:
            assert other["name"] == "tcmalloc" or other["used"] < 0.01 * heap["used"]
        assert os.path.basename(found[0]).split(".")[0] in json.dumps(tree)
