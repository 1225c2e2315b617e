# SPDX-License-Identifier: Apache-2.0
"""tracer memory of several processes: the kernel's own figures of each, sums that count nothing
twice, and what the workers of a service have unshared. Looking changes nothing."""
import json

import pytest

from harness import error_line, marked_line, program
from procfs import SHARES, is_between, shares

WORKERS, MEGABYTES, TOUCHED = 4, 24, 8
MIB = 1 << 20


def looked(run_tracer, pids):
    """The answer, and whether each process is as the kernel counts it, to the page."""
    before = {pid: shares(pid) for pid in pids}
    done = run_tracer("memory", "-p", ",".join(map(str, pids)), "--format", "json")
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    found = {each["pid"]: each for each in answer["processes"]}
    assert sorted(found) == sorted(pids) and answer["missing"] == 0
    after = {pid: shares(pid) for pid in pids}
    wrong = [
        (pid, key, found[pid][key], before[pid][key], after[pid][key])
        for pid in pids
        for key in SHARES
        if not is_between(found[pid][key], before[pid], after[pid], key)
    ]
    return answer, wrong


def asked(run_tracer, pids):
    """The answer: each process as the kernel counts it; the sums are theirs. A program that another
    test runs meanwhile may share pages of the interpreter's file for a moment: then once more."""
    for _ in range(5):
        answer, wrong = looked(run_tracer, pids)
        if not wrong:
            break
    assert not wrong
    for key in SHARES:
        assert answer[key] == sum(each[key] for each in answer["processes"])
    return answer


def common(answer, pids):
    """The pages that all of them have. The sets add up to what the kernel counts as shared."""
    sets = [set(each["pids"]) for each in answer["sharing"]]
    assert len(set(map(frozenset, sets))) == len(sets) and set().union(*sets) <= set(pids)
    size = sum((e["anonymous"] + e["file"]) * len(e["pids"]) for e in answer["sharing"])
    assert abs(size - answer["shared"]) < 0.01 * answer["shared"]
    for each in answer["sharing"]:
        if len(each["pids"]) == 1:
            assert each["outside"] > 0.9 * (each["anonymous"] + each["file"])
    return answer["sharing"][sets.index(set(pids))]


def tell(target, line):
    """Each worker does that."""
    target.process.stdin.write(line.encode() + b"\n")
    target.process.stdin.flush()
    target.read_until("done")


@pytest.fixture
def service(start, any_python):
    target = start(any_python, "preloaded.py", WORKERS, MEGABYTES, ready=False)
    return target, json.loads(target.read_line())


def test_service(service, run_tracer):
    target, workers = service
    pids = [target.pid, *workers]
    answer = asked(run_tracer, pids)
    assert (
        "unshared"
        not in answer["processes"][[e["pid"] for e in answer["processes"]].index(target.pid)]
    )
    before = {each["pid"]: each.get("unshared") for each in answer["processes"]}
    together = common(answer, pids)
    assert together["anonymous"] >= MEGABYTES * MIB
    tell(target, "touch %d" % TOUCHED)
    kernel = {pid: shares(pid) for pid in pids}
    answer = asked(run_tracer, pids)
    for each in answer["processes"]:
        if each["pid"] == target.pid:
            continue
        assert each["parent"] == target.pid
        more = each["unshared"] - before[each["pid"]]
        assert TOUCHED * MIB <= more < 1.2 * TOUCHED * MIB
        assert each["private"] >= each["unshared"]
    # Each worker has its copies now, and the master the pages before.
    less = together["anonymous"] - common(answer, pids)["anonymous"]
    assert TOUCHED * MIB <= less < 1.2 * TOUCHED * MIB
    # Reading all of their memory changes nothing of that.
    for pid in pids:
        run_tracer("memory", "-p", pid)
        run_tracer("heap", "gc", "-p", pid)
        run_tracer("memory", "--unshared", "-p", pid)
    for pid in pids:
        now = shares(pid)
        for key in ("private_dirty", "pss_anon"):
            assert abs(now[key] - kernel[pid][key]) < 100 << 10, (pid, key)


def test_tree(service, run_tracer):
    """A worker's tree: private memory adds up to what the kernel counts, and most of Python's heap is
    shared until it is touched."""
    target, workers = service
    for touched in (0, TOUCHED):
        if touched:
            tell(target, "touch %d" % touched)
        before = shares(workers[0])
        done = run_tracer("memory", "-p", workers[0], "--format", "json")
        tree, after = json.loads(done.stdout), shares(workers[0])
        for name, key in (("size", "rss"), ("private", "private"), ("pss", "pss")):
            assert is_between(tree[name], before, after, key), name
        (python,) = [each for each in tree["children"] if each["name"] == "python"]
        assert python["size"] > MEGABYTES * MIB
        assert touched * MIB <= python["private"] < touched * 1.1 * MIB + 4 * MIB

        def sums(node):
            if node["children"]:
                assert sum(each["private"] for each in node["children"]) == node["private"], node
            for each in node["children"]:
                sums(each)

        sums(tree)


