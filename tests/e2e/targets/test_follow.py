# SPDX-License-Identifier: Apache-2.0
"""Children, and programs that processes exec: each is picked up as it starts, with a table of its
own."""
import os
import re
import subprocess

import pytest

from ctl_client import ctl  # noqa: F401
from harness import compiled, environment, program, read_report, wait_reading, wait_until
from test_lifecycle import probed_bytes

pytestmark = pytest.mark.usefixtures("undisturbed")


def reports_of(run, pids):
    """{pid: the Report of that process alone}, after the run has ended."""
    return {pid: run.report("--pid", pid) for pid in pids}


def traced_pids(run):
    """The PIDs of all processes in the snapshot."""
    data = run.report().data
    return {p["pid"] for p in data.get("processes", [data])}


def lives(source, count):
    """The answers of count processes of family.py: {pid: {mark: pair}}. The last one is the first
    parent."""
    told = {}
    for _ in range(count):
        live = source.expect()
        told[live.pop("pid")[0]] = live
    for pid in told:
        wait_reading(pid)
    return told


VERBOSE = ("-v",)


@pytest.mark.parametrize("version", ("3.8", "3.11", "3.13"))
@pytest.mark.parametrize("mode", ("exact", "census"))
def test_fork(start, trace, own_python, version, mode):
    """The child is traced from its first instruction: the parent's blocks that it frees, and its
    own blocks that it keeps."""
    python, env = own_python(version)
    target = start(python, "family.py", "now", 2, env=env)
    run = trace("-p", target.pid, "-m", mode, *VERBOSE)
    target.step()
    live = lives(target, 3)
    run.interrupt()
    assert run.wait() == 0
    for pid, report in reports_of(run, live).items():
        assert report.marked("family.py", live[pid]) == live[pid], "of PID %d" % pid
        assert report.data["moment"] == "running"
    assert "for every process that maps it" in run.stderr
    assert target.finish() == 0


def test_inherited(start, trace, own_python):
    """Blocks that workers inherit from their parent count in each worker. The total states their
    size, and a report can exclude them."""
    python, env = own_python("3.13")
    target = start(python, "family.py", "now", 2, env=env)
    run = trace("-p", target.pid, "-m", "exact", *VERBOSE)
    target.step()
    live = lives(target, 3)
    run.interrupt()
    assert run.wait() == 0
    children = [pid for pid in live if pid != target.pid]
    assert len(children) == 2
    whole, own = run.report().data, run.report("--no-inherited").data
    assert (
        "inherited by forked processes: size=" in run.stdout
        and "(--no-inherited excludes it)" in run.stdout
    )
    told = {p["pid"]: p for p in whole["processes"]}
    assert whole["total"]["inherited"]["size"] == sum(
        told[pid]["inherited"]["size"] for pid in children
    )
    assert own["total"]["size"] == whole["total"]["size"] - whole["total"]["inherited"]["size"]
    assert (
        own["total"]["inherited"] == {"size": 0, "count": 0} and "inherited" not in told[target.pid]
    )
    for pid in live:
        report = run.report("--pid", pid, "--no-inherited")
        marked = report.marked("family.py", live[pid])
        if pid == target.pid:
            assert marked == live[pid]
            continue
        assert marked["P"] == (0, 0)
        # A grandchild inherits its parent's blocks of line C and then replaces them with its own.
        assert marked["C"] == live[pid]["C"]
        parents = run.report("--pid", pid).marked("family.py", live[pid])["P"]
        assert parents == live[pid]["P"] and told[pid]["inherited"]["size"] >= parents[0]
    assert target.finish() == 0


def test_fork_of_a_command(trace, own_python):
    python, env = own_python("3.13")
    run = trace(*VERBOSE, "--", python.path, program("family.py"), stdin=subprocess.PIPE, env=env)
    run.step()
    live = lives(run, 2)
    run.process.stdin.close()
    assert run.wait() == 0
    for pid, report in reports_of(run, live).items():
        assert report.marked("family.py", live[pid]) == live[pid], "of PID %d" % pid
        assert report.data["from_start"] is True


def test_fork_beside_others(start, trace, run_tracer, own_python):
    """If other processes map the file too, only the targets are probed, and the code of the others
    is unchanged. A child is then traced from the moment its fork is seen. A heap walk shows what it
    did with its parent's blocks before."""
    python, env = own_python("3.13")
    other = start(python, "idle.py", env=env)
    target = start(python, "family.py", "wait", env=env)
    pristine = probed_bytes(run_tracer, other.pid)
    before = pristine()
    run = trace("-p", target.pid, "-m", "exact", *VERBOSE)
    target.step()
    wait_until(
        lambda: "forked by PID %d, is traced, too" % target.pid in run.stderr,
        "the child is under trace",
    )
    assert pristine() == before, "an untraced process has a probe in it"
    target.step()
    live = lives(target, 2)
    run.interrupt()
    assert run.wait() == 0
    for pid, report in reports_of(run, live).items():
        assert report.marked("family.py", live[pid]) == live[pid], "of PID %d" % pid
    assert "in this process alone" in run.stderr


@pytest.mark.parametrize("how", ("exec", "spawn", "fork and exec"))
def test_exec(start, trace, any_python, how):
    """The new program is traced once its loader has finished. Its table has the blocks that it
    allocates from then on, and no others."""
    target = start(any_python, "runner.py", how)
    run = trace("-p", target.pid, *VERBOSE)
    target.step()
    pid = target.expect()["pid"][0]
    target.read_until("again")
    run.wait_attached(2)
    target.step()
    live = target.expect()
    assert target.finish() == 0
    assert run.wait() == 0, run.stderr
    report = reports_of(run, [pid])[pid]
    assert report.marked("runner.py", live) == live
    assert traced_pids(run) == {target.pid, pid}, "a child that has called exec keeps a table"
    assert (pid == target.pid) == (how == "exec")


