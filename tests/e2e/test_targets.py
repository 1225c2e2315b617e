# SPDX-License-Identifier: Apache-2.0
"""What a user may name instead of a process id: containers of real runtimes, cgroups, names; and
what is wrong with such."""
import contextlib
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
from harness import environment, error_line, wait_until

RUNTIMES = {
    "docker-vfs": lambda folder: containers.Docker(folder, "vfs"),
    "docker-overlay": lambda folder: containers.Docker(folder, "overlay2"),
    "podman-vfs": lambda folder: containers.Podman(folder, "vfs"),
    "podman-overlay": lambda folder: containers.Podman(folder, "overlay"),
}


def started(make, folder):
    try:
        runtime = make(folder)
    except containers.Unavailable as why:
        pytest.skip(str(why))
    return runtime


@pytest.fixture(scope="module", params=RUNTIMES)
def runtime(request, tmp_path_factory, any_python):
    with started(RUNTIMES[request.param], tmp_path_factory.mktemp(request.param)) as runtime:
        runtime.kind = request.param.split("-")[0]
        runtime.load([any_python.path])
        yield runtime


@pytest.fixture(scope="module")
def containerd(tmp_path_factory, any_python):
    with started(containers.Containerd, tmp_path_factory.mktemp("containerd")) as containerd:
        containerd.load([any_python.path])
        yield containerd


def unique(name):
    """A name that no container of the machine begins with."""
    return "%s-%s" % (name, secrets.token_hex(4))


def check(run, target):
    """What is reported is what the target says that it has."""
    target.step()
    live = target.expect()
    report = run.finish()
    assert report.marked("golden.py", live) == live
    assert target.finish() == 0


def waits(run):
    wait_until(
        lambda: "no process matches, as yet; waiting" in run.stderr
        or run.process.poll() is not None,
        "it waits",
    )


def traced_pid(run):
    return int(re.search(r"^tracer: attached to PID (\d+)", run.stderr, re.M).group(1))


# --- containers -----------------------------------------------------------------------------------


def test_container(runtime, trace, run_tracer, any_python):
    """By its name, by how that begins, by its ID and by how that begins; and it is in the list."""
    name = unique("web")
    with runtime.start(any_python, "golden.py", name=name) as target:
        assert "%s (%s)" % (name, runtime.kind) in run_tracer("list").stdout
        for text in (name[:-2], target.container, target.container[:12]):
            done = run_tracer("-c", text, "--dry-run")
            assert done.returncode == 0 and done.stdout.startswith(
                "PID %d: " % target.pid
            ), done.stderr
        run = trace("-c", name)
        assert traced_pid(run) == target.pid
        check(run, target)


@contextlib.contextmanager
def claimed(container, name):
    """A process of nobody's that calls itself a container's monitor; the pid of what it says to be
    its first process."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o777)
        user = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"]
        with open(os.path.join(harness.PROGRAMS, "claims.py"), "rb") as program:
            command = [
                *user,
                "/usr/bin/python3",
                "-c",
                program.read().decode(),
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
    """Another user's process that calls itself a monitor takes over neither ID nor name; where both
    may be meant, both are listed."""
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
                "any of 2" in line
                and "(podman %s)" % target.container[:12] in line
                and "of user 65534" in line
            )
        alone = unique("alone")
        with claimed(unique("other"), alone) as first:
            done = run_tracer("-c", alone, "--dry-run")
            assert done.stdout.startswith("PID %d: " % first), done.stderr
        assert target.finish() == 0


def test_common_beginning(runtime, trace, run_tracer, any_python):
    """A whole name is that container; what two names begin with is neither, and so is what none is
    called."""
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
        assert "in no process of the container" in line
        run = trace("-c", name, "-p", 1)
        assert traced_pid(run) == target.pid
        check(run, target)


def test_starts_after(runtime, trace, any_python):
    """Waited for by its whole name: another one that only begins like it is left alone."""
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
    """Its last table stays, and the tracer ends by itself."""
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
    """Podman's storage, where it is not the usual one, is known as long as anything runs in it."""
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
    """A container without Python is no error of its name; one may come until it has ended."""
    name = unique("idle")
    with runtime.start(any_python, "golden.py", name=name) as target:
        line = error_line(run_tracer("-c", name, "--comm", "no-such-name", "--no-follow"), 1)
        assert "no process matches" in line
        run = trace("-c", name, "--comm", "no-such-name", attached=False)
        waits(run)
        assert target.finish() == 0
        assert run.wait() == 1 and "no process that matches has begun" in run.stderr


