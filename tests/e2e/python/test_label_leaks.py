# SPDX-License-Identifier: Apache-2.0
"""Which requests grow: services of Flask and Django, of whose twelve routes three keep something, all
of it made on the same lines."""
import json

import pytest

from harness import wait_until
from routes_load import LEAKS, SYSTEM, load  # noqa: F401: a fixture

BY = {
    "flask": "context flask.request_ctx.request.path",
    "django": "local BaseHandler.get_response:request.path",
}


@pytest.fixture(params=sorted(BY))
def service(request, start, load):  # noqa: F811
    """A service under load: (its process, what --by asks for)."""
    target = start(SYSTEM, "routes.py", request.param)
    load(int(target.read_line()))
    return target, BY[request.param]


def check(answer, by):
    """A busy machine may make the second half of so short a time the slower one: then it is unclear
    whether the growth goes on. The others may have cycles that are not collected yet, which are
    little."""
    assert answer["by"] == "value" and answer["label"] == by
    told = json.dumps(answer["lines"], indent=1)
    rows = [row for row in answer["lines"] if row["value"]]
    assert sorted(row["value"] for row in rows[:3]) == LEAKS, told
    assert {row["verdict"] for row in rows[:3]} <= {"grows", "unclear"}, told
    assert rows[0]["verdict"] == "grows", told
    least = min(row["size"] for row in rows[:3])
    assert all(row["size"] < least / 10 for row in rows[3:] if row["verdict"] == "grows"), told
    assert sorted(rows, key=lambda row: -row["size"])[0]["value"] == LEAKS[0], told


def check_again(ask, by):
    """The same; another trace tells if the machine was so busy that the first one could not."""
    try:
        check(ask(), by)
    except AssertionError:
        check(ask(), by)


def recorded(service, trace, run_tracer, record):
    target, by = service
    run = trace(
        "-p",
        target.pid,
        "-m",
        "census",
        "--by",
        by,
        "--record",
        record,
        "--every",
        "0.3",
        "-d",
        "12",
    )
    run.wait()
    done = run_tracer("leaks", record, "--by", by, "--format", "json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_recorded(service, trace, run_tracer, tmp_path):
    """Of a recording with values; and the same over time."""
    by, record = service[1], str(tmp_path / "routes.rec")
    check_again(lambda: recorded(service, trace, run_tracer, record), by)
    text = run_tracer("leaks", record, "--by", by).stdout
    assert "grow" in text and "\n  /export: +" in text and "\nNot seen: " in text
    over_time = json.loads(run_tracer("timeline", record, "--by", by, "--format", "json").stdout)
    assert over_time["by"] == "value" and over_time["lines"][0]["value"] in ("", *LEAKS)
    assert "\nValues, 10 of " in run_tracer("timeline", record, "--by", by).stdout
    refused = run_tracer("leaks", record, "--by", "context other.name")
    assert "the snapshot was made with --by " + by in refused.stderr


def test_traced(service, run_tracer):
    target, by = service

    def ask():
        done = run_tracer(
            "leaks", "-p", target.pid, "--by", by, "-m", "census", "-d", "12", "--format", "json"
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    check_again(ask, by)


def rows_in_windows(service, trace, run_tracer, path, windows, *options):
    """What leaks tells of a recording of so many windows, at least."""
    target, by = service
    run = trace("-v", "-p", target.pid, "--by", by, "--record", path, "--every", "1", *options)
    wait_until(lambda: run.stderr.count(": a window of") >= windows, "windows are over", 600)
    run.finish()
    done = run_tracer("leaks", path, "--by", by, "--format", "json")
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    return [row for row in answer["lines"] if row["value"]], json.dumps(answer["lines"], indent=1)


@pytest.mark.long
@pytest.mark.parametrize(
    "windows, options",
    ((40, ()), (20, ("--overhead", "25"))),
    ids=("default", "more"),
)
def test_in_windows(service, trace, run_tracer, tmp_path, windows, options):
    """Without a mode a process is traced in windows: how many requests these show depends on the
    machine, so growth may be unclear; but what grows comes first, and nothing else grows."""
    path = str(tmp_path / "routes.rec")
    rows, told = rows_in_windows(service, trace, run_tracer, path, windows, *options)
    assert sorted(row["value"] for row in rows[:3]) == LEAKS, told
    assert {row["verdict"] for row in rows[:3]} <= {"grows", "unclear"}, told
    assert rows[0]["verdict"] == "grows" or windows < 40, told
    assert all(row["verdict"] != "grows" for row in rows[3:]), told
