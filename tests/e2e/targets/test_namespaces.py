# SPDX-License-Identifier: Apache-2.0
"""Targets in other user and PID namespaces, and /proc mounted with hidepid."""
import ctypes
import os
import re
import shutil
import subprocess

import pytest

import harness
from cgroups import check, unique
from harness import environment, error_line

pytestmark = pytest.mark.usefixtures("undisturbed")


# --- namespaces -----------------------------------------------------------------------------------


def unshare(*arguments):
    command = ["unshare", *arguments]
    if subprocess.run([*command, "true"], stderr=subprocess.DEVNULL).returncode:
        pytest.skip("no %s here" % " ".join(command))
    return command


def test_user_namespace(trace, any_python):
    """root of a user namespace, which is nobody on the host."""
    target = harness.Target(any_python, "golden.py", prefix=unshare("--user", "--map-root-user"))
    with target:
        check(trace("-p", target.pid), target)


def test_tracer_in_user_namespace(tracer, start, any_python):
    """Root without the machine's privileges: one line of error, and the target is unharmed."""
    with start(any_python, "golden.py") as target:
        done = subprocess.run(
            [*unshare("--user", "--map-root-user"), tracer, "-p", str(target.pid)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            timeout=harness.TIMEOUT,
            env=environment(),
        )
        done.stderr = done.stderr.decode()
        assert "user namespace" in error_line(done, 1)
        target.step()
        target.expect()
        assert target.finish() == 0


def test_heap_inside_user_namespace(tracer, any_python):
    """Processes of the tracer's own namespace can be read."""
    prefix = unshare("--user", "--map-root-user")
    with harness.Target(any_python, "golden.py", prefix=prefix) as target:
        inside = ("nsenter", "--user", "--preserve-credentials", "--target", str(target.pid))
        done = subprocess.run(
            [*inside, tracer, "heap", "-p", str(target.pid)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            timeout=harness.TIMEOUT,
            env=environment(),
        )
        assert done.returncode == 0 and "own size=" in done.stdout, done.stderr


INNER = """
import os, sys
while True:
    pid = os.fork()
    if not pid:
        # /proc is that of the host still.
        if os.path.exists("/proc/%d" % os.getpid()):
            os._exit(1)
        print(os.getpid(), flush=True)
        sys.stdin.read()
        os._exit(0)
    if not os.waitpid(pid, 0)[1]:
        break
"""


def test_pid_of_another_namespace(run_tracer, any_python):
    """A PID that exists only in a PID namespace below the tracer's: the error explains it, and the
    tracer does not guess a process."""
    with subprocess.Popen(
        [*unshare("--pid", "--fork"), any_python.path, "-c", INNER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        inner = int(process.stdout.readline())
        assert "in its own PID namespace" in error_line(run_tracer("heap", "-p", inner), 1)
        line = error_line(run_tracer("-p", inner), 1)
        assert "%d is the process id, in its own PID namespace, of PID " % inner in line
        outer = int(re.search(r"of PID (\d+) in a PID namespace", line).group(1))
        with open("/proc/%d/status" % outer) as status:
            assert re.search(r"^NSpid:\t%d\t%d$" % (outer, inner), status.read(), re.M)
        process.stdin.close()
        assert process.wait(harness.TIMEOUT) == 0


def test_hidepid(tracer):
    """If other users' processes are hidden from the tracer, a message states that."""
    if not shutil.which("setpriv"):
        pytest.skip("no setpriv on this machine")
    script = "mount -t proc -o hidepid=2 proc /proc && exec setpriv --reuid 65534 --regid 65534 --clear-groups --inh-caps=-all %s list"
    copy = "/tmp/" + unique("tracer")
    shutil.copy(tracer, copy)
    try:
        os.chmod(copy, 0o755)
        command = [*unshare("--mount"), "sh", "-c", script % copy]
        done = subprocess.run(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            timeout=harness.TIMEOUT,
            env=environment(),
        )
    finally:
        os.unlink(copy)
    assert done.returncode == 0, done.stderr.decode()
    assert "/proc is mounted with hidepid" in done.stderr.decode()


def landlock():
    """Processes outside of the domain cannot be looked into from now on, not even by root."""
    libc = ctypes.CDLL(None, use_errno=True)
    handled = ctypes.c_uint64(1 << 12)  # LANDLOCK_ACCESS_FS_MAKE_SYM: what is not needed
    rules = libc.syscall(444, ctypes.byref(handled), 8, 0)  # landlock_create_ruleset
    PR_SET_NO_NEW_PRIVS = 38
    libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    if rules < 0 or libc.syscall(446, rules, 0):  # landlock_restrict_self
        raise OSError(ctypes.get_errno(), "landlock")


def test_forbidden_by_a_security_module(run_tracer, python):
    """Of all processes, those that nobody named are told with -v only."""
    with harness.Target(python, "golden.py") as target:
        forbidden = "PID %d: Permission denied" % target.pid
        for words, is_told in ((["--all"], False), (["-p", target.pid], True)):
            done = run_tracer("trace", *words, "-d", 1, preexec_fn=landlock)
            assert (forbidden in done.stderr) == is_told, done.stderr
        done = run_tracer("trace", "--all", "-v", "-d", 1, preexec_fn=landlock)
        assert "PID %d is skipped: Permission denied" % target.pid in done.stderr


SHOWN = """
import sys
X = b"x"
print("ready", flush=True)
sys.stdin.readline()
KEEP = [X * 1000 for _ in range(1000)]
print("done", flush=True)
sys.stdin.read()
"""


def test_source_in_a_mount_namespace(tracer, any_python, tmp_path):
    """A mount namespace with our own root directory has another file at the same path: --source
    shows the process's file, not this machine's."""
    folder = tmp_path / "app"
    folder.mkdir()
    path = folder / "app.py"
    path.write_text("# this machine's file\n" * 20)
    script = "mount -t tmpfs tmpfs {0} && cat >{1} && exec {2} {1} <&9"
    script = script.format(folder, path, any_python.path)
    reader, writer = os.pipe()
    with subprocess.Popen(
        [*unshare("--mount", "--propagation", "private"), "bash", "-c", script],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        preexec_fn=lambda: os.dup2(reader, 9),
        close_fds=False,
        env=environment(),
    ) as process:
        os.close(reader)
        process.stdin.write(SHOWN.encode())
        process.stdin.close()
        assert process.stdout.readline() == b"ready\n"
        run = harness.Traced(tracer, str(tmp_path), "-p", process.pid, "--source")
        os.write(writer, b"\n")
        assert process.stdout.readline() == b"done\n"
        run.finish()
        os.close(writer)
        assert process.wait(harness.TIMEOUT) == 0
    assert "KEEP = [X * 1000" in run.stdout and "this machine's file" not in run.stdout
