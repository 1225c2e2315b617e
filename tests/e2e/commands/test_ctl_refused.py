# SPDX-License-Identifier: Apache-2.0
"""Requests that a session refuses, and sessions that are dead, stopped or out of memory."""
import contextlib
import os
import shutil
import signal
import socket
import stat
import subprocess
import tempfile

import pytest

from ctl_client import PLACE, connection, ctl, socket_of  # noqa: F401
from harness import TIMEOUT, error_line, memory_cgroup, read_report, wait_until


# --- bad clients ----------------------------------------------------------------------------------


def test_bad_clients(start, trace, ctl, any_python):
    """One client stops within a line, one reads nothing, one sends garbage. The trace is complete
    nevertheless."""
    target = start(any_python, "golden.py", 20000)
    run = trace("-p", target.pid)
    with connection(run) as hanging, connection(run) as deaf, connection(run) as garbage:
        hanging.sendall(b'{"request": "sta')
        deaf.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            while True:
                deaf.send(b'{"request": "status"}\n' * 100)
        garbage.sendall(b"\x00\xff" * 500 + b"\n")
        target.step()
        live = target.expect()
        answers = garbage.makefile().read()
        assert answers == '{"error": "not a JSON object"}\n'
        assert ctl(target.pid, "status")[0]["is_tracing"]
        assert "does not end its line" in hanging.makefile().read()
        wait_until(lambda: "does not take its answer" in run.stderr, "who reads nothing is dropped")
    dropped = [line for line in run.stderr.splitlines() if "is dropped" in line]
    assert len(dropped) == 3, dropped
    report = run.finish()
    assert report.marked("golden.py", live) == live and report.lost_events == 0


def test_client_that_leaves(start, trace, ctl, any_python):
    """The process that writes the client's snapshot ends with the client, and the session
    continues."""
    target = start(any_python, "phases.py")
    run = trace("-p", target.pid)
    reader, writer = os.pipe()
    while True:  # fill the pipe, so that a writer blocks
        os.set_blocking(writer, False)
        try:
            os.write(writer, bytes(4096))
        except BlockingIOError:
            break
    os.set_blocking(writer, True)

    def children():
        with open("/proc/%d/task/%d/children" % (run.pid, run.pid)) as file:
            return set(file.read().split())

    others = children()
    with connection(run) as client:
        socket.send_fds(client, [b'{"request": "snapshot"}\n'], [writer])
        writer_ids = wait_until(lambda: children() - others, "it is being written")
        assert ctl(target.pid, "status")[0]["is_tracing"]
    # Not children() == others: a process that names symbols may begin or end meanwhile.
    wait_until(lambda: not writer_ids & children(), "its writer has ended")
    os.close(reader)
    os.close(writer)
    assert ctl(target.pid, "status")[0]["is_tracing"]


@pytest.fixture
def for_everybody(tracer):
    """A copy of the tracer that every user can execute."""
    folder = tempfile.mkdtemp()
    os.chmod(folder, 0o755)
    yield shutil.copy(tracer, folder)
    shutil.rmtree(folder)


