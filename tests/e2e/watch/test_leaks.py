# SPDX-License-Identifier: Apache-2.0
"""tracer leaks: lines that grow, with the rate, and lines that do not."""
import json
import os

import pytest

from harness import error_line, marked_line, memory_cgroup, program, wait_until, write_text


def snapshots(run_tracer, path):
    done = run_tracer("timeline", path, "--format", "json")
    return json.loads(done.stdout)["snapshots"] if done.returncode == 0 else 0


def recorded(trace, run_tracer, target, path, full=True):
    """Records grows.py. full: until most of the recording is of the time after its cache was full.
    Returns how many bytes a second it leaks."""
    run = trace("-p", target.pid, "--record", path, "--every", 0.1, output=False)
    wait_until(lambda: snapshots(run_tracer, path) > 2, "it is recorded")
    target.read_until("full")
    enough = 2 * snapshots(run_tracer, path) + 12 if full else 10
    wait_until(lambda: snapshots(run_tracer, path) > enough, "there is enough of it")
    target.step()
    rate = int(target.read_line())
    run.interrupt()
    assert run.wait() == 0, run.stderr
    return rate


def judged(run_tracer, path):
    """The answer, and its entries of grows.py by their marks."""
    done = run_tracer("leaks", path, "--format", "json", "--top", 0)
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    lines = {
        (entry["traceback"][0]["filename"], entry["traceback"][0]["lineno"]): entry
        for entry in answer["lines"]
    }
    name = program("grows.py")
    return answer, {mark: lines[name, marked_line("grows.py", mark)] for mark in "LCW"}


def test_verdicts(start, trace, run_tracer, any_python, tmp_path):
    """The line that leaks is the first, with its rate. A cache that fills and stays, and a list
    that grows and shrinks, do not grow."""
    path = tmp_path / "grows.rec"
    rate = recorded(trace, run_tracer, start(any_python, "grows.py"), path)
    answer, lines = judged(run_tracer, path)
    leak = lines["L"]
    assert answer["lines"][0] == leak
    assert leak["verdict"] == "grows" and "doubt" not in leak
    assert abs(leak["slope"] - rate) < rate / 10
    assert leak["slope_low"] <= leak["slope"] <= leak["slope_high"] < 2 * rate
    assert leak["freed_count"] == 0 and leak["survivors"] == 1
    assert leak["allocated_count"] > 0.8 * rate * answer["duration"] / 1000
    assert leak["age"] > answer["duration"] / 4
    assert leak["none_freed_since"] < answer["duration"] / 2
    for mark in "CW":
        assert lines[mark]["verdict"] != "grows", lines[mark]
        assert lines[mark]["survivors"] < 0.9
    text = run_tracer("leaks", path).stdout
    first = "  %s:%d: +" % (program("grows.py"), marked_line("grows.py", "L"))
    assert "\n%s" % first in text and ": 100 % stay; none was freed since 2" in text
    fails = ["leaks", path, "--fail-on", "grows"]
    assert run_tracer(*fails).returncode == 3
    whole = path.read_bytes()
    path.write_bytes(whole[:-5])
    assert run_tracer(*fails).returncode == 3
    done = run_tracer(*fails, "--require-complete")
    assert done.returncode == 4 and "figures are incomplete" in done.stderr


# The line that leaks, by the program's name; NOT: none does.
NOT = None
TEN = {
    "cache": "cache",
    "listener": "listener",
    "cycle": "del",
    "growing": "growing",
    "extension": "extension",
    "warms_up": NOT,
    "fragments": NOT,
    "oscillates": NOT,
    "bounded": NOT,
    "churns": NOT,
}


@pytest.mark.parametrize("name", TEN)
def test_ten_programs(start, trace, run_tracer, any_python, tmp_path, name):
    """Of ten programs, the line that leaks is the first in its program's list, and grows. In the
    others no line is said to grow."""
    path = tmp_path / "ten.rec"
    target = start(any_python, "ten_leaks.py", name)
    run = trace("-p", target.pid, "--record", path, "--every", 0.05, output=False)
    target.step()
    target.read_until("full")
    enough = 2 * snapshots(run_tracer, path) + 16
    wait_until(lambda: snapshots(run_tracer, path) > enough, "there is enough of it")
    run.interrupt()
    assert run.wait() == 0, run.stderr
    done = run_tracer("leaks", path, "--format", "json", "--top", 0)
    assert done.returncode == 0, done.stderr
    lines = json.loads(done.stdout)["lines"]
    if TEN[name] is NOT:
        assert not [line for line in lines if line["verdict"] == "grows"]
        return
    (first,) = lines[0]["traceback"]
    assert (first["filename"], first["lineno"]) == (
        program("ten_leaks.py"),
        marked_line("ten_leaks.py", TEN[name]),
    )
    assert lines[0]["verdict"] == "grows"


