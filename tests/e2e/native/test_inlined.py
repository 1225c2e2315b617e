# SPDX-License-Identifier: Apache-2.0
"""Functions that are inlined into others are frames of their own, marked as inlined."""
import json
import subprocess

import pytest

from harness import TIMEOUT, compiled, marked_line, native_snapshot, pprof, program, read_report

NAME = "inlined.c"
FRAMES = [("inner", True), ("middle", True), ("outer", False), ("main", False)]


@pytest.fixture(scope="module")
def snapshot(tracer, tmp_path_factory):
    folder = tmp_path_factory.mktemp("inlined")
    path = str(folder / "snapshot.pb.gz")
    native_snapshot(tracer, compiled(folder / "inlined", NAME, "-O2"), path)
    return path


def frames_of(report):
    (entry,) = [e for e in report.statistics if (e["size"], e["count"]) == (10100, 100)]
    return [
        (frame["lineno"], frame.get("inlined", False))
        for frame in entry["traceback"]
        if frame["filename"] == program(NAME)
    ]


def test_report(tracer, snapshot):
    expected = [(marked_line(NAME, mark), inlined) for mark, inlined in FRAMES]
    assert frames_of(read_report(tracer, snapshot, "--group-by", "traceback")) == expected
    done = subprocess.run(
        [tracer, "report", snapshot, "--group-by", "traceback"],
        stdout=subprocess.PIPE,
        text=True,
        timeout=TIMEOUT,
    )
    assert done.stdout.count(" in inner (inlined)\n") == 1
    assert done.stdout.count(" in middle (inlined)\n") == 1
    assert done.stdout.count(" in outer\n") == 1


def test_no_inline(tracer, snapshot):
    expected = [(marked_line(NAME, mark), False) for mark, inlined in FRAMES if not inlined]
    options = ("--group-by", "traceback", "--no-inline")
    assert frames_of(read_report(tracer, snapshot, *options)) == expected
    line = read_report(tracer, snapshot, "--no-inline").line(NAME, "outer")
    assert line == (10100, 100)
    export = [tracer, "export", snapshot, "--format", "folded", "--no-inline", "-o", "-"]
    folded = subprocess.run(export, stdout=subprocess.PIPE, text=True, timeout=TIMEOUT).stdout
    assert "outer" in folded and "inner" not in folded
    done = subprocess.run(
        [tracer, "diff", snapshot, snapshot, "--format", "json", "--no-inline"],
        stdout=subprocess.PIPE,
        timeout=TIMEOUT,
    )
    assert "inner" not in json.dumps(json.loads(done.stdout)["statistics"])


def test_pprof_says_so(snapshot):
    """golang's pprof shows them as inlined, too."""
    text = pprof("-traces", snapshot)
    assert "inner (inline)" in text and "middle (inline)" in text
    assert "outer (inline)" not in text
