# SPDX-License-Identifier: Apache-2.0
"""A machine on which the tracer cannot run: one line names the obstacle and the remedy. Optional
features may be missing."""
import os
import shutil
import subprocess
import sys

import pytest

from harness import TIMEOUT, environment, error_line, memory_cgroup, program, wait_until
from procfs import text_differs

pytestmark = pytest.mark.usefixtures("undisturbed")

REFUSE = (sys.executable, program("refuse.py"))


def run(*command):
    return subprocess.run(
        [str(word) for word in command],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        timeout=TIMEOUT,
        env=environment(),
    )


def covered(*folders, options="rw"):
    """A command prefix that runs a command with these folders empty."""
    if shutil.which("unshare") is None:
        pytest.skip("no unshare (util-linux)")
    mounts = "".join(
        "mount -t tmpfs -o %s none %s && " % (options, folder)
        for folder in folders
        if os.path.isdir(folder)
    )
    return ("unshare", "-m", "sh", "-c", mounts + 'exec "$@"', "sh")


@pytest.fixture
def target(start, any_python):
    """A program without a probe. The kernel may still be removing probes of earlier tests, which
    the tracer reports."""
    one = start(any_python, "golden.py")
    wait_until(lambda: text_differs(one.pid) == 0, "no probe is in its code")
    return one


@pytest.fixture(params=("trace", "doctor"))
def refused(request, tracer, target):
    """Runs the tracer on a machine on which it cannot run, and returns the line that reports it."""

    def attempt(*prefix):
        if request.param == "trace":
            return error_line(run(*prefix, tracer, "-p", target.pid, "-d", "0.1"), 1)
        done = run(*prefix, tracer, "doctor")
        assert done.returncode == 1 and done.stderr == ""
        line = done.stdout.splitlines()[-1]
        assert line.startswith("A session cannot run here: ")
        return line

    return attempt


def traces(tracer, target, *prefix_and_options):
    """Runs the tracer, which must succeed, and returns its stderr."""
    prefix, options = prefix_and_options
    done = run(*prefix, tracer, "-p", target.pid, "-d", "0.1", *options)
    assert done.returncode == 0 and "Total: " in done.stdout, done.stderr
    return done.stderr


# --- what must be there ---------------------------------------------------------------------------


@pytest.mark.parametrize("error", ("EPERM", "ENOSYS"))
def test_no_bpf(refused, error):
    """As in a container under the default profile."""
    line = refused(*REFUSE, "bpf", error)
    assert "a seccomp filter refuses bpf(2)" in line and "--security-opt seccomp=unconfined" in line


def test_no_types(refused):
    line = refused(*covered("/sys/kernel/btf"))
    assert "/sys/kernel/btf/vmlinux" in line and "CONFIG_DEBUG_INFO_BTF" in line
    assert "tracer leaks, heap and memory work without" in line


@pytest.mark.parametrize("words", (("heap",), ("memory",), ("leaks", "-d", "2")))
def test_what_works_without_types(tracer, target, words):
    """What places no probe."""
    done = run(*covered("/sys/kernel/btf"), tracer, *words, "-p", target.pid)
    assert done.returncode == 0 and "PID %d" % target.pid in done.stdout, done.stderr
    assert "BTF" not in done.stderr


def test_doctor_without_types(tracer):
    """What is read from them is not said to be missing."""
    done = run(*covered("/sys/kernel/btf"), tracer, "doctor")
    assert "  NO   BTF" in done.stdout and "ring buffer" not in done.stdout


def test_no_sysfs(refused):
    line = refused(*covered("/sys"))
    assert "no sysfs" in line and "mount -t sysfs" in line


@pytest.mark.parametrize("name", ("bpf", "perfmon", "sys_ptrace", "sys_admin"))
def test_container_without_capability(refused, name):
    """Root in a container: sudo does not help there. CAP_SYS_ADMIN has the first two in it."""
    lost = "-%s,-sys_admin" % name if name in ("bpf", "perfmon") else "-" + name
    line = refused("setpriv", "--bounding-set=" + lost, "--inh-caps=-all")
    assert (
        "CAP_" + name.upper() in line and "--privileged --pid=host" in line and "--cap-add" in line
    )


@pytest.mark.parametrize(
    "options, why, remedy",
    (
        (("-U", "-r"), "user namespace", "outside of it"),
        (("-p", "-f", "--mount-proc"), "PID namespace", "--pid=host"),
    ),
    ids=("user", "pid"),
)
def test_namespace(refused, options, why, remedy):
    line = refused("unshare", *options)
    assert why in line and remedy in line


