# SPDX-License-Identifier: Apache-2.0
"""tracer heap --older-than: objects by the ages that a session knows, against a program that makes
its objects when it is told to."""
import json
import time

import pytest

from ctl_client import ctl  # noqa: F401
from harness import error_line, marked_line, program
from test_heap_graph import ask

NAME = "held_lines.py"
FILLED = ("ENTRY", "TEXT", "BIG")


def counts(answer):
    """{mark: objects of that line}"""
    lines = {row["line"]: row for row in answer["statistics"]}
    found = {}
    for mark in FILLED:
        row = lines.get("%s:%d" % (program(NAME), marked_line(NAME, mark)), {"count": 0})
        found[mark] = row["count"]
    return found


def check_sums(answer):
    """What is of the ages that were asked for is what the rows have, whatever they are."""
    statistics, ages = answer["statistics"], answer["ages"]
    for key in ("size", "count"):
        assert answer["total"][key] == sum(row[key] for row in statistics)
    assert sum(row["before_count"] for row in statistics) in (0, ages["before"]["count"])
    for row in statistics:
        if "age_oldest" in row:
            assert row["age_oldest"] >= row["age_median"] > 0


@pytest.mark.versions("3.8", "3.11", "3.13")
def test_ages(start, trace, ctl, run_tracer, python, tmp_path):
    """Objects of before the trace, of its begin, and none that are new."""
    target = start(python, NAME)
    run = trace("-p", target.pid, "--mode", "census")
    began = time.monotonic()
    target.step()
    target.read_line()
    filled = time.monotonic()
    target.wait_reading()
    of = ("--session", run.pid, "-p", target.pid, "--top", 0)
    everything = ask(run_tracer, "--by", "line", *of)
    young = ask(run_tracer, "--by", "line", "--younger-than", "1h", *of)
    assert counts(young) == counts(everything)
    check_sums(young)
    # What it has from before its trace is in no answer with a limit of that kind.
    assert all(row["before_count"] == 0 for row in young["statistics"])
    assert young["ages"]["whole"] is True and young["ages"]["unknown"] == {"size": 0, "count": 0}
    assert young["ages"]["before"]["count"] > 3000
    old = ask(run_tracer, "--by", "line", "--older-than", "1h", *of)
    check_sums(old)
    assert counts(old) == {mark: 0 for mark in FILLED}
    assert old["total"]["count"] == old["ages"]["before"]["count"]
    # Both together are all, but for what came while the two were read.
    whole = everything["total"]["count"]
    assert old["total"]["count"] + young["total"]["count"] == pytest.approx(whole, abs=200)
    # A file keeps the ages of its moment.
    time.sleep(max(0, filled + 1.5 - time.monotonic()))
    blocks, dump = str(tmp_path / "blocks"), str(tmp_path / "heap.dump")
    assert ctl(target.pid, "blocks", blocks) == [{"snapshot": True}]
    taken = time.monotonic()
    ask(run_tracer, "--older-than", "1s", "--trace", blocks, "-o", dump, "-p", target.pid)
    kept = ("--trace", blocks, "--top", 0, dump)
    aged = ask(run_tracer, "--by", "line", "--older-than", "1s", *kept)
    assert counts(aged) == counts(everything)
    line = "%s:%d" % (program(NAME), marked_line(NAME, "BIG"))
    (row,) = [row for row in aged["statistics"] if row["line"] == line]
    # A kernel's tick, and what the files round.
    assert (
        taken - filled - 0.1 <= row["age_oldest"] + 0.1 and row["age_oldest"] <= taken - began + 0.1
    )
    assert counts(ask(run_tracer, "--by", "line", "--born", "2001-01-01T00:00..", *kept)) == counts(
        aged
    )
    none = ask(run_tracer, "--by", "line", "--born", "..2001-01-02T00:00", *kept)
    assert counts(none) == {mark: 0 for mark in FILLED}
    for key in ("type", "module", "path", "root", "size"):
        answer = ask(run_tracer, "--by", key, "--older-than", "1s", *kept)
        check_sums(answer)
        assert answer["total"] == aged["total"], key
    text = run_tracer("heap", "--older-than", "1s", *kept).stdout
    assert ", oldest=" in text and ", median age=" in text and ", before the trace=" in text
    assert "\nOnly objects of the ages that were asked for, by a session that began " in text
    assert ", and count as older; the age of none is unknown\n" in text
    run.finish()
    assert target.finish() == 0


def test_part(start, trace, run_tracer, any_python):
    """A session that sees a part of the blocks: what it has not seen is of no age."""
    target = start(any_python, NAME)
    run = trace("-p", target.pid, "--sample", "4k")
    target.step()
    target.read_line()
    target.wait_reading()
    of = ("--session", run.pid, "-p", target.pid, "--top", 0)
    for words in (("--older-than", "1h"), ("--younger-than", "1h")):
        answer = ask(run_tracer, *words, *of)
        ages = answer["ages"]
        assert ages["whole"] is False and ages["before"] == {"size": 0, "count": 0}
        assert ages["unknown"]["count"] > 4000
        if words[0] == "--older-than":
            assert answer["total"]["count"] == 0
    text = run_tracer("heap", "--older-than", "1h", *of).stdout
    assert " is not known, as the session sees a part of the blocks\n" in text
    run.finish()


def test_refused(start, run_tracer, any_python, tmp_path):
    target, blocks = start(any_python, NAME), tmp_path / "blocks"
    older = ("--older-than", "1h")
    line = error_line(run_tracer("heap", *older, "-p", target.pid), 1)
    assert "no session traces PID %d" % target.pid in line and "tracer -p PID starts" in line
    blocks.write_text("tracer blocks 2 %d\nl 0 1 a\n" % target.pid)
    done = run_tracer("heap", *older, "--trace", blocks, "-p", target.pid)
    assert "without ages" in error_line(done, 1)
    for words in (
        ("--retained",),
        ("--by", "container"),
        ("--by", "class"),
        ("--format", "pprof"),
        ("gc",),
        ("why", "dict"),
        ("waste",),
    ):
        done = run_tracer("heap", *words, *older, "-p", target.pid)
        assert "age" in error_line(done, 2), words
    error_line(run_tracer("heap", *older, blocks), 2)
    error_line(
        run_tracer("heap", "--older-than", "2h", "--younger-than", "1h", "-p", target.pid), 2
    )
