# SPDX-License-Identifier: Apache-2.0
"""The native layer of real programs: live bytes compared line by line with the program's own
account, and with mallinfo2."""
import glob
import re
import subprocess
import sys

import pytest

from harness import compiled, environment, marked_line, program, read_report, wait_until


@pytest.fixture
def built(tmp_path):
    """built(name, *flags): the path of a program of tests/e2e/programs, compiled with debug
    information."""

    def make(name, *flags, compiler="gcc"):
        return compiled(tmp_path / name.split(".")[0], name, *flags, compiler=compiler)

    return make


def start_native(start, path):
    """Without tcache, since mallinfo2 counts its blocks as live."""
    return start(path, "native.c", env=environment(GLIBC_TUNABLES="glibc.malloc.tcache_count=0"))


def by_mark(report, live):
    return {mark: report.line("native.c", mark) for mark in live}


def check(report, live):
    says, _ = live.pop("mallinfo")
    live = {mark: pair for mark, pair in live.items() if pair != (0, 0)}
    assert by_mark(report, live) == live
    ours = [pair for (file, _), pair in report.lines().items() if file == program("native.c")]
    # pthread_create() allocates a few blocks of its own.
    assert (sum(b for b, _ in ours), sum(n for _, n in ours)) == tuple(
        map(sum, zip(*live.values()))
    )
    assert report.lost_events == 0
    return says


@pytest.mark.parametrize("backend", ("session", "multi", "perf"))
def test_account(start, trace, built, backend):
    target = start_native(start, built("native.c"))
    run = trace("-p", target.pid, "--backend", backend)
    for _ in range(4):
        target.step()
        live = target.expect()
    report = run.finish("--no-skip")
    assert (
        report.data["layer"] == "native"
        and report.data["mode"] == "exact"
        and report.data["python"] is None
    )
    says = check(report, live)
    # A chunk is 8 bytes larger than the request, a multiple of 16, and at least 32 bytes. Aligned
    # blocks and separately mapped blocks are rounded up to as much as a page.
    assert (
        report.total["size"] <= says <= report.total["size"] + 31 * report.total["count"] + 3 * 4096
    )
    not_seen = report.data["not_seen"]
    assert (
        not_seen["replaced"] == 0
        and not_seen["missing_returns"] == 0
        and not_seen["stacks_unknown"] == 0
    )
    # A thread's tcache is allocated inside malloc and freed with free.
    assert not_seen["frees_unknown"] <= 4 and not_seen["no_python_thread"] == 0
    assert target.finish() == 0


@pytest.mark.long
def test_step_by_step(start, trace, built):
    """The live figures are right at every moment, not only at the end. A diff of two snapshots
    shows the changes between them."""
    target = start_native(start, built("native.c"))
    run = trace("-p", target.pid, "--format", "json", "--top", 0, "-i", "0.2")
    for _ in range(4):
        target.step()
        live = target.expect()
        live.pop("mallinfo")
        live = {mark: tuple(pair) for mark, pair in live.items() if tuple(pair) != (0, 0)}
        seen = len(run.printed_reports())
        wait_until(
            lambda: len(run.printed_reports()) > seen + 1, "a report of this moment is printed"
        )
        assert by_mark(run.printed_reports()[-1], live) == live


def test_tracebacks(start, trace, built):
    """Every frame of the program has function and line, up to its outermost frame."""
    target = start_native(start, built("native.c"))
    run = trace("-p", target.pid)
    target.step()
    target.expect()
    report = run.finish("--group-by", "traceback")
    (grown,) = [
        s
        for s in report.statistics
        if s["traceback"][0]["lineno"] == marked_line("native.c", "GROWN")
    ]
    files = [frame["filename"] for frame in grown["traceback"]]
    assert files[:2] == [program("native.c")] * 2
    assert report.data["not_seen"]["stacks_cut"] == 0
    done = subprocess.run(
        [run.tracer, "export", run.snapshot, "--format", "folded", "-o", "-"],
        stdout=subprocess.PIPE,
        text=True,
    )
    (line,) = [
        text
        for text in done.stdout.splitlines()
        if "native.c:%d" % marked_line("native.c", "GROWN") in text
    ]
    assert "main (" in line and "family (" in line and line.index("main (") < line.index("family (")


def test_capture_replays(start, trace, built, run_tracer, tmp_path):
    """A capture contains the program's names, so replaying it does not need the program."""
    target = start_native(start, built("native.c"))
    run = trace("-p", target.pid, "--capture", tmp_path / "events.cap")
    target.step()
    target.expect()
    report = run.finish()
    target.finish()
    again = str(tmp_path / "again.pb.gz")
    assert run_tracer("replay", tmp_path / "events.cap", "-o", again).returncode == 0
    assert read_report(run.tracer, again).lines() == report.lines()


def test_ends_by_itself(start, trace, built):
    """The last table of a program that has ended is kept, with its names."""
    target = start_native(start, built("native.c"))
    run = trace("-p", target.pid)
    target.step()
    live = target.expect()
    assert target.finish() == 0
    assert run.wait() == 0
    report = run.report()
    assert report.data["moment"] == "exited"
    live.pop("mallinfo")
    assert by_mark(report, live) == live


