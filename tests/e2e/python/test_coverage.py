# SPDX-License-Identifier: Apache-2.0
"""The share of the new blocks on the heap that the trace has seen is measured and reported."""
import re
import signal
import subprocess

import pytest

from harness import environment, program, wait_until
from procfs import is_pending


def attached(start, trace, python, *options, env=None):
    target = start(python, "mixed.py", env=env)
    run = trace("-p", target.pid, *options)
    target.step()
    target.expect()
    report = run.finish()
    assert target.finish() == 0
    return run, report


def launched(trace, python):
    """A command is measured while it runs. This command waits for input until it is interrupted."""
    run = trace("--", python.path, program("mixed.py"), stdin=subprocess.PIPE)
    run.step()
    run.expect()
    # The first Ctrl-C belongs to the command. A second one ends the trace, and a third one would end
    # the last walk of the heap.
    for _ in range(2):
        run.interrupt()
        wait_until(
            lambda: run.process.poll() is not None
            or not is_pending(run.process.pid, signal.SIGINT),
            "it has heard the interrupt",
        )
    assert run.wait() == 0, run.stderr
    assert "ptrace" not in run.stderr  # launching is no debugging
    return run, run.finish()


def check_text(run, coverage):
    full = r"^  coverage: .*?(\d+\.\d) % of the ([\d,]+) small blocks \((\d+\.\d) % of bytes\)"
    short = r"^Not seen: .*?(\d+\.\d) % of ([\d,]+) new small blocks traced()"
    share = re.search(full, run.stdout, re.M) or re.search(short, run.stdout, re.M)
    assert share, run.stdout
    assert int(share.group(2).replace(",", "")) == coverage["new_blocks"]
    assert (
        float(share.group(1)) == int(1000 * coverage["seen_blocks"] / coverage["new_blocks"]) / 10
    )
    assert (
        not share.group(3)
        or float(share.group(3)) == int(1000 * coverage["seen_bytes"] / coverage["new_bytes"]) / 10
    )


def check_small(run, report):
    coverage = report.data["coverage"]
    assert coverage["new_blocks"] > 2000
    assert 0.999 <= coverage["seen_blocks"] / coverage["new_blocks"] <= 1
    assert 0.999 <= coverage["seen_bytes"] / coverage["new_bytes"] <= 1
    assert coverage["large_new"] > 0
    assert coverage["typed_blocks"] > 100 and coverage["mistyped_blocks"] == 0
    check_text(run, coverage)


def check_full(run, report):
    check_small(run, report)
    assert report.data["coverage"]["large_seen"] >= report.data["coverage"]["large_new"]


def check_partial(run, report):
    """Some copies of an inlined allocator have a symbol, most do not."""
    coverage = report.data["coverage"]
    assert coverage is not None, "not measured"
    assert coverage["new_blocks"] > 2000
    assert 0 < coverage["seen_blocks"] < coverage["new_blocks"]
    assert 0 < coverage["seen_bytes"] < coverage["new_bytes"]
    check_text(run, coverage)


@pytest.mark.versions()
def test_full_attach(start, trace, python):
    run, report = attached(start, trace, python)
    check_full(run, report)
    assert report.data["coverage"]["old_blocks"] > 1000, "the blocks from before the attach"


@pytest.mark.versions("3.8", "3.12", "3.13")
def test_debug_hooks(start, trace, python):
    """The program's pointer is 16 bytes after the start of the block."""
    check_full(*attached(start, trace, python, env=environment(PYTHONMALLOC="debug")))


def test_debug_hooks_inlined(start, trace, debian_python):
    check_small(*attached(start, trace, debian_python, env=environment(PYTHONMALLOC="debug")))


@pytest.mark.versions("3.8", "3.11", "3.13")
def test_full_launch(trace, python):
    run, report = launched(trace, python)
    check_full(run, report)
    assert report.data["coverage"]["old_blocks"] == 0


def test_inlined_attach(start, trace, debian_python):
    """The allocator is inlined at hundreds of places, and the interpreter is stripped."""
    run, report = attached(start, trace, debian_python)
    check_small(run, report)
    assert report.data["coverage"]["old_blocks"] > 1000


def test_inlined_launch(trace, debian_python):
    """A few large blocks that calloc allocates through the raw slot are traced as blocks of the raw
    allocator."""
    check_small(*launched(trace, debian_python))


def test_partial(start, trace, debian_python):
    """The share of blocks without a line is reported during the trace, and above all figures of the
    report."""
    run, report = attached(start, trace, debian_python, "--public")
    check_partial(run, report)
    warnings = report.data["warnings"]
    assert any(
        re.match(r"of \d+ small blocks that are new on the heap, only \d+ were seen: ", said)
        for said in warnings
    )
    assert run.stdout.startswith("".join("Warning: %s\n" % said for said in warnings) + "tracer: ")
    assert re.search(
        r"^tracer: PID %d: .*: the others (are|may) not (be )?in the report$" % report.data["pid"],
        run.stderr,
        re.M,
    )


@pytest.mark.versions("3.8", "3.11", "3.13")
def test_other_objects(start, trace, python):
    """Live blocks that hold objects of another size than requested are reported."""
    target = start(python, "other_size.py")
    run = trace("-p", target.pid)
    target.step()
    target.read_line()
    report = run.finish()
    target.step()
    assert (
        100 <= report.data["coverage"]["mistyped_blocks"] <= report.data["coverage"]["typed_blocks"]
    )
    assert any("differ from the traced size" in said for said in report.data["warnings"])


@pytest.mark.versions("3.8", "3.11", "3.13")
def test_shrunk_blocks(start, trace, python):
    """Large blocks that were shrunk remain large blocks, because the interpreter still counts them
    as large."""
    target = start(python, "shrink.py")
    run = trace("-p", target.pid)
    target.step()
    live = target.expect()
    report = run.finish()
    assert report.marked("shrink.py", live) == live
    coverage = report.data["coverage"]
    assert coverage["large_new"] == coverage["large_seen"] == live["S"][1]


def test_ended_by_itself(start, trace, any_python):
    """A target that may end by itself is measured periodically. The report has the last
    measurement."""
    target = start(any_python, "mixed.py")
    run = trace("-p", target.pid, "--interval", "0.1", "--format", "json")
    target.step()
    target.expect()
    wait_until(
        lambda: [r for r in run.printed_reports() if r.data["coverage"]], "the heap has been read"
    )
    assert target.finish() == 0
    assert run.wait() == 0
    assert run.report().data["coverage"]["seen_blocks"] > 0
