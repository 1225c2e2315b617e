# SPDX-License-Identifier: Apache-2.0
"""tracer -a, --comm and --cgroup: processes that run already, and processes that start during the
trace."""
import os
import re
import secrets
import shutil
import struct
import subprocess
import time
from collections import Counter

import pytest

from cgroups import hierarchy, removed
from harness import compiled, environment, wait_until
from procfs import text_differs

pytestmark = pytest.mark.usefixtures("whole_machine")


def attached_pids(run):
    return {int(pid) for pid in re.findall(r"^tracer: attached to PID (\d+)", run.stderr, re.M)}


STORM_BUDGET = 256 << 20


def anonymous_bytes(pid):
    """The memory of its own that a process holds: its heap, not what it has mapped of files."""
    with open("/proc/%d/status" % pid) as file:
        return int(re.search(r"RssAnon:\s+(\d+)", file.read()).group(1)) << 10


def summary(run):
    """Returns once the tracer has reported the number of processes to which it attached. All their
    files are probed by then."""
    wait_until(
        lambda: re.search(r"^tracer: attached to \d+ of \d+ processes", run.stderr, re.M),
        "it has attached",
    )


@pytest.fixture
def sleeper():
    """sleeper(n): n processes of one program without Python, which are killed at the end of the
    test."""
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


@pytest.mark.parametrize("processes", (500, pytest.param(2000, marks=pytest.mark.long)))
def test_storm(start, trace, any_python, sleeper, processes):
    """Many processes, 200 at once, and again. Those that stay are traced. What the tracer keeps of
    those that ended stays within its budget, and it ends with status 0."""
    before = sleeper(5)
    run = trace("-a", "-v", "--budget", "%dM" % (STORM_BUDGET >> 20), attached=False)
    summary(run)
    target = start(any_python, "storm.py", processes, 200, ready=False)
    meanwhile = sleeper(5)
    passing = []
    while target.process.poll() is None and len(passing) < 40:
        passing.append(subprocess.Popen(["sleep", "0.15"]))
        passing.append(subprocess.Popen(["sleep", "1"]))
        time.sleep(0.02)
    assert {process.wait() for process in passing} == {0}
    target.read_until("done")
    wait_until(lambda: before | meanwhile <= attached_pids(run), "what stays is under trace")
    target = start(any_python, "storm.py", processes, 200, ready=False)
    target.read_until("done")
    after = sleeper(5)
    wait_until(lambda: after <= attached_pids(run), "what comes after the storm is under trace")
    # How many of the passing processes are attached to, and so kept, depends on the machine.
    assert anonymous_bytes(run.pid) < STORM_BUDGET * 3 // 2
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
    """A program that exits at once and that no process has run before."""
    return compiled(tmp_path / "brief", "brief.c")


def test_new_programs(trace, brief, sleeper):
    """Processes that live for a millisecond are traced from their first instruction, including
    forked children. Names come from files that are no longer mapped. Each process has a table."""
    sleeper(1)
    run = trace("-a", "-v", attached=False)
    summary(run)
    for times in (1, 20):
        assert all(subprocess.run([brief]).returncode == 0 for _ in range(times))
    # Each run is two processes. Both have 3 blocks of 1000 bytes, and the child has another block
    # of 500 bytes.
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
    """A program that is examined before its loader has mapped libc, as on a busy machine, is traced
    nevertheless."""
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
    # The loader finds no library there, reports it and continues.
    os.close(os.open(preload, os.O_WRONLY))
    assert target.wait(30) == 0
    run.interrupt()
    assert run.wait() == 0, run.stderr
    assert run.report("--layer", "native").marked("brief.c", ("KEPT", "CHILD")) == {
        "KEPT": (6000, 6),
        "CHILD": (500, 1),
    }