def test_containerd(containerd, trace, run_tracer, any_python):
    """Ids of any form, the same in two namespaces; a process of the second is not one of the
    first."""
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
    """Lines are of the files in the container; no link leads out of it, and what cannot be shown is
    said."""
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
                r"without, since their file cannot be read \(/%s.py: No such file" % name,
                run.stdout,
            ),
            "it is said",
        )
        os.unlink(script)
        os.mkfifo(script)
        wait_until(lambda: "/%s.py: no regular file" % name in run.stdout, "it is not waited for")
        os.unlink(script)
        assert target.finish() == 0
    assert run.wait() == 0, run.stderr
    assert re.search(
        r"--source: no lines of the files of PID %d.*: it has ended" % target.pid, run.stderr
    )
    assert (
        "--source: lines are of this machine's files, not of those of PID %d" % target.pid
        in run_tracer("report", run.snapshot, "--source").stderr
    )


def test_cgroup_without_id(containerd, trace, run_tracer, any_python):
    """A container whose cgroup has another name is known by its PID namespace."""
    name = unique("job")
    with containerd.start(
        any_python, "golden.py", name=name, cgroup="/" + unique("other")
    ) as target:
        assert "%s (containerd)" % name in run_tracer("list").stdout
        run = trace("-c", name, "-p", 1)
        assert traced_pid(run) == target.pid
        check(run, target)


def test_kubernetes(containerd, trace, run_tracer, any_python):
    """What the CRI plugin of containerd leaves: annotations, and cgroups of the pod. kubectl's
    names."""
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
    """A dockerd whose state is nowhere, and whose socket takes whoever comes and never answers."""
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


# --- cgroups, names, everything -------------------------------------------------------------------


@contextlib.contextmanager
def hierarchy(folder, kind):
    """The mount point of a hierarchy in which we may make cgroups: v2's, or a v1 one without
    controllers."""
    if kind == "v2":
        points = [line.split()[1] for line in open("/proc/mounts") if line.split()[2] == "cgroup2"]
        if not points or not os.access(points[0], os.W_OK):
            pytest.skip("no cgroup v2 that can be written to")
        yield points[0]
        return
    name = unique("tracer")
    folder = folder / "mount"
    folder.mkdir()
    if subprocess.run(
        ["mount", "-t", "cgroup", "-o", "none,name=" + name, "none", folder],
        stderr=subprocess.DEVNULL,
    ).returncode:
        pytest.skip("no cgroup v1 can be mounted")
    try:
        yield str(folder)
    finally:
        subprocess.run(["umount", folder], check=True)


def removed(path):
    """The last of a process leaves its cgroup a little after the process has been waited for."""
    try:
        os.rmdir(path)
    except OSError:
        return False
    return True


@pytest.mark.parametrize("kind", ("v1", "v2"))
def test_cgroup(tmp_path, trace, run_tracer, start, any_python, kind):
    """A directory or a path of /proc/PID/cgroup, and what lies below it; what only begins like it
    is another."""
    name = unique("tracer")
    with hierarchy(tmp_path, kind) as point:
        folder = os.path.join(point, name)
        folders = [folder, folder + "/below", folder + "x"]
        for path in folders:
            os.mkdir(path)
        run = trace("--cgroup", folder, attached=False)
        waits(run)
        target, other = (
            start(
                any_python,
                "golden.py",
                prefix=("sh", "-c", 'echo $$ >"$0/cgroup.procs"; exec "$@"', path),
            )
            for path in (folder + "/below", folder + "x")
        )
        try:
            run.wait_attached()
            assert traced_pid(run) == target.pid
            target.step()
            live = target.expect()
            assert run.finish().marked("golden.py", live) == live
            for text in ("/" + name, name + "/below"):
                run = trace("--cgroup", text)
                assert traced_pid(run) == target.pid
                run.finish()
            assert "no cgroup file system" in error_line(run_tracer("--cgroup", name + "/none"), 1)
            assert target.finish() == 0 and other.finish() == 0
        finally:
            target.kill()
            other.kill()
            for path in sorted(folders, reverse=True):
                wait_until(lambda path=path: removed(path), "the cgroup is empty")


