# SPDX-License-Identifier: Apache-2.0
"""--overhead: which modes ran, and in what order. No test here checks a duration."""
import os
import re
import signal
import subprocess
import time

import pytest

from harness import (
    TIMEOUT,
    Target,
    Traced,
    compiled,
    environment,
    error_line,
    read_report,
    wait_until,
)


def modes(report):
    return [change["mode"] for change in report.data["modes"]]


@pytest.mark.versions("3.8", "3.11", "3.13")
def test_narrows(tracer, tmp_path, python):
    """A program that only allocates is traced in census mode, then in windows: large blocks are too
    many for probes all the time, and are traced in windows, too. It is stopped while the tracer
    attaches: it is not busy then."""
    with Target(python, "busy.py") as target:
        os.kill(target.pid, signal.SIGSTOP)
        with Traced(
            tracer,
            tmp_path,
            "-m",
            "exact",
            "--overhead",
            5,
            "--capture",
            tmp_path / "c",
            "-p",
            target.pid,
        ) as run:
            os.kill(target.pid, signal.SIGCONT)
            wait_until(lambda: "windows of large blocks, too" in run.stderr, "it is in windows")
            assert "exact, then census: the probes took" in run.stderr
            target.step()
            target.expect()
            target.wait_reading()
            report = run.finish()
    assert modes(report)[:4] == ["exact", "census", "windows", "windows"]
    assert [change["budget"] for change in report.data["modes"][:3]] == [0, 0.05, 0.05]
    assert all(0.05 < change["cost"] <= 1 for change in report.data["modes"][1:3])
    since = [change["since_ns"] for change in report.data["modes"]]
    assert since == sorted(since) and since[0] == 0 and since[-1] <= report.data["duration_ns"]
    assert report.data["mode"] == "windows"
    assert report.data["windows"]["large_blocks"] is True
    assert "Modes: exact 0.0-" in run.stdout
    # The capture has the same modes.
    replayed = tmp_path / "replayed.pb.gz"
    done = subprocess.run(
        [tracer, "replay", tmp_path / "c", "-o", replayed], stdout=subprocess.PIPE, timeout=TIMEOUT
    )
    assert done.returncode == 0
    again = read_report(tracer, replayed)
    assert again.data["modes"] == report.data["modes"]


@pytest.mark.versions("3.8", "3.11", "3.13")
def test_begins_in_windows(tracer, tmp_path, python):
    """A busy program begins in windows, whatever was requested: its probes are not in place all the
    time even at the beginning."""
    with Target(python, "busy.py") as target:
        with Traced(
            tracer, tmp_path, "-v", "-m", "exact", "--overhead", 5, "-p", target.pid
        ) as run:
            assert "windows mode" in run.stderr
            wait_until(lambda: run.stderr.count(": a window of") >= 3, "some windows are over")
            report = run.finish()
    assert report.data["mode"] == "windows"
    assert {change["mode"] for change in report.data.get("modes", [])} <= {"windows"}
    assert "exact 0.0-" not in run.stdout


def test_widens(tracer, tmp_path, any_python):
    """A program that is busy without allocating: the first window shows that the requested mode
    costs next to nothing."""
    with Target(any_python, "quiet.py") as target:
        with Traced(
            tracer, tmp_path, "-v", "-m", "exact", "--overhead", 20, "-p", target.pid
        ) as run:
            wait_until(lambda: "windows, then exact" in run.stderr, "it is traced all the time")
            target.step()
            live = target.expect()
            report = run.finish()
    assert modes(report) == ["windows", "exact"]
    assert report.marked("quiet.py", live) == live


def test_stays(tracer, tmp_path, any_python):
    """An idle program costs nothing: the trace stays in the requested mode, and later figures are
    exact."""
    with Target(any_python, "golden.py", 10) as target:
        with Traced(
            tracer, tmp_path, "-m", "exact", "--overhead", 5, "-v", "-p", target.pid
        ) as run:
            wait_until(lambda: run.stderr.count("probes took") >= 5, "some periods are over")
            target.step()
            live = target.expect()
            target.wait_reading()
            report = run.finish()
    assert "modes" not in report.data, report.data["modes"]
    assert report.data["mode"] == "exact"
    assert report.marked("golden.py", live) == live


