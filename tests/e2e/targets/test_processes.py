# SPDX-License-Identifier: Apache-2.0
"""Several processes in one session: one report and one file, from which each process can be
extracted."""
import json
import shutil
import subprocess

import pytest

from harness import (
    TIMEOUT,
    alive,
    error_line,
    marked_line,
    pprof,
    pprof_top,
    program,
    read_report,
    wait_until,
)

pytestmark = pytest.mark.usefixtures("undisturbed")


def pids_of(targets):
    return ",".join(str(target.pid) for target in targets)


def owners(report, *keys):
    """{(values of the keys): (bytes, blocks, processes)} of a report with --by."""
    return {
        tuple(s[k] for k in keys): (s["size"], s["count"], s["processes"])
        for s in report.statistics
    }


def entry(report, name, mark):
    """The whole entry of a marked line."""
    where = {"filename": program(name), "lineno": marked_line(name, mark)}
    return next((s for s in report.statistics if s["traceback"][0] == where), None)


@pytest.fixture
def three(start, trace, interpreters, python):
    """(run, targets, the live blocks of each): the same program at three sizes, the third one in
    another Python version."""
    other = (
        interpreters["3.8" if python.version != "3.8" else "3.11"]
        if len(interpreters) > 1
        else python.path
    )
    targets = [
        start(path, "golden.py", scale)
        for path, scale in ((python.path, 1000), (python.path, 600), (other, 200))
    ]
    run = trace("-p", pids_of(targets), attached=3)
    live = []
    for target in targets:
        target.step()
        live.append(target.expect())
        target.wait_reading()
    yield run, targets, live


@pytest.mark.versions("3.8", "3.11", "3.13")
def test_one_file(three, tracer):
    run, targets, live = three
    whole = run.finish()
    assert len(run.printed_reports()) == 0 and run.stdout.count("tracer: ") == 1, run.stdout
    for mark in ("A", "B", "C", "E"):
        found = entry(whole, "golden.py", mark)
        assert [found["size"], found["count"]] == [
            sum(one[mark][i] for one in live) for i in (0, 1)
        ]
        assert found["processes"] == 3
    assert whole.data["pid"] is None and len(whole.data["processes"]) == 3
    assert {p["pid"]: p["state"] for p in whole.data["processes"]} == {
        t.pid: "running" for t in targets
    }

    by_process = owners(run.report("--by", "process"), "pid")
    for target, one in zip(targets, live):
        alone = run.report("--pid", target.pid)
        assert alone.marked("golden.py", one) == one
        assert alone.data["pid"] == target.pid and "processes" not in alone.data
        assert by_process[(target.pid,)] == (alone.total["size"], alone.total["count"], 1)
    assert sum(sums[0] for sums in by_process.values()) == whole.total["size"]
    by_command = owners(run.report("--by", "comm"), "comm")
    assert sum(sums[2] for sums in by_command.values()) == 3
    assert owners(run.report("--by", "container"), "container")[(None,)] == (
        whole.total["size"],
        whole.total["count"],
        3,
    )
    filtered = run.report(
        "--by",
        "process",
        "--include",
        "%s:%d" % (program("golden.py"), marked_line("golden.py", "B")),
    )
    assert owners(filtered, "pid") == {(t.pid,): (*one["B"], 1) for t, one in zip(targets, live)}


@pytest.mark.versions("3.8", "3.11", "3.13")
def test_alone_and_with_others(start, trace, python):
    """Two sessions trace the same process, and one of them traces another process as well. Both
    report the same figures for it."""
    targets = [start(python, "golden.py") for _ in range(2)]
    both = trace("-p", pids_of(targets), "-m", "exact", attached=2)
    alone = trace("-p", targets[0].pid, "-m", "exact")
    for target in targets:
        target.step()
        target.expect()
        target.wait_reading()
    one, picked = alone.finish("--group-by", "traceback"), both.finish(
        "--group-by", "traceback", "--pid", targets[0].pid
    )
    assert picked.statistics == one.statistics
    assert picked.total == one.total
    differ = {"duration_ns", "not_seen", "coverage", "peak_size", "allocated_ns"}
    same = set(one.data) - differ - {"cpu_ns", "probes_ns"}
    assert {k: picked.data[k] for k in same} == {k: one.data[k] for k in same}


