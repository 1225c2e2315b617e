# SPDX-License-Identifier: Apache-2.0
"""--by context and --by local: blocks by the value of a variable, against a program that counts."""
import json

import pytest

from harness import error_line, marked_line, read_report, wait_until

LINE = "*/labels.py:%d" % marked_line("labels.py", "L")
SHOWN = 128  # bytes of a text that are kept


def shown(text):
    """As the report has it: cut at 128 bytes as CPython stores them."""
    wide = max(map(ord, text), default=0)
    most = SHOWN // (1 if wide < 0x100 else 2 if wide < 0x10000 else 4)
    return text if len(text) <= most else text[:most] + "…"


def rows_of(tracer, snapshot, by):
    rows = read_report(tracer, snapshot, "--by", by, "--include", LINE, "--top", 0)
    assert rows.data["by"] == "value" and rows.data["label"] == by
    return {row["value"]: (row["size"], row["count"]) for row in rows.statistics}


BY = {
    "context": "context shop.request",
    "attribute": "context shop.request.path",
    "local": "local handle:path",
    "cell": "local handle_cell:path",
}
MODES = [("context", "exact")] + [(kind, "census") for kind in BY]


def counted(target, kind):
    """What the program has counted; the empty text is told apart from none."""
    counts = json.loads(target.read_line())
    return {shown(value): tuple(pair) for value, pair in counts[kind].items()}


def finished(target, run, tracer, kind):
    counts = counted(target, kind)
    whole = run.finish()
    assert whole.lost_events == 0 and whole.data["not_seen"]["records_malformed"] == 0
    rows = rows_of(tracer, run.snapshot, BY[kind])
    if kind == "context":
        empty = rows.pop('""')
        rows[""] = (rows[""][0] + empty[0], rows[""][1] + empty[1])
    assert rows == counts
    by_value = read_report(tracer, run.snapshot, "--by", BY[kind])
    assert by_value.total == {key: whole.total[key] for key in ("size", "count")}


@pytest.mark.parametrize("kind, mode", MODES)
def test_values(start, trace, tracer, python, mode, kind):
    target = start(python, "labels.py")
    run = trace("-p", target.pid, "-m", mode, "--by", BY[kind])
    target.step()
    finished(target, run, tracer, kind)


@pytest.mark.root_versions(since="3.14")
@pytest.mark.parametrize("kind, mode", MODES)
def test_newer(start, trace, tracer, root_python, kind, mode):
    target = start(root_python.path, "labels.py", prefix=("chroot", root_python.root))
    run = trace("-p", target.pid, "-m", mode, "--by", BY[kind])
    target.step()
    finished(target, run, tracer, kind)


@pytest.mark.parametrize("kind", ("context", "local"))
def test_forked(start, trace, tracer, any_python, kind):
    target = start(any_python, "labels.py", "forked")
    run = trace("-v", "-p", target.pid, "--by", BY[kind])
    target.step()
    target.read_until("forked")
    said = "forked by PID %d, is traced, too" % target.pid
    wait_until(lambda: said in run.stderr, "the child has its probes")
    target.step()
    finished(target, run, tracer, kind)


def test_late(start, trace, tracer, any_python):
    """A variable that is made after the trace began is found within a second or two."""
    target = start(any_python, "labels.py", "late")
    run = trace("-v", "-p", target.pid, "--by", "context shop.request.path")
    assert 'it has no context variable "shop.request.path"' in run.stderr
    target.step()
    target.read_until("made")
    wait_until(lambda: "found what --by asks for" in run.stderr, "the variable is found")
    target.step()
    finished(target, run, tracer, "attribute")


def test_in_two_words(start, trace, tracer, any_python, run_tracer):
    """As it is written without quotes; and of a snapshot that was made by something else."""
    target = start(any_python, "labels.py")
    run = trace("-p", target.pid, "--by", "context", "shop.request")
    target.step()
    target.read_line()
    run.finish()
    done = run_tracer("report", run.snapshot, "--by", "context", "shop.request", "--top", 3)
    assert done.returncode == 0 and "Top 3 values of " in done.stdout, done.stderr
    error = error_line(run_tracer("report", run.snapshot, "--by", "task"), 2)
    assert "the snapshot was made with --by context shop.request" in error


@pytest.mark.parametrize(
    "by, said",
    (
        (("context",), "is not NAME[.attribute...]"),
        (("context", ".a"), "is not NAME[.attribute...]"),
        (("context", "a..b"), "is not NAME[.attribute...]"),
        (("local", "f"), "is not FUNCTION:NAME[.attribute...]"),
        (("local", ":x"), "is not FUNCTION:NAME[.attribute...]"),
        (("context", "x" * 300), "more than 127 bytes"),
    ),
)
def test_refused(run_tracer, by, said):
    assert said in error_line(run_tracer("-p", 1, "--by", *by), 2)