@pytest.mark.parametrize("command", ("heap", "memory", "leaks"))
def test_user_namespace_without_probes(tracer, target, command):
    """Not even processes of other namespaces can be read."""
    line = error_line(run("unshare", "-U", "-r", tracer, command, "-p", target.pid), 1)
    assert "PID %d: " % target.pid in line
    assert "it runs in a user namespace of its own: run it with sudo outside of it" in line


def test_too_little_memory(tracer, target):
    with memory_cgroup(96 << 20) as small:
        inside = ("sh", "-c", 'echo $$ > "$0/cgroup.procs" && exec "$@"', small)
        line = error_line(
            run(*inside, tracer, "-p", target.pid, "--buffer", "256M", "-d", "0.1"), 1
        )
        assert "Cannot allocate memory" in line and "cgroup" in line and "smaller --buffer" in line
        traces(tracer, target, inside, ("--buffer", "1M"))


# --- what a probe needs on kernels without uprobe_multi -------------------------------------------


@pytest.mark.parametrize(
    "prefix, why, remedy",
    (
        (
            (*REFUSE, "perf_event_open", "EPERM"),
            "a seccomp filter refuses it",
            "seccomp=unconfined",
        ),
        (("prlimit", "--nofile=80"), "a file descriptor each", "ulimit -n"),
    ),
    ids=("seccomp", "descriptors"),
)
def test_no_perf_uprobe(tracer, target, prefix, why, remedy):
    # With the mode asked for: else those that are left may do for growth mode.
    options = ("--no-follow", "--backend", "perf", "--mode", "census", "-p", target.pid)
    line = error_line(run(*prefix, tracer, *options), 1)
    assert "PID %d" % target.pid in line and why in line and remedy in line


@pytest.mark.parametrize("descriptors", (62, 66, 70))
def test_no_descriptors(tracer, target, descriptors):
    """Too few to read the target: that is the reason, not that it has ended."""
    options = ("--no-follow", "--backend", "perf", "-d", "0.1", "-p", target.pid)
    done = run("prlimit", "--nofile=%d" % descriptors, tracer, *options)
    assert done.returncode == 1
    assert "Too many open files" in done.stderr and "has ended" not in done.stderr


def test_no_uprobe_pmu(tracer, target):
    prefix = covered("/sys/bus/event_source", "/sys/kernel/tracing", "/sys/kernel/debug")
    line = error_line(run(*prefix, tracer, "--backend", "perf", "-p", target.pid), 1)
    assert "/sys/bus/event_source/devices/uprobe" in line and "CONFIG_UPROBE_EVENTS" in line


# --- what need not be there -----------------------------------------------------------------------


@pytest.mark.parametrize("backend", ("session", "multi", "perf"))
def test_no_tracefs(tracer, target, backend):
    said = traces(
        tracer, target, covered("/sys/kernel/tracing", "/sys/kernel/debug"), ("--backend", backend)
    )
    assert all(line.startswith("tracer: ") for line in said.splitlines()), (
        "libraries have no say: " + said
    )


def test_nothing_is_executed(tracer, target):
    """Where files are written, none is executed."""
    folders = ("/tmp", "/var/tmp", "/run", "/dev/shm")
    prefix = covered(*folders, options="noexec")
    shell = run(*prefix, "sh", "-c", "cp /bin/true /tmp && /tmp/true")
    assert shell.returncode == 126, "files in /tmp can be executed"
    traces(tracer, target, prefix, ("-m", "census", "--layer", "all"))
    for words in (("heap",), ("perfmap", "-d", "0.1")):
        done = run(*prefix, tracer, *words, "-p", target.pid)
        assert done.returncode == 0, done.stderr


def test_no_limits_raised(tracer, target):
    """BPF memory is charged to a cgroup since 5.11, so it does not matter that no limit can be
    raised."""
    traces(
        tracer,
        target,
        ("prlimit", "--memlock=0", "setpriv", "--bounding-set=-sys_resource", "--inh-caps=-all"),
        (),
    )


def test_no_perf_events(tracer, target):
    """Without perf events no event is emitted for new mappings. The tracer inspects the mappings
    periodically and says so."""
    said = traces(tracer, target, (*REFUSE, "perf_event_open", "EPERM"), ())
    (line,) = [line for line in said.splitlines() if "perf_event_open" in line]
    assert "periodic inspection" in line and "seccomp" in line
    assert "perf_event_open" not in traces(tracer, target, (), ())


def test_doctor_without_perf_events(tracer):
    """Perf events are not required."""
    done = run(*REFUSE, "perf_event_open", "EPERM", tracer, "doctor")
    assert done.returncode == 0 and done.stderr == ""
    assert "  NO   perf events" in done.stdout and "  NO   no seccomp filter" in done.stdout
    assert "A session can run here" in done.stdout
