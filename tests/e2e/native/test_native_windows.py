# SPDX-License-Identifier: Apache-2.0
"""Windows of malloc's probes: estimates against what a program itself reports, and no probe is left
where it was placed. No test here checks a duration."""
import os
import re
import shutil
import signal
import subprocess

import pytest

from harness import TIMEOUT, Target, Traced, compiled, environment, marked_line, program, wait_until
from in_windows import check_replay, run_in_windows, wait_clean, wait_windows
from memory_trees import ask
from procfs import text_differs
from truth import MIMALLOC, library, mimalloc_library

pytestmark = pytest.mark.usefixtures("undisturbed")

NAME = "steady_native.c"
# Of all lines, whose totals are those of the heap; of each, in the windows of a few seconds; of the
# lines that keep nothing.
TOTAL, SHARE, TEMPORARY = 0.08, 0.35, 0.05
NATIVE = ("--layer", "native")
HEAP_READ = "malloc's heap was read"


@pytest.fixture
def steady(tmp_path):
    return compiled(tmp_path / "steady_native", NAME)


def check(report, live):
    sizes = {mark: report.line(NAME, mark)[0] for mark in "ABCT"}
    truth = {mark: size for mark, (size, _) in live.items()}
    total, unseen = sum(truth.values()), report.data["windows"]["unseen"]["size"]
    assert sum(sizes.values()) + unseen == pytest.approx(total, rel=TOTAL), (sizes, truth)
    assert sizes["T"] <= TEMPORARY * total, (sizes, truth)
    for mark in truth:
        assert sizes[mark] == pytest.approx(truth[mark], rel=SHARE), (mark, sizes, truth)


def test_by_hand(tracer, tmp_path, steady):
    """Two lines keep blocks of one size; older blocks are of that size, too, and are apart."""
    capture = tmp_path / "capture"
    with Target(steady, None) as target:
        args = ("--window", "40/200", "--capture", capture)
        run, live, report = run_in_windows(tracer, tmp_path, target, *NATIVE, *args)
    assert report.data["mode"] == "windows"
    assert report.data["windows"]["count"] >= 25
    check(report, live)
    # 20,000 of line A's size, and of 2,000 those whose place windows have not seen taken.
    assert 19900 <= report.data["older"]["total"]["count"] <= 22300
    assert "by likeness" in run.stdout and "not measured" not in run.stdout
    check_replay(tracer, tmp_path, capture, report)


def test_overhead(tracer, tmp_path, steady):
    """A mode that is named beside --overhead is that of an idle program: windows follow."""
    options = (*NATIVE, "-v", "-v", "-m", "exact", "--overhead", 20)
    with Target(steady, None) as target:
        with Traced(tracer, tmp_path, *options, "-p", target.pid) as run:
            target.step()
            wait_until(lambda: "exact, then windows" in run.stderr, "it is traced in windows")
            wait_windows(run, 15)
            target.step()
            live = target.expect()
            report = run.finish()
        wait_clean(target.pid)
    assert [change["mode"] for change in report.data["modes"]] == ["exact", "windows"]
    assert report.data["modes"][1]["large_blocks"] == "windows"
    check(report, live)


def test_command(tracer, tmp_path, steady):
    """A program that is traced from its start has no older blocks."""
    with Traced(
        tracer,
        tmp_path,
        *NATIVE,
        "-vv",
        "--window",
        "40/100",
        "--",
        steady,
        "young",
        stdin=subprocess.PIPE,
    ) as run:
        wait_until(lambda: "ready" in run.stdout, "it is ready")
        run.step()
        wait_windows(run, 15)
        run.step()
        live = run.expect()
        # Nothing reads its heap when it ends.
        read = run.stderr.count(HEAP_READ)
        wait_until(lambda: run.stderr.count(HEAP_READ) > read + 1, "its heap has been read")
        run.step()
        assert run.wait() == 0
        report = run.report()
    assert report.data["mode"] == "windows"
    assert "older" not in report.data or not report.data["older"]["total"]["count"]
    assert report.line(NAME, "A")[0] == pytest.approx(live["A"][0], rel=SHARE)


REPLACING = ["libjemalloc.so.2", "libtcmalloc_minimal.so.4", *MIMALLOC, "musl", "glibc"]


@pytest.fixture(params=REPLACING)
def replacing(request, tmp_path):
    """A function that compiles a program, and returns its path and its environment with an
    allocator, most of which replace glibc's."""

    def build(name):
        path = tmp_path / name.split(".")[0]
        if request.param == "glibc":
            return compiled(path, name), environment()
        if request.param != "musl":
            find = mimalloc_library if request.param in MIMALLOC else library
            return compiled(path, name), environment(LD_PRELOAD=find(request.param))
        if not shutil.which("musl-gcc"):
            pytest.skip("musl-tools is not installed")
        return compiled(path, name, "-static", compiler="musl-gcc"), environment()

    return build


