# SPDX-License-Identifier: Apache-2.0
"""Replays every capture NAME.cap and compares the report with NAME.json. NAME.GROUP.json is the
report by another group (filename, traceback). tools/make-golden records the captures and checks
them against the output of the traced program itself."""
import json
import os
import subprocess
import sys

import pytest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))

import schemas  # noqa: E402

TRACER = os.path.abspath(os.environ.get("TRACER", os.path.join(HERE, "..", "..", "build", "tracer")))
GROUPS = ("lineno", "filename", "traceback")


def expectations():
    """(capture, expected JSON file, group) of every expectation."""
    for name in sorted(os.listdir(HERE)):
        if name.endswith(".json"):
            base, _, group = name[: -len(".json")].rpartition(".")
            if group not in GROUPS:
                base, group = name[: -len(".json")], "lineno"
            yield base + ".cap", name, group


def run(*args):
    done = subprocess.run(
        [TRACER, *map(str, args)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        timeout=60,
    )
    schemas.check(args, done.stdout)
    return done


def tracer(*args):
    done = run(*args)
    assert done.returncode == 0, done.stderr
    return done.stdout


def without_allocated(data):
    """Older tracers did not know what was allocated."""
    if isinstance(data, list):
        return [without_allocated(item) for item in data]
    if not isinstance(data, dict):
        return data
    return {key: without_allocated(value) for key, value in data.items() if not key.startswith(("allocated_", "temporary_", "short_lived_")) and key != "peak"}


def test_older_snapshot():
    """A snapshot of an older tracer has its metadata in comments."""
    report = tracer("report", os.path.join(HERE, "older.pb.gz"), "--format", "json", "--top", "0")
    with open(os.path.join(HERE, "golden-3.13-n16.json")) as file:
        expected = json.load(file)
    assert expected["total"]["allocated_count"]
    assert json.loads(report) == without_allocated(expected)


def test_every_capture_has_an_expectation():
    captures = {name for name in os.listdir(HERE) if name.endswith(".cap")}
    assert captures, "no captures in tests/golden"
    assert captures == {capture for capture, _, _ in expectations()}


@pytest.mark.parametrize("capture, expected, group", list(expectations()), ids=lambda v: v)
def test_replay(capture, expected, group, tmp_path):
    snapshot = str(tmp_path / "snapshot.pb.gz")
    tracer("replay", os.path.join(HERE, capture), "-o", snapshot)
    report = tracer("report", snapshot, "--format", "json", "--top", "0", "--group-by", group)
    with open(os.path.join(HERE, expected)) as file:
        assert json.loads(report) == json.load(file)
    if group == "lineno":  # the entry <unknown> is explained to the last byte
        data = json.loads(report)
        rows = [s for s in data["statistics"] if s["traceback"][0]["filename"] == "<unknown>"]
        why = data["not_seen"].get("unknown", {}).values()
        assert all(sum(s[k] for s in rows) == sum(w[k] for w in why) for k in ("size", "count"))
