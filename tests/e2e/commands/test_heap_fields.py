# SPDX-License-Identifier: Apache-2.0
"""The names of references in objects of C types, and references that only look like some."""
import json

import pytest

from test_heap_graph import ask


def steps_text(path, count):
    return ", ".join("%s %s" % (step["kind"], step["name"]) for step in path["steps"][-count:])


@pytest.mark.versions()
def test_names(start, run_tracer, python, tmp_path):
    target = start(python, "fields.py", ready=False)
    known = json.loads(target.read_line())
    target.read_until("ready")
    target.wait_reading()
    dump = str(tmp_path / "heap.dump")
    ask(run_tracer, "--by", "root", "-o", dump, "-p", target.pid)
    wrong, titles = {}, set()
    for mark, steps in known.items():
        (path,) = ask(run_tracer, "why", mark, dump)["paths"]
        found = steps_text(path, steps.count(", ") + 1)
        if found != steps:
            wrong[mark] = (steps, found)
        titles |= {(step["type"], step["function"]) for step in path["steps"] if "function" in step}
    assert not wrong
    wrapper = "functools._lru_cache_wrapper"
    assert {("frame", "fail"), ("coroutine", "wait"), (wrapper, "bounded")} <= titles
    text = run_tracer("heap", "why", "Mark1", dump).stdout
    assert "\n    attribute tb_frame -> frame at 0x" in text and " of fail\n" in text
    assert target.finish() == 0


@pytest.mark.versions("3.8", "3.11", "3.12", "3.13")
def test_old_words(start, run_tracer, python):
    target = start(python, "guesses.py", ready=False)
    known = json.loads(target.read_line())
    target.read_until("ready")
    target.wait_reading()
    shown = ask(run_tracer, "show", hex(known["target"]), "-p", target.pid)
    assert (shown["refcount"], shown["found"], shown["references_in_total"]) == (1, 1, 1)
    large = ask(run_tracer, "show", hex(known["large"]), "-p", target.pid)
    assert large["size"] > 20000 / 19 * 8  # 19 digits a word
    assert {each["name"] for each in large["references_out"]} <= {"__class__"}
    assert target.finish() == 0