def test_replaced(tracer, tmp_path, replacing):
    """Where an allocator replaces malloc, its heap says what is alive."""
    steady, env = replacing(NAME)
    with Target(steady, None, env=env) as target:
        run, live, report = run_in_windows(tracer, tmp_path, target, *NATIVE, "--window", "40/200")
    assert report.data["mode"] == "windows", run.stderr
    check(report, live)
    assert 19900 <= report.data["older"]["total"]["count"] <= 22400


def marked_entry(report, name, mark):
    where = program(name), marked_line(name, mark)
    tops = [(entry["traceback"][0], entry) for entry in report.statistics]
    return next(entry for top, entry in tops if (top["filename"], top["lineno"]) == where)


def test_replaced_threads(tracer, tmp_path, replacing):
    """Two threads replace their blocks of all sizes, which are aligned or moved: each line is what
    the program counts, within the standard error that is stated."""
    path, env = replacing("replaced.c")
    with Target(path, None, env=env) as target:
        args = (*NATIVE, "-v", "--window", "40/200", "-p", target.pid)
        with Traced(tracer, tmp_path, *args) as run:
            ask(target, "work")
            wait_windows(run, 30)
            own = ask(target, "rest")
            report = run.finish()
        wait_clean(target.pid)
    assert report.data["mode"] == "windows", run.stderr
    for mark, (size, count) in own["loaded"].items():
        entry = marked_entry(report, "replaced.c", mark)
        print(mark, size, count, entry)
        assert abs(entry["count"] - count) <= 3 * entry["count_error"], (mark, count, entry)
        assert abs(entry["size"] - size) <= 3 * entry["size_error"], (mark, size, entry)
    total = sum(count for _, count in own["loaded"].values())
    unseen = report.data["windows"]["unseen"]["count"]
    assert report.total["count"] + unseen == pytest.approx(total, rel=TOTAL)
    older = report.data["older"]["total"]["count"]
    assert older == pytest.approx(own["blocks"], rel=TOTAL)


def unread_allocator(tmp_path):
    """A library that replaces malloc by another heap than one that is known."""
    path = tmp_path / "libother.so"
    return compiled(path, "other_malloc.c", "-shared", "-fPIC")


def test_other_allocator(tracer, tmp_path, steady):
    """A heap that cannot be read: it is traced all the time, and by name."""
    env = environment(LD_PRELOAD=unread_allocator(tmp_path))
    with Target(steady, None, env=env) as target:
        with Traced(tracer, tmp_path, *NATIVE, "--window", "40/200", "-p", target.pid) as run:
            target.step()
            target.step()
            live = target.expect()
            report = run.finish()
    assert "not in windows: libother.so allocates memory" in run.stderr
    assert report.data["mode"] == "exact"
    assert report.marked(NAME, live) == live


def test_forks(tracer, tmp_path, steady):
    """It forks in windows and between; its children allocate and end."""
    with Target(steady, None, "fork") as target:
        _, live, report = run_in_windows(tracer, tmp_path, target, *NATIVE, "--window", "30/30")
    # Children that have ended had copies of these blocks.
    assert report.line(NAME, "A")[0] >= live["A"][0] * (1 - SHARE)


def test_execs(tracer, tmp_path, steady):
    """It calls exec: the report has what it had, and its next program has no probe at the end."""
    with Target(steady, None, "exec") as target:
        with Traced(tracer, tmp_path, *NATIVE, "-v", "--window", "30/20", "-p", target.pid) as run:
            target.step()
            wait_windows(run, 10)
            target.step()
            target.read_until("ready")
            run.finish()
        wait_clean(target.pid)


@pytest.mark.parametrize("end", [signal.SIGKILL, None])
def test_ends(tracer, tmp_path, steady, end):
    with Target(steady, None) as target:
        with Traced(tracer, tmp_path, *NATIVE, "-v", "--window", "30/10", "-p", target.pid) as run:
            target.step()
            wait_windows(run, 8)
            if end:
                os.kill(target.pid, end)
            else:
                target.step()
                target.expect()
                target.finish()
            assert run.wait() == 0, run.stderr
            report = run.report()
    assert report.line(NAME, "A")[0] > 0


def test_stopped(tracer, tmp_path, steady):
    """The target is stopped for several windows, and goes on."""
    with Target(steady, None) as target:
        with Traced(tracer, tmp_path, *NATIVE, "-v", "--window", "20/40", "-p", target.pid) as run:
            target.step()
            wait_windows(run, 5)
            os.kill(target.pid, signal.SIGSTOP)
            wait_windows(run, 10)
            os.kill(target.pid, signal.SIGCONT)
            wait_windows(run, 30)
            target.step()
            live = target.expect()
            report = run.finish()
        wait_clean(target.pid)
    assert report.line(NAME, "A")[0] == pytest.approx(live["A"][0], rel=SHARE)