def test_garbage(start, trace, run_tracer, any_python, tmp_path):
    """Older blocks that go bit by bit, garbage of a service, say, do not hide which lines keep all
    that they allocate. What was there first and last is said of the whole."""
    path = tmp_path / "garbage.rec"
    target = start(any_python, "garbage_leaks.py")
    run = trace("-p", target.pid, "--record", path, "--every", 0.05, output=False)
    wait_until(lambda: snapshots(run_tracer, path) > 30, "there is enough of it")
    run.interrupt()
    assert run.wait() == 0, run.stderr
    answer = json.loads(
        run_tracer("leaks", path, "--format", "json", "--top", 0).stdout
    )
    verdicts = {entry["traceback"][0]["lineno"]: entry["verdict"] for entry in answer["lines"]}
    wanted = {"R": "grows", "P": "grows", "G": "steady"}
    found = {mark: verdicts[marked_line("garbage_leaks.py", mark)] for mark in wanted}
    assert found == wanted, answer
    assert answer["total"]["last"] > answer["total"]["first"]
    text = run_tracer("leaks", path).stdout
    assert "tracer heap diff a.dump b.dump --by path" in text
    assert "tracer heap -p %d -o a.dump" % target.pid in text


def test_clear(start, trace, run_tracer, any_python, tmp_path):
    """Growth does not cross the moment at which a client emptied the table."""
    path = tmp_path / "clear.rec"
    target = start(any_python, "grows.py")
    run = trace("-p", target.pid, "--record", path, "--every", 0.1, output=False)
    wait_until(lambda: snapshots(run_tracer, path) > 4, "it is recorded")
    assert run_tracer("ctl", target.pid, "clear").returncode == 0
    enough = snapshots(run_tracer, path) + 12
    wait_until(lambda: snapshots(run_tracer, path) > enough, "there is more of it")
    run.interrupt()
    assert run.wait() == 0, run.stderr
    answer, lines = judged(run_tracer, path)
    assert 10 <= answer["points"] < answer["snapshots"] and answer["since"] > 0
    assert lines["L"]["slope"] is None or lines["L"]["slope"] > 0
    said = "tables were emptied, by tracer ctl clear"
    assert said in run_tracer("leaks", path).stdout
    assert said in run_tracer("timeline", path).stdout


def test_workers(start, run_tracer, any_python):
    """A master whose workers exist already: they are named with the options that take them, too. With
    these the line of the workers grows. The options of a trace are passed on."""
    target = start(any_python, "workers.py")
    workers = target.read_line()
    master = run_tracer("-p", target.pid, "-d", 0.2)
    named = "-p %d,%s" % (target.pid, workers)
    assert "has 2 workers that run the same program, not traced: " + named in master.stderr
    assert "not read: " + named in run_tracer("heap", "-p", target.pid).stderr
    assert "not part of this: " + named in run_tracer("memory", "-p", target.pid).stderr
    pids = "%d,%s" % (target.pid, workers)
    done = run_tracer(
        "leaks", "-p", pids, "-m", "exact", "--no-follow", "-d", 1, "--format", "json"
    )
    assert done.returncode == 0 and "workers" not in done.stderr, done.stderr
    assert done.stderr.count(", exact mode") == 3
    line = json.loads(done.stdout)["lines"][0]
    assert line["traceback"][0]["lineno"] == marked_line("workers.py", "W")
    assert line["count"] > 10


def test_idle(start, run_tracer, any_python):
    """Of a process that allocated nothing it is not said that nothing grows."""
    target = start(any_python, "golden.py", 10)
    done = run_tracer("leaks", "--lines", "-m", "census", "-p", target.pid, "-d", 1)
    assert done.returncode == 0, done.stderr
    assert "Nothing was allocated in " in done.stdout and "too short to tell" in done.stdout
    assert "grow over" not in done.stdout and "grows over" not in done.stdout


def test_limit(start, trace, run_tracer, any_python, tmp_path):
    """What is left of the cgroup's limit, and when it is reached."""
    path, limit = tmp_path / "grows.rec", 128 << 20
    with memory_cgroup(limit) as folder:
        into = ("sh", "-c", 'echo $$ >"$0"/cgroup.procs && exec "$@"', folder)
        target = start(any_python, "grows.py", prefix=into)
        recorded(trace, run_tracer, target, path, full=False)
        target.kill()
    answer = judged(run_tracer, path)[0]
    assert 0 < answer["limit"]["left"] < limit
    assert answer["rss"]["slope"] > 0
    assert answer["limit"]["seconds_low"] <= answer["limit"]["seconds"]
    assert answer["limit"]["seconds"] <= answer["limit"]["seconds_high"]
    assert "; reached in " in run_tracer("leaks", path).stdout


def test_of_a_process(start, run_tracer, any_python, tmp_path):
    """Without a recording it makes one, which it removes."""
    target = start(any_python, "grows.py")
    env = dict(os.environ, TMPDIR=str(tmp_path))
    done = run_tracer("leaks", "--lines", "-p", target.pid, "-d", 1, "--format", "json", env=env)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["snapshots"] > 2
    assert not os.listdir(tmp_path), "left behind"


@pytest.mark.unprivileged
@pytest.mark.parametrize(
    "options, said",
    (((), "tracer leaks FILE"), (("x", "-p", "1"), "--pid is for a process"), (("x", "-m", "exact"), "--mode is"), (("-m", "exact"), "no target"), (("x", "-d", "1"), "--duration")),
)
def test_refused(run_tracer, options, said):
    assert said in error_line(run_tracer("leaks", *options), 2)


@pytest.mark.unprivileged
def test_no_recording(run_tracer, tmp_path):
    write_text(tmp_path / "x", "x")
    assert "not a recording" in error_line(run_tracer("leaks", tmp_path / "x"), 1)
