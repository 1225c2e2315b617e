# SPDX-License-Identifier: Apache-2.0
"""Growth mode: pools are charged to the lines that first used them, and mapped memory to the lines
that mapped it."""
import json
import subprocess

import pytest

from harness import error_line, marked_line, program
from parity import POOL_SLACK as SLACK
from parity import pools_expected

NAME = "growth.py"
VERSIONS = ("3.8", "3.11", "3.13")
ARENA = 1 << 20


def lines_of(report):
    """{line: (bytes, count)} of the program's lines."""
    return {line: pair for (file, line), pair in report.lines().items() if file == program(NAME)}


def mapped_of(report):
    return {
        s["traceback"][0]["lineno"]: (s["size"], s["count"])
        for s in report.data["mapped"]["statistics"]
        if s["traceback"][0]["filename"] == program(NAME)
    }


def check_pools(report, live, marks):
    pool_size = report.data["pool_size"]
    lines = lines_of(report)
    for mark in marks:
        size, count = lines[marked_line(NAME, mark)]
        pools = size // pool_size
        # pymalloc's own list of arenas is a large block of the line that made it grow.
        assert (size % pool_size, count) == (0, pools) or report.data["large_blocks_traced"]
        assert abs(pools - pools_expected(live[mark], pool_size)) <= SLACK, mark


def check_coverage(report):
    coverage = report.data["coverage"]
    assert coverage["seen_blocks"] == coverage["new_blocks"] > 0
    assert coverage["seen_bytes"] == coverage["new_bytes"]
    assert coverage["live_blocks"] == coverage["old_blocks"] + coverage["new_blocks"]


def check(start, trace, python, *options):
    target = start(python, NAME)
    run = trace("-m", "growth", "-p", target.pid, *options)
    target.step()
    live = target.expect()
    target.wait_reading()
    report = run.finish()
    assert report.data["mode"] == "growth"
    assert report.lost_events == 0
    assert report.data["not_seen"]["records_malformed"] == 0
    check_pools(report, live, "AB")
    check_coverage(report)
    churned = lines_of(report).get(marked_line(NAME, "C"), (0, 0))
    assert churned[1] <= SLACK, "steady state is no growth"
    mapped = mapped_of(report)
    size, count = mapped[marked_line(NAME, "M")]
    pages = (live["M"][0] // live["M"][1] + 4095) // 4096 * 4096
    arenas = count - live["M"][1]  # an arena that a mmap object happened to need
    assert 0 <= arenas <= 1 and size - live["M"][1] * pages in (0, ARENA >> 2, ARENA)
    assert marked_line(NAME, "U") not in mapped
    assert (
        "charged to the line that first used them" in run.stdout
        and "no list of leaks; tracer heap --by path" in run.stdout
        and "do not add up" in run.stdout
    )
    assert target.finish() == 0, "the target was harmed"
    return report, live


@pytest.mark.versions(*VERSIONS)
def test_growth(start, trace, python):
    report, live = check(start, trace, python)
    assert marked_line(NAME, "L") not in lines_of(report)
    assert report.data["large_blocks_traced"] is False


def test_growth_inlined(start, trace, debian_python):
    check(start, trace, debian_python)


@pytest.mark.parametrize("backend", ("multi", "perf"))
def test_growth_backends(start, trace, debian_python, backend):
    check(start, trace, debian_python, "--backend", backend)


@pytest.mark.versions(*VERSIONS)
def test_large_blocks(start, trace, python):
    report, live = check(start, trace, python, "--large-blocks")
    assert lines_of(report)[marked_line(NAME, "L")] == live["L"]
    assert report.data["large_blocks_traced"] is True


def test_large_blocks_inlined(start, trace, debian_python):
    report, live = check(start, trace, debian_python, "--large-blocks")
    assert lines_of(report)[marked_line(NAME, "L")] == live["L"]


@pytest.mark.versions(*VERSIONS)
def test_pools_given_back(start, trace, python):
    """Freed pools are removed by the next heap walk, although no free is probed."""
    target = start(python, NAME)
    run = trace("-m", "growth", "-p", target.pid)
    target.step()
    target.expect()
    target.step()
    live = target.expect()
    target.wait_reading()
    report = run.finish()
    assert lines_of(report).get(marked_line(NAME, "A"), (0, 0))[1] <= SLACK
    check_pools(report, live, "B")
    check_coverage(report)


@pytest.mark.versions("3.8", "3.13")
def test_launch(trace, python):
    """From the start of a command: the heap's first pools are included, and memory that the loader
    did not map."""
    run = trace("-m", "growth", "--", python.path, program(NAME), stdin=subprocess.PIPE)
    run.step()
    live = run.expect()
    run.step()
    run.expect()
    run.step()
    assert run.wait() == 0
    report = run.report()
    assert report.data["from_start"] is True
    check_pools(report, live, "B")
    assert report.data["mapped"]["total"]["size"] >= lines_of(report)[marked_line(NAME, "B")][0]


def test_replay(start, trace, debian_python, tmp_path, run_tracer):
    """A replayed capture gives the same report, including the mapped layer."""
    target = start(debian_python, NAME)
    capture = str(tmp_path / "growth.cap")
    run = trace("-m", "growth", "--capture", capture, "-p", target.pid)
    target.step()
    target.expect()
    report = run.finish()
    done = run_tracer("replay", capture, "--format", "json", "--top", 0)
    assert done.returncode == 0, done.stderr
    replayed = json.loads(done.stdout)
    assert replayed["statistics"] == report.statistics
    assert replayed["mapped"] == report.data["mapped"]


def test_options(run_tracer, any_python):
    """Incompatible options are refused."""
    for options in (
        ("--large-blocks",),
        ("-m", "exact", "--large-blocks"),
        ("-m", "growth", "--public"),
    ):
        done = run_tracer(*options, "--", any_python.path, "-c", "1")
        error_line(done, 2)


def test_dry_run(run_tracer, debian_python):
    done = run_tracer("-m", "growth", "--dry-run", "--", debian_python.path, "-c", "1")
    assert done.returncode == 0, done.stderr
    assert "a pool is taken into use" in done.stdout
    for name in ("munmap", "mremap", "mprotect", "brk", "mmap"):
        assert any(line.startswith("  " + name) for line in done.stdout.splitlines()), name
    assert "PyTraceMalloc_Track" in done.stdout and "_Py_NewReference" not in done.stdout
