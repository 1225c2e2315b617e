# SPDX-License-Identifier: Apache-2.0
"""Probes as perf events, as on kernels before 6.6: each takes a file descriptor, and removing them
takes long."""
import os
import re
import resource
import signal
import subprocess

import pytest

from harness import environment, wait_until, without_budget
from procfs import comm, links_holder, text_differs

pytestmark = pytest.mark.usefixtures("undisturbed")

LITTLE, FEW, MORE = (
    128,
    600,
    4096,
)  # descriptors: for hardly any probes; for fewer than census mode has; for any number
MANY = (
    "--backend",
    "perf",
    "-m",
    "growth",
    "--large-blocks",
)  # some 270 probes of a stripped Python, a third of census mode's
# Seconds for the kernel to remove some hundred probes, and those of a preceding test.
SLOW = 300


def limited(tracer, soft, hard, *args):
    return subprocess.Popen(
        [tracer, *without_budget(args)],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment(),
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard)),
    )  # fmt: skip


@pytest.fixture
def stripped():
    path = os.path.realpath("/usr/bin/python3")
    if not os.path.exists(path):
        pytest.skip("there is no /usr/bin/python3")
    return path


def attached(stderr):
    return int(re.search(r"; (\d+) probes", stderr)[1])


@pytest.mark.long
def test_end_does_not_wait_for_the_kernel(tracer, start, stripped):
    """The tracer ends with its report. Another process removes the probes; it holds none of the
    tracer's pipes and leaves no probe."""
    target = start(stripped, "golden.py")
    path = os.path.realpath("/proc/%d/exe" % target.pid)
    run = limited(tracer, LITTLE, MORE, *MANY, "-p", target.pid, "-d", "1")
    pid = wait_until(lambda: links_holder(run.pid), "a process for the links is there")
    out, err = run.communicate(timeout=SLOW)  # until end of file on the pipes
    assert run.returncode == 0 and "continues for a while after the end" in err, err
    assert comm(pid), "nobody holds the probes, and %d bytes of them are there" % text_differs(
        target.pid, path
    )
    os.kill(pid, signal.SIGKILL)  # this removes the probes as well
    wait_until(lambda: not comm(pid), "all probes are out", SLOW)
    assert text_differs(target.pid, path) == 0
    target.step()
    assert target.expect()
    assert target.finish() == 0


def test_descriptors_are_allowed(tracer, start, stripped):
    """The usual soft limit of a shell is below the number of probes. The tracer raises it up to the
    hard limit."""
    target = start(stripped, "golden.py")
    run = limited(tracer, LITTLE, MORE, *MANY, "-p", target.pid, "-d", "1")
    out, err = run.communicate(timeout=SLOW)
    assert run.returncode == 0, err
    assert attached(err) > LITTLE, err
    assert "Too many open files" not in err


def test_fewer_probes_where_descriptors_are_few(tracer, start, stripped):
    """Growth mode is selected, and a message gives the figures. If census mode was requested
    explicitly, it is refused."""
    target = start(stripped, "golden.py")
    run = limited(tracer, LITTLE, FEW, "--backend", "perf", "-p", target.pid, "-d", "1")
    out, err = run.communicate(timeout=SLOW)
    assert run.returncode == 0, err
    assert "growth mode" in out and attached(err) < FEW, err
    assert re.search(
        r"not in census mode: \d+ probes take a file descriptor each on this kernel, and \d+ are left",
        err,
    ), err
    run = limited(
        tracer, LITTLE, FEW, "--backend", "perf", "-m", "census", "-p", target.pid, "-d", "1"
    )
    out, err = run.communicate(timeout=SLOW)
    assert run.returncode == 1 and re.search(
        r"\d+ probes take a file descriptor each on this kernel, and \d+ are left.*--mode growth",
        err,
    ), err


def test_verifier_budgets(tracer):
    """No BPF program comes near a limit of the kernel's verifier (tools/verifier.c has the
    budgets)."""
    tool = os.path.join(os.path.dirname(tracer), "tools", "verifier")
    done = subprocess.run([tool], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "python_site" in done.stdout and "map_call" in done.stdout, done.stdout
