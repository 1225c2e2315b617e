# SPDX-License-Identifier: Apache-2.0
"""Errors in the command line, the target or the privileges: one line that states what failed,
where, why and the remedy; the right status; the target is unharmed."""
import os
import re
import shutil
import subprocess
import tempfile
import threading

import pytest

from harness import environment, error_line

# --- wrong usage ----------------------------------------------------------------------------------

USAGE = (
    ("-n 0", "1 to 128"),
    ("-n 129", "1 to 128"),
    ("-n x", "1 to 128"),
    ("-d 0", "not a number of seconds above 0"),
    ("-n 1.5", "1 to 128"),
    ("-n -1", "1 to 128"),
    ("-d x", "--duration"),
    ("-d -1", "--duration"),
    ("-d nan", "--duration"),
    ("-d inf", "--duration"),
    ("-i 0", "--interval"),
    ("-b 3K", "power of two"),
    ("-b 1", "power of two"),
    ("-b 4T", "power of two"),
    ("-b 99999999999999999999", "power of two"),
    ("-m sampling", "census"),
    ("-m other", "census"),
    ("--layer other", "python, native, mmap, all or pages"),
    ("--by local f:x -m growth", "-m census traces all"),
    ("--by context a.*", "the end of a key"),
    ("--by context a:8x", ":0Nx"),
    ("--by flask:x", "takes no key"),
    ("--by structlog", "structlog:KEY"),
    ("--labels-hash", "--by context, local or task"),
    ("--backend other", "perf"),
    ("--format yaml", "--format"),
    ("--group-by colour", "--group-by"),
    ("--top x", "--top"),
    ("-p x", "tracer list"),
    ("-p 0", "tracer list"),
    ("-p -1", "tracer list"),
    ("-p 1x", "tracer list"),
    ("-p 99999999999999999999", "tracer list"),
    ("-p ,", "tracer list"),
    ("--no-such-option", "--help"),
    ("--overhed 5", "did you mean --overhead?"),
    ("--comm", "its value is missing"),
    ("-p", "the value of -p is missing"),
    ("-qz", "there is no option -z"),
    ("--no-live=3", "it takes no value"),
    ("-p gunicorn", "--comm"),
    ("-d 30q", "30s"),
    ("--overhead x%", "percent"),
    ("--group-by colour", "filename, lineno, function, traceback"),
    ("export a --format yaml", "folded"),
    ("12345", "tracer -p 12345"),
    ("reprot", "tracer report"),
    ("sh -c x", "tracer -- sh"),
    ("-Z", "--help"),
    ("-p", "--help"),
    ("-n 3", "-p PID"),
    ("trace", "-p PID"),
    ("trace -n", "--help"),
    ("--", "-p PID"),
    ("-p 1 -- true", "-p PID"),
    ("frobnicate", "--help"),
    ("report", "tracer report FILE"),
    ("report --no-such-option", "--help"),
    ("report --top", "--help"),
    ("replay", "tracer replay CAPTURE"),
    ("replay a b", "tracer replay CAPTURE"),
    ("replay --no-such-option", "--help"),
    ("list x", "list"),
    ("list --no-such-option", "--help"),
    ("doctor x", "doctor"),
    ("heap", "tracer heap -p PID"),
    ("heap x y", "tracer heap -p PID"),
    ("heap -p x", "tracer list"),
    ("heap -p 1 --by colour", "type, class"),
    ("heap -p 1 --format yaml", "--format"),
    ("heap -p 1 --top x", "--top"),
    ("heap -p 1 --group-by lineno", "--help"),
    ("serve", "tracer serve FILE"),
    ("serve -p x", "tracer list"),
    ("serve -p 1,2", "tracer serve FILE"),
    ("serve --port x heap.dump", "1 to 65535"),
    ("serve --open=x heap.dump", "--help"),
    ("memory", "tracer memory -p PID"),
    ("memory -p 1 x", "tracer memory -p PID"),
    ("memory -p 1 --by type", "--help"),
)


