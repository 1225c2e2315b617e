# SPDX-License-Identifier: Apache-2.0
"""tracer -- COMMAND: the command is traced from its first instruction, and its exit status is
returned."""
import os
import signal
import subprocess

import pytest

from harness import error_line, program, wait_until


@pytest.mark.parametrize("status", (0, 3, 255))
def test_status_of_the_command(trace, any_python, status):
    run = trace("--", any_python.path, program("short.py"), status)
    assert run.wait() == status
    assert run.report().line("short.py", "S")[1] == 1


def test_status_of_a_killed_command(trace, any_python):
    run = trace("--", any_python.path, program("segv.py"))
    assert run.wait() == 128 + signal.SIGKILL
    report = run.report()
    assert report.line("segv.py", "B")[1] == 1000
    assert report.data["moment"] == "exited"


@pytest.mark.parametrize(
    "wrapper",
    (("sh", "-c", 'exec "$0" "$@"'), ("env",), ("env", "sh", "-c", 'exec env "$0" "$@"')),
    ids=" ".join,
)
def test_exec_chain(trace, any_python, wrapper):
    run = trace("--", *wrapper, any_python.path, program("short.py"), 5)
    assert run.wait() == 5
    report = run.report()
    assert report.line("short.py", "S")[1] == 1
    assert report.data["from_start"] is True


def test_python_replaced_by_python(trace, any_python):
    """The snapshot describes the first program. The exit status is that of the last one."""
    run = trace("--", any_python.path, program("execer.py"))
    live = run.expect()
    assert run.wait() == 0
    assert run.report().line("execer.py", "B") == live["B"]


def test_interrupt_is_the_commands(trace, any_python):
    """Ctrl-C reaches both. The tracer waits until the command has handled it."""
    code = "import signal, sys, time; signal.signal(2, lambda *_: sys.exit(7)); print('{}', flush=True); time.sleep(60)"
    run = trace("--", any_python.path, "-c", code)
    run.expect()
    children = subprocess.run(
        ["ps", "-o", "pid=", "--ppid", str(run.pid)], stdout=subprocess.PIPE, timeout=60
    )
    for pid in (run.pid, *map(int, children.stdout.split())):
        os.kill(pid, signal.SIGINT)
    assert run.wait() == 7
    assert run.report().total["count"] > 0


def test_duration_leaves_the_command_running(trace, any_python, tmp_path):
    done = tmp_path / "done"
    code = "import os, time; print(os.getpid(), flush=True); time.sleep(1.5); open(%r, 'w')" % str(
        done
    )
    run = trace("-d", "0.2", "--", any_python.path, "-c", code)
    assert run.wait() == 0
    wait_until(done.exists, "the command has come to its end by itself")


def test_terminated(trace, any_python):
    """SIGTERM is forwarded to the command. The tracer exits with the command's status."""
    run = trace("--", any_python.path, "-c", "import time; print('{}', flush=True); time.sleep(60)")
    run.expect()
    run.process.send_signal(signal.SIGTERM)
    assert run.wait() == 128 + signal.SIGTERM
    assert run.report().data["moment"] == "exited"


def test_killed_tracer_leaves_the_command_running(trace, any_python, tmp_path):
    done = tmp_path / "done"
    run = trace(
        "--",
        any_python.path,
        "-c",
        "import os; print('{}', flush=True); os.read(0, 1); open(%r, 'w')" % str(done),
        stdin=subprocess.PIPE,
    )
    run.expect()
    run.kill()
    wait_until(done.exists, "the command has come to its end by itself")


def test_command_that_does_not_exist(run_tracer):
    assert "/no/such/command" in error_line(run_tracer("--", "/no/such/command", "x"), 127)


def test_command_that_is_no_program(run_tracer, tmp_path):
    (tmp_path / "data").write_bytes(b"\0" * 100)
    os.chmod(str(tmp_path / "data"), 0o755)
    error_line(run_tracer("--", tmp_path / "data"), 1)
    os.chmod(str(tmp_path / "data"), 0o644)
    error_line(run_tracer("--", tmp_path / "data"), 126)


@pytest.mark.parametrize(
    "command, status", ((("/bin/true",), 1), (("sh", "-c", "exit 7"), 7)), ids=("true", "sh")
)
def test_command_without_python(run_tracer, command, status):
    """The tracer exits with the command's own status. If that is 0, it reports an error, because
    nothing was traced."""
    line = error_line(run_tracer("--", *command), status)
    assert command[0] in line and "Python" in line
