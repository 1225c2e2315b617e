# SPDX-License-Identifier: Apache-2.0
"""How old blocks are, against a program that stamps its blocks. The moment of a snapshot is known to
an interval only, which the test measures itself; so are the times of the stamps."""
import json
import os
import subprocess
import time

import pytest

from harness import (
    ROOT,
    TIMEOUT,
    Target,
    Traced,
    error_line,
    marked_line,
    program,
    read_report,
    wait_until,
)

NAME = "stamped.py"
SIGMAS = 4  # of an estimate


class Stamped(Target):
    def work(self, marks, seconds):
        """{mark: [[begin, end, blocks], ...]} after that work."""
        self.process.stdin.write(b"%s %g\n" % (marks.encode(), seconds))
        self.process.stdin.flush()
        return json.loads(self.read_line())


class Truth:
    """What is live, at a moment between two times of CLOCK_MONOTONIC."""

    def __init__(self, live, before, after, report):
        self.live, self.before, self.after = live, before, after
        self.rounding = report.data["ages"]["rounding"]
        self.error = report.data["ages"]["error"]

    def ages(self, mark):
        """Of each round: the least and the most that its age is, as told, and its blocks."""
        slack = lambda age: self.rounding * age + self.error  # noqa: E731
        for begin, end, blocks in self.live[mark]:
            least, most = self.before - end, self.after - begin
            yield least - slack(least), most + slack(most), blocks

    def count(self, mark, low, high):
        """How many blocks are surely, and maybe, of an age in that range."""
        ages = list(self.ages(mark))
        sure = sum(n for least, most, n in ages if low <= least and most <= high)
        return sure, sum(n for least, most, n in ages if low <= most and least <= high)


def entry(report, mark):
    place = (program(NAME), marked_line(NAME, mark))
    for found in report.statistics:
        frame = found["traceback"][0]
        if (frame["filename"], frame["lineno"]) == place:
            return found
    return {"count": 0, "size": 0}


def check(report, truth, mark, low=0.0, high=float("inf")):
    found = entry(report, mark)
    sure, maybe = truth.count(mark, low, high)
    slack = SIGMAS * found.get("count_error", 0)
    assert sure - slack <= found["count"] <= maybe + slack, (mark, low, high, sure, maybe, found)
    return found


def check_ages(report, truth, mark):
    found = check(report, truth, mark)
    ages = sorted(age for *age, blocks in truth.ages(mark) for _ in range(blocks))
    assert max(least for least, _ in ages) <= found["age_oldest"] <= max(most for _, most in ages)
    # Half of the blocks are not older, and half are not younger; of an estimate, some more or less.
    share = 0.5 * SIGMAS * found.get("count_error", 0) / max(1, found["count"])
    least = sorted(least for least, _ in ages)
    most = sorted(most for _, most in ages)
    first = int(max(0, 0.5 - share) * (len(ages) - 1))
    last = int(min(1, 0.5 + share) * (len(ages) - 1)) + 1
    assert least[first] <= found["age_median"] <= most[min(last, len(ages) - 1)], found


def check_older_and_younger(tracer, snapshot, truth, marks, ages):
    for age in ages:
        older = read_report(tracer, snapshot, "--older-than", "%.4fs" % age)
        younger = read_report(tracer, snapshot, "--younger-than", "%.4fs" % age)
        assert older.data["of_ages"] and younger.data["of_ages"]
        for mark in marks:
            check(older, truth, mark, low=age)
            check(younger, truth, mark, high=age)


@pytest.mark.parametrize("mode", ["exact", "census"])
def test_ages(tracer, python, mode, tmp_path):
    with Stamped(python, NAME) as target:
        # All blocks of line C are older than the trace.
        target.work("C", 0)
        with Traced(tracer, tmp_path, "--ages", "-m", mode, "-p", target.pid) as run:
            target.work("AB", 0.7)
            middle = time.time()
            live = target.work("AD", 1.1)
            target.wait_reading()
            before, now = time.monotonic(), time.time()
            report = run.finish()
            after = time.monotonic()
            truth = Truth(live, before, after, report)
            for mark in "ABD":
                check_ages(report, truth, mark)
            assert entry(report, "C")["count"] == 0
            ages = [0.2003, 0.9003, now - middle, 1.5003, 100.0]
            check_older_and_younger(tracer, run.snapshot, truth, "ABD", ages)
            both = read_report(
                tracer, run.snapshot, "--older-than", "500.3ms", "--younger-than", "1400.3ms"
            )
            for mark in "ABD":
                check(both, truth, mark, low=0.5003, high=1.4003)
            # A whole second of the clock, and the age that it is.
            second = int(now - 1)
            form = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(second))
            for born, low, high in (
                ("..%s" % form, now - second, float("inf")),
                ("%s.." % form, 0, now - second),
                ("%s.." % form[-8:], 0, now - second),
            ):
                some = read_report(tracer, run.snapshot, "--born", born)
                for mark in "ABD":
                    check(some, truth, mark, low=low, high=high)
            # A file of some ages, as the report of them.
            old = str(tmp_path / "old.pb.gz")
            words = ["filter", run.snapshot, "--older-than", "900.3ms", "-o", old]
            subprocess.run([tracer, *words], check=True, timeout=TIMEOUT)
            again = read_report(tracer, run.snapshot, "--older-than", "900.3ms")
            assert read_report(tracer, old).lines() == again.lines()