@pytest.mark.versions("3.11", "3.13")
def test_ends(start, trace, python):
    """A process that has ended is reported as of its end, with the way it ended."""
    killed, ended, lives = (
        start(python, "segv.py"),
        start(python, "golden.py"),
        start(python, "golden.py"),
    )
    run = trace("-p", pids_of([killed, ended, lives]), attached=3)
    killed.step()
    dead = killed.expect()
    assert killed.finish() == -9
    ended.step()
    gone = ended.expect()
    assert ended.finish() == 0
    lives.step()
    live = lives.expect()
    lives.wait_reading()
    whole = run.finish()
    states = {p["pid"]: (p["state"], p["wait_status"]) for p in whole.data["processes"]}
    assert states == {
        killed.pid: ("killed by signal 9", 9),
        ended.pid: ("exited", 0),
        lives.pid: ("running", None),
    }
    assert run.report("--pid", killed.pid).line("segv.py", "B") == dead["B"]
    assert run.report("--pid", ended.pid).marked("golden.py", gone) == gone
    assert run.report("--pid", lives.pid).marked("golden.py", live) == live
    assert "%d  " % killed.pid in run.stdout and "killed by signal 9" in run.stdout


def test_while_it_runs(start, trace, tracer, any_python):
    """Periodic reports and periodic snapshots also contain all processes."""
    targets = [start(any_python, "golden.py") for _ in range(2)]
    run = trace(
        "-p",
        pids_of(targets),
        "-i",
        "0.2",
        "--format",
        "json",
        "--top",
        0,
        "--snapshot-every",
        "0.2",
        attached=2,
    )
    live = []
    for target in targets:
        target.step()
        live.append(target.expect())
    expected = (live[0]["B"][0] + live[1]["B"][0], live[0]["B"][1] + live[1]["B"][1])

    def written():
        try:
            return read_report(tracer, run.snapshot).line("golden.py", "B") == expected
        except AssertionError:  # no snapshot exists yet
            return False

    wait_until(written, "a snapshot has both")
    wait_until(
        lambda: any(r.line("golden.py", "B") == expected for r in run.printed_reports()),
        "a report has both",
    )
    assert all(len(r.data["processes"]) == 2 for r in run.printed_reports())
    run.finish()


def test_diff(three_of_any, run_tracer):
    run, targets, live = three_of_any
    run.finish()
    done = run_tracer(
        "diff", run.snapshot, run.snapshot, "--by", "process", "--format", "json", "--top", 0
    )
    report = json.loads(done.stdout)
    assert {s["pid"]: s["size_diff"] for s in report["statistics"]} == {t.pid: 0 for t in targets}
    done = run_tracer(
        "diff", run.snapshot, run.snapshot, "--pid", targets[0].pid, "--format", "json"
    )
    assert json.loads(done.stdout)["total"]["count_diff"] == 0


@pytest.fixture
def three_of_any(start, trace, any_python):
    targets = [start(any_python, "golden.py", scale) for scale in (300, 200, 100)]
    run = trace("-p", pids_of(targets), attached=3)
    live = []
    for target in targets:
        target.step()
        live.append(target.expect())
        target.wait_reading()
    yield run, targets, live


def test_capture(start, trace, tracer, run_tracer, any_python, tmp_path):
    """A capture of several processes replays into the same file."""
    targets = [start(any_python, "golden.py", scale) for scale in (300, 100)]
    run = trace("-p", pids_of(targets), "--capture", tmp_path / "events", attached=2)
    for target in targets:
        target.step()
        target.expect()
    report = run.finish()
    done = run_tracer(
        "replay", tmp_path / "events", "-o", tmp_path / "again", "--format", "json", "--top", 0
    )
    assert done.returncode == 0, done.stderr
    again = read_report(tracer, tmp_path / "again")
    assert again.statistics == report.statistics
    assert [p["pid"] for p in again.data["processes"]] == [
        p["pid"] for p in report.data["processes"]
    ]


