# SPDX-License-Identifier: Apache-2.0
"""Probes as perf events, as kernels before 6.6 place them: one descriptor each, and long in being
taken out."""
import os
import re
import resource
import signal
import subprocess

import pytest

from harness import comm, environment, links_holder, text_differs, wait_until

LITTLE, FEW, MORE = (
    128,
    600,
    4096,
)  # descriptors: for no probes to speak of; for fewer than census mode has; for any number
MANY = (
    "--backend",
    "perf",
    "-m",
    "growth",
    "--large-blocks",
)  # some 270 probes of a stripped Python, a third of census mode's
# seconds for the kernel to take out some hundred probes, and those of another test before it
SLOW = 300


def limited(tracer, soft, hard, *args):
    return subprocess.Popen(
        [tracer, *map(str, args)],
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


def test_end_does_not_wait_for_the_kernel(tracer, start, stripped):
    """The tracer ends with its report; another process sees to the probes, holds nobody's pipe, and
    leaves none."""
    target = start(stripped, "golden.py")
    path = os.path.realpath("/proc/%d/exe" % target.pid)
    run = limited(tracer, LITTLE, MORE, *MANY, "-p", target.pid, "-d", "1")
    pid = wait_until(lambda: links_holder(run.pid), "a process for the links is there")
    out, err = run.communicate(timeout=SLOW)  # until the pipes' end
    assert run.returncode == 0 and "goes on for a while after the end" in err, err
    assert comm(pid), "nobody holds the probes, and %d bytes of them are there" % text_differs(
        target.pid, path
    )
    os.kill(pid, signal.SIGKILL)  # they go with it all the same
    wait_until(lambda: not comm(pid), "all probes are out", SLOW)
    assert text_differs(target.pid, path) == 0
    target.step()
    assert target.expect()
    assert target.finish() == 0


def test_descriptors_are_allowed(tracer, start, stripped):
    """The limit that most shells begin with is below the number of probes; it is raised as far as
    it may be."""
    target = start(stripped, "golden.py")
    run = limited(tracer, LITTLE, MORE, *MANY, "-p", target.pid, "-d", "1")
    out, err = run.communicate(timeout=SLOW)
    assert run.returncode == 0, err
    assert attached(err) > LITTLE, err
    assert "Too many open files" not in err


def test_fewer_probes_where_descriptors_are_few(tracer, start, stripped):
    """Then it is growth mode, and said so with the figures; asked for by name, census mode is
    refused."""
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
    """No BPF program is near a limit of the kernel's verifier (tools/verifier.c has the
    budgets)."""
    tool = os.path.join(os.path.dirname(tracer), "tools", "verifier")
    done = subprocess.run([tool], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "inline_site" in done.stdout and "map_call" in done.stdout, done.stdout