def test_from_start(trace, built):
    run = trace(
        "--layer",
        "native",
        "--",
        built("native.c"),
        stdin=subprocess.PIPE,
        env=environment(GLIBC_TUNABLES="glibc.malloc.tcache_count=0"),
    )
    run.step()
    live = run.expect()
    run.process.stdin.close()
    assert run.wait() == 0
    report = run.report()
    assert report.data["from_start"]
    live.pop("mallinfo")
    assert by_mark(report, live) == live


@pytest.mark.long
def test_mapped_memory_beside(start, trace, built):
    target = start_native(start, built("native.c"))
    run = trace("-p", target.pid, "--layer", "all")
    target.step()
    target.expect()
    report = run.finish()
    assert report.line("native.c", "BIG") == (300000, 1)
    mapped = {s["traceback"][0]["lineno"]: s["size"] for s in report.data["mapped"]["statistics"]}
    assert mapped[marked_line("native.c", "BIG")] >= 300000, "malloc's own mapping is its caller's"


def test_mapped_memory(start, trace, built):
    """Each range is charged to the line that has mapped, moved, shrunk or committed it, although the
    stack is full of earlier calls' return addresses: mremap, which is variadic, has a large frame."""
    target = start(built("mapped.c", "-fno-builtin"), None)
    run = trace("-p", target.pid, "--layer", "mmap")
    for _ in range(2):
        target.step()
        live = target.expect()
    report = run.finish()
    assert report.marked("mapped.c", live) == live
    assert report.total["size"] == sum(size for size, _ in live.values())
    assert report.lost_events == 0
    assert target.finish() == 0, "the target was harmed"


@pytest.mark.versions("3.11", "3.13")
def test_python_with_all_layers(python, start, trace):
    """The Python layer equals that of a Python-only trace. Native blocks have the interpreter's
    function first, then Python's frames."""
    target = start(python, "golden.py")
    run = trace("-p", target.pid, "--layer", "all", "-m", "exact", "-n", 16)
    target.step()
    live = target.expect()
    report = run.finish()
    assert report.marked("golden.py", live) == live
    assert "layer" not in report.data and report.data["native"]["total"]["size"] > 0
    native = run.report("--layer", "native", "--group-by", "traceback", "--no-skip")
    assert native.data["layer"] == "native" and native.total == report.data["native"]["total"]
    frames = [s["traceback"] for s in native.statistics]
    assert any(
        frame["filename"] == program("golden.py") for traceback in frames for frame in traceback[1:]
    )
    assert not any(
        frame["filename"] == program("golden.py") for traceback in frames for frame in traceback[:1]
    )
    for traceback in frames:
        kinds = {frame["filename"].endswith(".py"): frame.get("kind") for frame in traceback}
        assert kinds.get(True) is None and kinds.get(False, "native") == "native"


def test_layer_that_is_not_there(start, trace, built, run_tracer):
    target = start_native(start, built("native.c"))
    run = trace("-p", target.pid)
    run.finish()
    done = run_tracer("report", run.snapshot, "--layer", "python")
    assert done.returncode == 1 and "no python layer" in done.stderr


CXX = r"""
#include <cstdio>
#include <cstdlib>
#include <new>
static void *kept[8];
__attribute__((noinline)) static void blocks() {
    kept[0] = ::operator new(100);
    kept[1] = new char[200];
    kept[2] = new (std::nothrow) char[300];
    kept[3] = ::operator new(384, std::align_val_t(64));
}
__attribute__((noinline)) static void refused(int deep) {
    if (deep) { refused(deep - 1); return; }
    volatile size_t huge = size_t(1) << 62;
    try { kept[7] = ::operator new(huge); } catch (const std::bad_alloc &) { puts("caught"); }
}
int main(int count, char **) {
    char line[16];
    puts("ready"); fflush(stdout);
    while (fgets(line, sizeof(line), stdin)) {
        blocks(); if (count > 2) puts("caught"); else refused(5); kept[4] = malloc(500); blocks();
        ::operator delete(kept[0]); delete[] (char *)kept[1];
        puts("done"); fflush(stdout);
    }
}
"""


@pytest.mark.parametrize(
    "library", ("", "libjemalloc.so.2", "libtcmalloc_minimal.so.4", "libmimalloc.so.2")
)
def test_operators(start, trace, tmp_path, library):
    """Each C++ operator call is counted once, at its caller. An exception that an operator throws
    under trace is caught as usual."""
    source = tmp_path / "operators.cc"
    source.write_text(CXX)
    path = str(tmp_path / "operators")
    subprocess.run(
        [
            "g++",
            "-std=c++17",
            "-g",
            "-O1",
            "-fno-builtin",
            "-fno-omit-frame-pointer",
            "-o",
            path,
            str(source),
        ],
        check=True,
    )
    env = environment()
    if library:
        found = subprocess.run(
            ["ldconfig", "-p"],
            stdout=subprocess.PIPE,
            text=True,
            env={"PATH": "/sbin:/usr/sbin:/usr/bin"},
        ).stdout
        if library not in found:
            pytest.skip("%s is not installed" % library)
        env["LD_PRELOAD"] = library
    # mimalloc, built as C, terminates a program that requests too much.
    target = start(path, "operators", *(["calm"] if "mimalloc" in library else []), env=env)
    run = trace("-p", target.pid)
    target.step()
    target.read_until("caught")
    target.read_until("done")
    report = run.finish()
    # stdio may have allocated its own buffer in the meantime.
    sizes = {
        s["traceback"][0]["lineno"]: (s["size"], s["count"])
        for s in report.statistics
        if s["traceback"][0]["filename"] == str(source)
    }
    assert sizes == {7: (100, 1), 8: (200, 1), 9: (600, 2), 10: (768, 2), 21: (500, 1)}
    assert target.finish() == 0


