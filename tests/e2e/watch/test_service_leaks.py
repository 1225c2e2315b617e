# SPDX-License-Identifier: Apache-2.0
"""tracer leaks beside services that run undisturbed: twelve that leak, eight that do not."""
import json
import os
import sys

import pytest

from harness import program

sys.path.append(os.path.dirname(program("service.py")))

import service  # noqa: E402

LEAKING = sorted(service.HOLDERS)
pytestmark = pytest.mark.long  # half a minute each; test_heap_leaks.py has the like of them


class Service:
    """service.py, and what it has counted."""

    def __init__(self, start, python, name, workers):
        self.target = start(python, "service.py", name, workers, ready=False)
        self.pids = list(map(int, self.target.read_line().split()[1:]))

    def counted(self):
        """(requests, entries, seconds) of each process."""
        self.target.process.stdin.write(b"?")
        self.target.process.stdin.flush()
        answer = json.loads(self.target.read_line())
        return answer if isinstance(answer[0], list) else [answer]


def filler_line(name):
    with open(program("service.py")) as file:
        lines = file.read().split("\n")
    return next((i for i, line in enumerate(lines, 1) if "# fills " + name in line), None)


@pytest.mark.parametrize("workers", (0, 4), ids=("one", "pool"))
@pytest.mark.parametrize("name", LEAKING)
def test_leaks(start, run_tracer, any_python, undisturbed, name, workers):
    """The first row is what grows, with the line that fills it, at the rate that the service counts."""
    served = Service(start, any_python, name, workers)
    before = served.counted()
    done = run_tracer("leaks", "-p", served.target.pid, "--format", "json")
    after = served.counted()
    assert done.returncode == 0, done.stderr
    first = json.loads(done.stdout)["holders"][0]
    assert first["verdict"] == "grows" and first["processes"] == len(served.pids), done.stdout
    assert service.HOLDERS[name] in first["path"], first
    if name == "cycles":  # of which no code is known
        return
    assert filler_line(name) == first["filled_by"][0]["lineno"], first
    own = sum((b[1] - a[1]) / (b[2] - a[2]) * 60 for a, b in zip(before, after))
    assert first["entries_per_minute"] == pytest.approx(own, rel=0.05), (own, first)


@pytest.mark.parametrize("workers", (0, 4), ids=("one", "pool"))
@pytest.mark.parametrize("name", service.STEADY)
def test_others(start, run_tracer, any_python, undisturbed, name, workers):
    served = Service(start, any_python, name, workers)
    done = run_tracer("leaks", "-p", served.target.pid, "--format", "json")
    assert done.returncode == 0, done.stderr
    grow = [h for h in json.loads(done.stdout)["holders"] if h["verdict"] == "grows"]
    assert not grow
