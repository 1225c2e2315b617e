# SPDX-License-Identifier: Apache-2.0
"""tracer leaks -p PID: what grows, by what holds it, from the heap alone."""
import json
import os
import re
import time

import pytest

from harness import compiled, error_line
from procfs import private_code

MAIN = "sys.modules['__main__']."
# What holds the growth of each program of ten_leaks.py; None: it does not leak, or no object does.
HOLDERS = {
    "cache": MAIN + "sessions",
    "listener": MAIN + "bus.listeners",
    "cycle": "garbage (the collector is off)",
    "growing": MAIN + "log",
    "extension": None,
    "warms_up": None,
    "fragments": None,
    "oscillates": None,
    "bounded": None,
    "churns": None,
}


def ask(run_tracer, *options):
    done = run_tracer("leaks", *options, "--format", "json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def read_at_once(start, run_tracer, python, names):
    """The answer for several of the programs."""
    targets = {name: start(python, "ten_leaks.py", name) for name in names}
    before = {target.pid: private_code(target.pid) for target in targets.values()}
    for target in targets.values():
        target.step()
    for target in targets.values():
        target.read_until("full")
    pids = ",".join(str(target.pid) for target in targets.values())
    answer = ask(run_tracer, "-p", pids, "-d", 14, "--top", 0)
    assert {target.pid: private_code(target.pid) for target in targets.values()} == before
    assert answer["undisturbed"] and answer["lines"] == []
    return targets, answer, [h for h in answer["holders"] if h["verdict"] == "grows"]


def test_leaking_programs(start, run_tracer, any_python, undisturbed):
    """Programs that leak are named by what holds it. No probe is placed. What C code keeps is told
    as a part of RSS."""
    names = ("cache", "listener", "cycle", "growing", "extension")
    targets, answer, grow = read_at_once(start, run_tracer, any_python, names)
    assert {h["path"] for h in grow} == {HOLDERS[name] for name in names if HOLDERS[name]}, grow
    for holder in grow:
        assert holder["processes"] == 1 and holder["stayed"] > 0.95, holder
        assert 0 < holder["low"] <= holder["retained_per_minute"] <= holder["high"], holder
        assert holder["retained"] > 0 and holder["types"][0]["count"] > 10, holder
    assert "malloc, in use, other blocks" in {part["name"] for part in answer["rss"]["others"]}
    pid = targets["cache"].pid
    text = run_tracer("leaks", "-p", pid, "-d", 3).stdout
    assert re.search(r"^1 holder grows.*\n  %s\n      \+" % re.escape(HOLDERS["cache"]), text, re.M)
    assert re.search(r"^next: tracer heap why \S+ -p %d$" % pid, text, re.M)
    assert max(map(len, text.splitlines())) <= 100


def test_other_programs(start, run_tracer, any_python, undisturbed):
    """Programs that warm up, fragment, swing, are bounded or churn do not grow."""
    names = ("warms_up", "fragments", "oscillates", "bounded", "churns")
    assert not read_at_once(start, run_tracer, any_python, names)[2]


def test_rate(start, run_tracer, any_python):
    """The rate is that which the program counts itself. A cache that is full does not grow, a
    dictionary that is replaced by its copy each time does, under its name."""
    target = start(any_python, "held.py")
    answer = ask(run_tracer, "-p", target.pid, "-d", 5, "--top", 0)
    target.step()
    rates = json.loads(target.read_line())
    holders = {h["path"]: h for h in answer["holders"] if h["verdict"] == "grows"}
    assert {MAIN + "ENTRIES", MAIN + "COPIED"} < set(holders), answer
    assert any(path.startswith(MAIN + "first") for path in holders), answer
    entries = holders[MAIN + "ENTRIES"]
    assert entries["type"] == "dict"
    assert entries["entries_per_minute"] == pytest.approx(rates["ENTRIES"], rel=0.1)
    assert not any("FULL" in path for path in holders), answer


def test_dumps(start, run_tracer, any_python, tmp_path):
    """Dumps of a heap say the same, the oldest first. Others are refused."""
    target, dumps = start(any_python, "held.py"), [tmp_path / name for name in "abc"]
    for dump in dumps:
        time.sleep(2.3 - time.time() % 1)  # dumps know their second
        assert run_tracer("heap", "-p", target.pid, "-o", dump).returncode == 0
    answer = json.loads(run_tracer("leaks", *dumps, "--format", "json", "--top", 0).stdout)
    holders = {h["path"]: h["verdict"] for h in answer["holders"]}
    assert holders[MAIN + "ENTRIES"] == "grows" and "rss" not in answer, answer
    holders = json.loads(run_tracer("leaks", *dumps[:2], "--format", "json").stdout)["holders"]
    assert MAIN + "ENTRIES" in [h["path"] for h in holders if h["verdict"] == "unclear"]
    text = run_tracer("leaks", *dumps).stdout
    assert ", 3 dumps of its heap within " in text and "RSS" not in text
    assert "no second younger" in error_line(run_tracer("leaks", *reversed(dumps)), 1)
    other = tmp_path / "other"
    assert run_tracer("heap", "-p", start(any_python, "held.py").pid, "-o", other).returncode == 0
    assert "of another process" in error_line(run_tracer("leaks", dumps[0], other), 1)
    error_line(run_tracer("leaks", dumps[0], __file__), 1)


def test_workers(start, run_tracer, any_python):
    """The workers of a process that is named are read with it; what all hold is one row."""
    target = start(any_python, "workers.py")
    workers = target.read_line().split(",")
    answer = ask(run_tracer, "-p", target.pid, "-d", 6)
    first = answer["holders"][0]
    assert first["verdict"] == "grows" and first["processes"] == len(workers), answer
    assert first["path"] == MAIN + "kept"
    text = run_tracer("leaks", "-p", target.pid, "-d", 1).stdout
    assert text.startswith("tracer: %d processes, heap read " % (len(workers) + 1))


def test_ends_between(start, run_tracer, any_python, tmp_path):
    """A process that ends meanwhile is said; the others are told."""
    one, other = (start(any_python, "ten_leaks.py", "growing") for _ in range(2))
    for target in (one, other):
        target.step()
        target.read_until("full")
    brief = start(any_python, "brief_heap.py", 1.5)
    pids = "%d,%d,%d" % (one.pid, brief.pid, other.pid)
    done = run_tracer("leaks", "-p", pids, "-d", 4)
    assert done.returncode == 0, done.stderr
    assert "Not seen: 1 process that ended" in done.stdout
    assert MAIN + "log\n" in done.stdout and "in 2 processes" in done.stdout


def test_without_python(start, run_tracer, tmp_path):
    """A program without Python has no such heap: probes tell its lines, and it is said."""
    target = start(compiled(tmp_path / "steady_native", "steady_native.c"), None)
    done = run_tracer("leaks", "-p", target.pid, "-d", 1)
    assert done.returncode == 0, done.stderr
    assert "no Python: probes tell its lines" in done.stderr


@pytest.mark.unprivileged
def test_refused(run_tracer):
    error_line(run_tracer("leaks", "-p", "1x"), 2)
    error_line(run_tracer("leaks", "-p", os.getpid(), "-d", "no"), 2)
