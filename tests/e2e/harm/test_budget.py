# SPDX-License-Identifier: Apache-2.0
"""--budget bounds the tracer's memory, whatever a target does. The report states what was dropped
for lack of memory."""
import re
import resource
import signal
import subprocess
import time

import pytest

from harness import TIMEOUT, environment, program, read_report, wait_until

BUDGET = 16 << 20
SMALL = ("--budget", "16M", "-b", "4M")
OPTIONS = (*SMALL, "--overhead=0")
# Memory beyond the budget: what is not charged to it, and malloc's overhead.
SLACK = BUDGET


def end(run, *, stop=True):
    """Waits for a tracer and returns its peak memory. (wait4() reports at least the peak of the
    test process itself.)"""
    if stop:
        run.send_signal(signal.SIGINT)
    peak, deadline = 0, time.monotonic() + TIMEOUT
    while run.poll() is None:
        with open("/proc/%d/status" % run.pid) as file:
            peak = max(peak, *map(int, re.findall(r"VmHWM:\s+(\d+)", file.read())), 0)
        assert time.monotonic() < deadline, "the tracer does not end"
        time.sleep(0.005)
    return peak << 10


def virtual(pid):
    with open("/proc/%d/status" % pid) as file:
        return int(re.search(r"VmPeak:\s+(\d+)", file.read())[1]) << 10


@pytest.fixture
def nothing(start, trace, any_python):
    """The memory of a tracer with an idle target: (resident, addresses)."""
    target = start(any_python, "unique.py", 0, 0)
    run = trace("-p", target.pid, *OPTIONS)
    addresses = virtual(run.pid)
    return end(run.process), addresses


def read_text(run):
    done = subprocess.run(
        [run.tracer, "report", run.snapshot], stdout=subprocess.PIPE, timeout=60, check=True
    )
    return done.stdout.decode()


# Without a budget the first case takes 390 MB.
@pytest.mark.parametrize("count, size", ((2500, 131072), (20000, 200)), ids=("lines", "names"))
def test_code(start, trace, any_python, nothing, count, size):
    """An endless number of code objects, with long line tables or distinct names."""
    target = start(any_python, "unique.py", count, size)
    run = trace("-p", target.pid, "--budget", "16M", "-b", "16M")
    target.step()
    target.read_until("done")
    peak = end(run.process)
    assert run.process.returncode == 0, run.stderr
    assert (
        peak < nothing[0] + 2 * (12 << 20) + BUDGET + SLACK
    )  # the ring buffer is larger, and mapped twice
    not_seen = read_report(run.tracer, run.snapshot).data["not_seen"]
    assert not_seen["codes_dropped"] > 100 and not_seen["records_malformed"] == 0
    assert re.search(
        r"also beyond the budget: .*records of code objects \(<unknown>, or without a line\)",
        read_text(run),
    )


def test_address_space(start, tracer, tmp_path, any_python, nothing):
    """A limited address space does not cause an error: data for which malloc fails is dropped,
    too."""
    target = start(any_python, "unique.py", 1200, 131072)

    def limited():
        room = nothing[1] + BUDGET // 2  # less than the budget
        resource.setrlimit(resource.RLIMIT_AS, (room, room))

    path = str(tmp_path / "limited.pb.gz")
    with open(tmp_path / "err", "w") as err:
        with subprocess.Popen(
            [tracer, "-o", path, *OPTIONS, "-p", str(target.pid)],
            stdout=subprocess.DEVNULL,
            stderr=err,
            preexec_fn=limited,
            env=environment(),
        ) as run:
            wait_until(
                lambda: "attached to" in (tmp_path / "err").read_text() or run.poll() is not None,
                "it has attached",
            )
            target.step()
            target.read_until("done")
            end(run)
        assert run.returncode == 0, (tmp_path / "err").read_text()
    assert read_report(tracer, path).data["not_seen"]["codes_dropped"] > 100


@pytest.mark.versions("3.11")
def test_lying_heap(start, trace, python, nothing):
    """A heap that claims to contain the same blocks repeatedly, 260 MB of them: it is recognised and
    not read, which is told. The trace goes on without it."""
    target = start(python, "lying_heap.py", 500)
    run = trace("-p", target.pid, *OPTIONS)
    assert "not in census mode: the heap cannot be read" in run.stderr
    peak = end(run.process)
    assert run.process.returncode == 0, run.stderr
    assert peak < nothing[0] + BUDGET + SLACK


@pytest.mark.versions("3.13")
def test_map_forks(tracer, python, tmp_path):
    """Perf maps of ended children are dropped to make room for others: 300 MB without a budget."""
    peaks = []
    for forks in (0, 100):
        with open(tmp_path / "err", "w") as err, open(tmp_path / "out", "w") as out:
            run = subprocess.Popen(
                [
                    tracer,
                    "perfmap",
                    "--status",
                    *SMALL,
                    "--",
                    python.path,
                    program("map_forks.py"),
                    "20000",
                    str(forks),
                ],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                env=environment(),
            )
            peaks.append(end(run, stop=False))
        said = (tmp_path / "err").read_text()
        assert run.returncode == 0, said
        # The map of the named process is complete.
        assert "entries: 20000" in (tmp_path / "out").read_text().split("\nPID ")[0]
    assert peaks[1] < peaks[0] + BUDGET + SLACK
    assert int(re.search(r"dropped to free memory \(--budget\): (\d+)", said)[1]) > 50
