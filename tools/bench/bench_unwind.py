# SPDX-License-Identifier: Apache-2.0
"""Measures the walk of native stacks: the CPU time that malloc and free cost below a number of
frames without frame pointers, beside bare probes and heaptrack, and what a walk adds for a frame.
Asserts nothing, ends with status 0.

The program (workloads/depth.c) measures its own CPU time, so other programs on the machine matter
little. All ways run in turn, round after round.
"""
import collections
import glob
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile

import bench_page
from interpreters import TIMEOUT

HERE = os.path.dirname(os.path.abspath(__file__))
DEPTHS = (4, 16, 64)
ROUNDS = 200000
BAR_PAIR_NS, BAR_FRAME_NS, BAR_TABLES_BYTES = 1300, 45, 10 << 20
FILES = 50  # of a process, for the attach

HOLDER = """
import ctypes, os, sys
kept = [ctypes.CDLL(path) for path in sys.argv[1:]]
os.write(1, b"ready\\n")
os.read(0, 1)
"""


def build(folder):
    path = os.path.join(folder, "depth")
    source = os.path.join(HERE, "workloads", "depth.c")
    subprocess.run(
        ["gcc", "-O2", "-fomit-frame-pointer", "-o", path, source], check=True, timeout=TIMEOUT
    )
    return path


def ways(tools, folder):
    """{name: command before the program}"""
    traced = [tools["tracer"], "-q", "--layer", "native", "-o", os.path.join(folder, "depth.pb.gz")]
    found = {
        "untraced": [],
        "bare probes": [tools["bare"], "--layer", "native", "--"],
        "one frame": [*traced, "-n", "1", "--"],
        "tracer": [*traced, "-n", "128", "--"],
    }
    heaptrack = shutil.which("heaptrack")
    if heaptrack:
        found["heaptrack"] = [heaptrack, "-o", os.path.join(folder, "heaptrack")]
    else:
        print("bench: heaptrack is not installed", file=sys.stderr)
    return found


def pair_ns(command):
    done = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, timeout=TIMEOUT
    )
    for line in done.stdout.splitlines():
        if line.replace(".", "", 1).isdigit():
            return float(line)
    raise RuntimeError("no figure: " + " ".join(command))


def walk(tools, reps, folder):
    program, found = build(folder), ways(tools, folder)
    seen = collections.defaultdict(list)
    for rep in range(reps):
        print("bench: unwind, round %d of %d" % (rep + 1, reps), file=sys.stderr, flush=True)
        for depth in DEPTHS:
            for name, command in found.items():
                seen[name, depth].append(pair_ns([*command, program, str(depth), str(ROUNDS)]))
    middle = {key: statistics.median(values) for key, values in seen.items()}
    rows = [["CPU time of malloc and free, ns", *("%d frames" % d for d in DEPTHS), "a frame"]]
    for name in found:
        slope = (middle[name, DEPTHS[-1]] - middle[name, DEPTHS[0]]) / (DEPTHS[-1] - DEPTHS[0])
        rows.append([name, *("%.0f" % middle[name, d] for d in DEPTHS), "%.0f" % slope])
        if name == "tracer":
            frame = slope
    ratios = ["%.2f" % (middle["tracer", d] / middle["bare probes", d]) for d in DEPTHS]
    rows.append(["tracer / bare probes", *ratios, ""])
    pair = middle["tracer", 16]
    notes = [
        "A frame: %.0f ns (bar: %d, %s)."
        % (frame, BAR_FRAME_NS, "met" if frame <= BAR_FRAME_NS else "MISSED"),
        "A pair with 16 frames: %.0f ns, of which the bare probes take %.0f (bar: %d, %s)."
        % (
            pair,
            middle["bare probes", 16],
            BAR_PAIR_NS,
            "met" if pair <= BAR_PAIR_NS else "MISSED",
        ),
    ]
    return bench_page.table(rows), notes


def libraries(count):
    """Shared libraries of the machine that load beside each other."""
    code = "import ctypes, sys; ctypes.CDLL(sys.argv[1])"
    found = []
    for path in sorted(glob.glob("/usr/lib/x86_64-linux-gnu/*.so.*")):
        real = os.path.realpath(path)
        if real in found or "asan" in real or "san.so" in real or "alloc" in real:
            continue
        done = subprocess.run(
            [sys.executable, "-c", code, real], stderr=subprocess.DEVNULL, timeout=TIMEOUT
        )
        if done.returncode == 0:
            found.append(real)
        if len(found) == count:
            break
    return found


def attach_cpu(tracer, pid, layer, folder):
    """CPU seconds of a session that attaches and ends at once."""
    before = os.times()
    run = subprocess.Popen(
        [tracer, "--overhead=0", "--layer", layer, "-p", str(pid)]
        + ["-o", os.path.join(folder, "attach.pb.gz")],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    for line in run.stderr:
        if line.startswith("tracer: attached"):
            break
    run.send_signal(signal.SIGINT)
    run.stderr.read()
    run.wait(TIMEOUT)
    after = os.times()
    return (
        after.children_user + after.children_system - before.children_user - before.children_system
    )


def attach(tools, reps, folder):
    """What attaching takes to a process with FILES files, whose tables are loaded in the native
    layer alone."""
    target = subprocess.Popen(
        [sys.executable, "-c", HOLDER, *libraries(FILES)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        target.stdout.readline()
        seconds = {
            layer: statistics.median(
                attach_cpu(tools["tracer"], target.pid, layer, folder) for _ in range(reps)
            )
            for layer in ("native", "python")
        }
    finally:
        target.kill()
        target.wait()
    return (
        "A session that attaches to a process with %d libraries and ends takes %.2f s of CPU time "
        "in the native layer, %.2f s in Python's." % (FILES, seconds["native"], seconds["python"])
    )


def tables(tools):
    """Unwind tables of all files that the machine's processes have mapped."""
    done = subprocess.run(
        [tools["tracer"], "-v", "--overhead=0", "--layer", "native", "-a", "-d", "5", "--top", "1"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        timeout=TIMEOUT,
    )
    for line in done.stderr.splitlines():
        if "unwind tables:" in line:
            return "With -a on this machine: " + line.split("tracer: ", 1)[-1] + "."
    return "With -a on this machine: no figure."


def bench(tools, options):
    """Measures and prints; --docs writes the text into docs/benchmarks.md."""
    with tempfile.TemporaryDirectory() as folder:
        table, notes = walk(tools, options.reps, folder)
        for part in (lambda: attach(tools, options.reps, folder), lambda: tables(tools)):
            notes.append(part())
    text = "\n\n".join([table, *("- " + note for note in notes)]).replace("\n\n- ", "\n- ")
    text = text.replace("|\n- ", "|\n\n- ", 1)
    print("\n" + text, flush=True)
    if options.docs:
        bench_page.replace("bench-unwind", text)
