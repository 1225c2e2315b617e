# SPDX-License-Identifier: Apache-2.0
"""Targets in containers of real runtimes: Docker, Podman, containerd and Kubernetes."""
import contextlib
import json
import os
import re
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile

import pytest

import containers
import harness
from cgroups import check, traced_pid, unique, v1_only, waits
from harness import error_line, wait_until

RUNTIMES = {
    "docker-vfs": lambda folder: containers.Docker(folder, "vfs"),
    "docker-overlay": lambda folder: containers.Docker(folder, "overlay2"),
    "podman-vfs": lambda folder: containers.Podman(folder, "vfs"),
    "podman-overlay": lambda folder: containers.Podman(folder, "overlay"),
}

pytestmark = pytest.mark.usefixtures("undisturbed")


def started(make, folder):
    try:
        runtime = make(folder)
    except containers.Unavailable as why:
        pytest.skip(str(why))
    return runtime


@pytest.fixture(scope="module", params=RUNTIMES)
def runtime(request, tmp_path_factory, any_python):
    # A short name: podman refuses long ones.
    with started(RUNTIMES[request.param], tmp_path_factory.mktemp("r")) as runtime:
        runtime.kind = request.param.split("-")[0]
        runtime.load([any_python.path])
        yield runtime


@pytest.fixture(scope="module")
def containerd(tmp_path_factory, any_python):
    with started(containers.Containerd, tmp_path_factory.mktemp("containerd")) as containerd:
        containerd.load([any_python.path])
        yield containerd


# --- containers -----------------------------------------------------------------------------------


def test_container(runtime, trace, run_tracer, any_python):
    """A container is found by its name, its ID, or a prefix of either. `tracer list` shows it."""
    name = unique("web")
    with runtime.start(any_python, "golden.py", name=name) as target:
        assert "%s (%s)" % (name, runtime.kind) in run_tracer("list").stdout
        for text in (name[:-2], target.container, target.container[:12]):
            done = run_tracer("-c", text, "--dry-run")
            assert done.returncode == 0 and done.stdout.startswith(
                "PID %d: " % target.pid
            ), done.stderr
            done = run_tracer("heap", "-c", text, "--format", "json")
            assert done.returncode == 0, done.stderr
            assert json.loads(done.stdout)["pid"] == target.pid
        line = error_line(run_tracer("heap", "-c", name + "-other"), 1)
        assert "container %s-other" % name in line and "tracer list" in line
        run = trace("-c", name)
        assert traced_pid(run) == target.pid
        check(run, target)


def test_cgroup_v1_only(runtime, tracer, any_python):
    """Without cgroup v2, too, the processes of a container are known."""
    name = unique("web")
    with runtime.start(any_python, "golden.py", name=name) as target:
        command = [*v1_only(), tracer, "-c", name, "--dry-run"]
        said = subprocess.check_output(command, text=True, env=harness.environment())
        assert said.startswith("PID %d: " % target.pid)