@pytest.mark.unprivileged
@pytest.mark.parametrize("arguments, remedy", USAGE, ids=lambda v: v if v.startswith("-") else None)
def test_usage(run_tracer, tmp_path, arguments, remedy):
    done = run_tracer(*arguments.split(), cwd=str(tmp_path))
    assert remedy in error_line(done, 2)
    assert done.stdout == ""
    assert os.listdir(str(tmp_path)) == []


@pytest.mark.unprivileged
def test_usage_with_hostile_words(run_tracer):
    """Control characters of the command line are not written to the terminal either."""
    for arguments in (
        ("\x1b[31m",),
        ("--\x1b[31m",),
        ("-p", "\x1b]0;x\x07"),
        ("report", "\x1b[2J\n"),
        ("--top", "1\n2", "-p", "1"),
    ):
        done = run_tracer(*arguments)
        error_line(done, done.returncode)
        assert done.returncode in (1, 2)


@pytest.mark.unprivileged
def test_nothing_at_all(run_tracer):
    done = run_tracer()
    assert done.returncode == 2
    assert done.stdout == "" and "--help" in done.stderr


# --- processes that cannot be traced --------------------------------------------------------------


def free_pid():
    with open("/proc/sys/kernel/pid_max") as file:
        pid = int(file.read()) - 1
    while os.path.exists("/proc/%d" % pid):
        pid -= 1
    return pid


def kernel_thread():
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open("/proc/%s/stat" % pid) as file:
                if int(file.read().rpartition(")")[2].split()[6]) & 0x00200000:
                    return int(pid)
        except OSError:
            pass
    pytest.skip("no kernel thread is to be seen here (a PID namespace)")


def test_no_such_pid(attempt):
    pid = free_pid()
    line = error_line(attempt(pid), 1)
    assert str(pid) in line and "tracer list" in line


def test_no_pid_that_large(attempt):
    assert "tracer list" in error_line(attempt(4194305), 2)


def test_kernel_thread(attempt):
    pid = kernel_thread()
    line = error_line(attempt(pid), 1)
    assert "PID %d" % pid in line and "kernel thread" in line and "--wait" not in line


def test_zombie(attempt, any_python):
    process = subprocess.Popen([any_python.path, "-c", "pass"])
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    line = error_line(attempt(process.pid), 1)
    process.wait()
    assert str(process.pid) in line


