# SPDX-License-Identifier: Apache-2.0
"""Small programs with real allocators: live bytes compared with the allocator's own figures and
with heaptrack's, within 0.1 %."""
import glob
import json
import subprocess

import pytest

from harness import NATIVE_FLAGS, environment, program
from truth import PLAIN, expect_close, expect_nothing_lost, library, tool


@pytest.fixture
def built(tmp_path):
    """built(compiler, name, *options): a program of tests/e2e/programs, compiled."""

    def make(compiler, name, *options):
        path = str(tmp_path / name.split(".")[0])
        done = subprocess.run(
            [tool(compiler), "-o", path, program(name), *options], stderr=subprocess.PIPE, text=True
        )
        assert done.returncode == 0, done.stderr
        return path

    return make


WHICH = {"libc": 1, "jemalloc": 2, "tcmalloc": 3, "mimalloc": 4, "musl": 0}


@pytest.mark.parametrize(
    "family, how, name, threads",
    [
        ("libc", "linked", None, 4),
        ("libc", "static", None, 4),
        ("musl", "static", None, 4),
        ("jemalloc", "preloaded", "libjemalloc.so.2", 4),
        ("jemalloc", "linked", "libjemalloc.so.2", 4),
        ("jemalloc", "static", "libjemalloc.a", 4),
        ("tcmalloc", "preloaded", "libtcmalloc_minimal.so.4", 4),
        ("tcmalloc", "linked", "libtcmalloc.so.4", 4),
        ("tcmalloc", "static", "libtcmalloc_minimal.a", 4),
        ("mimalloc", "preloaded", "libmimalloc.so.2*", 1),
        ("mimalloc", "linked", "libmimalloc.so.2*", 1),
    ],
)
def test_allocator(start, trace, built, family, how, name, threads):
    """The report equals the program's own account to the byte. The usable size of the program's
    blocks equals what the allocator reports as allocated."""
    flags = [*NATIVE_FLAGS, "-pthread"]
    env = environment(**PLAIN)
    if how == "static":
        # Static archives of the allocators are linked into a program with a dynamic C library. The
        # libraries that they need come last.
        flags += [library(name), "-lstdc++", "-lm", "-ldl"] if name else ["-static"]
    elif how == "linked" and name:
        flags += ["-Wl,--no-as-needed", library(name)]
    elif name:
        env["LD_PRELOAD"] = library(name)
    target = start(
        built("musl-gcc" if family == "musl" else "gcc", "allocator.c", *flags),
        None,
        threads,
        40000,
        env=env,
    )
    before = target.expect()
    run = trace("-p", target.pid)
    for _ in range(2):
        target.step()
        after = target.expect()
    # By default what libc allocates for the threads is charged to the program's lines, too.
    report = run.finish("--no-skip")
    expect_nothing_lost(report)
    lines = [pair for (file, _), pair in report.lines().items() if file == program("allocator.c")]
    assert tuple(map(sum, zip(*lines))) == after["own"]
    says, which = after["allocator"]
    assert which == WHICH[family]
    if family != "musl":  # musl reports no figures
        takes, blocks = after["usable"]
        if family == "libc":
            takes += 8 * blocks  # a chunk's header
        expect_close(takes, says - before["allocator"][0], "%s, %s" % (family, how))
    assert target.finish() == 0


def heaptrack_sum(data, cost, tmp_path):
    path = str(tmp_path / cost)
    subprocess.run(
        ["heaptrack_print", "-f", data, "-F", path, "--flamegraph-cost-type", cost],
        stdout=subprocess.DEVNULL,
        check=True,
    )
    with open(path) as file:
        return sum(int(line.rsplit(" ", 1)[1]) for line in file)


def allocations(capture):
    """Number of requests in a capture that returned a block. Each record starts with (type, size):
    1 is an allocation, 4 the allocation of a realloc."""
    with open(str(capture), "rb") as file:
        data = file.read()
    place, count = 16, 0
    while place < len(data):
        kind, size = (int.from_bytes(data[place + i : place + i + 4], "little") for i in (0, 4))
        count += kind in (1, 4)
        place += size
    return count


@pytest.mark.long
def test_heaptrack(trace, built, tmp_path):
    """A deterministic C++ program: the leaked bytes and the number of allocations."""
    tool("heaptrack_print")
    path = built("g++", "containers.cc", "-std=c++17", *NATIVE_FLAGS)
    done = subprocess.run(
        [tool("heaptrack"), "-o", tmp_path / "heaptrack", path],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=environment(),
    )
    (data,) = glob.glob(str(tmp_path / "heaptrack.*"))
    own, _ = json.loads([line for line in done.stdout.split("\n") if line.startswith("{")][0])[
        "own"
    ]
    leaked, asked = heaptrack_sum(data, "leaked", tmp_path), heaptrack_sum(
        data, "allocations", tmp_path
    )
    assert leaked == own
    run = trace("--layer", "native", "--capture", tmp_path / "capture", "--", path)
    assert run.wait() == 0
    report = run.report()
    assert report.data["from_start"] and report.data["moment"] == "exited"
    expect_nothing_lost(report)
    # Heaptrack omits blocks that are kept on purpose, here the C++ library's reserve for
    # exceptions.
    of_library = sum(size for (file, _), (size, _) in report.lines().items() if "libstdc++" in file)
    assert report.total["size"] - of_library == leaked
    assert allocations(tmp_path / "capture") == asked


def test_cxx(start, trace, built, run_tracer):
    """Containers of a program that continues to run equal their allocator's account to the byte.
    `tracer ctl status` names the native layer."""
    target = start(built("g++", "containers.cc", "-std=c++17", *NATIVE_FLAGS), None, "wait")
    run = trace("-p", target.pid)
    for _ in range(2):
        target.step()
        own = target.expect()["own"]
    status = run_tracer("ctl", target.pid, "status", "--session", run.pid).stdout
    assert status.startswith(
        "PID %d (containers), native blocks: is traced, exact mode, " % target.pid
    ), status
    assert "CPython" not in status and "coverage" not in status
    report = run.finish()
    expect_nothing_lost(report)
    counted = [
        pair for (file, _), pair in report.lines().items() if file == program("containers.cc")
    ]
    assert tuple(map(sum, zip(*counted))) == own
    assert target.finish() == 0
    functions = {
        s["traceback"][0]["function"]
        for s in run.report("--group-by", "function", "--full-names").statistics
    }
    assert "counting<char>::allocate(unsigned long)" in functions, functions


def test_rust(start, trace, built):
    target = start(built("rustc", "counted.rs", "-O", "-g"), None)
    before = target.expect()["own"]
    run = trace("-p", target.pid)
    for _ in range(3):
        target.step()
        after = target.expect()["own"]
    report = run.finish()
    expect_nothing_lost(report)
    expect_close(report.total["size"], after[0] - before[0], "Rust's bytes")
    expect_close(report.total["count"], after[1] - before[1], "Rust's blocks")
    assert target.finish() == 0