def test_cgroup_is_none(tmp_path, run_tracer):
    assert "no directory of a cgroup file system" in error_line(run_tracer("--cgroup", tmp_path), 1)
    assert "/proc/PID/cgroup" in error_line(run_tracer("--cgroup", tmp_path / "none"), 1)


@pytest.fixture
def renamed(tmp_path, start, any_python):
    """Two programs whose names nobody else has: NAME and NAME-10."""
    name = "t" + secrets.token_hex(3)
    paths = [tmp_path / name, tmp_path / (name + "-10")]
    for path in paths:
        path.symlink_to(any_python.path)
    home = os.path.dirname(os.path.dirname(any_python.path))
    env = environment(PYTHONHOME=home)
    return name, [start(str(path), "golden.py", env=env) for path in paths]


@pytest.mark.parametrize("all_of", (False, True))
def test_comm(renamed, trace, all_of):
    name, targets = renamed
    run = trace("--comm", name + "*" if all_of else name, attached=2 if all_of else 1, output=False)
    pids = {int(pid) for pid in re.findall(r"attached to PID (\d+)", run.stderr)}
    assert pids == {target.pid for target in (targets if all_of else targets[:1])}
    run.interrupt()
    assert run.wait() == 0
    for target in targets:
        assert target.finish() == 0


def test_comm_that_comes(tmp_path, trace, start, any_python):
    name = "t" + secrets.token_hex(3)
    (tmp_path / name).symlink_to(any_python.path)
    run = trace("--comm", name, attached=False)
    waits(run)
    target = start(
        str(tmp_path / name),
        "golden.py",
        env=environment(PYTHONHOME=os.path.dirname(os.path.dirname(any_python.path))),
    )
    run.wait_attached()
    check(run, target)
    assert traced_pid(run) == target.pid


def test_one_snapshot_of_several(renamed, trace):
    name, targets = renamed
    run = trace("--comm", name + "*", attached=2)
    assert {s["pid"] for s in run.finish("--by", "process").statistics} == {
        target.pid for target in targets
    }
    for target in targets:
        assert target.finish() == 0


def test_all(run_tracer, start, any_python):
    """Of everything that runs here only the plan is shown: others may be at work."""
    with start(any_python, "golden.py") as target:
        done = run_tracer("-a", "--dry-run")
        assert done.returncode == 0, done.stderr
        assert "PID %d: CPython" % target.pid in done.stdout
        assert target.finish() == 0


# --- namespaces -----------------------------------------------------------------------------------


def unshare(*arguments):
    command = ["unshare", *arguments]
    if subprocess.run([*command, "true"], stderr=subprocess.DEVNULL).returncode:
        pytest.skip("no %s here" % " ".join(command))
    return command


def test_user_namespace(trace, any_python):
    """root of a user namespace, who is nobody out here."""
    target = harness.Target(any_python, "golden.py", prefix=unshare("--user", "--map-root-user"))
    with target:
        check(trace("-p", target.pid), target)


def test_tracer_in_user_namespace(tracer, start, any_python):
    """Root without the machine's rights: one line, and the target is unharmed."""
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
    """A number that only a PID namespace below ours knows: it is explained, and not guessed at."""
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
    """Where other users' processes are hidden from us, that is said."""
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


# --- wrong usage ----------------------------------------------------------------------------------


@pytest.mark.unprivileged
@pytest.mark.parametrize(
    "arguments, expected",
    (
        ("-a -c x", "-a is every process"),
        ("-a -p 1", "-a is every process"),
        ("-a -- true", "two targets"),
        ("-c x -- true", "two targets"),
        ("-p 1 --comm x", "it goes only with -c"),
        ("-p 1 --cgroup x", "it goes only with -c"),
        ("-a --wait", "-p or -c"),
        ("--comm x --wait", "-p or -c"),
        ("--wait", "no target"),
        ("-c", "--help"),
        ("--comm", "--help"),
    ),
)
def test_usage(run_tracer, arguments, expected):
    assert expected in error_line(run_tracer(*arguments.split()), 2)
