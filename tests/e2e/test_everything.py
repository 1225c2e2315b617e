# SPDX-License-Identifier: Apache-2.0
"""tracer -a, --comm and --cgroup: whatever runs, and whatever comes while it runs."""
import os
import re
import secrets
import shutil
import struct
import subprocess
import time
from collections import Counter

import pytest

from harness import environment, program, wait_until
from test_targets import hierarchy, removed


def attached_pids(run):
    return {int(pid) for pid in re.findall(r"^tracer: attached to PID (\d+)", run.stderr, re.M)}


def rss_kib(pid):
    with open("/proc/%d/status" % pid) as file:
        return int(re.search(r"VmRSS:\s+(\d+)", file.read()).group(1))


def summary(run):
    """Returns once the tracer has said to how many processes it has attached: all files that they
    have are probed."""
    wait_until(
        lambda: re.search(r"^tracer: attached to \d+ of \d+ processes", run.stderr, re.M),
        "it has attached",
    )


@pytest.fixture
def sleeper():
    """sleeper(n): n processes of one program without Python, which end with the test."""
    started = []

    def start(count):
        more = [
            subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
            for _ in range(count)
        ]
        started.extend(more)
        return {process.pid for process in more}

    yield start
    for process in started:
        process.kill()
        process.wait()
        process.stdin.close()


def test_storm(start, trace, any_python, sleeper):
    """2,000 processes, 200 at once: those that stay are found, the tracer is no larger after the
    second storm, and ends well."""
    before = sleeper(5)
    run = trace("-a", "-v", attached=False)
    summary(run)
    target = start(any_python, "storm.py", 2000, 200, ready=False)
    meanwhile = sleeper(5)
    passing = []
    while target.process.poll() is None and len(passing) < 40:
        passing.append(subprocess.Popen(["sleep", "0.15"]))
        passing.append(subprocess.Popen(["sleep", "1"]))
        time.sleep(0.02)
    assert {process.wait() for process in passing} == {0}
    target.read_until("done")
    wait_until(lambda: before | meanwhile <= attached_pids(run), "what stays is under trace")
    size = rss_kib(run.pid)
    target = start(any_python, "storm.py", 2000, 200, ready=False)
    target.read_until("done")
    after = sleeper(5)
    wait_until(lambda: after <= attached_pids(run), "what comes after the storm is under trace")
    # The tables of whatever else runs here grow, and what is kept of ended processes does up to its
    # bound; 100 KiB for each process of the storm would be more.
    assert rss_kib(run.pid) - size < 192 << 10
    assert len(os.listdir("/proc/%d/fd" % run.pid)) < 2000
    run.interrupt()
    assert run.wait() == 0, run.stderr
    data = run.report().data
    assert before | meanwhile | after <= {p["pid"] for p in data["processes"]}
    assert {process.pid for process in passing} <= {
        p["pid"] for p in data["processes"] if p["name"] == "sleep"
    }, "those that came and went"


@pytest.fixture
def brief(tmp_path):
    """A program that is over at once, which no process has run before."""
    path = str(tmp_path / "brief")
    subprocess.run(
        [
            "gcc",
            "-g",
            "-O1",
            "-fno-omit-frame-pointer",
            "-fno-builtin",
            "-o",
            path,
            program("brief.c"),
        ],
        check=True,
    )
    return path


def test_new_programs(trace, brief, sleeper):
    """What lives for a millisecond is traced from its first instruction, its forked children,
    too; names come from files that are mapped no more. A table for every one of them."""
    sleeper(1)
    run = trace("-a", "-v", attached=False)
    summary(run)
    for times in (1, 20):
        assert all(subprocess.run([brief]).returncode == 0 for _ in range(times))
    # Each is two processes: 3 blocks of 1000 bytes are its own, and the child's as well; the child
    # has one of 500 more.
    wait_until(
        lambda: len(re.findall(r"attached to PID \d+ \(brief\)", run.stderr)) == 21, "all were seen"
    )
    run.interrupt()
    assert run.wait() == 0, run.stderr
    report = run.report("--layer", "native")
    briefs = [p for p in report.data["processes"] if p["name"] == "brief"]
    assert report.marked("brief.c", ("KEPT", "CHILD")) == {
        "KEPT": (21 * 2 * 3000, 21 * 2 * 3),
        "CHILD": (21 * 500, 21),
    }
    assert [p["state"] for p in briefs] == ["exited"] * 42
    assert {p["not_seen"]["frees_unknown"] for p in briefs} == {0}
    assert report.data["not_seen"]["records_malformed"] == 0
    functions = run.report("--layer", "native", "--group-by", "function").data["statistics"]
    assert {"keep", "child"} <= {entry["traceback"][0]["function"] for entry in functions}


def test_slow_loader(trace, brief, sleeper, tmp_path):
    """A program that is looked at before its loader has mapped libc, as on a busy machine, is
    traced all the same."""
    sleeper(1)
    preload = tmp_path / "preload"
    os.mkfifo(preload)
    run = trace("-a", "-v", attached=False)
    summary(run)
    target = subprocess.Popen(
        [brief], env=environment(LD_PRELOAD=str(preload)), stderr=subprocess.DEVNULL
    )
    looked = r"PID %d(:| is not traced:) .*allocator" % target.pid
    wait_until(
        lambda: re.search(looked, run.stderr), "the tracer has looked at what is mapped so far"
    )
    # The loader finds nothing in there, says so and goes on.
    os.close(os.open(preload, os.O_WRONLY))
    assert target.wait(30) == 0
    run.interrupt()
    assert run.wait() == 0, run.stderr
    assert run.report("--layer", "native").marked("brief.c", ("KEPT", "CHILD")) == {
        "KEPT": (6000, 6),
        "CHILD": (500, 1),
    }


