# SPDX-License-Identifier: Apache-2.0
"""tracer leaks -p PID: what grows, by what holds it, from the heap alone."""
import json
import os
import re
import threading
import time

import pytest

from harness import compiled, error_line, marked_line, program
from procfs import private_code

MAIN = "sys.modules['__main__']."
# What holds the growth of each program of ten_leaks.py; None: it does not leak, or no object does.
HOLDERS = {
    "cache": MAIN + "sessions",
    "listener": MAIN + "bus.listeners",
    "cycle": "garbage",
    "growing": MAIN + "log",
    "extension": None,
    "warms_up": None,
    "fragments": None,
    "oscillates": None,
    "bounded": None,
    "churns": None,
}
# Of filled.py: the ends of paths, and the marks of the lines that can fill what they hold, the most
# likely ones first. None: no code of the program's.
FILLED = {
    MAIN + "CACHE": ["put"],
    MAIN + "HEAP": ["heap"],
    MAIN + "COPIED": ["copy"],
    MAIN + "GROUPS": ["group"],
    MAIN + "JOBS.queue": ["job", None],
    MAIN + "bus.listeners": ["subscribe", "subscribed"],
    MAIN + "Registry.entries": ["enter"],
    MAIN + "Price.quote, field cache of Price.quote": ["quote"],
    MAIN + "keep.__closure__[0].cell_contents": ["keep"],
    MAIN + "default.__defaults__[0]": ["default"],
    "sys.modules['filled_store'].STORE": ["store"],
    "sys.modules['filled_store'].PAIRS": ["pairs"],
    MAIN + "SHARED": ["shared"],
    MAIN + "LOCAL.seen": ["thread"],
    MAIN + "APP['orders']": ["order"],
    "frame of main": ["first", "local"],
    MAIN + "RECENT": ["recent"],
    MAIN + "Price.discount, field cache of Price.discount": ["discount"],
    MAIN + "shelf.held": ["shelf", "shelved"],
    MAIN + "shelf.ordered": ["remember", "shelved"],
}
BOUNDS = {"RECENT": 100000, "discount": 50000, "held": 80000, "ordered": 80000}
FUNCTIONS = {"quote": "Price.quote", "subscribe": "Bus.subscribe", "enter": "Registry.enter"}


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
    # Not each copy of a process that runs shows that the collector is off.
    paths = {h["path"].replace(" (the collector is off)", "") for h in grow}
    assert paths == {HOLDERS[name] for name in names if HOLDERS[name]}, grow
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


def test_auto(start, run_tracer, python):
    """-d auto ends when the rate is known to 20 %, not after all the moments that it could have."""
    target = start(python, "ten_leaks.py", "cache")
    target.step()
    answer = ask(run_tracer, "-p", target.pid, "-d", "auto")
    found = [h for h in answer["holders"] if h["verdict"] == "grows"]
    assert [h["path"] for h in found] == [HOLDERS["cache"]]
    assert found[0]["high"] - found[0]["low"] <= 0.4 * found[0]["retained_per_minute"]
    assert 8 <= answer["reads"] < 32


def test_confirmed(start, run_tracer, python):
    """With --lines probes say whether the code that can fill a holder does."""
    target = start(python, "service.py", "listed", ready=False)
    target.read_line()
    answer = ask(run_tracer, "-p", target.pid, "--lines", "-m", "census", "-d", 4)
    holder = answer["holders"][0]
    with open(program("service.py")) as file:
        lines = file.read().split("\n")
    line = next(i for i, text in enumerate(lines, 1) if "# fills listed" in text)
    assert [(p["lineno"], p["how"]) for p in holder["filled_by"]] == [
        (line, "code"),
        (line, "measured"),
    ]
    assert holder["filled_by"][1]["through"] == 1
    assert line in [entry["traceback"][0]["lineno"] for entry in answer["lines"]]
    alone = ask(run_tracer, "-p", target.pid, "--by", "line", "-m", "census", "-d", 1)
    assert "holders" not in alone and alone["lines"]
    text = run_tracer("leaks", "-p", target.pid, "--lines", "-m", "census", "-d", 4).stdout
    assert re.search(r"^ +measured: .*service\.py:%d\b.*, 100 %% of it through" % line, text, re.M)