def test_thread_id(attempt, any_python):
    code = "import os, threading; threading.Thread(target=os.read, args=(0, 1)).start(); os.write(1, b'ready\\n')"
    with subprocess.Popen(
        [any_python.path, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as target:
        assert target.stdout.readline() == b"ready\n"
        thread = next(
            t for t in map(int, os.listdir("/proc/%d/task" % target.pid)) if t != target.pid
        )
        line = error_line(attempt(thread), 1)
        assert "thread" in line and str(target.pid) in line, "which process it belongs to"
        target.stdin.close()
        assert target.wait(60) == 0


def test_no_python(attempt):
    with subprocess.Popen(["sleep", "60"]) as target:
        line = error_line(attempt(target.pid), 1)
        assert "no Python" in line and "tracer list" in line
        assert target.poll() is None
        target.kill()


def test_exit_between_look_up_and_attach(run_tracer, any_python):
    """Processes that end at any point of the attach. Each is traced, or one line reports it."""
    seen = set()
    for i in range(8):
        target = subprocess.Popen(
            [any_python.path, "-S", "-c", "import time; time.sleep(%f)" % (i * 0.006)]
        )
        timer = threading.Timer(2, target.kill)
        timer.start()
        waiter = threading.Thread(target=target.wait)  # reaps it at once: the PID is free
        waiter.start()
        done = run_tracer("-q", "--format", "json", "-p", target.pid)
        waiter.join()
        timer.cancel()
        seen.add(done.returncode)
        assert done.returncode in (0, 1)
        if done.returncode:
            error_line(done, 1)
        assert target.returncode == 0, "the target was harmed"
    assert seen


def test_some_of_several(start, trace, any_python):
    """A process that cannot be traced does not prevent the others from being traced."""
    target = start(any_python, "golden.py")
    missing = free_pid()
    run = trace(
        "-p", "%d,%d" % (missing, target.pid), "--format", "json", "--top", "0", output=False
    )
    target.step()
    live = target.expect()
    run.interrupt()
    run.wait()
    assert str(missing) in run.stderr
    assert run.printed_reports()[0].marked("golden.py", live) == live


def test_same_pid_twice(start, trace, any_python):
    target = start(any_python, "golden.py")
    run = trace(
        "-p", "%d,%d" % (target.pid, target.pid), "--format", "json", "--top", "0", output=False
    )
    target.step()
    live = target.expect()
    run.interrupt()
    assert run.wait() == 0
    (report,) = run.printed_reports()
    assert report.marked("golden.py", live) == live


# --- privileges -----------------------------------------------------------------------------------


@pytest.fixture
def open_tracer(tracer):
    """A copy of the tracer that every user may execute."""
    folder = tempfile.mkdtemp(prefix="tracer-", dir="/tmp")
    os.chmod(folder, 0o755)
    yield shutil.copy(tracer, folder)
    shutil.rmtree(folder)


def run_as(options, *command):
    if shutil.which("setpriv") is None:
        pytest.skip("no setpriv (util-linux)")
    return subprocess.run(
        ["setpriv", *options, *map(str, command)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        timeout=60,
        cwd="/",
        env=environment(),
    )


NOBODY = ("--reuid", "65534", "--regid", "65534", "--clear-groups", "--inh-caps=-all")


def test_not_root(start, open_tracer, any_python):
    target = start(any_python, "golden.py")
    line = error_line(run_as(NOBODY, open_tracer, "-p", target.pid), 1)
    assert "CAP_" in line and "sudo" in line


def test_not_root_with_a_command(open_tracer):
    line = error_line(
        run_as(NOBODY, open_tracer, "--", "/usr/bin/python3", "-c", "print('it ran')"), 1
    )
    assert "CAP_" in line and "sudo" in line


@pytest.mark.parametrize(
    "missing", ("-bpf,-sys_admin", "-perfmon,-sys_admin", "-sys_ptrace", "-sys_admin")
)
def test_capability_missing(start, tracer, any_python, missing):
    target = start(any_python, "golden.py")
    line = error_line(
        run_as(("--bounding-set=" + missing, "--inh-caps=-all"), tracer, "-p", target.pid), 1
    )
    assert "CAP_" + missing[1:].split(",")[0].upper() in line


def test_sys_admin_is_enough(start, tracer, any_python):
    """As in the kernel, it has CAP_BPF and CAP_PERFMON in it, which older container engines lack."""
    target = start(any_python, "golden.py")
    rights = ("--bounding-set=-all,+sys_admin,+sys_ptrace", "--inh-caps=-all")
    done = run_as(rights, tracer, "-p", target.pid, "-d", "1")
    assert done.returncode == 0 and "tracer: attached to PID %d" % target.pid in done.stderr


def test_list_and_doctor_without_root(open_tracer):
    """An empty list is an error. Whatever could not be inspected is named."""
    listed = run_as(NOBODY, open_tracer, "list")
    assert listed.stdout.startswith("    PID") and len(listed.stdout.splitlines()) == 1
    line = error_line(listed, 1)
    assert re.search(
        r"nothing is listed, and PID \d+ \(.+\).* could not be inspected; run it with sudo", line
    )
    doctor = run_as(NOBODY, open_tracer, "doctor")
    assert "CAP_BPF" in doctor.stdout
    assert doctor.returncode == 1, "a session cannot run"
