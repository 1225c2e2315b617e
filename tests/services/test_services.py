# SPDX-License-Identifier: Apache-2.0
"""`tracer leaks` beside services of Debian's packages, each with three leaks of its own and a real
client: the first rows are the leaks, each with the line that fills it."""
import json
import statistics
import subprocess

import pytest

import services

pytestmark = pytest.mark.parametrize("service", sorted(services.KINDS), indirect=True)


def leaks(tracer, *options):
    done = subprocess.run(
        [tracer, "leaks", *map(str, options), "--format", "json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def check(service, answer):
    """The leaks are what grows most, in all workers, each with its line. Where a worker has answered
    nothing yet, the holder may be nearer to the module than in the others: that is another row. So
    is an entry of the holder that grew once."""
    kind, rows = service.kind, answer["holders"]
    grow = [row for row in rows if row["verdict"] == "grows"]
    found = [[row for row in grow if end in row["path"]] for end in kind.leaks.values()]
    told = json.dumps(rows, indent=1)
    assert all(found), told
    assert rows[: sum(map(len, found))] == [
        row for row in rows if any(row in f for f in found)
    ], told
    for mark, these in zip(kind.leaks, found):
        assert sum(row["processes"] for row in these) == kind.workers, (mark, told)
        likely = these[0]["filled_by"][0]
        assert likely["lineno"] == service.marked_line(mark), (mark, told)
        assert likely["filename"].endswith(kind.file), (mark, told)


def test_even_load(service, tracer, tell, request):
    """By the PID of the process that the workers are children of."""
    client = service.client()
    before, first = client.rates(), client.counted()
    answer = leaks(tracer, "-p", service.pid)
    during = services.rate(first, client.counted())
    after = client.rates()
    client.end()
    check(service, answer)
    base = statistics.median(before + after)
    tell(
        "%s: %.2f requests/s before, %.2f during, %.2f after: %+.2f %%, noise %.2f %%"
        % (
            request.node.callspec.params["service"],
            statistics.median(before),
            during,
            statistics.median(after),
            (during / base - 1) * 100,
            (max(before + after) - min(before + after)) / 2 / base * 100,
        )
    )


def test_by_name_at_full_load(service, tracer):
    """By the name of the processes, with a client that asks as fast as the service answers."""
    with service.hurried():
        check(service, leaks(tracer, "--comm", service.kind.comm))


def test_idle_start(service, tracer):
    """The first requests come after the first look: what the service then loads is no leak."""
    with service.later():
        check(service, leaks(tracer, "-p", service.pid))