def test_library_that_comes_late(start, trace, built, tmp_path):
    """An allocator that is loaded while the program is traced is found."""
    library = tmp_path / "liblate.so"
    subprocess.run(
        ["gcc", "-shared", "-fPIC", "-g", "-o", library, program("late_library.c")], check=True
    )
    target = start(built("late_user.c", "-ldl"), None, library)
    run = trace("-v", "-p", target.pid, "-i", "0.1", "--format", "json", "--top", 0)

    def say(answer):
        target.process.stdin.write(b"1")
        target.process.stdin.flush()
        target.read_until(answer)

    say("loaded")

    def seen():
        """Runs another round. The library is examined, and its probes report events, some
        milliseconds after it was mapped."""
        say("done")
        return any(report.line("late_user.c", "LATE")[1] for report in run.printed_reports()[-1:])

    wait_until(seen, "the library's functions are probed")
    say("done")
    size, count = run.finish().line("late_user.c", "LATE")
    assert "probes in %s are placed" % library in run.stderr
    assert count % 5 == 0 and count > 5 and size == 100 * count
    assert target.finish() == 0


LEAVES = ("-O2", "-fno-stack-protector", "-rdynamic")


def leaves(start, trace, built, what, function, backend, probe=""):
    """Runs an --alloc function that is left before it returns: (the target, its answer, the
    report)."""
    target = start(built("leaves.c", *LEAVES), None, what)
    run = trace(
        "-p", target.pid, "--backend", backend, "--alloc", "leaves:%s:malloc%s" % (function, probe)
    )
    target.step()
    live = target.expect()
    return target, live, run.finish()


@pytest.mark.parametrize("backend", ("session", "perf"))
@pytest.mark.parametrize("probe", ("", ":return-probe"))
def test_request_that_was_left(start, trace, built, backend, probe):
    """A request that a longjmp abandoned is counted as lost, and does not hide requests of deeper
    frames."""
    target, live, report = leaves(start, trace, built, "jump", "pool_get", backend, probe)
    assert report.line("leaves.c", "DEEP") == live["DEEP"]
    assert report.lost_events == report.data["not_seen"]["missing_returns"] == 1
    assert target.finish() == 0


def test_stacks_that_change(start, trace, built):
    """An --alloc function has no return probe, so that a program survives if it switches stacks
    inside one. The requests that the trace loses are counted."""
    target, live, report = leaves(start, trace, built, "switch", "pool_get", "session")
    assert target.finish() == 0
    pool = sum(s["count"] for s in report.statistics if s["size"] == 64 * s["count"])
    lost = report.data["not_seen"]["missing_returns"]
    assert lost and live["requests"][1] - 1 <= pool + lost <= live["requests"][1]


@pytest.mark.parametrize("backend", ("session", "perf"))
def test_function_that_jumps_to_malloc(start, trace, built, backend):
    """The function has no ret of its own. It ends at malloc's return, and its own size argument
    counts."""
    target, live, report = leaves(start, trace, built, "pass", "pool_pass", backend)
    assert report.line("leaves.c", "PASS") == live["PASS"]
    assert report.lost_events == 0
    assert target.finish() == 0


def kernel_objects(pid):
    """(BPF programs, bytes of maps) that a process has open."""
    programs, total = 0, 0
    for path in glob.glob("/proc/%d/fdinfo/*" % pid):
        try:
            with open(path) as file:
                text = file.read()
        except FileNotFoundError:
            continue
        programs += "prog_type:" in text
        if "map_type:" in text:
            total += int(re.search(r"memlock:\s+(\d+)", text).group(1))
    return programs, total


def test_only_what_is_needed_is_loaded(trace):
    """A session of one layer has neither the other's programs nor its memory."""
    target = subprocess.Popen(
        [sys.executable, "-c", "print('ready', flush=True); input()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        target.stdout.readline()
        loaded = {}
        for layer in ("all", "native", "python"):
            run = trace("-p", target.pid, "--layer", layer)
            loaded[layer] = kernel_objects(run.process.pid)
            run.finish()
    finally:
        target.communicate(b"\n")
    tables = 9 << 20  # of unwinding
    assert loaded["all"][0] > max(loaded["native"][0], loaded["python"][0]), loaded
    assert loaded["all"][1] > loaded["python"][1] + tables, loaded
    assert loaded["native"][1] > loaded["python"][1] + tables, loaded
