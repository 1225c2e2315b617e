# SPDX-License-Identifier: Apache-2.0
"""Windows of probes: estimates against what a program itself reports, and no probe is left where it
was placed, whatever happens to the target or the tracer meanwhile. No test here checks a duration."""
import gzip
import os
import re
import resource
import signal
import subprocess
import time

import pytest

from harness import TIMEOUT, Report, Target, Traced, environment, error_line, wait_until
from in_windows import check_replay, run_in_windows, wait_clean, wait_windows
from procfs import links_holder, probed_offsets, text_differs
from truth import library

pytestmark = pytest.mark.usefixtures("undisturbed")

NAME, LARGE = "steady.py", "steady_large.py"
# Of the totals, which the heap's own counts give; of each line, whose share is estimated from the
# windows of a few seconds. The lines that keep nothing get at most TEMPORARY of all.
TOTAL, SHARE, TEMPORARY = 0.05, 0.35, 0.05


def check(report, live, name=NAME):
    sizes = {mark: report.line(name, mark)[0] for mark in "ABT"}
    truth = {mark: size for mark, (size, _) in live.items()}
    told = sum(sizes.values())
    # A target that a busy machine slows may look as if it had worked between windows only.
    untold = report.data["windows"]["unseen"]["size"]
    assert told <= (1 + TOTAL) * sum(truth.values()), (sizes, truth)
    assert told + untold >= (1 - TOTAL) * sum(truth.values()), (sizes, truth, untold)
    assert sizes["T"] <= TEMPORARY * told, (sizes, truth)
    for mark in truth:
        share = truth[mark] / sum(truth.values())
        assert sizes[mark] == pytest.approx(share * told, rel=SHARE), (mark, sizes, truth)


@pytest.mark.versions("3.11")
def test_large_beside_jemalloc(tracer, tmp_path, python):
    """Large blocks are traced all the time, so none of them is told as not seen. malloc's heap,
    which says so otherwise, is not glibc's."""
    env = environment(LD_PRELOAD=library("libjemalloc.so.2"))
    with Target(python, "golden.py", env=env) as target:
        with Traced(tracer, tmp_path, "-v", "--window", "30/60", "-p", target.pid) as run:
            wait_windows(run, 2)
            target.step()
            live = target.expect()
            wait_windows(run, 2)
            report = run.finish()
    assert report.line("golden.py", "B") == live["B"]
    assert report.data["windows"]["unseen"]["count"] < live["B"][1]


@pytest.mark.versions("3.8", "3.11", "3.13")
def test_by_hand(tracer, tmp_path, python):
    """A program that keeps and drops blocks of the same type and size."""
    capture = tmp_path / "capture"
    with Target(python, NAME) as target:
        args = ("--window", "40/200", "--capture", capture)
        _, live, report = run_in_windows(tracer, tmp_path, target, *args)
    assert report.data["mode"] == "windows"
    check(report, live)
    check_replay(tracer, tmp_path, capture, report)


@pytest.mark.versions("3.8", "3.11", "3.13")
@pytest.mark.parametrize("how", ("steady", "bursts", "phases"))
def test_allocated(tracer, tmp_path, python, how):
    """What was allocated, alive or not, is estimated within its error, however much slower the
    program is in windows: its large blocks are counted all the time."""
    with Target(python, "allocates.py", how) as target:
        with Traced(tracer, tmp_path, "-v", "--window", "40/200", "-p", target.pid) as run:
            wait_windows(run, 1)
            target.step()
            wait_windows(run, 40)
            target.step()
            truth = sum(size for size, _ in target.expect().values())
            wait_windows(run, 1)
            run.finish()
            profile = gzip.decompress(open(run.snapshot, "rb").read())
    told = lambda key: int(re.search(rb"windows\.allocated_%s.(\d+)" % key, profile)[1])
    estimate, low = told(b"bytes"), told(b"low")
    assert told(b"by_work") == 1 and low <= estimate <= told(b"high")
    # Twice the 95 % interval, and what the program allocates besides.
    assert abs(estimate - truth) <= 2 * (estimate - low) + 0.1 * truth, (low, estimate, truth)


