# SPDX-License-Identifier: Apache-2.0
"""A trace of running processes without a mode is under a budget of 5 % from its first instant. What
names a mode, or which blocks or functions have probes, means what it says, and its cost is said."""
import os
import re
import signal
import statistics
import subprocess

import pytest

from harness import TIMEOUT, Target, Traced, wait_until

COST = re.compile(r"PID \d+: the probes take (?:more than )?[\d.]+ % of its CPU time")


def windows_wait(run, count):
    wait_until(lambda: run.stderr.count(": a window of") >= count, "some windows are over")


def check_budget(run, report):
    assert report.data["probes_budget"] == 0.05
    assert ", the budget is 5 %" in run.stdout
    assert not COST.search(run.stderr), run.stderr


@pytest.mark.versions("3.8", "3.11", "3.13")
def test_busy(tracer, tmp_path, python):
    with Target(python, "busy.py") as target:
        with Traced(tracer, tmp_path, "-v", "-p", target.pid, budget=True) as run:
            windows_wait(run, 3)
            report = run.finish()
    assert report.data["mode"] == "windows"
    check_budget(run, report)


@pytest.mark.versions("3.8", "3.11", "3.13")
def test_idle_then_busy(tracer, tmp_path, python):
    """A program that is idle at the attach has no more probes than one that is busy: when it goes to
    work, it loses next to nothing. It is stopped for the first windows."""
    with Target(python, "busy.py") as target:
        os.kill(target.pid, signal.SIGSTOP)
        with Traced(tracer, tmp_path, "-v", "-p", target.pid, budget=True) as run:
            windows_wait(run, 1)
            os.kill(target.pid, signal.SIGCONT)
            wait_until(lambda: "then windows of large blocks, too" in run.stderr, "it is noticed")
            windows_wait(run, 3)
            report = run.finish()
    assert {change["mode"] for change in report.data["modes"]} == {"windows"}
    assert report.data["probes_ns"] < report.data["cpu_ns"] / 2
    check_budget(run, report)


def test_native(tracer, tmp_path, blocks_program):
    """Natively they are windows of malloc's probes."""
    with Target(blocks_program, "blocks.c", "busy") as target:
        os.kill(target.pid, signal.SIGSTOP)
        with Traced(tracer, tmp_path, "-v", "-p", target.pid, budget=True) as run:
            windows_wait(run, 1)
            os.kill(target.pid, signal.SIGCONT)
            windows_wait(run, 3)
            report = run.finish()
    assert report.data["mode"] == "windows" and "modes" not in report.data
    assert report.data["probes_ns"] < report.data["cpu_ns"] / 2
    check_budget(run, report)


def test_windows_asleep(tracer, tmp_path, any_python):
    """Windows of a program that does nothing are short, so that hardly any of the first second of its
    work falls into one; and what they took says nothing about those after it."""
    length = re.compile(r"a window of ([0-9.]+) ms took ([0-9.]+) ms")
    with Target(any_python, "busy.py") as target:
        os.kill(target.pid, signal.SIGSTOP)
        with Traced(tracer, tmp_path, "-vv", "-p", target.pid, budget=True) as run:
            wait_until(lambda: len(length.findall(run.stderr)) > 3, "some windows are over")
            asleep = length.findall(run.stderr)
            os.kill(target.pid, signal.SIGCONT)
            wait_until(lambda: len(length.findall(run.stderr)) > len(asleep) + 2, "two are over")
            run.finish()
    # Told to end after 50 ms; a busy machine is late.
    assert statistics.median(float(at) for at, _ in asleep) < 500, run.stderr
    for at, took in length.findall(run.stderr):
        assert float(at) < 900 or float(took) < 50, run.stderr


def test_quiet(tracer, tmp_path, any_python):
    """Where the probes of census mode cost next to nothing, all blocks are traced."""
    with Target(any_python, "quiet.py") as target:
        with Traced(tracer, tmp_path, "-v", "-p", target.pid, budget=True) as run:
            wait_until(lambda: "windows, then census" in run.stderr, "it is traced all the time")
            target.step()
            live = target.expect()
            report = run.finish()
    assert report.marked("quiet.py", live) == live
    check_budget(run, report)


