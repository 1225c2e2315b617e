# SPDX-License-Identifier: Apache-2.0
"""Programs with a known account: bytes and blocks of every marked line are exact."""
import subprocess

import pytest

from harness import alive, environment, marked_line, program

BACKENDS = ("session", "multi", "perf")


def check(report, name, live):
    assert report.lost_events == 0
    assert report.marked(name, live) == live
    assert report.data["not_seen"]["records_malformed"] == 0


def attach_and_check(start, trace, python, name, *options, env=None):
    target = start(python, name, env=env)
    run = trace("-p", target.pid, *options)
    target.step()
    live = target.expect()
    check(run.finish(), name, live)
    assert target.finish() == 0, "the target was harmed"


@pytest.mark.versions()
@pytest.mark.parametrize("nframe", (1, 25))
def test_golden(start, trace, python, nframe):
    attach_and_check(start, trace, python, "golden.py", "-n", nframe)


@pytest.mark.versions()
@pytest.mark.parametrize("name", ("threads.py", "realloc.py"))
def test_threads(start, trace, python, name):
    attach_and_check(start, trace, python, name)


@pytest.mark.versions("3.8", "3.13")
@pytest.mark.parametrize("name", ("golden.py", "threads.py", "realloc.py"))
@pytest.mark.parametrize("backend", BACKENDS)
def test_backends(start, trace, python, backend, name):
    attach_and_check(start, trace, python, name, "--backend", backend)


@pytest.mark.versions("3.8", "3.11", "3.13")
@pytest.mark.parametrize("name", ("golden.py", "realloc.py"))
def test_public(start, trace, python, name):
    attach_and_check(start, trace, python, name, "--public")


@pytest.mark.parametrize("backend", ("session", "multi"))
@pytest.mark.parametrize("name", ("golden.py", "threads.py", "realloc.py"))
def test_inlined(start, trace, debian_python, backend, name):
    """A stripped interpreter with inlined allocators gives the same figures."""
    attach_and_check(start, trace, debian_python, name, "--backend", backend)


@pytest.mark.versions()
def test_launch(trace, python):
    """The command inherits the tracer's stdin and stdout. The table is taken when the command's
    shutdown begins."""
    run = trace("-n", 25, "--", python.path, program("golden.py"), stdin=subprocess.PIPE)
    run.step()
    live = run.expect()
    run.step()
    assert run.wait() == 0
    report = run.report()
    check(report, "golden.py", live)
    assert report.data["from_start"] is True
    assert report.data["moment"] == "finalizing"
    assert (
        report.data["python"].startswith(python.version + ".")
        or report.data["python"] == python.version
    )


def test_launch_end_of_stdin(trace, any_python):
    """golden.py treats the end of its stdin as its cues. The command receives /dev/null as end of
    file."""
    run = trace("--", any_python.path, program("golden.py"))
    live = run.expect()
    assert run.wait() == 0
    check(run.report(), "golden.py", live)


def interpreters_and_check(start, trace, python):
    target = start(python, "interpreters.py")
    run = trace("-p", target.pid)
    target.step()
    live = target.expect()
    report = run.finish()
    assert report.marked("interpreters_work.py", live) == live
    assert report.lost_events == 0
    coverage = report.data["coverage"]
    assert coverage["new_blocks"] > live["E"][1]
    assert coverage["seen_blocks"] == coverage["new_blocks"]
    assert target.finish() == 0, "the target was harmed"


@pytest.mark.versions()
def test_interpreters(start, trace, python):
    """Sub-interpreters. From 3.12 on each has a GIL, a heap and thread states of its own."""
    interpreters_and_check(start, trace, python)


def test_interpreters_inlined(start, trace, debian_python):
    interpreters_and_check(start, trace, debian_python)


