# SPDX-License-Identifier: Apache-2.0
"""Processes that are unlike most: in what threads they have, in what system calls they may make, in
what they do with their code. Each is traced, or refused with the reason; none is harmed."""
import re
import subprocess

import pytest

from harness import compiled, error_line

pytestmark = pytest.mark.usefixtures("undisturbed")


@pytest.fixture
def program_of(tmp_path):
    """Compiles a program of tests/e2e/programs/, with a name of the test's own."""
    return lambda name, *flags: compiled(tmp_path / ("t" + name[:-2]), name, *flags)


def test_first_thread_ended(start, trace, run_tracer, program_of):
    """Other threads run on. The kernel places no probe in such a process; probes that are in place
    stay."""
    path = program_of("headless.c")
    target = start(path, None, "begin")
    for command in (("--layer", "native", "-d", "1"), ("--dry-run",), ("memory",), ("heap",)):
        words = [*command[:1], "-p", target.pid] if len(command) == 1 else ["-p", target.pid, *command]
        line = error_line(run_tracer(*words), 1)
        assert "its first thread has ended while others run (2 threads)" in line, command
    done = run_tracer("--comm", "theadless", "--layer", "native", "-d", "1")
    assert done.returncode == 1 and "its first thread has ended" in done.stderr
    target.step()
    assert target.read_line() == "done" and target.finish() == 0

    target = start(path, None, "read", ready=False)
    target.read_until("begun")
    run = trace("-p", target.pid, "--layer", "native")
    target.step()
    target.read_until("ready")
    target.step()
    target.read_until("done")
    kept = run.finish("--group-by", "traceback").statistics
    assert (1000000, 1000) in [(entry["size"], entry["count"]) for entry in kept]
    assert target.finish() == 0