@pytest.mark.versions("3.8", "3.11", "3.13")
def test_lengths(tracer, tmp_path, python):
    """The heap shows how long strings are: lines whose strings differ in that are told exactly."""
    name = "lengths.py"
    with Target(python, name) as target:
        with Traced(tracer, tmp_path, "-v", "--window", "40/100", "-p", target.pid) as run:
            target.step()
            wait_windows(run, 40)
            target.step()
            live = target.expect()
            report = run.finish()
    for mark, (size, _) in live.items():
        assert report.line(name, mark)[0] == pytest.approx(size, rel=0.02), (mark, live)


@pytest.mark.long
def test_distribution(tracer, tmp_path):
    """A stripped interpreter."""
    if not os.path.exists("/usr/bin/python3"):
        pytest.skip("there is no /usr/bin/python3")
    with Target("/usr/bin/python3", NAME) as target:
        _, live, report = run_in_windows(tracer, tmp_path, target, "--window", "40/200")
    check(report, live)


@pytest.mark.versions("3.8", "3.11", "3.13")
def test_burst_between(tracer, tmp_path, python):
    """What is allocated when no window is open stands at the lines that took its pools, not at one
    that windows have shown to drop all of its blocks."""
    name = "burst.py"
    with Target(python, name) as target:
        with Traced(tracer, tmp_path, "-v", "--window", "40/3600000", "-p", target.pid) as run:
            wait_windows(run, 1)
            target.step()
            live = target.expect()
            report = run.finish()
        wait_clean(target.pid)
    truth = {mark: size for mark, (size, _) in live.items()}
    total = sum(truth.values())
    sizes = {mark: report.line(name, mark)[0] for mark in "ABT"}
    assert report.data["windows"]["count"] == 1
    assert report.data["windows"]["pools"]["size"] == pytest.approx(total, rel=0.15)
    assert report.data["windows"]["unseen"]["size"] <= TOTAL * total
    assert sizes["T"] <= TEMPORARY * total, (sizes, truth)
    for mark in truth:
        assert sizes[mark] == pytest.approx(truth[mark], rel=SHARE), (mark, sizes, truth)


def test_pools_restricted(tracer, tmp_path, any_python):
    """Where pools alone cost more than the budget, nothing is traced between windows."""
    with Target(any_python, "rounds.py") as target:
        with Traced(tracer, tmp_path, "-v", "--overhead", 0.5, "-p", target.pid) as run:
            wait_until(lambda: "and nothing else: " in run.stderr, "pools have no probes")
            target.step()
            target.read_until("done")
            report = run.finish()
        wait_clean(target.pid)
    assert report.data["mode"] == "windows"


def test_own_cost(tracer, tmp_path, any_python):
    """What the tracer reads of a window's blocks is not counted as the cost of placing probes, or
    programs that allocate much would have few windows."""
    windows = re.compile(r"a window of ([0-9.]+) ms .* the tracer ([0-9.]+) ms")
    with Target(any_python, "rounds.py") as target:
        with Traced(tracer, tmp_path, "-vv", "--overhead", 60, "-p", target.pid) as run:
            wait_until(
                lambda: [at for at, _ in windows.findall(run.stderr) if float(at) > 200],
                "there is a long window",
            )
            target.step()
            target.read_until("done")
            run.finish()
        wait_clean(target.pid)
    long = [(float(at), float(own)) for at, own in windows.findall(run.stderr) if float(at) > 200]
    assert all(own < at / 4 for at, own in long), long


def test_last_in_window(tracer, tmp_path, any_python):
    """While a window's probes are removed, the addresses of its last blocks are given to others,
    which no probe shows: these must not be taken for them."""
    name = "handed_on.py"
    with Target(any_python, name) as target:
        with Traced(tracer, tmp_path, "-v", "--window", "40/200", "-p", target.pid) as run:
            target.step()
            wait_windows(run, 20)
            target.step()
            kept = target.expect()["A"][0]
            report = run.finish()
    assert report.line(name, "T")[0] <= 0.02 * kept, report.lines()
    assert report.line(name, "A")[0] == pytest.approx(kept, rel=TOTAL), report.lines()