def test_census_asked(tracer, tmp_path, any_python):
    """A mode that is named is traced from the first instant, and what it costs is said twice."""
    with Target(any_python, "busy.py") as target:
        with Traced(tracer, tmp_path, "-m", "census", "-p", target.pid) as run:
            assert "census mode" in run.stderr
            wait_until(lambda: COST.search(run.stderr), "it is said")
            report = run.finish()
    line = next(line for line in run.stderr.splitlines() if COST.search(line))
    # The program does nothing but allocate.
    said = "more than 95 % of its CPU time"
    assert said + ", which slows it to less than 1/20: --overhead 5 holds " in line, line
    assert re.search("took %s, .* which slowed it to less than 1/20" % said, run.stdout)
    assert report.data["mode"] == "census" and "probes_budget" not in report.data


def test_cheap_asked(tracer, tmp_path, any_python):
    """So it is if it costs little, without advice."""
    with Target(any_python, "quiet.py") as target:
        with Traced(tracer, tmp_path, "-m", "exact", "-p", target.pid) as run:
            wait_until(lambda: COST.search(run.stderr), "it is said")
            run.finish()
    line = next(line for line in run.stderr.splitlines() if COST.search(line))
    assert line.endswith("of its CPU time"), line


def test_nothing_cheaper(tracer, tmp_path):
    """No advice names a mode that refuses the process: windows read the heap of glibc's malloc."""
    program, source = str(tmp_path / "mallocs"), tmp_path / "mallocs.c"
    source.write_text("#include <stdlib.h>\nint main(void) { for (;;) free(malloc(100)); }\n")
    subprocess.run(["musl-gcc", "-O1", "-fno-builtin", "-o", program, source], check=True)
    with Target(program, None, ready=False) as target:
        with Traced(tracer, tmp_path, "-m", "exact", "-p", target.pid) as run:
            wait_until(lambda: COST.search(run.stderr), "it is said")
            run.finish()
    line = next(line for line in run.stderr.splitlines() if COST.search(line))
    assert "--sample 512K spares" in line and "--overhead" not in line, line


@pytest.mark.parametrize(
    "options",
    [
        ("--overhead", "0"),
        ("--sample", "64K"),
        ("--window", "40/200"),
        ("--layer", "all"),
        ("--layer", "mmap"),
        ("--public",),
        ("-m", "growth"),
    ],
    ids=" ".join,
)
def test_paid_for(tracer, tmp_path, any_python, options):
    """What a budget could not hold, or is no business of it, is traced without one."""
    with Target(any_python, "golden.py") as target:
        with Traced(tracer, tmp_path, *options, "-p", target.pid, budget=True) as run:
            report = run.finish()
    assert "probes_budget" not in report.data
    assert "modes" not in report.data


@pytest.mark.parametrize("options", [("--layer", "native"), ("--freeze",), ("--no-reuse",)])
def test_not_paid_for(tracer, tmp_path, any_python, options):
    with Target(any_python, "golden.py") as target:
        with Traced(tracer, tmp_path, *options, "-p", target.pid, budget=True) as run:
            report = run.finish()
    assert report.data["probes_budget"] == 0.05


def test_without_windows(tracer, tmp_path, any_python):
    """Where the kernel removes probes one by one, the mode that costs next to nothing is chosen, and
    why is said."""
    options = ("--backend", "perf", "-p")
    with Target(any_python, "busy.py") as target:
        with Traced(tracer, tmp_path, *options, target.pid, budget=True) as run:
            report = run.finish()
    assert report.data["mode"] == "growth"
    assert "not in census mode: this kernel removes probes one by one" in run.stderr


def test_auto(tracer, tmp_path, any_python):
    """-d auto ends by itself: at once where all blocks are seen, of windows when it has seen enough."""
    with Target(any_python, "golden.py") as target:
        words = ("-m", "exact", "-d", "auto", "-p", target.pid)
        with Traced(tracer, tmp_path, *words) as run:
            assert run.wait() == 0
    with Target(any_python, "busy.py") as target:
        with Traced(tracer, tmp_path, "-d", "auto", "-p", target.pid, budget=True) as run:
            assert run.wait(10 * TIMEOUT) == 0
            report = run.report()
    assert report.data["windows"]["count"] > 0
    largest = max(report.statistics, key=lambda entry: entry["size"])
    assert largest["size_error"] <= largest["size"] / 2, largest


def test_command(tracer, tmp_path, any_python):
    """A command is slow from its start, as under other tracers."""
    command = (any_python.path, "-c", "print([str(i) for i in range(1000)])")
    with Traced(tracer, tmp_path, "--", *command, attached=False, budget=True) as run:
        run.wait()
        report = run.report()
    assert report.data["mode"] == "census" and "probes_budget" not in report.data
