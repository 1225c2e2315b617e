# SPDX-License-Identifier: Apache-2.0
"""What --by context and --by local read of values, the presets, and --labels-hash, against programs
that count."""
import gzip
import json
import re
import subprocess

import pytest

from harness import error_line, marked_line, read_report

BY = {
    "value": "context label.value",
    "slot": "context label.slot.part",
    "item": "context label.item.1",
    "key": "context label.key.key-*.inner.0:032x",
    "hex": "context label.hex:08x",
    "local": "local handle:job.part",
}
LIBRARIES = {
    "otel": ("otel-trace", "otel-span", "otel-name"),
    "django": ("django", "django-view"),
    "flask": ("flask", "flask-endpoint"),
    "starlette": ("starlette",),
    "fastapi": ("fastapi",),
    "structlog": ("structlog:request_id",),
    "celery": ("celery", "celery-task"),
    "rq": ("rq", "rq-function"),
}
PRESETS = [(library, preset) for library in LIBRARIES for preset in LIBRARIES[library]]


def rows_of(tracer, snapshot, by, name):
    """{value: (bytes, blocks)} of the program's line L, and the report."""
    line = "*/%s:%d" % (name, marked_line(name, "L"))
    report = read_report(tracer, snapshot, "--by", by, "--include", line, "--top", 0)
    return {row["value"]: (row["size"], row["count"]) for row in report.statistics}, report


def finished(target, run, tracer, by, name, kind=None):
    answer = json.loads(target.read_line())
    counts = answer[kind] if kind else answer
    whole = run.finish()
    assert whole.lost_events == 0 and whole.data["not_seen"]["records_malformed"] == 0
    rows, _ = rows_of(tracer, run.snapshot, by, name)
    assert rows == {value: tuple(pair) for value, pair in counts.items()}
    return run


@pytest.mark.parametrize("kind, mode", [("value", "exact")] + [(kind, "census") for kind in BY])
def test_kinds(start, trace, tracer, python, mode, kind):
    target = start(python, "label_values.py")
    run = trace("-p", target.pid, "-m", mode, "--by", BY[kind])
    target.step()
    finished(target, run, tracer, BY[kind], "label_values.py", kind)


@pytest.mark.parametrize("kind", BY)
def test_kinds_stripped(start, trace, tracer, debian_python, kind):
    target = start(debian_python, "label_values.py")
    run = trace("-p", target.pid, "-m", "census", "--by", BY[kind])
    target.step()
    finished(target, run, tracer, BY[kind], "label_values.py", kind)


@pytest.mark.root_versions(since="3.14")
@pytest.mark.parametrize("kind", BY)
def test_kinds_newer(start, trace, tracer, root_python, kind):
    target = start(root_python.path, "label_values.py", prefix=("chroot", root_python.root))
    run = trace("-p", target.pid, "-m", "census", "--by", BY[kind])
    target.step()
    finished(target, run, tracer, BY[kind], "label_values.py", kind)


@pytest.mark.parametrize("stripped", (False, True))
def test_moves(start, trace, tracer, python, debian_python, stripped):
    """What a path leads to is told where it was found before only if it is still there."""
    target = start(debian_python if stripped else python, "label_moves.py")
    run = trace("-p", target.pid, "-m", "exact", "--by", "context label.moves.part")
    target.step()
    finished(target, run, tracer, "context label.moves.part", "label_moves.py")


@pytest.mark.root_versions(since="3.14")
def test_moves_newer(start, trace, tracer, root_python):
    target = start(root_python.path, "label_moves.py", prefix=("chroot", root_python.root))
    run = trace("-p", target.pid, "-m", "exact", "--by", "context label.moves.part")
    target.step()
    finished(target, run, tracer, "context label.moves.part", "label_moves.py")


def test_hostile(start, trace, tracer, python):
    """Of memory that is not what it seems, a value is told only if it can be read."""
    target = start(python, "label_hostile.py")
    run = trace("-p", target.pid, "-m", "exact", "--by", "context label.hostile")
    target.step()
    finished(target, run, tracer, "context label.hostile", "label_hostile.py")


def test_hostile_attribute(start, trace, tracer, python):
    by = "context label.hostile.absent"
    target = start(python, "label_hostile.py")
    run = trace("-p", target.pid, "-m", "exact", "--by", by)
    target.step()
    counts = json.loads(target.read_line())
    assert run.finish().lost_events == 0
    rows, _ = rows_of(tracer, run.snapshot, by, "label_hostile.py")
    assert rows == {"": tuple(map(sum, zip(*counts.values())))}


def test_changing(start, trace, tracer, any_python):
    """A value may be freed while it is read: whatever is told then, each block is told once."""
    by = "context label.changing.part.0"
    target = start(any_python, "label_changing.py")
    run = trace("-p", target.pid, "-m", "exact", "--by", by)
    target.step()
    answer = json.loads(target.read_line())
    assert answer["compressed"] == 120 and answer["changes"] > 0
    whole = run.finish()
    assert whole.lost_events == 0 and whole.data["not_seen"]["records_malformed"] == 0
    by_value = read_report(tracer, run.snapshot, "--by", by)
    assert by_value.total == {key: whole.total[key] for key in ("size", "count")}