@pytest.mark.long
def test_overhead(tracer, tmp_path, any_python):
    """--overhead chooses the windows, after census mode has proved too expensive."""
    with Target(any_python, NAME) as target:
        options = ("-v", "-m", "census", "--overhead", 50)
        with Traced(tracer, tmp_path, *options, "-p", target.pid) as run:
            target.step()
            wait_until(lambda: "census, then windows" in run.stderr, "it is traced in windows")
            wait_windows(run, 4)
            target.step()
            live = target.expect()
            report = run.finish()
        wait_clean(target.pid)
    assert [change["mode"] for change in report.data["modes"]][:2] == ["census", "windows"]
    assert "Modes: census 0.0-" in run.stdout
    check(report, live)


def test_large(tracer, tmp_path, any_python):
    """Large blocks that are too many for probes all the time are traced in windows, too: dead ones
    are recognised by malloc's heap and their content, and the interpreter's count gives the total.
    """
    capture = tmp_path / "capture"
    with Target(any_python, LARGE) as target:
        with Traced(
            tracer, tmp_path, "-v", "--overhead", 10, "--capture", capture, "-p", target.pid
        ) as run:
            target.step()
            wait_until(lambda: "then windows of large blocks, too" in run.stderr, "it is")
            wait_windows(run, 8)
            target.step()
            live = target.expect()
            report = run.finish()
        wait_clean(target.pid)
    assert report.data["windows"]["large_blocks"] is True
    assert "those of large blocks, too" in run.stdout
    check(report, live, LARGE)
    check_replay(tracer, tmp_path, capture, report)


@pytest.mark.long
@pytest.mark.parametrize("limit", [("--window", "40/200"), ("--overhead", "10")])
def test_large_older(tracer, tmp_path, any_python, limit):
    """Large blocks from before the attach: malloc's heap says how many there are of each size, and
    the windows which lines allocate such blocks. It does not matter whether later ones are traced all
    the time or in windows."""
    with Target(any_python, LARGE) as target:
        target.step()
        time.sleep(2)
        target.step()
        before = target.expect()
        with Traced(tracer, tmp_path, "-v", *limit, "-p", target.pid) as run:
            target.step()
            if "--overhead" in limit:
                wait_until(lambda: "then windows of large blocks, too" in run.stderr, "it is")
            wait_windows(run, 10)
            target.step()
            live = target.expect()
            report = run.finish()
        wait_clean(target.pid)
    older = Report({**report.data, **report.data["older"]})
    check(older, before, LARGE)
    check(report, {mark: (live[mark][0] - before[mark][0], 0) for mark in live}, LARGE)
    assert "estimates cover them by size" in run.stdout


def test_large_renewed(tracer, tmp_path, any_python):
    """Large buffers that die between windows, and whose memory others have then, are not added up:
    there are never more than the interpreter counts."""
    with Target(any_python, "renewed_large.py") as target:
        with Traced(tracer, tmp_path, "-v", "--overhead", 10, "-p", target.pid) as run:
            target.step()
            wait_until(lambda: "then windows of large blocks, too" in run.stderr, "it is")
            wait_windows(run, 2)
            target.step()
            live = target.expect()
            report = run.finish()
    # The buffers, and the objects that they are of, which are small blocks. If all that windows have
    # shown has died, they are told as not seen.
    large = report.data["coverage"]["large_blocks"]
    per_block = live["R"][0] / live["R"][1]
    found = report.line("renewed_large.py", "R")[0]
    assert found <= large * per_block, (large, live)
    assert found or report.data["windows"]["unseen"]["size"] > 0, report.data["windows"]


