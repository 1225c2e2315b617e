# SPDX-License-Identifier: Apache-2.0
"""Python frames and native ones in the order of their calls."""
import json

import pytest

from harness import compiled


@pytest.mark.versions("3.8", "3.9", "3.10", "3.11", "3.12", "3.13", "3.14")
def test_order(python, start, trace):
    """Against what the program notes of its own stacks."""
    target = start(python, "merged.py")
    run = trace("-p", target.pid, "--layer", "native", "-n", 128)
    target.step()
    told = json.loads(target.read_line())
    report = run.finish("--group-by", "traceback", "--no-skip")
    assert report.lost_events == 0
    blocks = {s["size"]: s["traceback"] for s in report.statistics if s["size"] > 100000}
    assert len(told) == 8
    for block in told:
        expect_order(blocks[block["size"]], block["lines"], block["by_c"])


def expect_order(traceback, lines, by_c):
    """A run of native frames is at the top, and behind each frame that C code has called."""
    python, runs, is_native = [], [], False
    for frame in traceback:
        if frame.get("kind") == "native":
            if not is_native:
                runs.append((len(python) - 1, []))
            runs[-1][1].append(frame)
        else:
            python.append([frame["filename"], frame["lineno"]])
        is_native = frame.get("kind") == "native"
    # The innermost one has gone on to the next line since.
    assert python[0][0] == lines[0][0] and python[1:] == lines[1:]
    assert [behind for behind, _ in runs] == [-1] + by_c, traceback
    for behind, frames in runs:
        text = json.dumps(frames)
        assert "libffi" in text
        assert behind < 0 or "sort" in text


@pytest.fixture(scope="module")
def frameless(tmp_path_factory):
    """frameless.c as a library, without frame pointers and lines."""
    path = tmp_path_factory.mktemp("frameless") / "libframeless.so"
    return compiled(path, "frameless.c", "-O2", "-g0", "-fomit-frame-pointer", "-shared", "-fPIC")


@pytest.mark.versions("3.8", "3.11", "3.13")
def test_no_python_frame(python, start, trace, frameless):
    """A thread that C code has begun, and that has called no Python function yet: the interpreter's
    frames are like those of any library, and the stack is whole."""
    expect_no_python_frame(start(python, "frameless.py", frameless), trace)


def test_no_python_frame_stripped(debian_python, start, trace, frameless):
    expect_no_python_frame(start(debian_python, "frameless.py", frameless), trace)


def expect_no_python_frame(target, trace):
    run = trace("-p", target.pid, "--layer", "native", "-n", 128)
    target.step()
    assert target.read_line() == "0"
    report = run.finish("--group-by", "traceback", "--no-skip")
    assert report.lost_events == 0 and not report.data["stacks"]["cut"]
    traceback = max(report.statistics, key=lambda s: s["size"])["traceback"]
    functions = [frame.get("function") for frame in traceback]
    at = functions.index("allocate")
    assert at > 0, "the interpreter's own frames are there"
    assert functions[at : at + 3] == ["allocate", "enter", "begin"]
    assert {frame.get("kind") for frame in traceback} == {"native"}
    assert any(
        "libc.so" in frame["filename"] or "pthread" in frame["filename"]
        for frame in traceback[at + 3 :]
    )