def test_another_user(start, trace, any_python, for_everybody):
    """Another user is refused, with and without CAP_DAC_OVERRIDE."""
    target = start(any_python, "phases.py")
    run = trace("-p", target.pid)
    assert stat.S_IMODE(os.stat(PLACE).st_mode) == 0o700
    assert stat.S_IMODE(os.stat(socket_of(run)).st_mode) == 0o600
    nobody = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
    done = subprocess.run(
        [*nobody, for_everybody, "ctl", str(target.pid), "status"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        timeout=TIMEOUT,
    )
    assert "Permission denied" in error_line(done, 1)
    code = "import socket, sys; s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); print(s.makefile().read())"
    caps = ("--inh-caps=+dac_override", "--ambient-caps=+dac_override")
    done = subprocess.run(
        [*nobody, *caps, "/usr/bin/python3", "-c", code, socket_of(run)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        timeout=TIMEOUT,
    )
    assert done.stdout.strip() == '{"error": "another user\'s session"}', done.stderr


# --- sessions and targets that end ----------------------------------------------------------------


def test_dead_session(start, trace, ctl, run_tracer, any_python):
    """The socket of a killed tracer is removed. A stale socket file is not taken for a session, and
    the next session removes it."""
    target = start(any_python, "phases.py")
    dead = trace("-p", target.pid)
    dead.kill()
    wait_until(lambda: not os.path.exists(socket_of(dead)), "its socket is gone")
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(socket_of(dead))
    assert "no session traces PID %d" % target.pid in error_line(
        run_tracer("ctl", target.pid, "status"), 1
    )
    run = trace("-p", target.pid)
    assert not os.path.exists(socket_of(dead))
    assert ctl(target.pid, "status")[0]["session"] == run.pid


def test_stopped_session(start, trace, run_tracer, any_python):
    """A session that does not answer does not block its client."""
    target = start(any_python, "phases.py")
    run = trace("-p", target.pid)
    os.kill(run.pid, signal.SIGSTOP)
    try:
        assert "did not answer" in error_line(run_tracer("ctl", target.pid, "status"), 1)
    finally:
        os.kill(run.pid, signal.SIGCONT)


@pytest.mark.unprivileged
@pytest.mark.parametrize(
    "words",
    (
        (),
        ("1",),
        ("x", "status"),
        ("1", "dance"),
        ("1", "snapshot"),
        ("1", "lookup"),
        ("1", "status", "--all"),
        ("1", "lookup", "0x"),
        ("1", "lookup", "0"),
        ("1", "status", "more"),
        ("0", "status"),
        ("1", "status", "--format", "csv"),
        ("1", "status", "--session", "x"),
    ),
)
def test_wrong_words(run_tracer, words):
    error_line(run_tracer("ctl", *words), 2)


def test_wrong_file(start, trace, tracer, run_tracer, any_python, tmp_path):
    """The client opens the file. If it cannot be opened, the session receives no request."""
    target = start(any_python, "phases.py")
    trace("-p", target.pid)
    assert "is a directory" in error_line(run_tracer("ctl", target.pid, "snapshot", tmp_path), 1)
    error_line(run_tracer("ctl", target.pid, "snapshot", tmp_path / "nowhere" / "file"), 1)
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [tracer, "ctl", str(target.pid), "snapshot", "-"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=TIMEOUT,
        )
    assert "No space left" in error_line(done, 1)


def test_killed_tracer_leaves_its_last_snapshot(start, trace, tracer, any_python):
    target = start(any_python, "phases.py")
    run = trace("-p", target.pid, "--snapshot-every", "0.1", "--keep", 1)
    target.step()
    live = target.expect()
    wait_until(
        lambda: os.path.exists(run.snapshot)
        and read_report(tracer, run.snapshot).marked("phases.py", live) == live,
        "there is one of now",
    )
    run.kill()
    assert run.report().marked("phases.py", live) == live


def test_snapshots_that_cannot_be(start, trace, any_python):
    """Each failure is reported, and the session continues to its end."""
    target = start(any_python, "phases.py")
    run = trace("-p", target.pid, "--snapshot-every", "0.2")
    os.mkdir(run.snapshot + ".1")
    wait_until(
        lambda: "is not a regular file" in run.stderr, "the second cannot push the first away"
    )
    os.rmdir(run.snapshot + ".1")
    wait_until(lambda: os.path.exists(run.snapshot + ".1"), "it goes on")
    run.finish()


def test_out_of_memory(start, trace, any_python, tmp_path):
    """The kernel kills the target at its memory limit. The tracer keeps the tables, and they show
    what filled the memory."""
    hog = tmp_path / "hog.py"
    hog.write_text(
        "import os\nos.write(1, b'ready\\n')\nos.read(0, 100)\nkept = []\nwhile True:\n    kept.append(bytearray(b'x') * 100000)\n"
    )
    with memory_cgroup(100 << 20) as cgroup:
        target = start(any_python, str(hog))
        run = trace("-p", target.pid, "--snapshot-every", "0.2", "--keep", 2)
        with open(os.path.join(cgroup, "cgroup.procs"), "w") as file:
            file.write(str(target.pid))
        target.step()
        assert target.process.wait(TIMEOUT) == -signal.SIGKILL
        assert run.wait() == 0
    report = run.report()
    assert report.data["moment"] == "exited" and report.lost_events == 0
    assert report.lines()[(str(hog), 6)][0] > 50 << 20


@pytest.mark.unprivileged
@pytest.mark.parametrize(
    "options",
    (
        ("--snapshot-every", "1"),
        ("--keep", "2", "-o", "x"),
        ("--snapshot-every", "1", "-o", "-"),
        ("--snapshot-every", "0", "-o", "x"),
        ("--snapshot-every", "1", "--keep", "0", "-o", "x"),
    ),
)
def test_wrong_options(run_tracer, tmp_path, options):
    error_line(run_tracer("-p", os.getpid(), *options, cwd=str(tmp_path)), 2)
    assert not os.listdir(tmp_path)