def test_fork_exec_exit(tracer, tmp_path, any_python):
    """Children that are forked in windows, call exec or end, and the end of the target."""
    with Target(any_python, "unruly_windows.py") as target:
        with Traced(tracer, tmp_path, "-v", "--window", "20/20", "-p", target.pid) as run:
            target.step()
            wait_windows(run, 20)
            target.step()
            target.read_until("done")
            run.finish()
            wait_clean(target.pid)
            assert target.finish() == 0


@pytest.mark.parametrize("end", [signal.SIGKILL, None])
def test_ends(tracer, tmp_path, any_python, end):
    """The target ends by itself, or is killed, in a window or between two. What is known then is from
    the last walk of its heap, which comes once in many windows."""
    with Target(any_python, NAME) as target:
        with Traced(tracer, tmp_path, "-v", "--window", "30/10", "-p", target.pid) as run:
            target.step()
            wait_windows(run, 40)
            if end:
                os.kill(target.pid, end)
            else:
                target.step()
                target.expect()
                target.finish()
            assert run.wait() == 0, run.stderr
            report = run.report()
    assert report.line(NAME, "A")[0] > 0


def test_stopped(tracer, tmp_path, any_python):
    """The target is stopped for several windows, and goes on."""
    with Target(any_python, NAME) as target:
        with Traced(tracer, tmp_path, "-v", "--window", "20/50", "-p", target.pid) as run:
            target.step()
            wait_windows(run, 5)
            os.kill(target.pid, signal.SIGSTOP)
            wait_windows(run, 10)
            os.kill(target.pid, signal.SIGCONT)
            wait_windows(run, 40)
            target.step()
            live = target.expect()
            report = run.finish()
        wait_clean(target.pid)
    assert report.line(NAME, "A")[0] == pytest.approx(live["A"][0], rel=SHARE)


def test_clear(tracer, tmp_path, any_python):
    """ctl clear between windows: only what is allocated after it counts."""
    with Target(any_python, NAME) as target:
        with Traced(tracer, tmp_path, "-v", "--window", "20/60", "-p", target.pid) as run:
            target.step()
            wait_windows(run, 5)
            target.step()
            before = target.expect()
            done = subprocess.run(
                [tracer, "ctl", str(target.pid), "clear"], timeout=TIMEOUT, stdout=subprocess.PIPE
            )
            assert done.returncode == 0
            target.step()
            wait_windows(run, 40)
            target.step()
            after = target.expect()
            report = run.finish()
    check(report, {mark: (size - before[mark][0], 0) for mark, (size, _) in after.items()})


def test_killed(tracer, tmp_path, any_python):
    """SIGKILL of the tracer, in a window or between two."""
    with Target(any_python, NAME) as target:
        target.step()
        for count in range(4):
            with Traced(tracer, tmp_path, "-v", "--window", "30/10", "-p", target.pid) as run:
                wait_windows(run, 1 + count)
                run.kill()
            wait_clean(target.pid)
        target.step()
        target.expect()


def test_two(tracer, tmp_path, any_python):
    """Two tracers at the same places: each removes only its own probes."""
    (tmp_path / "a").mkdir(), (tmp_path / "b").mkdir()
    with Target(any_python, NAME) as target:
        with Traced(tracer, tmp_path / "a", "-v", "--window", "20/30", "-p", target.pid) as one:
            with Traced(tracer, tmp_path / "b", "-v", "--window", "25/35", "-p", target.pid) as two:
                target.step()
                wait_windows(one, 10)
                wait_windows(two, 10)
                two.finish()
            wait_windows(one, 40)
            target.step()
            live = target.expect()
            report = one.finish()
        wait_clean(target.pid)
    assert report.line(NAME, "A")[0] == pytest.approx(live["A"][0], rel=SHARE)


