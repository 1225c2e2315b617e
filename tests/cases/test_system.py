# SPDX-License-Identifier: Apache-2.0
"""Targets in cgroups, namespaces and behind filters, and names for perf."""
import filecmp
import os
import re
import shutil
import subprocess

import pytest

import harness
import pythons

SMALL, LARGE = (2_660_000, 20_000), (10_066_000, 2000)


def in_cgroup(case, group, *command, **how):
    """The program in a memory cgroup, as the case's run.sh starts it with cgroup v2."""
    script = 'echo $$ >%s/cgroup.procs && exec "$@"' % group
    return case.start("sh", "-c", script, "sh", *command, python=None, **how)


def test_26_cgroup_page_cache(case):
    logs = "/var/tmp/tracer-case26-%d" % os.getpid()
    os.mkdir(logs)
    try:
        with harness.memory_cgroup(256 << 20) as group:
            program = in_cgroup(case, group, pythons.DISTRIBUTION, case.path("scheduler.py"), logs)
            program.go()
            tree = case.ask("memory", "-p", program.pid)
            case.expect("RSS", tree["size"], lambda n: 6 << 20 <= n <= 14 << 20)
            told = tree.get("cgroup") or {}
            case.expect("used", told.get("used"), lambda n: n and 180 << 20 <= n <= 256 << 20)
            case.expect("limit", told.get("limit"), 256 << 20)
            anonymous = told.get("anonymous")
            case.expect("anonymous", anonymous, lambda n: n and 2 << 20 <= n <= 10 << 20)
            case.expect("file", told.get("file"), lambda n: n and 180 << 20 <= n <= 256 << 20)
            program.kill()
    finally:
        shutil.rmtree(logs)


def test_50_oom_killed(case):
    with harness.memory_cgroup(96 << 20) as group:
        program = in_cgroup(case, group, pythons.DISTRIBUTION, case.path("doomed.py"))
        run = case.attach("-p", program.pid)
        program.go(None)
        while True:
            line = program.read_line()
            if line is None:
                break
            program.said.append(line)
        run.wait()
        report = run.report()
        case.expect("status", program.process.wait(harness.TIMEOUT), -9)
        case.expect("signal", run.stdout + run.stderr, lambda text: "killed by signal 9 (OOM)" in text)
        last = int(program.said[-1].split()[0])
        size, count = case.line(report, "doomed.py", 10)
        case.expect("doomed.py:10, printed last %d" % last, count, lambda n: abs(n - last) <= 50)
        case.expect("bytes", size, count * 100_033)


@pytest.mark.parametrize("mode", ["overwrite", "gone"])
def test_35_deleted_binary(case, mode):
    folder = str(case.tmp / "bin")
    os.mkdir(folder)
    python = folder + "/python3.11"
    shutil.copy("/usr/bin/python3.11", python)
    leak = os.path.join(os.path.dirname(case.folder), "20-every-allocator", "leak.py")
    program = case.start(python, leak, python=None)
    if mode == "overwrite":
        shutil.copy("/bin/true", folder + "/new")
        os.rename(folder + "/new", python)
    else:
        shutil.rmtree(folder)
    report = case.trace(program)
    case.expect("leak.py:16", case.line(report, leak, 16), SMALL)
    case.expect("leak.py:18", case.line(report, leak, 18), LARGE)
    case.expect("the path is told as deleted", case.run("-p", program.pid, "--dry-run", "-v"),
                lambda text: "(deleted)" in text)
    if mode == "overwrite":
        case.expect("the new file is /bin/true", filecmp.cmp(python, "/bin/true", False), True)


HIDDEN = {
    "mount": """mount -t tmpfs tmpfs {0}; cp /usr/bin/python3.11 {0}/shopd; cp {1} {0}/app.py
                exec {0}/shopd {0}/app.py""",
    "chroot": """for part in usr lib lib64 etc; do mkdir -p {0}/$part
                 mount --rbind -o ro /$part {0}/$part; done
                 mkdir -p {0}/app {0}/proc {0}/tmp {0}/wait; mount -t proc proc {0}/proc
                 cp {1} {0}/app/app.py; cp -r {2}/. {0}/wait
                 exec env PYTHONPATH=/wait chroot {0} /usr/bin/python3.11 /app/app.py""",
}


