# SPDX-License-Identifier: Apache-2.0
"""`tracer leaks` beside services of Debian's packages, each with three leaks of its own and a real
client: the first rows are the leaks, each with the line that fills it."""
import json
import statistics
import subprocess

import pytest

import procfs
import services

pytestmark = pytest.mark.parametrize("service", sorted(services.KINDS), indirect=True)


def asked(tracer, *words):
    """The command's answer in JSON."""
    done = subprocess.run(
        [tracer, *map(str, words), "--format", "json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def leaks(tracer, *options):
    return asked(tracer, "leaks", *options)


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


def test_memory(service, tracer):
    """What the service has is what the kernel counts, to the page, and looking at it changes nothing;
    each worker that shares memory with its parent says what it has unshared, and of which types."""
    client = service.client()
    client.rates()
    client.end()
    pids = [str(service.pid), *(pid for pid in service.workers() if pid != str(service.pid))]

    before = {pid: procfs.shares(pid) for pid in pids}
    trees = [asked(tracer, "memory", "-p", pid) for pid in pids]
    after = {pid: procfs.shares(pid) for pid in pids}
    for pid, tree in zip(pids, trees):
        for name, key in (("size", "rss"), ("private", "private")):
            assert procfs.is_between(tree[name], before[pid], after[pid], key), (pid, name)
    workers = [] if len(pids) < 2 else asked(tracer, "memory", "-p", ",".join(pids))["processes"]
    for each in workers:
        for key in ("rss", "private", "shared"):
            now = procfs.shares(each["pid"])
            assert procfs.is_between(each[key], before[str(each["pid"])], now, key), key
        if "parent" in each:
            why = asked(tracer, "memory", "--unshared", "-p", each["pid"])
            assert abs(why["unshared"] + why["unread"] - each["unshared"]) < 100 << 10
            assert why["unshared"] > 1 << 20 and len(why["types"]) > 10
    assert sum("parent" in each for each in workers) == len(workers[1:])
    for pid, were in before.items():
        now = procfs.shares(pid)
        assert all(
            abs(now[key] - were[key]) < 100 << 10 for key in ("private_dirty", "pss_anon")
        ), pid