def test_text(service, run_tracer):
    target, workers = service
    words = ("memory", "-p", "%d,%d" % (target.pid, workers[0]))
    text = run_tracer(*words).stdout
    assert text.startswith("tracer: 2 processes, read in ")
    assert ", unshared=" in text and ", forked by PID %d\n" % target.pid in text
    assert "\nTogether: " in text and "\nFigures: " in text
    lines = run_tracer(*words, "--format", "csv").stdout.splitlines()
    assert lines[0] == "pid,process,rss,pss,private,shared,swap,unshared" and len(lines) == 3
    error_line(run_tracer(*words, "--freeze"), 1)
    # Of those that are named each has to be there; what is there is told.
    done = run_tracer("memory", "-p", "%d,%d,2" % (target.pid, workers[0]))
    assert done.returncode == 1 and done.stderr.startswith("tracer: PID 2: it is a kernel thread")
    assert done.stdout.startswith("tracer: 2 processes, ")
    assert "1 process could not be read" in done.stdout
    error_line(run_tracer("memory", "--comm", "no-such-program"), 1)
    error_line(run_tracer("memory"), 2)


def unshared(run_tracer, pid):
    done = run_tracer("memory", "--unshared", "-p", pid, "--format", "json")
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert sum(answer["differs"].values()) == answer["unshared"] and answer["unread"] == 0
    return answer


@pytest.mark.versions("3.8", "3.11", "3.13")
def test_counts(start, run_tracer, python):
    """Strings that were looked at: nothing differs, no collection has come."""
    target = start(python, "preloaded.py", 1, MEGABYTES, ready=False)
    (worker,) = json.loads(target.read_line())
    before = unshared(run_tracer, worker)
    tell(target, "touch %d" % TOUCHED)
    after = unshared(run_tracer, worker)
    more = after["differs"]["same"] - before["differs"]["same"]
    assert TOUCHED * MIB <= more < 1.2 * TOUCHED * MIB
    assert after["types"][0]["type"] == "str"
    assert after["types"][0]["size"] == pytest.approx(TOUCHED * MIB, rel=0.1)
    assert after["collected"] is False and after["freeze_keeps"] == 0
    text = run_tracer("memory", "--unshared", "-p", worker).stdout
    assert "\n  str: own size=" in text and "kept nothing: no collection has come since" in text
    error_line(run_tracer("memory", "--unshared", "-p", target.pid), 1)


@pytest.mark.versions("3.8", "3.11", "3.13")
def test_collected(start, run_tracer, python):
    """A collection writes to all objects, and gc.freeze() keeps as much of that as was said."""
    found = {}
    for how in ("", "freeze"):
        target = start(python, "preloaded.py", 1, MEGABYTES, "objects", how, ready=False)
        (worker,) = json.loads(target.read_line())
        tell(target, "collect")
        found[how] = unshared(run_tracer, worker)
        assert found[how]["collected"] is True
        target.finish()
    assert found[""]["types"][0]["type_name"] == "__main__.Order"
    assert found[""]["unshared"] > MEGABYTES * MIB * 0.8
    kept = found[""]["unshared"] - found["freeze"]["unshared"]
    assert found[""]["freeze_keeps"] == pytest.approx(kept, rel=0.1)


@pytest.mark.versions("3.8", "3.11", "3.13")
def test_lines(start, trace, run_tracer, python):
    """The lines of what was unshared, by a session that traces the service; without one, a line that
    says what to do."""
    target = start(python, "preloaded.py", 1, MEGABYTES, "late", ready=False)
    target.read_until("ready")
    run = trace("-p", target.pid)
    target.step()
    (worker,) = json.loads(target.read_line())
    tell(target, "touch %d" % TOUCHED)

    def asked_lines():
        """Pages of code that have, or had, probes are the worker's own: no copy of a heap has them."""
        done = run_tracer("memory", "--unshared", "-p", worker, "--format", "json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    answer = asked_lines()
    line = "%s:%d" % (program("preloaded.py"), marked_line("preloaded.py", "TEXT"))
    found = {each["line"]: each for each in answer["lines"]}
    (texts,) = [each for each in answer["types"] if each["type"] == "str"]
    assert found[line]["size"] == pytest.approx(TOUCHED * MIB, rel=0.1)
    assert found[line]["count"] <= texts["count"] and answer["lines"][0]["line"] == line
    every = sum(each["size"] for each in answer["lines"]) + answer["lines_unknown"]["size"]
    assert every == sum(each["size"] for each in answer["types"])
    assert answer["lines_of"] in (worker, target.pid) and answer["lines_whole"] is True
    text = run_tracer("memory", "--unshared", "-p", worker).stdout
    assert "\n  %s: own size=" % line in text and "\n  not known, from before the trace: " in text
    run.finish()
    assert asked_lines()["lines"] is None
    text = run_tracer("memory", "--unshared", "-p", worker).stdout
    assert "as no session traces it: tracer -p %d tells" % target.pid in text