@pytest.mark.parametrize("mode", list(HIDDEN))
def test_45_hidden_path(case, mode):
    folder = str(case.tmp / "hidden")
    os.mkdir(folder)
    leak = os.path.join(os.path.dirname(case.folder), "20-every-allocator", "leak.py")
    if mode == "mount":
        shutil.copy("/bin/true", folder + "/shopd")
        with open(folder + "/app.py", "w") as file:
            file.write("# a decoy: this is not the program\n")
    waits = os.path.join(os.path.dirname(os.path.abspath(__file__)), "wait")
    script = HIDDEN[mode].format(folder, leak, waits)
    apart = ("unshare", "--mount", "--propagation", "private", "sh", "-c", script)
    program = case.start(*apart, python=None)
    report = case.trace(program, "--source")
    path = folder + "/app.py" if mode == "mount" else "/app/app.py"
    case.expect("app.py:16", case.line(report, path, 16), SMALL)
    case.expect("app.py:18", case.line(report, path, 18), LARGE)
    run = case._started[-1]
    case.expect("source while it is traced", run.stdout, lambda text: "small = X * 100" in text)
    later = case.run("report", run.snapshot, "--source")
    case.expect("source of another file", later, lambda text: "decoy" not in text)
    if mode == "mount":
        case.expect("shopd is /bin/true", filecmp.cmp(folder + "/shopd", "/bin/true", False), True)


@pytest.mark.parametrize("how", ["seccomp", "nodump uid", "nodump seccomp uid"])
def test_46_guarded_target(case, how):
    program = case.start("guarded.py", *how.split(), env={"HOLD": "3"})
    report = case.trace(program)
    case.expect("guarded.py:45", case.line(report, "guarded.py", 45), (2_033_000, 1000))
    case.expect("survived", program.line("survived"), "survived")
    case.expect("status", program.process.wait(harness.TIMEOUT), 0)


def perf_map(pid):
    with open("/tmp/perf-%d.map" % pid, errors="replace") as file:
        return file.read()


@pytest.mark.parametrize("version", ["3.12", "3.13"])
def test_31_perf_fork(case, python_of, version):
    program = case.start(python_of(version), "-X", "perf", case.path("forks.py"), python=None,
                         env={"SECONDS": "20"})
    how = ("--merge", "--install")
    run = case.attach("perfmap", "-p", program.pid, *how, attached=False, output=False)
    harness.wait_until(lambda: run.stderr, "perfmap has begun")
    child = int(program.go("pid").split()[1])
    wanted = [r"py::%s:\S*/forks.py" % name for name in ("child_only", "spin", "serve", "<module>")]
    try:
        ended = program.line("child")
        run.interrupt()
        run.wait()
        text = perf_map(child)
    finally:
        for pid in (child, program.pid):
            if os.path.exists("/tmp/perf-%d.map" % pid):
                os.unlink("/tmp/perf-%d.map" % pid)
    case.expect("child's status", ended, "child ended with 0")
    for name in wanted:
        case.expect("map of the child has " + name, bool(re.search(name, text)), True)


def test_32_perf_private_tmp(case, python_of):
    python = python_of("3.12")
    script = "mount -t tmpfs -o mode=1777 tmpfs /tmp; exec %s -X perf %s"
    script %= python, case.path("spin.py")
    process = subprocess.Popen(
        ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c", script],
        stdout=subprocess.PIPE,
        env=harness.environment(),
    )
    try:
        assert process.stdout.readline().startswith(b"my own pid 1")
        with open("/proc/%d/task/%d/children" % (process.pid, process.pid)) as file:
            pid = int(file.read().split()[0])
        case.run("perfmap", "-p", pid, "--merge", "--install", "-d", 5)
        path = "/tmp/perf-%d.map" % pid
        text = perf_map(pid)
        case.expect("owner", os.stat(path).st_uid, 0)
        os.unlink(path)
        for name in ("innermost", "outer", "innermost.<locals>.<genexpr>"):
            case.expect(name, "py::%s:" % name in text, True)
        inside = "/proc/%d/root/tmp/perf-1.map" % pid
        case.expect("the map inside is kept", os.path.getsize(inside), lambda n: n > 0)
    finally:
        process.kill()
        process.wait()


def test_34_node_perf_map(case):
    node = shutil.which("node") or pytest.skip("this machine has no node")
    program = case.start(
        "setpriv", "--reuid=65534", "--clear-groups", node, "--perf-basic-prof",
        "--interpreted-frames-native-stack", case.path("busy.js"), python=None, cwd="/",
    )
    path = "/tmp/perf-%d.map" % program.pid
    try:
        harness.wait_until(lambda: os.path.exists(path), "node has written its map")
        case.expect("node's map belongs to", os.stat(path).st_uid, 65534)
        case.run("perfmap", "-p", program.pid, "--merge", "--install", "-d", 5)
        case.expect("owner", os.stat(path).st_uid, 0)
        text = perf_map(program.pid)
        for name in ("mixHash", "addColumns"):
            case.expect(name, bool(re.search(r"%s \S*busy.js" % name, text)), True)
        os.unlink(path)
        case.run("perfmap", "-p", program.pid, "--merge", "--install", "-d", 5)
        case.expect("after rm", "mixHash" in perf_map(program.pid), True)
    finally:
        program.kill()
        for old in (path, path + ".orig"):
            if os.path.exists(old):
                os.unlink(old)