def test_new_python(start, trace, any_python, sleeper, tmp_path):
    """A new program turns out to run Python. The report has it once, as a Python process, line by
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
    """Number of allocations of the process by allocator API."""
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
    """When malloc is probed for other processes, a Python process that is traced for Python's
    blocks only has no native records."""
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


@pytest.fixture
def busy_native(blocks_program):
    """A program without Python that allocates all the time."""
    process = subprocess.Popen(
        [blocks_program, "busy"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL
    )
    yield process.pid
    process.kill()
    process.wait()
    process.stdin.close()


@pytest.mark.long
def test_budget(start, trace, any_python, sleeper, busy_native):
    """With a small budget, those that are busy are traced in windows, each in its own; the others
    are in the mode that was asked for. The report says so of each. No probe is left."""
    pythons = [start(any_python, "busy.py", ready=False).pid for _ in range(2)]
    idle = sleeper(2)
    busy = {*pythons, busy_native}
    run = trace("-a", "-vv", "--overhead", 1, attached=False)
    summary(run)
    assert busy | idle <= attached_pids(run)
    for pid in busy:
        window = "PID %d: a window of" % pid
        wait_until(lambda: window in run.stderr, "PID %d has had a window" % pid)
    run.interrupt()
    assert run.wait() == 0, run.stderr
    report = run.report()
    processes = {process["pid"]: process for process in report.data["processes"]}
    for pid in busy:
        process = processes[pid]
        ran = [change["mode"] for change in process.get("modes", [process])]
        assert "windows" in ran and process["mode"] == ran[-1], process
        # On a busy machine even the shortest windows may be too expensive later.
        assert process["mode"] == "growth" or process["windows"]["count"] >= 1, process
    assert {processes[pid]["mode"] for pid in idle} == {"exact"}
    assert not any("modes" in processes[pid] or "windows" in processes[pid] for pid in idle)
    for pid in busy | idle:
        wait_until(lambda: not text_differs(pid), "no probe is in the text of PID %d" % pid)


def test_comm_that_comes(start, trace, any_python, tmp_path):
    """A unique name: the first process runs already, the second one starts during the trace and
    then runs another program."""
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


NAMES_ITSELF = """
import sys
print("begun", flush=True)
while name := sys.stdin.readline().strip():
    with open("/proc/self/comm", "w") as file:
        file.write(name)
    kept = [bytearray(1000) for _ in range(100)]
    print("named", flush=True)
"""


def test_comm_that_is_set(start, trace, any_python):
    """Processes that name themselves: one that ran before the trace, and one that began in it and
    was seen under its program's name."""
    name = "t" + secrets.token_hex(3)
    known = start(any_python, None, "-c", NAMES_ITSELF, ready=False)
    known.read_until("begun")
    run = trace("--comm", name, attached=False)
    wait_until(lambda: "waiting for one to start" in run.stderr, "it waits")
    late = start(any_python, None, "-c", NAMES_ITSELF, ready=False)
    late.read_until("begun")
    time.sleep(0.5)  # it has been looked at
    for count, target in enumerate((late, known), 1):
        target.process.stdin.write(name.encode() + b"\n")
        target.process.stdin.flush()
        target.read_until("named")
        run.wait_attached(count)
    assert attached_pids(run) == {late.pid, known.pid}
    run.interrupt()
    assert run.wait() == 0


RESTS = """
import os, sys, time
with open("/proc/self/comm", "w") as file:
    file.write(sys.argv[1])
print("begun", flush=True)
for line in sys.stdin:
    if line == "fork\\n" and os.fork():
        continue
    until = time.process_time() + 0.5
    while time.process_time() < until:
        kept = [bytearray(1000) for _ in range(1000)]  # line KEPT
    print("worked", os.getpid(), sep="\\n", flush=True)
"""


def test_after_cpu(start, trace, any_python):
    """Of processes that sleep each is traced once it has run, by itself or as a child of one that
    still sleeps; how many have not is said."""
    name = "t" + secrets.token_hex(3)
    targets = [start(any_python, None, "-c", RESTS, name, ready=False) for _ in range(3)]
    for target in targets:
        target.read_until("begun")
    busy, parent, _ = targets
    run = trace("--comm", name, "--after-cpu", "200ms", attached=False)
    wait_until(lambda: "3 processes are traced once each has used" in run.stderr, "it has begun")
    time.sleep(1)
    assert not attached_pids(run)

    def ask(target, word):
        target.process.stdin.write(word)
        target.process.stdin.flush()
        target.read_until("worked")
        return int(target.read_line())

    assert ask(busy, b"work\n") == busy.pid
    run.wait_attached(1)
    child = ask(parent, b"fork\n")
    run.wait_attached(2)
    assert attached_pids(run) == {busy.pid, child} and child != parent.pid
    run.interrupt()
    assert run.wait() == 0
    assert "2 processes that ran before used too little CPU time to be traced (--after-cpu)" in run.stderr


def test_after_cpu_of_one(run_tracer, any_python):
    """What is named by its id is traced at once: the two do not go together."""
    done = run_tracer("-p", os.getpid(), "--after-cpu", "1")
    assert done.returncode == 2 and "--after-cpu is for many processes" in done.stderr


def test_cgroup_that_fills(start, trace, any_python, tmp_path):
    """Processes that start in a cgroup during its trace, by the exec of a process that is in it."""
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
