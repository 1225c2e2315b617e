# SPDX-License-Identifier: Apache-2.0
"""What tracing costs, next to tracemalloc, in one run. Prints figures, asserts nothing, ends with status 0.

The variants of a workload are run in turn, round after round, so that a noisy minute hits all of them; medians are shown.
usage: bench.py [--reps N] [--scale F] [--workloads w1,w2,w3] [--python PATH]… [--only speed,memory,attach,detach]
"""
import argparse
import json
import os
import re
import select
import signal
import statistics
import subprocess
import sys
import tempfile
import time

import bench_stats
import pythons

HERE = os.path.dirname(os.path.abspath(__file__))
TRACER = os.path.abspath(os.environ.get("TRACER", os.path.join(HERE, "..", "build", "tracer")))
ROUNDS = {"w1": 100000, "w2": 120000, "w3": 60}
VARIANTS = ("untraced", "tracemalloc 1", "tracemalloc 25", "tracer 1", "tracer 25")
TIMEOUT = 900

HOLDER = """
import os
os.read(0, 100)
kept = [None] * %d
for i in range(len(kept)):
    kept[i] = bytes(i %% 48 + 1)
os.write(1, b"done\\n")
os.read(0, 100)
"""

METER = """
import os, time
def chunk():
    kept = None
    for i in range(20000):
        kept = [i * 1000003, str(i)]
while True:
    start = time.monotonic()
    chunk()
    end = time.monotonic()
    os.write(1, b"%.6f %.6f\\n" % (start, end - start))
"""


def environment():
    env = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    env["PYTHONHASHSEED"] = "0"
    return env


def warn(text):
    print("bench: " + text, file=sys.stderr)


def run_workload(python, workload, variant, rounds, snapshot):
    """(seconds, lost events or None), or None when it failed."""
    kind, _, frames = variant.partition(" ")
    command = [python, os.path.join(HERE, "workloads", workload + ".py"), frames if kind == "tracemalloc" else "0", str(rounds)]
    if kind == "tracer":
        command = [TRACER, "-q", "-n", frames, "-o", snapshot, "--", *command]
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment(), timeout=TIMEOUT)
    except (OSError, subprocess.TimeoutExpired) as error:
        warn("%s, %s: %s" % (workload, variant, error))
        return None
    seconds = re.search(rb"^\d+\.\d{3}$", done.stdout, re.M)  # the tracer's report follows the workload's own line
    if done.returncode != 0 or not seconds:
        warn("%s, %s: status %d: %s" % (workload, variant, done.returncode, done.stderr.decode(errors="replace").strip()[-300:]))
        return None
    lost = None
    if kind == "tracer":
        report = subprocess.run([TRACER, "report", snapshot, "--format", "json", "--top", "1"], stdout=subprocess.PIPE, timeout=TIMEOUT)
        lost = json.loads(report.stdout)["lost_events"] if report.returncode == 0 else None
    return float(seconds.group()), lost


def bench_speed(python, label, options, folder):
    print("\n%s\n%-4s %-15s %9s %10s %12s %6s" % (label, "", "", "seconds", "/untraced", "/tracemalloc", "lost"))
    for workload in options.workloads.split(","):
        rounds = max(1, int(ROUNDS[workload] * options.scale))
        times, lost, failed = {v: [] for v in VARIANTS}, {}, set()
        for _ in range(options.reps):
            for variant in VARIANTS:
                if variant in failed:
                    continue
                result = run_workload(python, workload, variant, rounds, os.path.join(folder, "speed.pb.gz"))
                if result is None:
                    failed.add(variant)
                    continue
                times[variant].append(result[0])
                if result[1] is not None:
                    lost[variant] = lost.get(variant, 0) + result[1]
        medians = {v: statistics.median(t) for v, t in times.items() if t}
        for variant in VARIANTS:
            if variant not in medians:
                print("%-4s %-15s %9s" % (workload, variant, "failed"))
                continue
            ratio = lambda base: "%.2f" % (medians[variant] / medians[base]) if medians.get(base) else "-"
            print("%-4s %-15s %9.3f %10s %12s %6s" % (workload, variant, medians[variant], ratio("untraced"), ratio("tracemalloc 25"),
                                                      lost.get(variant, "")), flush=True)


def wait_line(stream, pattern, timeout):
    """Reads an unbuffered binary stream until a line matches; the time of the match."""
    end, pending = time.monotonic() + timeout, b""
    while True:
        ready, _, _ = select.select([stream], [], [], max(0, end - time.monotonic()))
        data = os.read(stream.fileno(), 65536) if ready else b""
        if not data:
            raise RuntimeError("no line %r: %s" % (pattern.decode(), pending.decode(errors="replace").strip()[-300:]))
        pending += data
        if re.search(rb"^" + pattern, pending, re.M):
            return time.monotonic()


