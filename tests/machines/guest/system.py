# SPDX-License-Identifier: Apache-2.0
"""Features of the program as a whole: doctor, the verifier's table, the demo, reading a heap, perf maps."""
import functools
import json
import os
import re

import harness
from guest import T, Absent, attach_facts

NODES = 5000
MAP_THREADS, MAP_EACH = 4, 50


def doctor(machine):
    done = machine.run("doctor")
    assert done.returncode == 0, "status %d: %s" % (done.returncode, (done.stdout + done.stderr).strip().split("\n")[-1])
    assert "A session can run here" in done.stdout, done.stdout.strip().split("\n")[-1]


def largest_program(table):
    """{"name", "insns", "stack"} of the line with most verified instructions of the verifier's table; None without one."""
    lines = re.findall(r"^(\w+)\s+(\d+)\s+\d+\s+(\d+)\s+\d+\s+[\d.]+", table, re.M)
    programs = [{"name": name, "insns": int(insns), "stack": int(stack)} for name, insns, stack in lines]
    return max(programs, key=lambda p: p["insns"], default=None)


def verifier(machine):
    path = os.path.join(T, "build", "tools", "verifier")
    if not os.path.exists(path):
        raise Absent("build/tools/verifier is not built")
    done = machine.run(path)
    machine.note(verifier=done.stdout[-8000:], largest=largest_program(done.stdout))
    over = re.findall(r"^.*OVER.*$", done.stdout, re.M)
    assert done.returncode == 0, "status %d: %s" % (done.returncode, "; ".join(over) or done.stderr.strip())
    assert machine.notes["largest"], "its table has no program: " + done.stdout[-200:]


def demo(machine):
    """The line that leaks is the largest entry."""
    with open(os.path.join(T, "tools", "demo_leak.py")) as file:
        leak = next(number for number, text in enumerate(file, 1) if "# LEAK" in text)
    done = machine.run(os.path.join(T, "tools", "demo"), cwd=T, env=harness.environment(TRACER=machine.tracer))
    machine.note(attach=attach_facts(done.stderr))
    assert done.returncode == 0, "status %d: %s" % (done.returncode, done.stderr.strip().split("\n")[-1])
    entries = re.findall(r"^  (\S+):(\d+): size=", done.stdout, re.M)
    assert entries, "no line in its report"
    path, line = entries[0]
    assert path.endswith("tools/demo_leak.py") and int(line) == leak, "the largest entry is %s:%s" % entries[0]


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
        raise Absent("the image's unstripped CPython is older than perf maps: " + os.path.basename(python))
    target = machine.start("/usr/bin/env", None, python, "-X", "perf", harness.program("perf_api.py"))
    path = os.path.join(machine.folder, "map")
    run = machine.trace("perfmap", "-p", target.pid, "--merge", "--status", "-o", path, output=False)

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
            wanted.add("%x 30 thread %d entry %d" % (0x10000000 + (number * MAP_EACH + i) * 64, number, i))
    missing = sorted(wanted - got)
    assert not missing, "%d of %d entries are missing, e.g. %s" % (len(missing), len(wanted), missing[0])
    assert any("function_of_parent" in line for line in got), "what was written before the attach is missing"
    assert target.finish() == 0, "the target was harmed"


def features(settings):
    yield "doctor", doctor
    yield "verifier", verifier
    yield "demo", demo
    for kind in ("stripped", "unstripped"):
        yield "heap, %s" % kind, functools.partial(heap, kind=kind)
    yield "perfmap", perfmap