def test_shell(trace, any_python):
    """A command that is not Python and starts one: as a child, or through an exec in a child."""
    child = '"$0" "$1" spawned; sh -c \'exec "$0" "$@"\' "$0" "$1" spawned; exit 9'
    run = trace(
        *VERBOSE,
        "--",
        "sh",
        "-c",
        child,
        any_python.path,
        program("runner.py"),
        attached=False,
        stdin=subprocess.PIPE
    )
    told = []
    for count in (1, 2):
        run.wait_attached(count)
        run.step()
        told.append(run.expect())
        run.step()
    assert run.wait() == 9, run.stderr
    pids = traced_pids(run)
    assert len(pids) == 2
    assert [run.report("--pid", pid).marked("runner.py", told[0]) for pid in pids] == told


def test_short_lived(trace):
    """Programs that end before they can be examined are counted. An examined program is not."""
    for script, counts in (
        ("sleep 0.5", {0}),
        ("/bin/true; /bin/true; /bin/true; sleep 0.5", {1, 2, 3}),
    ):
        run = trace("--", "sh", "-c", script + "; exit 3", attached=False)
        assert run.wait() == 3
        said = re.search(
            r"^tracer: (\d+) of the programs .* ended before being examined", run.stderr, re.M
        )
        assert (int(said.group(1)) if said else 0) in counts, run.stderr


@pytest.fixture
def neighbours():
    """Two programs that take all processors."""
    loops = [subprocess.Popen(["sh", "-c", "while :; do :; done"]) for _ in range(2)]
    yield
    for loop in loops:
        loop.kill()
        loop.wait()


def test_ends_while_attached(trace, any_python, neighbours):
    """A program that ends while it is attached to has a table, or is refused, or is counted as
    unexamined: one of them. On a busy machine many do."""
    script = 'for i in $(seq 40); do "$0" -S -E -c "import time"; done; exit 3'
    run = trace("--", "sh", "-c", script, any_python.path, attached=False)
    assert run.wait() == 3
    missed = re.findall(r"^tracer: (\d+) of the programs .* ended before", run.stderr, re.M)
    tables = len(traced_pids(run)) if os.path.exists(run.snapshot) else 0
    refused = len(re.findall(r"^tracer: PID \d+ is not traced: ", run.stderr, re.M))
    # seq is a program, too.
    assert sum(map(int, missed)) + tables + refused == 41, run.stderr


@pytest.mark.parametrize("how", ("exec", "spawn"))
def test_no_follow(start, trace, any_python, how):
    target = start(any_python, "runner.py", how)
    run = trace("-p", target.pid, "--no-follow", *VERBOSE)
    target.step()
    target.expect()
    target.read_until("again")
    target.step()
    target.expect()
    assert target.finish() == 0
    assert run.wait() == 0
    assert traced_pids(run) == {target.pid}
    assert run.report().data["moment"] == ("execed" if how == "exec" else "finalizing")


def test_captured(start, trace, run_tracer, own_python, tmp_path):
    """A capture contains the forks. A replay gives the same tables."""
    python, env = own_python("3.13")
    target = start(python, "family.py", "now", env=env)
    run = trace("-p", target.pid, "-m", "exact", "--capture", tmp_path / "capture", *VERBOSE)
    target.step()
    live = lives(target, 2)
    run.interrupt()
    assert run.wait() == 0
    done = run_tracer("replay", tmp_path / "capture", "-o", tmp_path / "again.pb.gz")
    assert done.returncode == 0, done.stderr
    for pid, report in reports_of(run, live).items():
        assert (
            read_report(run.tracer, str(tmp_path / "again.pb.gz"), "--pid", str(pid)).statistics
            == report.statistics
        )


def test_many_children(start, trace, own_python):
    """Children that start and exit as fast as possible: the tracer keeps up, and closes all their
    descriptors."""
    python, env = own_python("3.13")
    target = start(python, "forker.py", 300, 20, env=env)
    run = trace("-p", target.pid, output=False)
    descriptors = len(os.listdir("/proc/%d/fd" % run.pid))
    target.step()
    target.expect()
    # The library that all of them share is opened once more when the first child is examined.
    wait_until(
        lambda: len(os.listdir("/proc/%d/fd" % run.pid)) <= descriptors + 1,
        "what belonged to the children is closed",
    )
    assert target.finish() == 0
    assert run.wait() == 0
    assert "not traced" not in run.stderr


def test_many_files(start, trace, ctl, any_python, tmp_path):
    """Programs come and go, each from a file of its own. What the session holds open does not grow
    with them; what it keeps of each for its report is small and the same."""
    passing = compiled(tmp_path / "passing", "passing.c")
    target = start(any_python, "many.py", passing, tmp_path, 48)
    run = trace("-p", target.pid, "--layer", "native")

    def now():
        settled = wait_until(lambda: [s for s in ctl(target.pid, "status")], "it answers")
        return len(os.listdir("/proc/%d/fd" % run.pid)), settled[0]["tracer_memory"]

    def held():
        target.step()
        target.read_until("done")
        return now()

    first, second, third = held(), held(), [held()]

    def settles():
        third.append(now())  # on a busy machine it closes the last ones a moment later
        return third[-1][0] - first[0] < 24 and third[-1][1] - second[1] < 48 * 9216

    wait_until(settles, "descriptors, bytes: %s" % [first, second, third])
    run.finish()
    assert target.finish() == 0
