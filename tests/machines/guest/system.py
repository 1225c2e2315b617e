# SPDX-License-Identifier: Apache-2.0
"""Features of the program as a whole: doctor, the verifier's table, demo, heaps, perf maps."""
import functools
import json
import os
import re

import harness
from guest import T, Absent, kernel_release

NODES = 5000
MAP_THREADS, MAP_EACH = 4, 50
CGROUPS = "/sys/fs/cgroup"
ROOM = 900 << 10  # enough for growth mode's probes only
FILLED, FILL_RATE = 48 << 20, 4  # bytes, and MiB a second: the processor is emulated


def doctor(machine):
    done = machine.run("doctor")
    last = (done.stdout + done.stderr).strip().split("\n")[-1]
    assert done.returncode == 0, "status %d: %s" % (done.returncode, last)
    assert "A session can run here" in done.stdout, last


def largest_program(table):
    """{"name", "insns", "stack"} of the program with the most verified instructions, or None."""
    programs = re.findall(r"^(\w+)\s+(\d+)\s+\d+\s+(\d+)\s+\d+\s+[\d.]+", table, re.M)
    if not programs:
        return None
    name, insns, stack = max(programs, key=lambda program: int(program[1]))
    return {"name": name, "insns": int(insns), "stack": int(stack)}


def verifier(machine):
    path = os.path.join(T, "build", "tools", "verifier")
    if not os.path.exists(path):
        raise Absent("build/tools/verifier is not built")
    done = machine.run(path)
    machine.note(verifier=done.stdout[-8000:], largest=largest_program(done.stdout))
    over = re.findall(r"^.*OVER.*$", done.stdout, re.M)
    why = "; ".join(over) or done.stderr.strip()
    assert done.returncode == 0, "status %d: %s" % (done.returncode, why)
    assert machine.notes["largest"], "its table has no program: " + done.stdout[-200:]


def demo(machine):
    """The line that leaks is the largest entry."""
    with open(os.path.join(T, "tools", "demo_leak.py")) as file:
        leak = next(number for number, text in enumerate(file, 1) if "# LEAK" in text)
    env = harness.environment(TRACER=machine.tracer)
    done = machine.run(os.path.join(T, "tools", "demo"), cwd=T, env=env)
    machine.note(attach=harness.attach_facts(done.stderr))
    last = done.stderr.strip().split("\n")[-1]
    assert done.returncode == 0, "status %d: %s" % (done.returncode, last)
    entries = re.findall(r"^  (\S+):(\d+): size=", done.stdout, re.M)
    assert entries, "no line in its report"
    path, line = entries[0]
    found = path.endswith("tools/demo_leak.py") and int(line) == leak
    assert found, "the largest entry is %s:%s" % entries[0]


def heap(machine, kind):
    target = machine.start(machine.pythons[kind], "objects.py", NODES, ready=False)
    blocks = int(target.read_line())
    target.wait_reading()
    target.read_until("ready")
    done = machine.run("heap", "--format", "json", "--top", 0, "-p", target.pid)
    assert done.returncode == 0, "status %d: %s" % (done.returncode, done.stderr)
    data = json.loads(done.stdout)
    found = data["total"]["count"] + data["raw_blocks"]
    assert found == blocks, "%d blocks, not %d" % (found, blocks)
    nodes = [(s["count"], s["size"]) for s in data["statistics"] if s["type"] == "Node"]
    assert nodes == [(NODES, 48 * NODES)], "Node: %s" % nodes
    assert target.finish() == 0, "the target was harmed"


def perfmap(machine):
    """Every entry that the interpreter writes is in the map, with its address, size and name."""
    python = machine.pythons["unstripped"]
    if tuple(map(int, re.search(r"python(\d+)\.(\d+)", python).groups())) < (3, 12):
        raise Absent("perf maps came after the image's unstripped " + os.path.basename(python))
    command = (python, "-X", "perf", harness.program("perf_api.py"))
    target = machine.start("/usr/bin/env", None, *command)
    path = os.path.join(machine.folder, "map")
    options = ("-p", target.pid, "--merge", "--status", "-o", path)
    run = machine.trace("perfmap", *options, output=False)

    def call(*words):
        target.process.stdin.write((" ".join(map(str, words)) + "\n").encode())
        target.process.stdin.flush()
        return int(target.read_line())

    assert call("write", "1000", "20", b"plain".hex()) == 0
    assert call("many", MAP_THREADS, MAP_EACH) == MAP_THREADS * MAP_EACH
    run.interrupt()
    assert run.wait() == 0, "status %s" % run.process.returncode
    with open(path, errors="surrogateescape") as file:
        got = set(file.read().split("\n"))
    wanted = {"1000 20 plain"}
    for number in range(MAP_THREADS):
        for i in range(MAP_EACH):
            address = 0x10000000 + (number * MAP_EACH + i) * 64
            wanted.add("%x 30 thread %d entry %d" % (address, number, i))
    missing = sorted(wanted - got)
    assert not missing, "%d of %d entries are missing: %s" % (len(missing), len(wanted), missing[0])
    assert any("function_of_parent" in line for line in got), "entries from before are missing"
    assert target.finish() == 0, "the target was harmed"