def test_new_python(start, trace, any_python, sleeper, tmp_path):
    """A new program turns out to run Python: it is in the report once, as that, and line by
    line."""
    sleeper(1)
    run = trace("-a", "-v", attached=False)
    summary(run)
    for _ in range(2):
        path = tmp_path / "fresh-python"
        path.unlink(missing_ok=True)
        shutil.copy(any_python.path, path)
        target = start(
            str(path),
            "golden.py",
            env=environment(PYTHONHOME=os.path.dirname(os.path.dirname(any_python.path))),
        )
        wait_until(
            lambda: re.search(r"attached to PID %d \(.*CPython" % target.pid, run.stderr),
            "its Python is found",
        )
        target.step()
        live = target.expect()
        target.wait_reading()
        assert target.finish() == 0
    run.interrupt()
    assert run.wait() == 0, run.stderr
    entries = [p for p in run.report().data["processes"] if p["pid"] == target.pid]
    assert [(p["python"][:3], p["mode"]) for p in entries] == [(any_python.version[:3], "census")]
    assert run.report("--pid", target.pid).marked("golden.py", live) == live
    assert run.report().data["not_seen"]["records_malformed"] == 0


EVENT_HEADER = struct.Struct("<IIQII")  # include/abi/events.h: type, size, time_ns, tgid, tid
EVENT_ALLOC, EVENT_API_NATIVE = 1, 6


def alloc_apis(capture, pid):
    """How many allocations of the process there are by each face of the allocator."""
    apis = Counter()
    with open(capture, "rb") as file:
        records = file.read()[16:]
    offset = 0
    while offset + EVENT_HEADER.size <= len(records):
        kind, size, _, tgid, _ = EVENT_HEADER.unpack_from(records, offset)
        if kind == EVENT_ALLOC and tgid == pid:
            apis[records[offset + size - 4]] += 1
        offset += size
    return apis


def test_only_what_is_asked(start, trace, any_python, sleeper, tmp_path):
    """Where malloc is probed for others, a Python of which Python's blocks alone are wanted has no
    native records."""
    sleeper(1)
    target = start(any_python, "golden.py")
    run = trace("-a", "-v", "--capture", tmp_path / "run.cap", attached=False)
    summary(run)
    wait_until(lambda: target.pid in attached_pids(run), "it is under trace")
    target.step()
    target.expect()
    target.wait_reading()
    other = subprocess.Popen(["sort", os.devnull])
    assert other.wait() == 0
    run.interrupt()
    assert run.wait() == 0
    assert target.finish() == 0
    apis = alloc_apis(tmp_path / "run.cap", target.pid)
    assert sum(apis.values()) > 0 and apis[EVENT_API_NATIVE] == 0
    assert set(alloc_apis(tmp_path / "run.cap", other.pid)) == {EVENT_API_NATIVE}


def test_comm_that_comes(start, trace, any_python, tmp_path):
    """A name that nobody else has: the first process is there, the second comes, and runs another
    program then."""
    name = "t" + secrets.token_hex(3)
    path = tmp_path / name
    path.symlink_to(any_python.path)
    env = environment(PYTHONHOME=os.path.dirname(os.path.dirname(any_python.path)))
    first = start(str(path), "golden.py", env=env)
    run = trace("--comm", name)
    second = start(str(path), "golden.py", env=env)
    other = start(any_python, "golden.py")
    run.wait_attached(2)
    assert attached_pids(run) == {first.pid, second.pid}
    second.step()
    live = second.expect()
    second.wait_reading()
    assert first.finish() == 0
    assert run.process.poll() is None, "it goes on without any of them"
    run.interrupt()
    assert run.wait() == 0
    assert run.report("--pid", second.pid).marked("golden.py", live) == live
    assert other.pid not in {p["pid"] for p in run.report().data["processes"]}


def test_cgroup_that_fills(start, trace, any_python, tmp_path):
    """What comes into a cgroup while it is traced, by the exec of what is in it."""
    with hierarchy(tmp_path, "v2") as mounted:
        folder = os.path.join(mounted, "tracer-test-" + secrets.token_hex(3))
        os.mkdir(folder)
        try:
            prefix = ("sh", "-c", 'echo $$ > "$0"/cgroup.procs; exec "$@"', folder)
            first = start(any_python, "golden.py", prefix=prefix)
            run = trace("--cgroup", folder)
            second = start(any_python, "golden.py", prefix=prefix)
            other = start(any_python, "golden.py")
            run.wait_attached(2)
            assert attached_pids(run) == {first.pid, second.pid}
            for target in (first, second, other):
                assert target.finish() == 0
            run.interrupt()
            assert run.wait() == 0
        finally:
            for target in (first, second):
                target.kill()
            wait_until(lambda: removed(folder), "the cgroup is empty")