def test_formats(three_of_any, run_tracer, tmp_path):
    run, targets, live = three_of_any
    whole = run.finish()
    done = run_tracer("export", run.snapshot, "--format", "folded", "-o", "-")
    sums = {}
    for line in done.stdout.splitlines():
        stack, size = line.rsplit(" ", 1)
        root = stack.split(";")[0]
        sums[root] = sums.get(root, 0) + int(size)
    by_process = run.report("--by", "process")
    assert sums == {"%s (%d)" % (s["comm"], s["pid"]): s["size"] for s in by_process.statistics}
    done = run_tracer("export", run.snapshot, "--format", "tracemalloc", "-o", tmp_path / "trace")
    assert done.returncode == 0 and "know no processes: the blocks of all 3" in done.stderr
    read = json.loads(run_tracer("report", tmp_path / "trace", "--format", "json").stdout)
    assert read["total"] == alive(whole.total)  # such a file has only what is alive
    done = run_tracer(
        "filter",
        run.snapshot,
        "--pid",
        targets[1].pid,
        "--pid",
        targets[2].pid,
        "-o",
        tmp_path / "two",
    )
    assert done.returncode == 0, done.stderr
    two = read_report(run.tracer, tmp_path / "two", "--by", "process")
    assert {s["pid"] for s in two.statistics} == {targets[1].pid, targets[2].pid}


def test_perf(three_of_any, run_tracer, tmp_path):
    if not shutil.which("perf"):
        pytest.skip("perf is not installed")
    run, targets, _ = three_of_any
    run.finish()
    data = tmp_path / "perf.data"
    assert run_tracer("export", run.snapshot, "--format", "perf", "-o", data).returncode == 0
    done = subprocess.run(
        [
            "perf",
            "report",
            "-i",
            data,
            "--stdio",
            "--no-children",
            "--sort",
            "pid",
            "-F",
            "period,pid",
            "-g",
            "none",
        ],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        timeout=TIMEOUT,
    )
    rows = [
        line.split()
        for line in done.stdout.decode().splitlines()
        if line.strip() and not line.startswith("#")
    ]
    by_process = run.report("--by", "process")
    assert {int(row[1].split(":")[0]): int(row[0]) for row in rows} == {
        s["pid"]: s["size"] for s in by_process.statistics
    }


def test_pprof(three_of_any):
    run, targets, _ = three_of_any
    run.finish()
    assert len(pprof_top(run.snapshot)[0]) < 12
    tags = pprof("-tags", run.snapshot)
    for target in targets:
        assert str(target.pid) in tags
    size = run.report("--pid", targets[0].pid).total["size"]
    of_first = pprof("-top", "-unit=B", "-tagfocus=pid=%d" % targets[0].pid, run.snapshot)
    assert "of %dB total" % run.report().total["size"] in of_first.replace("\n", " ")
    assert "%dB" % size in of_first


def test_refused(three_of_any, run_tracer, tmp_path):
    run, targets, _ = three_of_any
    run.finish()
    assert "only %d, %d, %d" % tuple(t.pid for t in targets) in error_line(
        run_tracer("report", run.snapshot, "--pid", 1), 1
    )
    assert "--by" in error_line(
        run_tracer("report", run.snapshot, "--by", "process", "--cumulative"), 2
    )
    assert "--by" in error_line(
        run_tracer("report", run.snapshot, "--group-by", "lineno", "--by", "comm"), 2
    )
    assert "--by" in error_line(run_tracer("report", run.snapshot, "--by", "user"), 2)
    assert "--pid" in error_line(
        run_tracer("export", run.snapshot, "--pid", "0", "--format", "folded", "-o", "-"), 2
    )
    assert "no process 1" in error_line(
        run_tracer("filter", run.snapshot, "--pid", 1, "-o", tmp_path / "x"), 1
    )
    assert not (tmp_path / "x").exists()