# --- presets --------------------------------------------------------------------------------------


@pytest.mark.whole
@pytest.mark.parametrize("library, preset", PRESETS)
def test_presets(start, trace, tracer, debian_python, library, preset):
    if library != "otel":
        there = subprocess.run([debian_python.path, "-c", "import " + library], stderr=-3)
        if there.returncode:
            pytest.skip("python3-%s is not installed" % library)
    target = start(debian_python, "label_presets.py", library)
    run = trace("-p", target.pid, "-m", "census", "--by", preset)
    target.step()
    finished(target, run, tracer, preset, "label_presets.py", preset)


@pytest.mark.parametrize("preset", LIBRARIES["otel"])
def test_spans(start, trace, tracer, python, preset):
    target = start(python, "label_presets.py", "otel")
    run = trace("-p", target.pid, "-m", "exact", "--by", preset)
    target.step()
    finished(target, run, tracer, preset, "label_presets.py", preset)


# --- hashes ---------------------------------------------------------------------------------------


def unpacked(path):
    with open(path, "rb") as file:
        data = file.read()
    return gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data


def test_hashed(start, trace, tracer, any_python, tmp_path, run_tracer):
    """Rows are as without it, and neither the snapshot nor the capture has a value."""
    capture = tmp_path / "records.cap"
    target = start(any_python, "label_values.py")
    run = trace(
        "-p", target.pid, "-m", "census", "--by", BY["value"], "--labels-hash", "--capture", capture
    )
    target.step()
    counts = json.loads(target.read_line())["value"]
    assert run.finish().lost_events == 0
    rows, report = rows_of(tracer, run.snapshot, BY["value"], "label_values.py")
    plain = ("", "<unknown>", "(a type that is not read)")
    hashed = {value: pair for value, pair in rows.items() if value not in plain}
    assert report.data["hashed"] is True
    assert all(re.fullmatch("#[0-9a-f]{16}", value) for value in hashed), hashed
    told = {value: tuple(pair) for value, pair in counts.items()}
    assert {value: rows[value] for value in plain} == {value: told.pop(value) for value in plain}
    assert sorted(hashed.values()) == sorted(told.values())
    for path in (run.snapshot, capture):
        for text in ("slotted", "paid", "名名"):
            assert text.encode() not in unpacked(path)
            assert text.encode("utf-16-le") not in unpacked(path)
    replayed = tmp_path / "replayed.pb.gz"
    assert run_tracer("replay", capture, "-o", replayed).returncode == 0
    assert rows_of(tracer, replayed, BY["value"], "label_values.py")[0] == rows
    again = trace("-p", target.pid, "--by", BY["value"], "--labels-hash")
    assert again.finish().lost_events == 0


def test_not_asked(start, trace, any_python, tmp_path):
    """Without --by no file has a value or the variable's name."""
    capture = tmp_path / "records.cap"
    target = start(any_python, "label_values.py")
    run = trace("-p", target.pid, "-m", "census", "--capture", capture)
    target.step()
    target.read_line()
    assert run.finish().lost_events == 0
    for path in (run.snapshot, capture):
        for text in ("slotted", "paid", "label.value"):
            assert text.encode() not in unpacked(path)


# --- what is refused ------------------------------------------------------------------------------

TWO = """
import contextvars, sys
kept = [contextvars.ContextVar(name) for name in ("shop.same", "shop.same", "shop.one")]
keys = ["".join(("shop-key-", word)) for word in ("first", "second")]
print("ready", flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize(
    "by, said",
    (
        ("context shop.same", 'it has 2 context variables of the name "shop.same"'),
        ("context shop.one.shop-key-*", '2 texts begin with "shop-key-"'),
    ),
)
def test_two(start, run_tracer, any_python, tmp_path, by, said):
    """It is not said which of two is meant."""
    (tmp_path / "two.py").write_text(TWO)
    target = start(any_python, str(tmp_path / "two.py"))
    assert said in error_line(run_tracer("-p", target.pid, "-m", "exact", "--by", by), 1)


@pytest.mark.parametrize(
    "args, said",
    (
        (("--by", "context", "*"), '"*" is the end of a key'),
        (("--by", "context", "a.b*c"), '"*" is the end of a key'),
        (("--by", "context", "a:0999x"), '":0999x" is not :x, nor :0Nx'),
        (("--by", "structlog:"), "is not structlog:KEY"),
        (("--by", "flas"), "--by flas"),
    ),
)
def test_refused(run_tracer, args, said):
    assert said in error_line(run_tracer("-p", 1, "-m", "exact", *args), 2)