def test_ages_of_windows(tracer, python, tmp_path):
    """Most blocks are not seen when they are made: ages are right to the time between windows."""
    for _ in range(3):
        with Stamped(python, NAME) as target:
            with Traced(
                tracer, tmp_path, "-v", "--ages", "--window=40/160", "-p", target.pid, budget=True
            ) as run:
                for marks, windows in (("AB", 25), ("AD", 50)):
                    while run.stderr.count(": a window of") < windows:
                        live = target.work(marks, 0.5)
                target.wait_reading()
                before = time.monotonic()
                report = run.finish()
                truth = Truth(live, before, time.monotonic(), report)
        begun = before - live["A"][0][0]
        if truth.error < begun / 6:
            break
    else:
        pytest.skip("this machine is too busy: windows were seconds apart")
    for mark in "AB":
        check_ages(report, truth, mark)
    ages = [begun * part for part in (0.2, 0.5, 0.8)]
    check_older_and_younger(tracer, run.snapshot, truth, "AB", ages)


def test_asked_of_a_session(tracer, python, tmp_path):
    """A session that was begun without ages tells them when it is asked."""
    snapshot = str(tmp_path / "asked.pb.gz")
    with Stamped(python, NAME) as target:
        with Traced(tracer, tmp_path, "-m", "exact", "-p", target.pid) as run:
            target.work("A", 0.3)
            live = target.work("B", 0)
            before = time.monotonic()
            words = [tracer, "ctl", str(target.pid), "snapshot", "--ages", snapshot]
            subprocess.run(words, check=True, stderr=subprocess.PIPE, timeout=TIMEOUT)
            after = time.monotonic()
            report = read_report(tracer, snapshot)
            truth = Truth(live, before, after, report)
            for mark in "AB":
                check_ages(report, truth, mark)
            assert "ages" not in run.finish().data


@pytest.fixture(scope="module")
def replayed(tracer, tmp_path_factory):
    """The snapshots of a capture: with ages, without."""
    folder = tmp_path_factory.mktemp("replayed")
    captures = os.path.join(ROOT, "tests", "golden")
    capture = os.path.join(
        captures, sorted(name for name in os.listdir(captures) if name.endswith(".cap"))[-1]
    )
    paths = [str(folder / "aged.pb.gz"), str(folder / "plain.pb.gz")]
    for path, ages in zip(paths, (["--ages"], [])):
        words = [tracer, "replay", *ages, capture, "-o", path]
        subprocess.run(words, check=True, stdout=subprocess.DEVNULL, timeout=TIMEOUT)
    return paths


def refused(tracer, *words, status):
    done = subprocess.run(
        [tracer, *words],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        timeout=TIMEOUT,
    )
    return error_line(done, status)


@pytest.mark.unprivileged
def test_same_without_ages(tracer, replayed):
    aged, plain = (read_report(tracer, path) for path in replayed)
    assert aged.lines() == plain.lines()
    assert all("age_oldest" in found for found in aged.statistics if found["count"])
    assert not any("age_oldest" in found for found in plain.statistics)


@pytest.mark.unprivileged
@pytest.mark.parametrize("command", ["report", "diff", "filter", "export"])
def test_snapshot_without_ages(tracer, replayed, command, tmp_path):
    path = replayed[1]
    out = {
        "report": [],
        "diff": [path],
        "filter": ["-o", str(tmp_path / "o")],
        "export": ["--format=folded", "-o", str(tmp_path / "o")],
    }[command]
    line = refused(tracer, command, path, *out, "--older-than=1h", status=1)
    assert "this snapshot has no ages" in line and "tracer --ages" in line


@pytest.mark.unprivileged
@pytest.mark.parametrize(
    "words, why",
    [
        (["--older-than=-3"], "not a number of seconds"),
        (["--older-than=soon"], "not a number of seconds"),
        (["--older-than=0"], "not a number of seconds"),
        (["--younger-than=1y"], "not a number of seconds"),
        (["--older-than=5m", "--younger-than=1m"], "no block is older and younger"),
        (["--born=02:10"], "is not one of its values"),
        (["--born=.."], "is not one of its values"),
        (["--born=25:00.."], "is not one of its values"),
        (["--born=1h..2h"], "is not one of its values"),
        (["--born=2026-11-30T02:10..2026-11-29T02:10"], "is not one of its values"),
        (["--older-than=1s", "--by=thread"], "of blocks of some ages no more is known"),
        (["--older-than=1s", "--at-peak"], "of blocks of some ages no more is known"),
        (["--older-than=1s", "--sort=allocated"], "of blocks of some ages no more is known"),
        (["--older-than=1s", "--group-by=lifetime"], "of blocks of some ages no more is known"),
    ],
)
def test_refused(tracer, replayed, words, why):
    assert why in refused(tracer, "report", replayed[0], *words, status=2)