class Attached:
    """A tracer on a running process; self.seconds is what attaching took."""

    def __init__(self, pid, snapshot):
        start = time.monotonic()
        self.process = subprocess.Popen([TRACER, "-p", str(pid), "-o", snapshot], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, bufsize=0)
        try:
            self.seconds = wait_line(self.process.stderr, b"tracer: attached to", 60) - start
        except RuntimeError:
            self.end()
            raise

    def end(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
            try:
                self.process.communicate(timeout=120)
            except subprocess.TimeoutExpired:
                self.process.kill()
        self.process.wait()


def start_target(python, code):
    return subprocess.Popen([python, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment(), bufsize=0)


def memory_kib(pid):
    """(resident now, resident at most)"""
    with open("/proc/%d/status" % pid) as file:
        fields = dict(line.split(":", 1) for line in file)
    return int(fields["VmRSS"].split()[0]), int(fields["VmHWM"].split()[0])


def tracer_memory(python, blocks, folder):
    """Of a tracer whose target holds so many blocks, in KiB, once it has caught up: (resident, at most)."""
    target = start_target(python, HOLDER % blocks)
    try:
        time.sleep(0.3)
        tracer = Attached(target.pid, os.path.join(folder, "memory.pb.gz"))
        try:
            target.stdin.write(b"go\n")
            wait_line(target.stdout, b"done", TIMEOUT)
            time.sleep(2)
            return memory_kib(tracer.process.pid)
        finally:
            tracer.end()
    finally:
        target.kill()
        target.wait()


def bench_memory(python, folder):
    few, many = 1000, 1000000
    low, high = tracer_memory(python, few, folder), tracer_memory(python, many, folder)
    for name, a, b in zip(("resident", "peak resident"), low, high):
        print("memory: %-13s %8d KiB with %d blocks, %8d KiB with %d: %.1f bytes a live block" % (name, a, few, b, many, (b - a) * 1024 / (many - few)), flush=True)


def bench_attach(python, reps, folder):
    target = start_target(python, METER)
    seconds = []
    try:
        os.set_blocking(target.stdout.fileno(), True)
        drain = subprocess.Popen(["cat"], stdin=target.stdout, stdout=subprocess.DEVNULL)
        time.sleep(0.5)
        for _ in range(reps):
            tracer = Attached(target.pid, os.path.join(folder, "attach.pb.gz"))
            seconds.append(tracer.seconds)
            tracer.end()
    finally:
        target.kill()
        target.wait()
    drain.wait()
    print("attach to a busy interpreter: median %.3f s, at most %.3f s of %d" % (statistics.median(seconds), max(seconds), len(seconds)), flush=True)


def read_chunks(stream, until):
    """(start, seconds) of the meter's chunks; until(chunks) says when it is enough. None after a minute."""
    chunks, pending, end = [], b"", time.monotonic() + 60
    while time.monotonic() < end:
        ready, _, _ = select.select([stream], [], [], 10)
        data = os.read(stream.fileno(), 65536) if ready else b""
        if not data:
            return None
        lines = (pending + data).split(b"\n")
        pending = lines.pop()
        chunks += [tuple(map(float, line.split())) for line in lines]
        if until(chunks):
            return chunks
    return None


def bench_detach(python, reps, folder):
    delays, slow, normal = [], 0.0, 0.0
    for _ in range(reps):
        target = start_target(python, METER)
        try:
            begin = time.monotonic() + 0.3  # past its start
            normal = statistics.median(c[1] for c in read_chunks(target.stdout, lambda c: c[-1][0] > begin + 0.7) if c[0] > begin)
            tracer = Attached(target.pid, os.path.join(folder, "detach.pb.gz"))
            attached = time.monotonic()
            traced = [c[1] for c in read_chunks(target.stdout, lambda c: c[-1][0] > attached + 1) if c[0] > attached]
            slow = statistics.median(traced)
            stop = time.monotonic()
            tracer.process.send_signal(signal.SIGINT)
            quick = lambda c: c[0] >= stop and c[1] <= 1.25 * normal
            chunks = read_chunks(target.stdout, lambda c: len(c) >= 3 and all(map(quick, c[-3:])))
            tracer.end()
            if chunks:
                delays.append(chunks[-3][0] - stop)
        finally:
            target.kill()
            target.wait()
    if delays:
        print("detach: untraced speed is back after median %.3f s, at most %.3f s of %d (a chunk: %.1f ms untraced, %.1f ms traced)"
              % (statistics.median(delays), max(delays), len(delays), normal * 1e3, slow * 1e3), flush=True)
    if len(delays) < reps:
        print("detach: untraced speed did not come back within a minute in %d of %d" % (reps - len(delays), reps), flush=True)


def attempt(what, function, *args):
    try:
        function(*args)
    except Exception as error:  # one figure that cannot be had must not cost the others
        warn("%s: %s" % (what, error))


def main():
    parser = argparse.ArgumentParser(description="what tracing costs, next to tracemalloc")
    parser.add_argument("--reps", type=int, default=5, help="repetitions (default 5)")
    parser.add_argument("--scale", type=float, default=1.0, help="multiplies the workloads' rounds")
    parser.add_argument("--workloads", default="w1,w2,w3")
    parser.add_argument("--python", action="append", help="interpreter; repeatable (default: the newest with symbols and the distribution's)")
    parser.add_argument("--only", default="speed,memory,attach,detach,stats")
    options = parser.parse_args()
    found = pythons.unstripped()
    chosen = options.python or [p for p in ([*found.values()][-1:] + [pythons.distribution()]) if p]
    only = options.only.split(",")
    if not chosen:
        warn("no CPython with symbols and no distribution CPython found; name one by --python")
        return
    with tempfile.TemporaryDirectory() as folder:
        for python in chosen:
            label = "CPython %s, %s" % (pythons.version_of(python), "stripped" if pythons.is_stripped(python) else "with symbols")
            if "speed" in only:
                attempt("speed", bench_speed, python, label, options, folder)
        print("\n%s" % "CPython %s" % pythons.version_of(chosen[0]))
        if "memory" in only:
            attempt("memory", bench_memory, chosen[0], folder)
        if "attach" in only:
            attempt("attach", bench_attach, chosen[0], options.reps, folder)
        if "detach" in only:
            attempt("detach", bench_detach, chosen[0], options.reps, folder)
        if "stats" in only:
            attempt("stats", bench_stats.bench, TRACER, chosen[0], options.reps, environment(), folder)


if __name__ == "__main__":
    main()
