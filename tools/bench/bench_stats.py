# SPDX-License-Identifier: Apache-2.0
"""Measures the cost of a report of a large snapshot, beside tracemalloc.Snapshot.load() and
statistics() of the same file."""
import json
import os
import statistics
import subprocess
import time

BLOCKS = 1000000
GROUPS = (("lineno", False), ("filename", False), ("traceback", False), ("lineno", True))

# Blocks of 100 lines in 20 files, requested at 40 depths, each in 8 sizes: 32000 different ones.
TAKE = """
import sys, tracemalloc
blocks, frames = int(sys.argv[2]), int(sys.argv[3])
def code(i):
    source = "def work(n, depth):\\n    if depth: return work(n, depth - 1)\\n"
    for k in range(5):
        source += "    for _ in range(n): keep(bytes(%d + 8 * (_ %% 8)))\\n" % (30 * (k + 1))
    space = {"keep": kept.append}
    exec(compile(source, "/srv/application/package%d/module%d.py" % (i % 5, i), "exec"), space)
    return space["work"]
kept = []
work = [code(i) for i in range(20)]
tracemalloc.start(frames)
while len(kept) < blocks:
    for depth in range(40):
        for w in work:
            w(-(-blocks // 4000), depth)
s = tracemalloc.take_snapshot()
tracemalloc.stop()
s.traces._traces = s.traces._traces[:blocks]
s.dump(sys.argv[1])
"""

# CPU-bound and in one piece, as a user waits for it; the interpreter's start is not counted.
LOAD = """
import sys, time, tracemalloc
start = time.perf_counter()
s = tracemalloc.Snapshot.load(sys.argv[1]).statistics(sys.argv[2], sys.argv[3] == "True")
print(time.perf_counter() - start, len(s))
"""


def run(command, env):
    """(seconds, peak resident KiB, stdout) of a process from its start to its end."""
    start = time.perf_counter()
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, env=env)
    out = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - start
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError("%s: status %d" % (" ".join(command[:3]), process.returncode))
    return seconds, usage.ru_maxrss, out


def bench(tracer, python, reps, env, folder):
    for frames in (1, 25):
        taken, ours = os.path.join(folder, "stats-%d.pickle" % frames), os.path.join(
            folder, "stats-%d.pb.gz" % frames
        )
        run([python, "-c", TAKE, taken, str(BLOCKS), str(frames)], env)
        run([tracer, "export", taken, "--format", "pprof", "-o", ours], env)
        print(
            "report of %d traces of %d frames (a file of %.1f MiB, as a snapshot of ours %.1f MiB)"
            % (BLOCKS, frames, os.path.getsize(taken) / 2**20, os.path.getsize(ours) / 2**20)
        )
        for group_by, cumulative in GROUPS:
            if cumulative and frames == 1:
                continue
            theirs, entries = [], 0
            for _ in range(max(1, reps // 2)):
                out = run([python, "-c", LOAD, taken, group_by, str(cumulative)], env)[2].split()
                theirs.append(float(out[0]))
                entries = int(out[1])
            line = "  %-9s%-11s tracemalloc %6.3f s" % (
                group_by,
                ", cumulative" if cumulative else "",
                statistics.median(theirs),
            )
            for name, path in (("its file", taken), ("ours", ours)):
                command = [
                    tracer,
                    "report",
                    path,
                    "--group-by",
                    group_by,
                    "--format",
                    "json",
                    "--top",
                    "0",
                ] + ["--cumulative"] * cumulative
                runs = [run(command, env) for _ in range(reps)]
                report = json.loads(runs[0][2])
                if report["total"]["count"] != BLOCKS or len(report["statistics"]) != entries:
                    raise RuntimeError("the reports of %s differ" % path)
                median = statistics.median(r[0] for r in runs)
                line += "; tracer, %s: %.3f s, %.1f x faster, at most %d MiB" % (
                    name,
                    median,
                    statistics.median(theirs) / median,
                    max(r[1] for r in runs) >> 10,
                )
            print(line, flush=True)
