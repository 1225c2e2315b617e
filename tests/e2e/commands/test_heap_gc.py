# SPDX-License-Identifier: Apache-2.0
"""tracer heap gc: the collector's state and figures, against what the interpreter says of itself."""
import json
import os
import signal
import subprocess
import time

import pytest

from harness import memory_cgroup
from test_heap_graph import ask


@pytest.fixture
def collecting(start, python):
    """collecting(how): a target, and what its gc module says."""

    def make(how):
        target = start(python, "collector.py", how, ready=False)
        said = json.loads(target.read_line())
        target.read_until("ready")
        return target, said

    return make


def minor(python):
    return int(python.version.split(".")[1].rstrip("t"))


def check(collector, said, python):
    assert collector["enabled"] == collector["runs"] == said["enabled"]
    assert collector["collecting"] is False and collector["frozen"] == said["frozen"] > 1000
    of = collector["generations"]
    assert [each["threshold"] for each in of] == said["threshold"]
    for key in ("collections", "collected", "uncollectable"):
        assert [each[key] for each in of] == [each[key] for each in said["stats"]]
    # The answer itself is made of objects.
    for each, count, objects in zip(of, said["count"], said["objects"]):
        assert abs(each["count"] - count) < 100
        if minor(python) != 14:  # the two old generations change places
            assert abs(each["objects"] - objects) < 100
    assert abs(sum(each["objects"] for each in of) - sum(said["objects"])) < 100
    for each, stats in zip(of, said["stats"]):
        assert ("seconds" in each) == ("duration" in stats)
        assert each.get("seconds", 0) == pytest.approx(stats.get("duration", 0), abs=1e-6)


@pytest.mark.versions()
def test_state(collecting, run_tracer, python, tmp_path):
    """All figures, of a process and of a dump of it."""
    for how in ("on", "off"):
        target, said = collecting(how)
        dump = tmp_path / how
        answer = ask(run_tracer, "gc", "-p", target.pid, "-o", dump)
        (collector,) = answer["collectors"]
        check(collector, said, python)
        assert "watched" not in collector
        assert ask(run_tracer, "gc", dump)["collectors"] == [collector]
        text = run_tracer("heap", "gc", dump).stdout
        assert "\nCollector: %s" % how in text
        assert "\n  generation 2: objects=" in text
        assert target.finish() == 0


@pytest.mark.versions()
def test_watched(collecting, run_tracer, python):
    """What it does meanwhile, to the object."""
    target, said = collecting("works")
    (collector,) = ask(run_tracer, "gc", "-p", target.pid, "-d", 2)["collectors"]
    watched = collector["watched"]
    count = watched["collections"][2]
    assert count > 5 and watched["seconds"] >= 2
    # Two collections between two looks, if the tracer has no processor for long.
    assert watched["most_collected"] % said["freed"] == 0 < watched["most_collected"]
    assert said["freed"] >= 500
    # A look may come in the middle of a collection.
    assert abs(watched["collected"] - count * said["freed"]) <= said["freed"]
    assert 20 < watched["looks"] and watched["looks_collecting"] < watched["looks"]
    text = run_tracer("heap", "gc", "-p", target.pid, "-d", "0.5").stdout
    assert "\n  in 0.5 s: collections=" in text and "% of the time" in text
    assert target.finish() == 0


@pytest.mark.versions()
def test_stopped_anywhere(collecting, run_tracer, python):
    """In the middle of a collection the links of a list are something else: it is found all the same."""
    target, _ = collecting("busy")
    for number in range(12):
        os.kill(target.pid, signal.SIGSTOP)
        (collector,) = ask(run_tracer, "gc", "-p", target.pid)["collectors"]
        os.kill(target.pid, signal.SIGCONT)
        assert collector["generations"][0]["threshold"] == 50000
        time.sleep(0.01 * (number % 3))
    assert target.finish() == 0


def test_refused(run_tracer):
    """-d is of gc, and of a process."""
    for words in (["-d", 1, "-p", 1], ["cycles", "-d", 1, "-p", 1], ["gc", "-d", 1, "x"]):
        done = run_tracer("heap", *words)
        assert done.returncode == 2 and "-d is of gc and a running process" in done.stderr


def test_too_large(start, tracer, any_python):
    """A heap that may not be copied: all but the objects of its generations."""
    target = start(any_python, "preloaded.py", 1, 60, ready=False)
    target.read_line()
    with memory_cgroup(40 << 20) as group:
        done = subprocess.run(
            ["sh", "-c", 'echo $$ > %s/cgroup.procs; exec "$@"' % group, "sh"]
            + [tracer, "heap", "gc", "-p", str(target.pid)],
            stdout=subprocess.PIPE,
            text=True,
            timeout=60,
        )
    assert done.returncode == 0
    assert "\n  generation 2: count=" in done.stdout
    assert "\nNot seen: objects of each generation, as the heap is too large" in done.stdout