def test_filled_by(start, run_tracer, python):
    """The lines that can fill a holder are named: in other functions and modules, in methods, in
    library code; those that only read it, and those of an attribute of another class, are not. What
    has a bound is told as bounded."""
    target = start(python, "filled.py")
    answer = ask(run_tracer, "-p", target.pid, "-d", 3, "--top", 0)
    found = {re.sub(r"\[\d\]$|, local local$", "", h["path"]): h for h in answer["holders"]}
    found[MAIN + "default.__defaults__[0]"] = found.get(MAIN + "default.__defaults__")
    for path, marks in FILLED.items():
        assert found.get(path), (path, sorted(found))
        lines = found[path]["filled_by"]
        assert len(lines) == len(marks) and "filled_by_more" not in found[path], found[path]
        for line, mark in zip(lines, marks):
            if mark is None:
                assert line["filename"].endswith("queue.py"), line
                continue
            name = "filled_store.py" if mark == "pairs" else "filled.py"
            assert line["lineno"] == marked_line(name, mark), (path, mark, line)
            assert os.path.basename(line["filename"]) == name and line["how"] == "code"
            assert line["function"] == FUNCTIONS.get(mark, line["function"])
            assert ("calls" in line) == (mark in ("quote", "discount"))
        bound = BOUNDS.get(re.split(r"[. ]", path)[-1])
        assert found[path].get("bound") == bound, found[path]
        assert bound is None or found[path]["verdict"] != "grows", found[path]
    text = run_tracer("leaks", "-p", target.pid, "-d", 1, "--top", 0).stdout
    line = r"\n      filled by \S*/filled\.py:%d in put\n" % marked_line("filled.py", "put")
    assert re.search(re.escape(MAIN + "CACHE") + r".*\n.*\n.*" + line, text), text
    assert "\n        or " in text and "      filled by calls of Price.quote, /" in text
    assert "      fills up to 100,000 entries, and has " in text
    assert text.count("\nFilled by: lines whose code can, found in the heap; ") == 1


ODD = {
    "slots": MAIN + "CACHE.items",
    "ordered": MAIN + "ORDERED",
    "deque": MAIN + "DEQUE",
    "renamed": MAIN + "Odd.",
    "generator": MAIN + "GENERATORS",
    "frozen": MAIN + "CACHE.items",
    "disabled": "garbage",
    "wild": MAIN + "CACHE.items",
    "tuple": MAIN + "__dict__, key",
    "escape": MAIN + "__dict__['",
    "long": MAIN + "__dict__, key",
}


@pytest.mark.long
@pytest.mark.parametrize("name", ODD)
def test_odd_holders(start, run_tracer, any_python, name):
    """What is held in an odd way is found like anything else, and prints no control characters."""
    target = start(any_python, "odd.py", name)
    done = run_tracer("leaks", "-p", target.pid, "-d", 8)
    assert done.returncode == 0, done.stderr
    first = re.search(r"^\d+ holders? grows?.*\n  (.*)$", done.stdout, re.M)
    assert first and first[1].startswith(ODD[name]), done.stdout
    assert "\033" not in done.stdout and "\a" not in done.stdout
    with open(program("odd.py")) as file:
        lines = [i for i, line in enumerate(file, 1) if "# fills " + name in line]
    if lines:
        assert re.search(r"(filled by|or) \S*odd\.py:%d " % lines[0], done.stdout), done.stdout


