# SPDX-License-Identifier: Apache-2.0
"""Page faults by line (--layer pages): what the lines have is what RSS has grown by."""
import os
import subprocess

import pytest

from harness import TIMEOUT, compiled, program, wait_until

PAGE = 4096


def rss_of(pid):
    with open("/proc/%d/smaps_rollup" % pid) as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith("Rss:"))


def expect_near(found, wanted, share=0.01):
    assert abs(found - wanted) <= wanted * share, (found, wanted)


def unfaulted(report):
    return report.data["not_seen"].get("unknown", {}).get("no_fault", {}).get("size", 0)


def step_grows(target):
    """The target's RSS before a step, what it says of that, and by how much RSS has grown."""
    before = rss_of(target.pid)
    target.step()
    says = target.expect()
    target.wait_reading()
    return before, says, rss_of(target.pid) - before


@pytest.fixture
def touches(tmp_path):
    data = tmp_path / "data"
    data.write_bytes(os.urandom(4 << 20))
    return compiled(tmp_path / "touches", "touches.c"), data


def expect_lines(report, says):
    """Each marked line has what the program has touched there, to some pages at the edges."""
    line = lambda mark: report.line("touches.c", mark)[0]  # noqa: E731
    for mark in ("touch", "set", "read", "huge"):
        expect_near(line(mark), says[mark][0])
    # The kernel maps 64 KiB of a file around each page, from a multiple of that on.
    assert 0 <= says["file"][0] - line("file") <= 16 * PAGE
    assert 0 <= says["deep"][0] - line("deep") <= 2 * PAGE
    # Most kernels map one page of zeros for all that is only read, which is not in RSS.
    assert abs(says["zeros"][0] - line("zeros")) <= 4 * PAGE
    assert not line("released")


def test_lines(start, trace, touches):
    target = start(touches[0], None, touches[1])
    run = trace("--layer", "pages", "-p", target.pid)
    before, says, grown = step_grows(target)
    report = run.finish()
    assert report.data["layer"] == "pages" and not report.lost_events
    expect_lines(report, says)
    expect_near(report.total["size"], grown)
    expect_near(unfaulted(report), says["populated"][0])
    pages = report.data["pages"]
    assert pages["huge"] >= says["huge"][0]
    assert pages["file"] >= report.line("touches.c", "file")[0]
    assert pages["resident"] == report.total["size"] + pages["before"]
    assert pages["no_fault"] == unfaulted(report) and not pages["unread"]
    expect_near(pages["resident"], before + grown)
    target.step()
    target.step()
    assert target.finish() == 0


def test_fork(start, trace, touches):
    """A child has its parent's pages, and copies those that it writes to."""
    target = start(touches[0], None, touches[1])
    run = trace("--layer", "pages", "-p", target.pid)
    target.step()
    target.expect()
    target.step()
    says = target.expect()
    child = says["pid"][0]
    rss = {pid: rss_of(pid) for pid in (target.pid, child)}
    report = run.finish()
    processes = {p["pid"]: p for p in report.data["processes"]}
    for pid, bytes_ in rss.items():
        assert set(rss) == set(processes)
        expect_near(processes[pid]["pages"]["resident"], bytes_)
    copied = report.line("touches.c", "copied")[0]
    assert copied == says["copied"][0]
    assert copied <= processes[child]["pages"]["again"] <= copied + (2 << 20)
    # The parent's own pages are still those of its own line.
    alone = run.report("--pid", target.pid)
    assert alone.line("touches.c", "touch")[0] == 32 << 20
    target.step()
    assert target.finish() == 0


def test_command(trace, touches, tmp_path):
    """From the first instruction on; the last look is before the end."""
    run = trace("--layer", "pages", "--", *touches, attached=False)
    assert run.wait() == 0
    report = run.report()
    assert report.data["moment"] == "exited" and report.data["from_start"]
    own = run.report("--no-inherited")  # its child inherits all of it
    assert own.line("touches.c", "touch")[0] == 32 << 20


def test_python(python, start, trace):
    """Allocated at one line, touched at another: the pages are the latter's."""
    target = start(python, "touches.py")
    run = trace("--layer", "pages", "-p", target.pid)
    _, says, grown = step_grows(target)
    report = run.finish("--mine", program("touches.py"))
    for mark in ("touch", "filled", "read"):
        expect_near(report.line("touches.py", mark)[0], says[mark][0], 0.005)
    assert report.line("touches.py", "mapped")[0] <= 2 * PAGE
    expect_near(report.total["size"], grown)
    assert target.finish() == 0


def test_sample(start, trace, touches):
    """A sample's estimates are right within their errors, and the sum of all is known besides."""
    target = start(touches[0], None, touches[1])
    run = trace("--layer", "pages", "--sample", "64K", "-p", target.pid)
    target.step()
    says = target.expect()
    target.wait_reading()
    report = run.finish()
    touched = next(
        s
        for s in report.statistics
        if s["traceback"][0]["lineno"] and abs(s["size"] - (32 << 20)) < 16 << 20
    )
    assert report.data["sample_bytes"] == 64 << 10
    assert abs(touched["size"] - says["touch"][0]) < 6 * touched["size_error"]
    pages = report.data["pages"]
    expect_near(pages["resident"] - pages["before"], says["rss"][0])


@pytest.mark.parametrize(
    "options",
    [
        ["-m", "exact"],
        ["-m", "growth"],
        ["--window", "40/1000"],
        ["--no-reuse"],
        ["--alloc", "libc.so.6:malloc:malloc"],
    ],
)
def test_options_that_make_no_sense(tracer, options):
    done = subprocess.run(
        [tracer, "--layer", "pages", *options, "-p", str(os.getpid())],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        timeout=TIMEOUT,
    )
    assert done.returncode == 2
    assert "--layer" in done.stderr


def test_status(tracer, start, trace, touches):
    """The session says what it traces."""
    target = start(touches[0], None, touches[1])
    trace("--layer", "pages", "-p", target.pid)
    done = subprocess.run(
        [tracer, "ctl", str(target.pid), "status"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        timeout=TIMEOUT,
    )
    assert done.returncode == 0, done.stderr
    assert "resident pages" in done.stdout


def test_budget(start, trace, tmp_path):
    """Under a budget a sample is taken, or nothing more; what is resident is known all the
    same."""
    target = start(compiled(tmp_path / "touching", "touching.c"), None)
    run = trace("--layer", "pages", "--overhead", "5", "-p", target.pid)
    wait_until(lambda: "a sample, a block for every" in run.stderr, "a sample is taken")
    report = run.finish()
    assert 0 < report.data["probes_ns"] < report.data["cpu_ns"]
    assert report.data["sample_bytes"] and report.data["modes"]
    pages = report.data["pages"]
    assert pages["resident"] - pages["before"] <= 20 << 20
