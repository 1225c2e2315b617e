# SPDX-License-Identifier: Apache-2.0
"""Targets in special environments: stopped, sandboxed, in namespaces, with a replaced library."""
import os
import shutil
import signal
import subprocess

import pytest

from harness import environment, error_line, program, read_report, wait_until


def test_stopped_target(start, trace, any_python):
    """The tracer attaches to a stopped target, and the target stays stopped."""
    target = start(any_python, "golden.py")
    os.kill(target.pid, signal.SIGSTOP)
    run = trace("-p", target.pid)
    with open("/proc/%d/stat" % target.pid) as stat:
        assert stat.read().rpartition(")")[2].split()[0] == "T"
    os.kill(target.pid, signal.SIGCONT)
    target.step()
    live = target.expect()
    assert run.finish().marked("golden.py", live) == live


def test_replaced_library(start, trace, any_python, tmp_path, libpython):
    """After an upgrade the file that the target runs has no name, and another file has its former
    name."""
    copy = shutil.copy(libpython(any_python), str(tmp_path))
    target = start(any_python, "golden.py", env=environment(LD_LIBRARY_PATH=str(tmp_path)))
    os.unlink(copy)
    with open(copy, "wb") as file:
        file.write(b"another")
    run = trace("-p", target.pid)
    target.step()
    live = target.expect()
    assert run.finish().marked("golden.py", live) == live


def test_library_of_another_mount_namespace(start, trace, any_python, tmp_path, libpython):
    """The target's path leads to a different file in the tracer's mount namespace."""
    script = 'mount -t tmpfs tmpfs "$0" && cp "$1" "$0" && shift && LD_LIBRARY_PATH="$0" exec "$@"'
    prefix = ("unshare", "--mount", "sh", "-c", script, str(tmp_path), libpython(any_python))
    if subprocess.run(("unshare", "--mount", "true"), stderr=subprocess.DEVNULL).returncode:
        pytest.skip("no mount namespaces here")
    target = start(any_python, "golden.py", prefix=prefix)
    run = trace("-p", target.pid, "-v")
    assert str(tmp_path) in run.stderr, "it does not run the library in question"
    target.step()
    live = target.expect()
    assert run.finish().marked("golden.py", live) == live


def pid_namespaces():
    if subprocess.run(("unshare", "--pid", "--fork", "true"), stderr=subprocess.DEVNULL).returncode:
        pytest.skip("no PID namespaces here")


def child_of(pid):
    with open("/proc/%d/task/%d/children" % (pid, pid)) as file:
        return int(file.read().split()[0])


def test_target_in_a_pid_namespace(start, trace, any_python):
    pid_namespaces()
    target = start(
        any_python,
        "golden.py",
        prefix=("unshare", "--pid", "--fork", "--mount-proc", "--kill-child"),
    )
    run = trace("-p", child_of(target.pid))
    target.step()
    live = target.expect()
    assert run.finish().marked("golden.py", live) == live


def test_tracer_in_a_pid_namespace(tracer, any_python, tmp_path):
    """In a PID namespace the tracer's PIDs differ from the kernel's. The tracer counts correctly or
    reports an error. It never prints an empty table as the result."""
    pid_namespaces()
    snapshot = str(tmp_path / "snapshot.pb.gz")
    done = subprocess.run(
        [
            "unshare",
            "--pid",
            "--fork",
            "--mount-proc",
            tracer,
            "-q",
            "-o",
            snapshot,
            "--",
            any_python.path,
            program("short.py"),
        ],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        timeout=60,
        env=environment(),
    )
    if done.returncode:
        assert "PID namespace" in error_line(done, 1)
    else:
        assert read_report(tracer, snapshot).line("short.py", "S")[1] == 1


@pytest.mark.parametrize("backend", ("session", "multi", "perf"))
def test_sandboxed_target(start, trace, any_python, backend):
    """On some kernels a seccomp filter applies to the system calls of probes. The target must not
    die of it."""
    target = start(any_python, "sandboxed.py", program("golden.py"))
    run = trace("-p", target.pid, "--backend", backend, attached=False)
    wait_until(
        lambda: "attached" in run.stderr or run.process.poll() is not None,
        "it has attached, or refused to",
    )
    target.step()
    live = target.expect()
    if run.process.poll() is None:
        assert run.finish().marked("golden.py", live) == live
    else:
        assert run.process.returncode == 1 and "seccomp" in run.stderr
    assert target.finish() == 0