def test_dumps(start, run_tracer, any_python, tmp_path):
    """Dumps of a heap say the same, the oldest first. Others are refused."""
    target, dumps = start(any_python, "held.py"), [tmp_path / name for name in "abc"]
    for dump in dumps:
        time.sleep(2)
        assert run_tracer("heap", "-p", target.pid, "-o", dump).returncode == 0
    assert run_tracer("leaks", *dumps, "--fail-on", "grows").returncode == 3
    assert run_tracer("leaks", *dumps[:2], "--fail-on", "grows").returncode == 0  # unclear
    assert run_tracer("leaks", *dumps, "--fail-on", "grows", "--require-complete").returncode == 3
    error_line(run_tracer("leaks", *dumps, "--fail-on", "x"), 2)
    error_line(run_tracer("leaks", *dumps, "--by", "x"), 2)
    answer = json.loads(run_tracer("leaks", *dumps, "--format", "json", "--top", 0).stdout)
    holders = {h["path"]: h["verdict"] for h in answer["holders"]}
    assert holders[MAIN + "ENTRIES"] == "grows" and "rss" not in answer, answer
    filled = {h["path"]: h["filled_by"] for h in answer["holders"]}[MAIN + "ENTRIES"]
    assert [line["function"] for line in filled] == ["<module>"]
    holders = json.loads(run_tracer("leaks", *dumps[:2], "--format", "json").stdout)["holders"]
    assert MAIN + "ENTRIES" in [h["path"] for h in holders if h["verdict"] == "unclear"]
    fails = ["leaks", "-p", target.pid, "-d", 8, "--fail-on", "grows", "--require-complete"]
    assert run_tracer(*fails).returncode == 3
    done = run_tracer(*fails, "--memory", "1M", "-d", 2)
    assert done.returncode == 4 and "types alone were compared" in done.stderr, done.stderr
    text = run_tracer("leaks", *dumps).stdout
    assert ", 3 dumps of its heap within " in text and "RSS" not in text
    assert "not younger than" in error_line(run_tracer("leaks", *reversed(dumps)), 1)
    other = tmp_path / "other"
    assert run_tracer("heap", "-p", start(any_python, "held.py").pid, "-o", other).returncode == 0
    assert "of another process" in error_line(run_tracer("leaks", dumps[0], other), 1)
    error_line(run_tracer("leaks", dumps[0], __file__), 1)


def test_too_large(start, run_tracer, any_python):
    """A heap for whose copy there is no memory is compared by type, and it is said."""
    target = start(any_python, "held.py")
    answer = ask(run_tracer, "-p", target.pid, "-d", 5, "--memory", "64K", "--top", 0)
    target.step()
    rates = json.loads(target.read_line())
    grow = {h["path"]: h for h in answer["holders"] if h["verdict"] == "grows"}
    # Each number makes an entry of ENTRIES, and every fourth one two more.
    entries = grow["objects of __main__.Entry"]["entries_per_minute"]
    assert entries == pytest.approx(1.5 * rates["ENTRIES"], rel=0.1), answer
    text = run_tracer("leaks", "-p", target.pid, "-d", 1, "--memory", "64K").stdout
    assert "types alone were compared" in text and "(PID %d)" % target.pid in text
    error_line(run_tracer("leaks", "-p", target.pid, "--memory", "0"), 2)


def test_workers(start, run_tracer, any_python):
    """The workers of a process that is named are read with it; what all hold is one row."""
    target = start(any_python, "workers.py")
    workers = target.read_line().split(",")
    answer = ask(run_tracer, "-p", target.pid, "-d", 9)
    first = answer["holders"][0]
    assert first["verdict"] == "grows" and first["processes"] == len(workers), answer
    assert first["path"] == MAIN + "kept"
    second = answer["holders"][1]
    assert second["verdict"] == "grows" and second["processes"] == len(workers), answer
    assert re.fullmatch(re.escape(MAIN) + r"by_worker\[(%s)\]" % "|".join(workers), second["path"])
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


def test_killed_meanwhile(start, run_tracer, any_python):
    """Of a process that is killed it is told what had grown until then."""
    target = start(any_python, "held.py")
    killer = threading.Timer(9, target.kill)
    killer.start()
    done = run_tracer("leaks", "-p", target.pid, "-d", 30)
    killer.join()
    assert done.returncode == 0, done.stderr
    assert re.search(r"^\d+ holders? grow.*\n  .*ENTRIES\n", done.stdout, re.M), done.stdout
    assert "0.0 s of CPU" not in done.stdout and "has stayed" not in done.stdout
    assert "or could not be read again; so what stayed, and what fills it" in done.stdout


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