def test_native(tracer, tmp_path, blocks_program):
    """Without Python there is no census mode, and the heap of this allocator is not read, so there
    are no windows: the samples become smaller, then the probes are removed."""
    other = compiled(tmp_path / "other.so", "other_malloc.c", "-shared", "-fPIC")
    with Target(blocks_program, "blocks.c", "busy", env=environment(LD_PRELOAD=other)) as target:
        asked = ("-m", "exact", "--overhead", 1)
        with Traced(tracer, tmp_path, *asked, "-p", target.pid) as run:
            wait_until(lambda: "then off" in run.stderr, "the probes are out")
            report = run.finish()
    changes = report.data["modes"]
    assert modes(report)[:5] == ["exact"] * 4 + ["off"]
    samples = [change["sample_bytes"] for change in changes[:4]]
    assert samples[0] == 0 and samples == sorted(set(samples))
    # The remaining entries are a sample: they represent all blocks that were in the table.
    assert report.data["sample_bytes"] == samples[-1]


def test_off(tracer, tmp_path, any_python):
    """If no mode meets the budget, the probes are removed. The report states since when nothing is
    traced."""
    with Target(any_python, "busy.py") as target:
        with Traced(
            tracer, tmp_path, "-m", "growth", "--large-blocks", "--overhead", 0.1, "-p", target.pid
        ) as run:
            wait_until(lambda: "growth, then off" in run.stderr, "the probes are out")
            report = run.finish()
    assert modes(report)[:2] == ["growth", "off"]
    if modes(report)[-1] == "off":
        assert "Nothing is traced since" in run.stdout


REMARK = "the probes take"


def test_dear(tracer, tmp_path, any_python):
    """Without a budget, a program that loses more than half of its time to probes is reported once,
    with options that cost less."""
    with Target(any_python, "busy.py") as target:
        with Traced(tracer, tmp_path, "-p", target.pid) as run:
            wait_until(lambda: REMARK in run.stderr, "it is said")
            run.finish()
        lines = [line for line in run.stderr.splitlines() if REMARK in line]
        assert len(lines) == 1 and "PID %d:" % target.pid in lines[0], run.stderr
        assert 50 < float(re.search(r"take (?:more than )?(\d+) %", lines[0]).group(1)) <= 100
        assert re.findall(r"(?<= )--?\w+", lines[0]) == ["--overhead", "-m"]
        # The suggested mode costs less and prints no such message.
        with Traced(tracer, tmp_path, "-m", "growth", "-d", 1, "-p", target.pid) as run:
            assert run.wait() == 0
        assert REMARK not in run.stderr


def test_dear_late(tracer, tmp_path, any_python):
    """The same of a program that is idle at first, as a server is at night. It is stopped while the
    tracer attaches and after. The end of the report has the share."""
    with Target(any_python, "busy.py") as target:
        os.kill(target.pid, signal.SIGSTOP)
        with Traced(tracer, tmp_path, "-p", target.pid) as run:
            time.sleep(1)
            assert REMARK not in run.stderr
            os.kill(target.pid, signal.SIGCONT)
            wait_until(lambda: REMARK in run.stderr, "it is said")
            report = run.finish()
    assert run.stderr.count(REMARK) == 1
    assert 2 * report.data["probes_ns"] > report.data["cpu_ns"] > 0
    assert re.search(r"the probes took (more than )?[\d.]+ % of its CPU time, ", run.stdout)


def test_idle(tracer, tmp_path, any_python):
    """The heap of a program that did not run since it was read is as it was read."""
    with Target(any_python, "golden.py", 10) as target:
        with Traced(tracer, tmp_path, "-d", 1, "-p", target.pid) as run:
            assert run.wait() == 0
    assert "the heap was last read" not in run.stdout + run.stderr
    assert "the probes took" not in run.stdout


@pytest.mark.unprivileged
@pytest.mark.parametrize("percent", ["0.01", "-1", "101", "x", "5x", "nan"])
def test_refused(tracer, percent):
    done = subprocess.run(
        [tracer, "--overhead=" + percent, "-p", "1"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        timeout=TIMEOUT,
        text=True,
    )
    error_line(done, 2)
    assert "--overhead" in done.stderr
