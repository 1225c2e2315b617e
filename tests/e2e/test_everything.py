# SPDX-License-Identifier: Apache-2.0
"""tracer -a, --comm and --cgroup: whatever runs, and whatever comes while it runs."""
import os
import re
import secrets
import subprocess

import pytest

from harness import environment, wait_until
from test_targets import hierarchy, removed


def attached_pids(run):
    return {int(pid) for pid in re.findall(r"^tracer: attached to PID (\d+)", run.stderr, re.M)}


def rss_kib(pid):
    with open("/proc/%d/status" % pid) as file:
        return int(re.search(r"VmRSS:\s+(\d+)", file.read()).group(1))


def summary(run):
    """Returns once the tracer has said to how many processes it has attached."""
    wait_until(lambda: re.search(r"^tracer: attached to \d+ of \d+ processes", run.stderr, re.M) or attached_pids(run), "it has attached")


@pytest.fixture
def sleeper():
    """sleeper(n): n processes of one program without Python, which end with the test."""
    started = []

    def start(count):
        more = [subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) for _ in range(count)]
        started.extend(more)
        return {process.pid for process in more}

    yield start
    for process in started:
        process.kill()
        process.wait()
        process.stdin.close()


def test_storm(start, trace, any_python, sleeper):
    """2,000 processes, 200 at once: those that stay are found, the tracer is no larger after the second storm, and ends well."""
    before = sleeper(5)
    run = trace("-a", "-v", "-b", "16M", attached=False)
    summary(run)
    target = start(any_python, "storm.py", 2000, 200, ready=False)
    meanwhile = sleeper(5)
    passing = [subprocess.Popen(["sleep", "1"]) for _ in range(20)]
    assert [process.wait() for process in passing] == [0] * 20
    target.read_until("done")
    wait_until(lambda: before | meanwhile <= attached_pids(run), "what stays is under trace")
    size = rss_kib(run.pid)
    target = start(any_python, "storm.py", 2000, 200, ready=False)
    target.read_until("done")
    after = sleeper(5)
    wait_until(lambda: after <= attached_pids(run), "what comes after the storm is under trace")
    # The tables of whatever else runs here grow, and what is kept of ended processes does up to its bound; 100 KiB for each
    # process of the storm would be more.
    assert rss_kib(run.pid) - size < 192 << 10
    assert len(os.listdir("/proc/%d/fd" % run.pid)) < 2000
    run.interrupt()
    assert run.wait() == 0, run.stderr
    data = run.report().data
    assert before | meanwhile | after <= {p["pid"] for p in data["processes"]}
    assert {process.pid for process in passing} <= {p["pid"] for p in data["processes"] if p["name"] == "sleep"}, "those that came and went"


def test_comm_that_comes(start, trace, any_python, tmp_path):
    """A name that nobody else has: the first process is there, the second comes, and runs another program then."""
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