@pytest.mark.versions()
@pytest.mark.parametrize("allocator", ("debug", "malloc_debug"))
@pytest.mark.parametrize("name", ("golden.py", "threads.py", "realloc.py"))
def test_debug_hooks(start, trace, python, name, allocator):
    """Debug hooks enlarge and shift the blocks. The figures are the sizes that the program
    requested."""
    attach_and_check(start, trace, python, name, env=environment(PYTHONMALLOC=allocator))


@pytest.mark.parametrize("allocator", ("debug", "malloc_debug"))
@pytest.mark.parametrize("name", ("golden.py", "threads.py", "realloc.py"))
def test_debug_hooks_stripped(start, trace, debian_python, name, allocator):
    """The hooks' addresses are read from the code that installs them."""
    attach_and_check(start, trace, debian_python, name, env=environment(PYTHONMALLOC=allocator))


@pytest.mark.versions("3.8", "3.11", "3.13")
def test_development_mode(trace, python):
    run = trace("--", python.path, "-X", "dev", program("golden.py"), stdin=subprocess.PIPE)
    run.step()
    live = run.expect()
    run.step()
    assert run.wait() == 0, run.stderr
    check(run.report(), "golden.py", live)


def chain(*marks):
    return [
        {"filename": program("deep.py"), "lineno": marked_line("deep.py", mark)} for mark in marks
    ]


@pytest.mark.versions()
def test_tracebacks(start, trace, python):
    """Tracebacks start with the most recent frame and are cut at the limit."""
    target = start(python, "deep.py", 40)
    run = trace("-p", target.pid, "-n", 25)
    target.step()
    live = target.expect()
    report = run.finish("--group-by", "traceback")
    wanted = {"traceback": chain("B", "F", *["R"] * 23), "size": live["B"][0], "count": 1}
    assert report.data["traceback_limit"] == 25
    assert wanted in map(alive, report.statistics)


@pytest.mark.versions()
def test_whole_tracebacks(start, trace, python):
    target = start(python, "deep.py", 100)
    run = trace("-p", target.pid, "-n", 128)
    target.step()
    live = target.expect()
    report = run.finish("--group-by", "traceback")
    wanted = {"traceback": chain("B", "F", *["R"] * 100, "M"), "size": live["B"][0], "count": 1}
    assert wanted in map(alive, report.statistics)


def test_cut_traceback_is_marked(start, trace, any_python):
    target = start(any_python, "deep.py", 40)
    run = trace("-p", target.pid, "-n", 3, "--group-by", "traceback", "--top", 0)
    target.step()
    target.expect()
    run.finish()
    assert "40 older frames not kept" in run.stdout


def two_processes(start, trace, *pythons):
    """One session has two tables, also for processes of different versions."""
    targets = {
        t.pid: t
        for t in (
            start(python, "golden.py", rounds) for python, rounds in zip(pythons, (1000, 400))
        )
    }
    run = trace("-p", ",".join(map(str, targets)), attached=2)
    live = {}
    for pid, target in targets.items():
        target.step()
        live[pid] = target.expect()
    report = run.finish("--by", "process")
    assert {entry["pid"] for entry in report.statistics} == set(targets)
    for pid in targets:
        check(run.report("--pid", pid), "golden.py", live[pid])


@pytest.mark.versions("3.8", "3.13")
def test_two_processes(start, trace, python, any_python):
    two_processes(start, trace, python, any_python)


def test_two_kinds(start, trace, debian_python, any_python):
    """A stripped executable and a library with symbols, of different versions, in one session."""
    two_processes(start, trace, debian_python, any_python)


@pytest.mark.parametrize("allocator", ("pymalloc", "debug", "malloc"))
def test_inlined_deaths(trace, debian_python, allocator):
    """The debug hooks have a copy of their own. With malloc, every block is a large one."""
    run = trace(
        "-q",
        "--",
        debian_python.path,
        "-S",
        program("mixed.py"),
        attached=False,
        env=environment(PYTHONMALLOC=allocator),
    )
    assert run.wait() == 0, run.stderr
    not_seen = run.report().data["not_seen"]
    assert not_seen["replaced"] == 0, "blocks that died unseen"
