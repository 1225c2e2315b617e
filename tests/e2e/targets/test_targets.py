# SPDX-License-Identifier: Apache-2.0
"""Targets selected by cgroup or by command name, and wrong names."""
import contextlib
import errno
import json
import os
import re
import secrets
import shutil
import subprocess

import pytest

from cgroups import check, hierarchy, removed, traced_pid, unique, v1_only, waits
from harness import ROOT, Target, Traced, environment, error_line, memory_cgroup, wait_until

pytestmark = pytest.mark.usefixtures("undisturbed")


@pytest.mark.parametrize("kind", ("v1", "v2"))
def test_cgroup(tmp_path, trace, run_tracer, start, any_python, kind):
    """A cgroup is given as a directory or a path of /proc/PID/cgroup, and includes the cgroups
    below it. A cgroup whose name only begins with it is not included."""
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
            line = error_line(run_tracer("--cgroup", name + "/none"), 1)
            assert "no mounted cgroup file system" in line
            assert target.finish() == 0 and other.finish() == 0
        finally:
            target.kill()
            other.kill()
            for path in sorted(folders, reverse=True):
                wait_until(lambda path=path: removed(path), "the cgroup is empty")


def test_cgroup_v1_only(tracer, any_python):
    """Its limit of memory is known, too."""
    prefix = [*v1_only(), tracer]

    def said_by(*words):
        return subprocess.check_output([*prefix, *words], text=True, env=environment())

    with memory_cgroup(1 << 30) as folder:
        name = os.path.basename(folder)
        inside = ("sh", "-c", 'echo $$ > "$0"/cgroup.procs; exec "$@"', folder)
        leak = os.path.join(ROOT, "tools", "demo_leak.py")
        with Target(any_python, None, leak, prefix=inside, ready=False) as target:
            listed = re.compile(r"^ *%d .* %s$" % (target.pid, re.escape(leak)), re.M)
            wait_until(lambda: listed.search(said_by("list")), "it is listed")
            pids = r"\bPID %d\b" % target.pid
            assert re.search(pids, said_by("--cgroup", name, "-m", "census", "-d", "0.1"))
            assert re.search(pids, said_by("memory", "-p", str(target.pid)))
            grown = json.loads(said_by("leaks", "--cgroup", name, "-d", "4", "--format", "json"))
            assert 0 < grown["limit"]["bytes"] < 1 << 30


PAUSES_32 = ".globl _start\n_start: mov $29, %eax\nint $0x80\njmp _start\n"


@pytest.mark.parametrize("command", ((), ("--layer", "native"), ("heap",)))
def test_32_bits(tmp_path, run_tracer, command):
    """A program of 32 bits is refused by name."""
    path = str(tmp_path / "program")
    subprocess.run(
        ["as", "--32", "-o", path + ".o", "-"], input=PAUSES_32.encode(), check=True, timeout=60
    )
    subprocess.run(["ld", "-m", "elf_i386", "-o", path, path + ".o"], check=True, timeout=60)
    try:
        process = subprocess.Popen([path])
    except OSError as error:
        assert error.errno == errno.ENOEXEC
        pytest.skip("this machine runs no program of 32 bits")
    with process:
        wait_until(lambda: os.readlink("/proc/%d/exe" % process.pid) == path, "it runs")
        line = error_line(run_tracer(*command, "-p", process.pid), 1)
        process.kill()
    assert line.endswith("a program of 32 bits; only those of x86-64 are supported\n")


def test_cgroup_is_none(tmp_path, run_tracer):
    line = error_line(run_tracer("--cgroup", tmp_path), 1)
    assert "not a directory of a cgroup file system" in line
    assert "/proc/PID/cgroup" in error_line(run_tracer("--cgroup", tmp_path / "none"), 1)


@pytest.fixture
def renamed(tmp_path, start, any_python):
    """Two programs with unique names: NAME and NAME-10."""
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
    """With -a, only the plan is shown: the machine may run other users' processes."""
    with start(any_python, "golden.py") as target:
        done = run_tracer("-a", "--dry-run")
        assert done.returncode == 0, done.stderr
        assert "PID %d: CPython" % target.pid in done.stdout
        assert target.finish() == 0


# --- wrong usage ----------------------------------------------------------------------------------


@pytest.mark.unprivileged
@pytest.mark.parametrize(
    "arguments, expected",
    (
        ("-a -c x", "-a is every process"),
        ("-a -p 1", "-a is every process"),
        ("-a -- true", "not both"),
        ("-c x -- true", "not both"),
        ("-p 1 --comm x", "combine it only with -c"),
        ("-p 1 --cgroup x", "combine it only with -c"),
        ("-a --wait", "-p or -c"),
        ("--comm x --wait", "-p or -c"),
        ("--wait", "no target"),
        ("-c", "--help"),
        ("--comm", "--help"),
    ),
)
def test_usage(run_tracer, arguments, expected):
    assert expected in error_line(run_tracer(*arguments.split()), 2)


@pytest.mark.parametrize("by", ("name", "cgroup"))
def test_short_lived_processes(tracer, debian_python, tmp_path, by):
    """Matching processes that end before they are traced are counted: none is told to have started
    only if none has. Of one that has ended, its cgroup is not known, but its name."""
    count, enter = 12, ()
    copy = str(tmp_path / "jobpython")
    shutil.copy(debian_python.path, copy)
    with contextlib.ExitStack() as stack:
        chosen = ("--comm", "jobpython")
        if by == "cgroup":
            folder = os.path.join(stack.enter_context(hierarchy(tmp_path, "v2")), unique("tracer"))
            os.mkdir(folder)
            stack.callback(wait_until, lambda: removed(folder), "the cgroup is empty")
            chosen = ("--cgroup", folder)
            enter = ("sh", "-c", 'echo $$ >"$0/cgroup.procs"; exec "$@"', folder)
        run = Traced(tracer, str(tmp_path), *chosen, attached=False)
        waits(run)
        for _ in range(count):
            job = [*enter, copy, "-S", "-E", "-c", ""]
            subprocess.run(job, check=True, env=environment())
        run.interrupt()
        run.wait()
    ended = [int(n) for n in re.findall(r"(\d+) (?:of the programs|processes ended)", run.stderr)]
    told = sum(ended) + len(re.findall(r"attached to PID", run.stderr))
    assert told == count if by == "name" else told >= count, run.stderr
    assert "no matching process has started" not in run.stderr