def test_clear(tracer, tmp_path, steady):
    """ctl clear between windows: what is alive then is older."""
    with Target(steady, None) as target:
        with Traced(tracer, tmp_path, *NATIVE, "-v", "--window", "20/60", "-p", target.pid) as run:
            target.step()
            wait_windows(run, 10)
            target.step()
            target.expect()
            done = subprocess.run(
                [tracer, "ctl", str(target.pid), "clear"], timeout=TIMEOUT, stdout=subprocess.PIPE
            )
            assert done.returncode == 0
            wait_windows(run, 10)
            report = run.finish()
        wait_clean(target.pid)
    assert report.data["total"]["count"] == 0, report.data["total"]


def test_killed(tracer, tmp_path, steady):
    """SIGKILL of the tracer, in a window or between two."""
    with Target(steady, None) as target:
        target.step()
        for count in range(3):
            with Traced(
                tracer, tmp_path, *NATIVE, "-v", "--window", "30/10", "-p", target.pid
            ) as run:
                wait_windows(run, 1 + count)
                run.kill()
            wait_clean(target.pid)
        target.step()
        target.expect()


def test_beside_another(tracer, tmp_path, steady):
    """Another tracer's probes are at the same places: the end of windows leaves them."""
    (tmp_path / "a").mkdir(), (tmp_path / "b").mkdir()
    with Target(steady, None) as target:
        with Traced(tracer, tmp_path / "a", *NATIVE, "-p", target.pid) as one:
            probes = text_differs(target.pid)
            args = (*NATIVE, "-v", "--window", "20/30", "-p", target.pid)
            with Traced(tracer, tmp_path / "b", *args) as two:
                target.step()
                wait_windows(two, 10)
                target.step()
                live = target.expect()
                two.finish()
            wait_until(lambda: text_differs(target.pid) == probes, "only the other's are left")
            report = one.finish()
        wait_clean(target.pid)
    assert report.marked(NAME, live) == live


def test_threads(tracer, tmp_path):
    """Eight threads, each with an arena and a cache of its own."""
    program = compiled(tmp_path / "allocator", "allocator.c")
    with Target(program, None, 8, 4000, env=environment()) as target:
        target.expect()
        with Traced(tracer, tmp_path, *NATIVE, "-v", "--window", "30/30", "-p", target.pid) as run:
            wait_windows(run, 5)
            target.step()
            target.expect()
            wait_windows(run, 5)
            report = run.finish()
        wait_clean(target.pid)
    assert report.data["mode"] == "windows"


def test_other_allocator_overhead(tracer, tmp_path, steady):
    """If exact mode was asked for, samples follow: no table is lost for windows that do not come."""
    env = environment(LD_PRELOAD=unread_allocator(tmp_path))
    options = (*NATIVE, "-v", "-m", "exact", "--overhead", 5)
    with Target(steady, None, env=env) as target:
        with Traced(tracer, tmp_path, *options, "-p", target.pid) as run:
            target.step()
            wait_until(lambda: "exact, then exact (a sample" in run.stderr, "it is sampled")
            report = run.finish()
    assert "not in windows mode: libother.so allocates memory" in run.stderr
    assert {change["mode"] for change in report.data["modes"]} <= {"exact", "off"}


@pytest.mark.parametrize("how", [(), ("fork",)])
def test_other_allocator_budget(tracer, tmp_path, steady, how):
    """Without a mode no request has a probe, of it and of its children: the budget could not be
    kept."""
    env = environment(LD_PRELOAD=unread_allocator(tmp_path))
    with Target(steady, None, *how, env=env) as target:
        with Traced(tracer, tmp_path, "-v", "--overhead", 5, "-p", target.pid) as run:
            target.step()
            if how:
                wait_until(lambda: "forked by PID" in run.stderr, "a child is traced")
            target.step()
            target.expect()
            report = run.finish()
    assert "libother.so allocates memory" in run.stderr and "-m exact" in run.stderr
    assert not re.search(r"malloc in|probes in \S*libother", run.stderr), run.stderr
    assert {p["layer"] for p in report.data.get("processes", [report.data])} == {"mmap"}


def test_static_budget(run_tracer, tmp_path):
    """Nor has what is linked statically, of which no mapped memory is seen."""
    path = compiled(tmp_path / "static", NAME, "-static")
    with Target(path, None) as target:
        for options in ((), NATIVE):
            done = run_tracer("--overhead", 5, "-d", 1, *options, "-p", target.pid)
            assert done.returncode == 1
            assert len(done.stderr.splitlines()) == 1 and "-m exact" in done.stderr, done.stderr
