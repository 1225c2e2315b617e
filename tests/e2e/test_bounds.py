# SPDX-License-Identifier: Apache-2.0
"""
What the programs do in the kernel in one go has a bound, whatever a target's memory says. The bound is one of steps, which
the kernel counts itself; how long they took is printed, and not judged: that is the machine's affair.
"""
import os
import platform
import re
import signal

import pytest

from harness import ROOT, wait_until

POOL_MOST = 16384 // 64 * 2 + 1024 + 8 + 48 + 56  # steps that a pool can cost: a piece ends behind one
ARENAS = 110000  # more than all pieces can look at, were they but unused entries


def piece_steps():
    with open(os.path.join(ROOT, "bpf", "heap.h")) as file:
        return int(re.search(r"^#define HEAP_STEPS +(\d+)u", file.read(), re.M).group(1))


def check_steps(name, ending):
    print("%s: %d steps in %d pieces, the slowest %.3f ms" % (name, ending["steps"], ending["pieces"], ending["slowest_ns"] / 1e6))
    assert (ending["pieces"] - 1) * piece_steps() <= ending["steps"] <= ending["pieces"] * (piece_steps() + POOL_MOST)


def reads_at_exit():
    """A process's memory is still there when its exit is told of."""
    return tuple(map(int, platform.release().split(".")[:2])) >= (6, 16)


@pytest.mark.versions("3.11")
@pytest.mark.parametrize(
    "kind, moment", [(kind, "finalize") for kind in ("none", "empty", "full", "links", "loop", "bent")] + [("none", "exit"), ("loop", "exit")]
)
def test_forged(start, trace, python, kind, moment):
    """A heap that is none, and claims to be larger than any."""
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
    assert ARENAS / 100 < ending["arenas_unread"] == report.data["not_seen"]["arenas_unread"] <= ARENAS
    assert report.data["moment"] == ("exited" if moment == "exit" else "finalizing")
    said = "  of the heap's arenas {:,} were read at the end, at most {:,} were not: ".format(ending["arenas"], ending["arenas_unread"])
    assert said in run.stdout or report.data["coverage"]["unread_ns"] < 1000000


@pytest.mark.versions("3.13")
@pytest.mark.parametrize("kind", ("all", "endless"))
def test_interpreters(start, trace, python, kind):
    target = start(python, "interpreters.py", 25, kind)
    run = trace("-p", target.pid, "--top", "0")
    target.step()
    # What CPython makes of an endless list is its affair: it does not end by itself.
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
    """An honest one that is larger than a piece. What was not read of it is as the reading before has left it: nothing has died since."""
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
        figures = re.findall(r"^  heap: [\d,]+ blocks in pools: ([\d,]+) traced", run.stdout, re.M)
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
    assert report.line("large_heap.py", "K")[1] == live + 1  # and the list
    assert ending["whole"] == (moment == "finalize") and (moment == "finalize") == (ending["pieces"] > 1)
    assert bool(report.data["not_seen"].get("arenas_unread")) == (moment == "kill")
