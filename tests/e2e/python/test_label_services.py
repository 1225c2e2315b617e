# SPDX-License-Identifier: Apache-2.0
"""Which requests grow: services of FastAPI, under uvicorn, and of aiohttp, in which each request or
connection is a task of its own; of the twelve routes three keep something (test_label_leaks.py)."""
import json
import re
import subprocess

import pytest

from harness import read_report
from routes_load import LEAKS, SYSTEM, load  # noqa: F401: a fixture

PATHS = {
    "fastapi": ("fastapi", "local __call__:scope.path"),
    "aiohttp": 2 * ("local _handle:request._rel_url._val.2",),
}


@pytest.fixture
def served(start, load):  # noqa: F811
    def begin(kind):
        needs = "fastapi, uvicorn" if kind == "fastapi" else kind
        if subprocess.run([SYSTEM, "-c", "import " + needs], stderr=-3).returncode:
            pytest.skip("Debian's packages of %s are not installed" % needs)
        target = start(SYSTEM, "routes.py", kind)
        load(int(target.read_line()))
        return target

    return begin


@pytest.mark.whole
@pytest.mark.parametrize("kind", PATHS)
def test_leaks(served, run_tracer, kind):
    target = served(kind)
    by, label = PATHS[kind]
    done = run_tracer(
        "leaks", "-p", target.pid, "--by", by, "-m", "census", "-d", "12", "--format", "json"
    )
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["by"] == "value" and answer["label"] == label
    rows = sorted((row for row in answer["lines"] if row["value"]), key=lambda row: -row["size"])
    told = json.dumps(rows, indent=1)
    assert [row["value"] for row in rows[:3]] == LEAKS, told
    # On a busy machine it may be unclear whether it goes on: few requests are served then.
    assert {row["verdict"] for row in rows[:3]} <= {"grows", "unclear"}, told


def test_tasks(served, trace, tracer, run_tracer):
    """Tasks that nobody has named: there are many of them, each with little, and lists of them are
    short."""
    run = trace("-p", served("fastapi").pid, "-m", "census", "--by", "task", "-d", "6")
    run.wait()
    rows = read_report(tracer, run.snapshot, "--by", "task").statistics
    names = [row["task"] for row in rows]
    assert all(re.fullmatch(r"|Task-\d+", name) for name in names) and len(names) > 20
    text = run_tracer("report", run.snapshot, "--by", "task").stdout
    assert "Top 10 tasks of %d by size" % len(names) in text
    assert len(re.findall(r"^  Task-\d+: ", text, re.M)) <= 10