def killed_in(folder):
    with open(os.path.join(folder, "memory.events")) as file:
        return int(re.search(r"^oom_kill (\d+)$", file.read(), re.M)[1])


def memory_limit(machine):
    """A target near the memory limit of its cgroup (v2): a mode that is requested by name is
    refused, with the figure; otherwise fewer probes are attached."""
    write = harness.write_text
    controlled()
    with harness.memory_cgroup(1 << 30) as folder:
        inside = ("sh", "-c", 'echo $$ > "$0"/cgroup.procs; exec "$@"', folder)
        target = machine.start(machine.pythons["stripped"], "golden.py", prefix=inside)
        try:
            target.wait_reading()
            with open(folder + "/memory.current") as file:
                write(folder + "/memory.max", int(file.read()) + ROOM)
            done = machine.run("-p", target.pid, "-m", "census", "-d", "1")
            told = re.search(
                r"want (\d+) KiB free, and the cgroup (\S+) has (\d+) KiB left", done.stderr
            )
            assert done.returncode == 1 and told, "status %d: %s" % (done.returncode, done.stderr)
            machine.note(wanted_kib=int(told[1]), left_kib=int(told[3]))
            assert told[2].endswith(os.path.basename(folder)), told[2]
            # The kernel reclaims file pages first; they count for half.
            assert int(told[1]) > int(told[3]) and int(told[3]) <= 2 * ROOM >> 10, told[0]
            run = machine.trace("-p", target.pid)
            fewer = re.search(r"; (\d+) probes", run.stderr)
            assert "growth mode" in run.stderr and int(fewer[1]) < 50, run.stderr
            assert killed_in(folder) == 0, "the kernel has killed in the cgroup"
            # The target's own allocations need more than was left.
            write(folder + "/memory.max", 1 << 30)
            target.step()
            assert target.expect()
            run.finish()
            assert target.finish() == 0, (
                "the target was harmed: status %s" % target.process.returncode
            )
        finally:
            target.kill()


def controlled():
    """Lets cgroups of v2 have limits of memory."""
    with open(CGROUPS + "/cgroup.controllers") as file:
        if "memory" not in file.read().split():
            raise Absent("this kernel has no memory controller for cgroup v2")
    harness.write_text(CGROUPS + "/cgroup.subtree_control", "+memory")


def evidence(machine):
    """A program that fills its cgroup (v2) until the kernel kills it: the bundle has the line, the
    type and what holds the memory."""
    controlled()
    program, path = "leaks/fills_memory.py", os.path.join(machine.folder, "evidence")
    with harness.memory_cgroup(FILLED) as folder:
        inside = ("sh", "-c", 'echo $$ > "$0"/cgroup.procs; exec "$@"', folder)
        target = machine.start(machine.pythons["stripped"], program, FILL_RATE, prefix=inside)
        options = ("--on-oom", path)
        try:
            run = machine.trace("-p", target.pid, *options, output=False, attached=False)
            harness.wait_until(
                lambda: "watching the memory" in run.stderr or run.process.poll() is not None,
                "it is watched",
            )
            assert run.process.poll() is None, run.stderr
            target.step()
            assert run.wait() == 0, "status %s: %s" % (run.process.returncode, run.stderr)
            assert killed_in(folder) == 1, "the kernel has not killed"
        finally:
            target.kill()
    report = machine.run("report", path).stdout
    os.unlink(path)
    line = "%s:%d in keep" % (program, harness.marked_line(program, "rows"))
    for wanted in ("The kernel killed it for memory", "].ROWS", "__main__.Row", line):
        assert wanted in report, "no %r in: %s" % (wanted, report[:1500])


def older(machine):
    """A kernel on which nothing can be traced: one line says so. What places no probe works."""
    heap(machine, "stripped")
    path = os.path.join(T, "tools", "demo_leak.py")
    target = machine.start(machine.pythons["stripped"], None, path, ready=False)
    growth = ("-m", "growth", "-p", target.pid)
    for words in (("-p", target.pid), growth, ("-a",), ("perfmap", "-p", target.pid)):
        line = harness.error_line(machine.run(*words), 1)
        assert re.search("has no BPF .*; boot kernel 6.1 or later; tracer leaks", line), line
    done = machine.run("doctor")
    assert done.returncode == 1 and "A session cannot run here: kernel 5." in done.stdout
    for words, wanted in (
        (("memory", "-p", target.pid), r"^rss: "),
        (("list",), r"^ *%d .*demo_leak.py$" % target.pid),
        (("leaks", "-p", target.pid, "-d", "8"), r"\.history$"),
    ):
        done = machine.run(*words)
        said = done.stdout + done.stderr
        assert done.returncode == 0 and re.search(wanted, done.stdout, re.M), said
    assert target.process.poll() is None, "the target was harmed"


def features(settings):
    if kernel_release() < (5, 15):
        yield "older kernel", older
    yield "doctor", doctor
    yield "verifier", verifier
    yield "demo", demo
    for kind in ("stripped", "unstripped"):
        yield "heap, %s" % kind, functools.partial(heap, kind=kind)
    yield "perfmap", perfmap
    yield "memory limit", memory_limit
    yield "killed for memory", evidence