@contextlib.contextmanager
def claimed(container, name):
    """A process of user nobody that poses as a container's monitor. Yields the PID that it claims
    for the container's first process."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o777)
        user = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"]
        with open(harness.program("claims.py"), "rb") as source:
            command = [
                *user,
                "/usr/bin/python3",
                "-c",
                source.read().decode(),
                "-c",
                container,
                "-n",
                name,
                "-p",
                folder + "/pid",
            ]
        fake = subprocess.Popen(command, stdout=subprocess.PIPE, cwd="/")
        try:
            yield int(fake.stdout.readline().split()[1])
        finally:
            fake.terminate()
            fake.wait(harness.TIMEOUT)
            fake.stdout.close()


@pytest.mark.parametrize("runtime", ["podman-vfs"], indirect=True)
def test_claimed(runtime, run_tracer, any_python):
    """A process of another user that poses as a monitor takes over neither ID nor name. If both
    containers match, both are listed."""
    name = unique("web")
    with runtime.start(any_python, "golden.py", name=name) as target:

        def check_found(text):
            done = run_tracer("-c", text, "--dry-run")
            assert done.returncode == 0 and done.stdout.startswith(
                "PID %d: " % target.pid
            ), done.stderr

        for container, called in ((target.container, name), (target.container, "x"), (name, "x")):
            with claimed(container, called):
                check_found(name)
                check_found(target.container)
        with claimed(unique("other"), name):
            check_found(target.container)
            line = error_line(run_tracer("-c", name, "--dry-run"), 1)
            assert (
                "matches 2 containers" in line
                and "(podman %s)" % target.container[:12] in line
                and "of user 65534" in line
            )
        alone = unique("alone")
        with claimed(unique("other"), alone) as first:
            done = run_tracer("-c", alone, "--dry-run")
            assert done.stdout.startswith("PID %d: " % first), done.stderr
        assert target.finish() == 0


def test_common_beginning(runtime, trace, run_tracer, any_python):
    """A whole name selects that container. A prefix of two names selects neither, and an unknown
    name is refused as well."""
    name = unique("web")
    with runtime.start(any_python, "golden.py", name=name + "-1") as one, runtime.start(
        any_python, "golden.py", name=name + "-10"
    ) as ten:
        for text in (name, name + "-2"):
            line = error_line(run_tracer("-c", text), 1)
            assert name + "-1 (" in line and name + "-10 (" in line
        run = trace("-c", name + "-1")
        assert traced_pid(run) == one.pid
        check(run, one)
        assert ten.finish() == 0


def test_pid_in_container(runtime, trace, run_tracer, any_python):
    name = unique("web")
    with runtime.start(any_python, "golden.py", name=name) as target:
        line = error_line(run_tracer("-c", name, "-p", 77), 1)
        assert "not in the container" in line
        done = run_tracer("heap", "-c", name, "-p", 1, "--format", "json")
        assert json.loads(done.stdout)["pid"] == target.pid
        line = error_line(run_tracer("heap", "-c", name, "-p", 77), 1)
        assert "not in the container" in line
        run = trace("-c", name, "-p", 1)
        assert traced_pid(run) == target.pid
        check(run, target)


def test_starts_after(runtime, trace, any_python):
    """--wait matches the whole name. A container whose name only begins with it is not traced."""
    name = unique("late")
    with runtime.start(any_python, "golden.py", name=name + "-other") as other:
        run = trace("-c", name, "--wait", attached=False)
        wait_until(
            lambda: "waiting for container " + name in run.stderr or run.process.poll() is not None,
            "it waits",
        )
        with runtime.start(any_python, "golden.py", name=name) as target:
            run.wait_attached()
            assert traced_pid(run) == target.pid
            check(run, target)
        assert other.finish() == 0


def test_killed_while_traced(runtime, trace, run_tracer, any_python):
    """The last table is kept, and the tracer ends by itself."""
    name = unique("killed")
    with runtime.start(any_python, "golden.py", name=name) as target:
        run = trace("-c", name)
        target.step()
        live = target.expect()
        runtime.kill(target)
        assert run.wait() == 0, run.stderr
        assert re.search(r" s, killed by signal 9$", run.stdout, re.M), run.stdout
        assert run.stdout == run_tracer("report", run.snapshot).stdout
        assert sorted(run.report().marked("golden.py", live)) == sorted(live)


def test_stopped(runtime, run_tracer, any_python):
    """A stopped container is recognized. Podman's storage at another place than the default is
    known while a container runs in it."""
    name = unique("stopped")
    other = runtime.start(any_python, "golden.py", name=unique("other"))
    runtime.run(
        "create",
        "--network",
        "none",
        "--name",
        name,
        *runtime.options,
        "target",
        any_python.path,
        "-c",
        "pass"
    )
    try:
        line = error_line(run_tracer("-c", name), 1)
        assert "does not run" in line and "--wait" in line
    finally:
        runtime.run("rm", name)
        other.finish()


def test_nothing_but_python(runtime, trace, run_tracer, any_python):
    """A container without a matching process is reported as such, not as an unknown name. A
    matching process may start until the container ends."""
    name = unique("idle")
    with runtime.start(any_python, "golden.py", name=name) as target:
        line = error_line(run_tracer("-c", name, "--comm", "no-such-name", "--no-follow"), 1)
        assert "no process matches" in line
        run = trace("-c", name, "--comm", "no-such-name", attached=False)
        waits(run)
        assert target.finish() == 0
        assert run.wait() == 1 and "no matching process has started" in run.stderr


def test_containerd(containerd, trace, run_tracer, any_python):
    """IDs have any form, and may be equal in two namespaces. A process of the second namespace is
    not taken for one of the first."""
    name = unique("job")
    with containerd.start(any_python, "golden.py", name=name) as target, containerd.start(
        any_python, "golden.py", name=name, space="other"
    ) as other:
        assert "%s (containerd)" % name in run_tracer("list").stdout
        error_line(run_tracer("-c", name), 1)
        run = trace("-c", "default/" + name)
        assert traced_pid(run) == target.pid
        check(run, target)
        assert other.finish() == 0


def test_source(containerd, trace, run_tracer, any_python, tmp_path):
    """The source lines come from the files in the container. No link leads out of it, and lines
    that cannot be shown are reported."""
    name = unique("job")
    outside = tmp_path / "outside.py"
    shutil.copy(harness.program("golden.py"), outside)
    script = containerd.root + "/%s.py" % name
    shutil.copy(outside, script)
    with containerd.start(any_python, "/%s.py" % name, name=name) as target:
        run = trace("-c", name, "--source", "-i", 0.2)
        target.step()
        target.expect()
        wait_until(
            lambda: "    kept_a[i] = bytearray(1000)  # line A: two blocks each\n" in run.stdout,
            "a line is shown",
        )
        os.unlink(script)
        os.symlink("/.." * 40 + str(outside), script)
        wait_until(
            lambda: re.search(
                r"not shown, because their file cannot be read \(/%s.py: No such file" % name,
                run.stdout,
            ),
            "it is said",
        )
        os.unlink(script)
        os.mkfifo(script)
        wait_until(
            lambda: "/%s.py: not a regular file" % name in run.stdout, "it is not waited for"
        )
        os.unlink(script)
        assert target.finish() == 0
    assert run.wait() == 0, run.stderr
    assert re.search(
        r"--source: no source lines from PID %d.*: it has ended" % target.pid, run.stderr
    )
    assert (
        "--source: lines come from this machine's files, not from those of PID %d" % target.pid
        in run_tracer("report", run.snapshot, "--source").stderr
    )


def test_cgroup_without_id(containerd, trace, run_tracer, any_python):
    """A container whose cgroup has another name is recognized by its PID namespace."""
    name = unique("job")
    with containerd.start(
        any_python, "golden.py", name=name, cgroup="/" + unique("other")
    ) as target:
        assert "%s (containerd)" % name in run_tracer("list").stdout
        run = trace("-c", name, "-p", 1)
        assert traced_pid(run) == target.pid
        check(run, target)


def test_kubernetes(containerd, trace, run_tracer, any_python):
    """Annotations and pod cgroups as the CRI plugin of containerd creates them. Names as kubectl
    prints them."""
    pod = unique("shop")

    def start(number, container, kind="container"):
        notes = ["container-name=" + container] if kind == "container" else []
        notes += [
            "container-type=" + kind,
            "sandbox-name=%s-%d" % (pod, number),
            "sandbox-namespace=front",
        ]
        cid = secrets.token_hex(32)
        cgroup = "/kubepods/burstable/pod6f1a3c52-1c5e-4f6a-9f6b-%012d/%s" % (number, cid)
        notes = ["io.kubernetes.cri." + note for note in notes]
        return containerd.start(
            any_python, "golden.py", name=cid, space="k8s.io", annotations=notes, cgroup=cgroup
        )

    with start(0, "app") as app, start(0, "side") as side, start(
        0, "", "sandbox"
    ) as sandbox, start(1, "app") as other:
        listed = run_tracer("list").stdout
        assert (
            "front/%s-0/app (containerd)" % pod in listed
            and "front/%s-1/app (containerd)" % pod in listed
        )
        for text in ("%s-0/app" % pod, "front/%s-0/app" % pod):
            run = trace("-c", text)
            assert traced_pid(run) == app.pid
            run.finish()
        named = ("--pod-namespace", "fr?nt", "--pod", pod + "-*")
        of_app = ("--annotation", "io.kubernetes.cri.container-name=app")
        run = trace(*named, *of_app, attached=2, output=False)
        assert {int(pid) for pid in re.findall(r"attached to PID (\d+)", run.stderr)} == {
            app.pid,
            other.pid,
        }
        run.interrupt()
        assert run.wait() == 0
        assert "no process matches" in error_line(
            run_tracer(*named, "--label", "app", "--no-follow"), 1
        )
        for text in ("pod/%s-0" % pod, "pod/front/%s-0" % pod):
            run = trace("-c", text, attached=2, output=False)
            assert {int(pid) for pid in re.findall(r"attached to PID (\d+)", run.stderr)} == {
                app.pid,
                side.pid,
            }
            run.interrupt()
            assert run.wait() == 0
        assert "pod/" in error_line(run_tracer("-c", "pod/" + pod), 1)
        for target in (app, side, sandbox, other):
            assert target.finish() == 0


# --- a daemon that does not answer ----------------------------------------------------------------


@contextlib.contextmanager
def hanging_daemon(folder):
    """A dockerd whose data folder does not exist, and whose socket accepts connections and never
    answers."""
    path = str(folder / "docker.sock")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(path)
        server.listen(8)
        program = folder / "dockerd"
        program.symlink_to(sys.executable)
        daemon = subprocess.Popen(
            [
                program,
                "-c",
                "import sys; sys.stdin.read()",
                "--data-root",
                str(folder / "none"),
                "-H",
                "unix://" + path,
            ],
            stdin=subprocess.PIPE,
        )
        try:
            wait_until(
                lambda: open("/proc/%d/comm" % daemon.pid).read() == "dockerd\n",
                "it is called dockerd",
            )
            yield path
        finally:
            daemon.communicate(timeout=harness.TIMEOUT)


def test_socket_hangs(tmp_path, run_tracer):
    with hanging_daemon(tmp_path) as path:
        line = error_line(run_tracer("-c", unique("web")), 1)
        assert path in line and "has not answered" in line
        assert path in run_tracer("list").stderr
