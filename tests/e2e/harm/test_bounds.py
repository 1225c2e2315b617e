# SPDX-License-Identifier: Apache-2.0
"""The work of one run of a BPF program is bounded, whatever the target's memory contains.

The bound is a number of steps, which are counted in the kernel. The time that they took is printed
but not checked, because it depends on the machine.
"""
import os
import platform
import re
import signal
import struct

import pytest

from harness import ROOT, wait_until

POOL_MOST = (
    16384 // 64 * 2 + 1024 + 8 + 48 + 56
)  # the most steps that one pool can cost; a piece ends after a pool
LINES_BUDGET = 1 << 20
EVENT_STACK, EVENT_CODE, EVENT_CODE_LINES = 6, 7, 8
ARENAS = 110000  # more than all pieces together can read, even if all entries are unused


def piece_steps():
    with open(os.path.join(ROOT, "bpf", "python", "heap_walk.h")) as file:
        return int(re.search(r"^#define HEAP_STEPS +(\d+)u", file.read(), re.M).group(1))


def check_steps(name, ending):
    print(
        "%s: %d steps in %d pieces, the slowest %.3f ms"
        % (name, ending["steps"], ending["pieces"], ending["slowest_ns"] / 1e6)
    )
    assert (
        (ending["pieces"] - 1) * piece_steps()
        <= ending["steps"]
        <= ending["pieces"] * (piece_steps() + POOL_MOST)
    )


def reads_at_exit():
    """Whether a process's memory can still be read when its exit is reported."""
    return tuple(map(int, platform.release().split(".")[:2])) >= (6, 16)


@pytest.mark.versions("3.11")
@pytest.mark.parametrize(
    "kind, moment",
    [(kind, "finalize") for kind in ("none", "empty", "full", "links", "loop", "bent")]
    + [("none", "exit"), ("loop", "exit")],
)
def test_forged(start, trace, python, kind, moment):
    """A forged heap that claims to be larger than any real heap."""
    if moment == "exit" and not reads_at_exit():
        pytest.skip("before Linux 6.16 the heap of a process that exits is not read")
    target = start(python, "forged_heap.py", ARENAS, kind, moment)
    run = trace("-p", target.pid, "--top", "0")
    target.step()
    assert run.wait() == 0
    report = run.report()
    ending = report.data["ending"]
    check_steps("%s, %s" % (kind, moment), ending)
    assert not ending["whole"] and (moment == "finalize") == (ending["pieces"] > 1)
    assert (
        ARENAS / 100 < ending["arenas_unread"] == report.data["not_seen"]["arenas_unread"] <= ARENAS
    )
    assert report.data["moment"] == ("exited" if moment == "exit" else "finalizing")
    said = "  of the heap's arenas, {:,} were read at the end, at most {:,} were not: ".format(
        ending["arenas"], ending["arenas_unread"]
    )
    assert said in run.stdout or report.data["coverage"]["unread_ns"] < 1000000


@pytest.mark.versions("3.13")
@pytest.mark.parametrize("kind", ("all", "endless"))
def test_interpreters(start, trace, python, kind):
    target = start(python, "many_interpreters.py", 25, kind)
    run = trace("-p", target.pid, "--top", "0")
    target.step()
    # CPython itself does not terminate on an endless list.
    wait_until(lambda: run.process.poll() is not None or kind == "endless", "the report is there")
    if kind == "endless":
        wait_until(lambda: run.interrupt() or run.process.poll() is not None, "the report is there")
    assert run.wait() == 0
    ending = run.report().data["ending"]
    check_steps(kind, ending)
    assert ending["whole"] == (kind == "all")
    assert kind == "endless" or ending["arenas"] > 25


@pytest.mark.versions("3.11")
@pytest.mark.parametrize("moment", ("finalize", "kill"))
def test_large(start, trace, python, moment):
    """A valid heap that is larger than one piece. The unread part keeps the state of the previous
    heap walk: no block has died since."""
    if moment == "kill" and not reads_at_exit():
        pytest.skip("before Linux 6.16 the heap of a process that is killed is not read")
    target = start(python, "large_heap.py", 150000)
    run = trace("-p", target.pid, "--interval", "0.5", "--top", "1")
    target.step()
    assert int(target.read_line()) == 150000
    target.step()
    live = int(target.read_line())
    target.wait_reading()

    def is_read():
        figures = re.findall(r" of ([\d,]+) new small blocks traced", run.stdout)
        return figures and abs(int(figures[-1].replace(",", "")) - live) < live / 10

    wait_until(is_read, "the heap was read after half of it was dropped")
    if moment == "kill":
        target.process.send_signal(signal.SIGKILL)
    else:
        target.step()
    assert run.wait() == 0
    report = run.report()
    ending = report.data["ending"]
    check_steps(moment, ending)
    assert report.line("large_heap.py", "K")[1] == live + 1  # plus one: the list
    assert ending["whole"] == (moment == "finalize") and (moment == "finalize") == (
        ending["pieces"] > 1
    )
    assert bool(report.data["not_seen"].get("arenas_unread")) == (moment == "kill")


def records(path):
    """(type, bytes) of a capture's records, without their headers."""
    with open(path, "rb") as file:
        data = file.read()
    at = 16
    while at < len(data):
        kind, size = struct.unpack_from("<II", data, at)
        yield kind, data[at + 24 : at + size]
        at += size


@pytest.mark.versions("3.11", "3.13")
def test_long_lines(start, trace, python, tmp_path):
    """A deep stack of new functions with long line tables: one hit of a probe sends at most
    LINES_BUDGET bytes of them."""
    depth, table = 60, 60000
    capture = tmp_path / "run.cap"
    target = start(python, "long_lines.py", depth, table)
    run = trace("-p", target.pid, "--nframe", "128", "--capture", capture)
    target.step()
    print("%.3f ms" % (int(target.read_line()) / 1e6))
    report = run.finish("--group-by", "traceback")
    sent, known = 0, set()
    for kind, record in records(capture):
        # Tables that the session reads from outside follow the record of their code object.
        if kind == EVENT_CODE_LINES and record[:8] not in known:
            sent += struct.unpack_from("<QII", record)[2]
        elif kind == EVENT_CODE:
            known.add(record[:8])
        elif kind == EVENT_STACK and struct.unpack_from("<QI", record)[1] > depth:
            break
        elif kind == EVENT_STACK:
            sent = 0
    assert depth * table > 3 * sent and LINES_BUDGET - 2 * table < sent <= LINES_BUDGET
    # The session read the other tables from outside.
    stacks = [s["traceback"] for s in report.statistics if len(s["traceback"]) > depth]
    assert stacks and all(frame["lineno"] for frame in stacks[0])
