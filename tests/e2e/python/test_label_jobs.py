# SPDX-License-Identifier: Apache-2.0
"""--by celery and --by rq: the job for which a worker's children keep memory, of real workers."""
import json
import os
import subprocess

import pytest

from harness import marked_line, read_report, wait_until

LINE = "*/jobs.py:%d" % marked_line("jobs.py", "L")


@pytest.fixture(autouse=True)
def libraries(debian_python):
    for name in ("celery", "rq"):
        if subprocess.run([debian_python.path, "-c", "import " + name], stderr=-3).returncode:
            pytest.skip("python3-%s is not installed" % name)


def check(tracer, run, preset, counts):
    whole = run.finish()
    assert whole.lost_events == 0 and whole.data["not_seen"]["records_malformed"] == 0
    report = read_report(tracer, run.snapshot, "--by", preset, "--include", LINE, "--top", 0)
    rows = {}
    for row in report.statistics:
        size, count = rows.get(row["value"], (0, 0))
        rows[row["value"]] = (size + row["size"], count + row["count"])
    assert rows == {value: tuple(pair) for value, pair in counts.items()}
    return report


def children(pid):
    with open("/proc/%d/task/%d/children" % (pid, pid)) as file:
        return file.read().split()


@pytest.mark.whole
@pytest.mark.parametrize("preset", ("celery", "celery-task"))
def test_celery_running(start, trace, tracer, debian_python, tmp_path, preset):
    """A worker and its two children, which are traced by their PIDs."""
    target = start(debian_python, "jobs.py", "celery", tmp_path)
    target.step()
    target.read_until("working")
    pids = [str(target.pid), *children(target.pid)]
    assert len(pids) == 3
    run = trace("-p", ",".join(pids), "-m", "census", "--by", preset, attached=3)
    target.step()
    counts = json.loads(target.read_line())[preset]
    report = check(tracer, run, preset, counts)
    assert {str(row["pid"]) for row in report.statistics} <= set(pids[1:])


def test_celery_followed(start, trace, tracer, debian_python, tmp_path):
    """Of a worker that has not started its children yet; what is asked for is found before it."""
    target = start(debian_python, "jobs.py", "celery", tmp_path)
    run = trace("-v", "-p", target.pid, "-m", "census", "--by", "celery")
    target.step()
    target.read_until("working")
    followed = "forked by PID %d, is traced, too" % target.pid
    wait_until(lambda: run.stderr.count(followed) == 2, "the children are traced")
    target.step()
    check(tracer, run, "celery", json.loads(target.read_line())["celery"])


@pytest.mark.whole
@pytest.mark.parametrize("preset", ("rq", "rq-function"))
def test_rq(start, trace, tracer, debian_python, tmp_path, preset):
    """Each job has a process of its own, which has ended when the report is made."""
    target = start(debian_python, "jobs.py", "rq", tmp_path)
    run = trace("-v", "-p", target.pid, "-m", "census", "--by", preset)
    target.step()
    target.read_until("working")
    target.step()
    line = target.read_line()
    while line.startswith("job "):
        said = "PID %s, forked by PID %d, is traced, too" % (line.split()[1], target.pid)
        wait_until(lambda: said in run.stderr, "the job's process is traced")
        open(os.path.join(str(tmp_path), line.split()[1]), "w").close()
        line = target.read_line()
    check(tracer, run, preset, json.loads(line)[preset])
