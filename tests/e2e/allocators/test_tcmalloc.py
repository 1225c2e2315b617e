# SPDX-License-Identifier: Apache-2.0
"""`tracer memory` reads the heap of gperftools' tcmalloc as its statistics have it."""
import ctypes
import glob
import mmap
import os

import pytest

from harness import Target, compiled, environment
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
LIBRARIES = "/usr/lib/x86_64-linux-gnu/"


def library(name):
    found = glob.glob(LIBRARIES + name + ".so.4")
    if not found:
        pytest.skip(name + " is not installed")
    return found[0]


@pytest.fixture(params=["libtcmalloc_minimal", "libtcmalloc", "linked"])
def tcmalloc_target(request, replaced, tmp_path):
    if request.param == "linked":
        if not os.path.exists(LIBRARIES + "libtcmalloc_minimal.a"):
            pytest.skip("libgoogle-perftools-dev is not installed")
        flags = ["-s", "-l:libtcmalloc_minimal.a", "-lstdc++", "-lm"]
        path, env = compiled(tmp_path / "linked", "replaced.c", *flags), environment()
    else:
        path, env = replaced, environment(LD_PRELOAD=library(request.param))
    with Target(path, None, env=env) as target:
        yield target


def check_statistics(heap, own):
    """Within 0.5 %, or the few blocks that printing has."""
    pairs = {
        "used": own["generic.current_allocated_bytes"],
        "cached": own["tcmalloc.current_total_thread_cache_bytes"]
        + own["tcmalloc.transfer_cache_free_bytes"],
        "free": own["tcmalloc.central_cache_free_bytes"],
        "dirty": own["tcmalloc.pageheap_free_bytes"],
        "retained": own["tcmalloc.pageheap_unmapped_bytes"],
    }
    print({key: (heap[key], value) for key, value in pairs.items()})
    for key, value in pairs.items():
        assert abs(heap[key] - value) <= max(0.005 * value, 32768), (key, heap[key], value)
    assert abs(sum(heap[key] for key in pairs) - own["generic.heap_size"]) <= 32768


def test_statistics(tcmalloc_target, run_tracer):
    target = tcmalloc_target
    for command in ("tell", "free"):
        own = ask(target, command)
        target.wait_reading()
        tree = read(run_tracer, target.pid)
        heap = allocator(tree, "tcmalloc")
        check_allocator(tree, heap)
        check_statistics(heap, own)
        assert heap["version"][0] == "2" and heap["caches"] >= 4
        assert not heap["unread"] and not heap["lists_cut"]
        assert own["blocks"] <= heap["used_count"] <= own["blocks"] + 100
        assert find(tree, "other anonymous memory")["size"] < 0.01 * tree["size"]


def test_purge(tcmalloc_target, run_tracer):
    """What it says that a purge would return is by how much Rss falls."""
    target = tcmalloc_target
    before = ask(target, "free")["rss"]
    estimate = find(read(run_tracer, target.pid), "tcmalloc")["trimmable"]
    after = ask(target, "purge")["rss"]
    assert estimate > 8 << 20
    assert abs(estimate - (before - after)) <= 0.05 * (before - after)
    tree = read(run_tracer, target.pid)
    assert find(tree, "tcmalloc")["trimmable"] < 1 << 20
    assert allocator(tree, "tcmalloc")["retained"] >= estimate


def test_runs_on(replaced, run_tracer):
    """Threads allocate and free, and one purges, all the time."""
    env = environment(LD_PRELOAD=library("libtcmalloc_minimal"))
    with Target(replaced, None, env=env) as target:
        for stopped, heap, own in readings_under_load(target, run_tracer, "tcmalloc"):
            assert own["blocks"] <= heap["used_count"] <= own["blocks"] + 60000
            assert heap["caches"] >= 6
            # A thread may be stopped while it changes a list.
            assert heap["lists_cut"] <= (3 if stopped else 50)


@pytest.mark.versions("3.11")
def test_python(run_tracer, python):
    """Large blocks of Python's objects are found in it; the figures are its own."""
    env = environment(LD_PRELOAD=library("libtcmalloc_minimal"))
    with Target(python, "replaced.py", env=env) as target:
        own, heap = python_reading(target, run_tracer, "tcmalloc")
        check_statistics(heap, own)


def test_of_google(run_tracer):
    """Google's own tcmalloc is refused by its name: it names its memory."""
    memory = mmap.mmap(-1, 1 << 20, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    libc = ctypes.CDLL(None, use_errno=True)
    address = ctypes.c_ulong(ctypes.addressof(ctypes.c_char.from_buffer(memory)))
    if libc.prctl(0x53564D41, 0, address, ctypes.c_ulong(1 << 20), b"tcmalloc_region_NORMAL"):
        pytest.skip("the kernel names no memory: " + os.strerror(ctypes.get_errno()))
    tree = read(run_tracer, os.getpid())
    assert "Google" in tree["allocators_refused"]