def test_beside_another(tracer, tmp_path, any_python):
    """Another tracer's probes are at the same places all the time: windows go on, and their end
    leaves the other's in place."""
    (tmp_path / "a").mkdir(), (tmp_path / "b").mkdir()
    with Target(any_python, NAME) as target:
        with Traced(tracer, tmp_path / "a", "-p", target.pid) as one:
            probes = text_differs(target.pid)
            with Traced(tracer, tmp_path / "b", "-v", "--window", "20/30", "-p", target.pid) as two:
                target.step()
                wait_windows(two, 10)
                target.step()
                live = target.expect()
                two.finish()
            wait_until(lambda: text_differs(target.pid) == probes, "only the other's are left")
            report = one.finish()
        wait_clean(target.pid)
    assert report.marked(NAME, live) == live


TRACEFS = "/sys/kernel/tracing"


@pytest.fixture
def uprobe_events():
    """A file that uprobes of the kernel's own tracer are written to."""
    path = os.path.join(TRACEFS, "uprobe_events")
    if not os.path.exists(path):
        subprocess.run(["mount", "-t", "tracefs", "tracefs", TRACEFS], stderr=subprocess.DEVNULL)
    if not os.path.exists(path):
        pytest.skip("there is no tracefs")
    return path


def test_beside_perf(tracer, tmp_path, any_python, uprobe_events):
    """A uprobe of ftrace, as perf probe places them, at a place of ours: it stays, and nothing else."""

    def write(path, text):
        fd = os.open(path, os.O_WRONLY | os.O_APPEND)
        try:
            os.write(fd, text.encode() + b"\n")
        finally:
            os.close(fd)

    with Target(any_python, NAME) as target:
        with Traced(tracer, tmp_path, "-v", "--window", "200/20", "-p", target.pid) as run:
            target.step()
            places = wait_until(lambda: list(probed_offsets(target.pid)), "probes are in place")
            name = "tracer_windows_%d" % target.pid
            write(uprobe_events, "p:%s/same %s:0x%x" % (name, *places[len(places) // 2]))
            enable = os.path.join(TRACEFS, "events", name, "same", "enable")
            try:
                write(enable, "1")
                wait_windows(run, 10)
                run.finish()
                wait_until(lambda: text_differs(target.pid) == 1, "only the other probe is left")
            finally:
                write(enable, "0")
                write(uprobe_events, "-:%s/same" % name)
        wait_clean(target.pid)
        target.step()
        target.expect()


def test_links_refused_once(tracer, tmp_path, any_python):
    """The process that holds the links may open no file for some windows: these are left out, and
    later ones are not."""
    with Target(any_python, NAME) as target:
        with Traced(tracer, tmp_path, "-v", "--window", "20/60", "-p", target.pid) as run:
            target.step()
            wait_windows(run, 5)
            holder = links_holder(run.pid)
            limits = resource.prlimit(holder, resource.RLIMIT_NOFILE)
            resource.prlimit(holder, resource.RLIMIT_NOFILE, (3, limits[1]))
            wait_until(lambda: "no probes in this window" in run.stderr, "a window is left out")
            resource.prlimit(holder, resource.RLIMIT_NOFILE, limits)
            descriptors = "/proc/%d/fd" % holder
            wait_windows(run, 20)
            assert len(os.listdir(descriptors)) < 20
            target.step()
            live = target.expect()
            report = run.finish()
        wait_clean(target.pid)
    check(report, live)


@pytest.mark.unprivileged
@pytest.mark.parametrize("window", ["0/5", "5/0", "5", "5/", "/5", "5/5/5", "-1/5", "5/x", "1e3/5"])
def test_refused(tracer, window):
    done = subprocess.run(
        [tracer, "--window=" + window, "-p", "1"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        timeout=TIMEOUT,
        text=True,
    )
    error_line(done, 2)
    assert "--window" in done.stderr


@pytest.mark.unprivileged
@pytest.mark.parametrize(
    "other", [("-m", "exact"), ("-m", "growth"), ("--overhead", "5"), ("--sample", "64K")]
)
def test_conflicts(tracer, other):
    done = subprocess.run(
        [tracer, "--window", "40/200", *other, "-p", "1"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        timeout=TIMEOUT,
        text=True,
    )
    error_line(done, 2)
