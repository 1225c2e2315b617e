# SPDX-License-Identifier: Apache-2.0
"""--sample: estimates compared with the program's own account. Blocks are sampled at random, so the
bounds are wide: five standard errors, by the true number of blocks. An estimate exceeds them once
in a million runs."""
import json
import math
import subprocess

import pytest

from harness import TIMEOUT, Target, Traced, error_line, marked_line, read_report

KIB = 1024
MARKS = "SML"


def standard_error(mean, size, count):
    """The standard error of an estimate of count blocks of size bytes each, as (bytes, blocks)."""
    chance = -math.expm1(-size / mean)
    blocks = math.sqrt(count * (1 - chance) / chance)
    return blocks * size, blocks


def check(report, live, mean):
    for mark in MARKS:
        size, count = live[mark]
        errors = standard_error(mean, size / count, count)
        found = report.line("rates.py", mark)
        for ours, theirs, error in zip(found, (size, count), errors):
            assert abs(ours - theirs) <= 5 * error + 1, "%s: %r of %r, standard error %r" % (
                mark,
                found,
                live[mark],
                errors,
            )
        # The reported error is an estimate, too: with so few blocks it is not exact.
        entry = next(
            s
            for s in report.statistics
            if s["traceback"][0]["lineno"] == marked_line("rates.py", mark)
        )
        assert errors[0] / 2 <= entry["size_error"] <= 2 * errors[0]
        assert errors[1] / 2 <= entry["count_error"] <= 2 * errors[1]


@pytest.mark.parametrize("mode", ["census", "exact"])
@pytest.mark.parametrize("mean", [4 * KIB, 16 * KIB, 64 * KIB])
def test_estimates(tracer, tmp_path, any_python, mode, mean):
    with Target(any_python, "rates.py") as target:
        with Traced(tracer, tmp_path, "-m", mode, "--sample", mean, "-p", target.pid) as run:
            target.step()
            live = target.expect()
            target.wait_reading()
            report = run.finish()
    assert report.data["sample_bytes"] == mean
    assert report.data["not_seen"]["replaced"] == 0 or mode == "census"
    check(report, live, mean)
    # At most a thirtieth of the blocks went through the ring buffer. The heap walk shows all of
    # them.
    assert report.data["coverage"]["seen_blocks"] < report.data["coverage"]["new_blocks"]
    assert "sampled: one block for every" in run.stdout and "± " in run.stdout


@pytest.mark.versions("3.8", "3.11", "3.13")
def test_every_block(tracer, tmp_path, python):
    """With a mean of one byte all blocks are sampled: the chance of a miss is at most e^-33."""
    with Target(python, "shrink.py") as target:
        with Traced(tracer, tmp_path, "--sample", 1, "-p", target.pid) as run:
            target.step()
            live = target.expect()
            target.wait_reading()
            report = run.finish()
    assert report.marked("shrink.py", "LS") == live


@pytest.mark.parametrize("mode", ["census", "exact"])
def test_ends(tracer, tmp_path, any_python, mode):
    """Freed blocks are removed from the sample, whichever event reports the free."""
    with Target(any_python, "rates.py") as target:
        with Traced(tracer, tmp_path, "-m", mode, "--sample", 4 * KIB, "-p", target.pid) as run:
            target.step()
            target.expect()
            target.step()
            target.expect()
            target.wait_reading()
            report = run.finish()
    assert report.marked("rates.py", MARKS) == dict.fromkeys(MARKS, (0, 0))


@pytest.mark.parametrize("mean", [4 * KIB, 64 * KIB])
def test_native(tracer, tmp_path, blocks_program, mean):
    """The same for malloc's blocks, in a process without Python."""
    with Target(blocks_program, "blocks.c") as target:
        with Traced(tracer, tmp_path, "--sample", mean, "-p", target.pid) as run:
            target.step()
            size, count = target.expect()["M"]
            target.wait_reading()
            report = run.finish()
    errors = standard_error(mean, size / count, count)
    assert abs(report.total["size"] - size) <= 5 * errors[0]
    assert abs(report.total["count"] - count) <= 5 * errors[1]
    assert report.data["sample_bytes"] == mean


def test_formats(tracer, tmp_path, any_python):
    """All formats contain the estimates of a sampled snapshot."""
    with Target(any_python, "rates.py") as target:
        with Traced(tracer, tmp_path, "--sample", 16 * KIB, "-p", target.pid) as run:
            target.step()
            target.expect()
            target.wait_reading()
            report = run.finish("--group-by", "traceback")

    def export(format):
        out = tmp_path / format
        done = subprocess.run(
            [tracer, "export", run.snapshot, "--format", format, "-o", out],
            stderr=subprocess.PIPE,
            timeout=TIMEOUT,
        )
        assert done.returncode == 0, done.stderr.decode()
        return out, done.stderr.decode()

    again, said = export("pprof")
    assert not said
    assert read_report(tracer, again, "--group-by", "traceback").data == report.data
    folded, said = export("folded")
    assert "the figures are estimates" in said
    total = sum(int(line.rsplit(" ", 1)[1]) for line in folded.read_text().splitlines())
    assert abs(total - report.total["size"]) <= len(report.statistics)
    listed, said = export("tracemalloc")
    assert "the figures are estimates" in said
    theirs = read_report(tracer, listed)
    assert abs(theirs.total["count"] - report.total["count"]) <= 1
    # A fractional remainder is carried over to the next trace: at most half a block of each size.
    assert abs(theirs.total["size"] / report.total["size"] - 1) < 0.01
    done = subprocess.run(
        [tracer, "diff", listed, run.snapshot, "--format", "json"],
        stdout=subprocess.PIPE,
        timeout=TIMEOUT,
    )
    diff = json.loads(done.stdout)
    assert diff["total"]["size_diff_error"] == report.total["size_error"]


@pytest.mark.unprivileged
@pytest.mark.parametrize(
    "args",
    [["-m", "growth", "--sample", "64K"], ["--sample", "0"], ["--sample", "2G"], ["--sample", "x"]],
)
def test_refused(tracer, args):
    done = subprocess.run(
        [tracer, *args, "-p", "1"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        timeout=TIMEOUT,
        text=True,
    )
    error_line(done, 2)
    assert "--sample" in done.stderr
