# SPDX-License-Identifier: Apache-2.0
"""`tracer memory` reads the heap of musl's malloc as the program's own books have it."""
import shutil

import pytest

from harness import Target, compiled
from memory_trees import allocator, ask, check_allocator, find, read

pytestmark = pytest.mark.unprivileged


@pytest.fixture(scope="module", params=["static", "stripped", "dynamic"])
def musl_program(request, tmp_path_factory):
    if not shutil.which("musl-gcc"):
        pytest.skip("musl-tools is not installed")
    flags = {"static": ["-static"], "stripped": ["-static", "-s"], "dynamic": []}[request.param]
    path = tmp_path_factory.mktemp("musl") / "musl_heap"
    return compiled(path, "musl_heap.c", *flags, compiler="musl-gcc")


def test_books(musl_program, run_tracer):
    """Blocks are those of the program, to the block; bytes as its slots have them."""
    with Target(musl_program, None) as target:
        for command in ("tell", "free"):
            own = ask(target, command)
            target.wait_reading()
            tree = read(run_tracer, target.pid)
            heap = allocator(tree, "musl")
            check_allocator(tree, heap, elsewhere=65536)
            print(own, {key: value for key, value in heap.items() if key != "sizes"})
            # The C library has blocks of its own, for stdin and stdout.
            assert own["blocks"] <= heap["used_count"] <= own["blocks"] + 4
            assert abs(heap["used"] - own["slots"]) <= 0.005 * own["slots"]
            assert heap["used"] >= own["asked"]
            assert not heap["unread"] and not heap["lists_cut"] and not heap["dirty"]
            assert find(tree, "other anonymous memory")["size"] < 0.01 * tree["size"]
            assert "purge" not in find(tree, "musl") and not find(tree, "musl").get("trimmable")


def test_runs_on(musl_program, run_tracer):
    """Another thread allocates and frees all the time."""
    with Target(musl_program, None) as target:
        own = ask(target, "load")
        for freeze in ((), ("--freeze",), ()):
            tree = read(run_tracer, target.pid, *freeze)
            heap = allocator(tree, "musl")
            check_allocator(tree, heap, elsewhere=65536)
            assert own["blocks"] <= heap["used_count"] <= own["blocks"] + 1100
            # The thread's blocks have at most 3000 bytes each.
            assert 0.995 * own["slots"] <= heap["used"] <= 1.005 * own["slots"] + 4 * 1000 * 1000
            assert not freeze or not heap["lists_cut"]
        assert target.process.poll() is None
