# SPDX-License-Identifier: Apache-2.0
"""Measures the cost of tracing, beside tracemalloc, in one run. Prints figures, asserts nothing,
ends with status 0.

The variants of a workload run in turn, round after round, so that a noisy minute affects all of
them; medians are shown. usage: bench.py [--reps N] [--scale F] [--workloads w1,w2,w3,web]
[--variants REGEX] [--python PATH]… [--only WHAT,…] [--other TRACER] [--docs]
"""
import argparse
import os
import re
import select
import signal
import statistics
import struct
import subprocess
import sys
import tempfile
import time

sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

import bench_attach  # noqa: E402
import bench_budget  # noqa: E402
import bench_columns  # noqa: E402
import bench_heap  # noqa: E402
import bench_page  # noqa: E402
import bench_programs  # noqa: E402
import bench_sample  # noqa: E402
import bench_serve  # noqa: E402
import bench_stats  # noqa: E402
import bench_system  # noqa: E402
import bench_unwind  # noqa: E402
import bench_view  # noqa: E402
import bench_windows  # noqa: E402
import pythons  # noqa: E402
from bench_speed import bench as bench_speed  # noqa: E402
from interpreters import TIMEOUT, Python, environment  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))
TRACER = os.path.abspath(
    os.environ.get("TRACER", os.path.join(HERE, "..", "..", "build", "tracer"))
)
TOOLS = {"tracer": TRACER, "bare": os.path.join(os.path.dirname(TRACER), "tools", "bare")}

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


def warn(text):
    print("bench: " + text, file=sys.stderr)


def wait_line(stream, pattern, timeout):
    """Reads an unbuffered binary stream until a line matches; returns the time of the match."""
    end, pending = time.monotonic() + timeout, b""
    while True:
        ready, _, _ = select.select([stream], [], [], max(0, end - time.monotonic()))
        data = os.read(stream.fileno(), 65536) if ready else b""
        if not data:
            raise RuntimeError(
                "no line %r: %s"
                % (pattern.decode(), pending.decode(errors="replace").strip()[-300:])
            )
        pending += data
        if re.search(rb"^" + pattern, pending, re.M):
            return time.monotonic()


def attach(pid, snapshot):
    """A tracer on a running process; its seconds are the duration of the attach."""
    return bench_system.Tracer(TRACER, ["-p", str(pid), "-o", snapshot])


def start_target(python, code):
    return subprocess.Popen(
        [python, "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment(),
        bufsize=0,
    )


def memory_kib(pid):
    """(resident now, peak resident)"""
    with open("/proc/%d/status" % pid) as file:
        fields = dict(line.split(":", 1) for line in file)
    return int(fields["VmRSS"].split()[0]), int(fields["VmHWM"].split()[0])


def tracer_memory(python, blocks, folder):
    """KiB of a tracer whose target holds `blocks` blocks, once it has caught up: (resident, peak
    resident)."""
    target = start_target(python, HOLDER % blocks)
    try:
        time.sleep(0.3)
        tracer = attach(target.pid, os.path.join(folder, "memory.pb.gz"))
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
        print(
            "memory: %-13s %8d KiB with %d blocks, %8d KiB with %d: %.1f bytes a live block"
            % (name, a, few, b, many, (b - a) * 1024 / (many - few)),
            flush=True,
        )


def bench_replay(python, reps, folder):
    """Replays a capture of w1: the speed of the consumer on one processor, without waiting for a
    target."""
    capture, snapshot = os.path.join(folder, "w1.cap"), os.path.join(folder, "replay.pb.gz")
    subprocess.run(
        [
            TRACER,
            "-q",
            "--capture",
            capture,
            "--",
            python,
            os.path.join(HERE, "workloads", "w1.py"),
            "0",
            "20000",
        ],
        stdout=subprocess.DEVNULL,
        env=environment(),
        check=True,
        timeout=TIMEOUT,
    )
    with open(capture, "rb") as file:
        records = count_records(file.read())
    seconds = []
    for _ in range(reps):
        start = time.monotonic()
        subprocess.run(
            [TRACER, "replay", capture, "-o", snapshot],
            stdout=subprocess.DEVNULL,
            check=True,
            timeout=TIMEOUT,
        )
        seconds.append(time.monotonic() - start)
    rate = records / statistics.median(seconds) / 1e6
    print(
        "replay: %d records in median %.2f s: %.2f million a second (bar: 3, %s)"
        % (records, statistics.median(seconds), rate, "met" if rate >= 3 else "MISSED"),
        flush=True,
    )


def count_records(data):
    """The number of records in a capture: a header of 16 bytes, then {type, size, …} each
    (abi/events.h)."""
    count, offset = 0, 16
    while offset + 8 <= len(data):
        offset += struct.unpack_from("<I", data, offset + 4)[0]
        count += 1
    return count


def read_chunks(stream, until):
    """(start, seconds) of the meter's chunks, up to the point where until(chunks) is true; None
    after a minute."""
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
            begin = time.monotonic() + 0.3  # after the start-up
            normal = statistics.median(
                c[1]
                for c in read_chunks(target.stdout, lambda c: c[-1][0] > begin + 0.7)
                if c[0] > begin
            )
            tracer = attach(target.pid, os.path.join(folder, "detach.pb.gz"))
            attached = time.monotonic()
            traced = [
                c[1]
                for c in read_chunks(target.stdout, lambda c: c[-1][0] > attached + 1)
                if c[0] > attached
            ]
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
        print(
            "detach: untraced speed is back after median %.3f s, at most %.3f s of %d (a chunk: %.1f ms untraced, %.1f ms traced)"
            % (statistics.median(delays), max(delays), len(delays), normal * 1e3, slow * 1e3),
            flush=True,
        )
    if len(delays) < reps:
        print(
            "detach: untraced speed did not come back within a minute in %d of %d"
            % (reps - len(delays), reps),
            flush=True,
        )


def attempt(what, function, *args):
    try:
        function(*args)
    except Exception as error:  # a failed figure must not prevent the others
        warn("%s: %s" % (what, error))


def choose(options):
    """[(path, root or None)]: the newest with symbols, the distribution's, and those in root file
    systems that have memray."""
    roots = [(path, root) for root, path in pythons.in_roots().values()]
    if options.python:
        inside = {root + path: (path, root) for path, root in roots}
        return [inside.get(path, (path, None)) for path in options.python]
    found = [pythons.newest(), pythons.distribution()]
    roots = [
        (path, root)
        for path, root in roots
        if os.path.exists(root + "/usr/lib/python3/dist-packages/memray")
    ]
    return [(path, None) for path in found if path] + roots


def stripped(chosen):
    """The first of them that is stripped, or else the first."""
    found = (pair for pair in chosen if pythons.is_stripped((pair[1] or "") + pair[0]))
    return next(found, chosen[0])


# Those that return a table for docs/benchmarks.md, between the marks "bench-NAME": with a stripped
# interpreter or the first one; bench(python, options, folder).
TABLES = {
    "attach": (
        True,
        lambda python, options, folder: bench_attach.bench(TRACER, python, options.reps, folder),
    ),
    "programs": (
        True,
        lambda python, options, folder: bench_programs.bench(TOOLS, python, options, folder),
    ),
    "sample": (False, lambda python, options, folder: bench_sample.bench(python, options.reps)),
    "budget": (True, lambda python, options, folder: bench_budget.bench(python, options.reps)),
    "windows": (False, lambda python, options, folder: bench_windows.bench(python, options.reps)),
    "columns": (
        False,
        lambda python, options, folder: bench_columns.bench(python, TRACER, options, folder),
    ),
    "labels": (
        False,
        lambda python, options, folder: bench_columns.bench_labels(python, TRACER, options, folder),
    ),
    "greenlets": (
        True,
        lambda python, options, folder: bench_columns.bench_greenlets(
            python, TRACER, options, folder
        ),
    ),
    "tasks": (False, lambda _, options, folder: bench_columns.bench_tasks(TRACER, options, folder)),
    "view": (False, lambda python, options, folder: bench_view.bench(python, TRACER, folder)),
    "system": (
        False,
        lambda python, options, folder: bench_system.bench(TOOLS, python, options, folder),
    ),
}


def with_table(name, chosen, options, folder, bench):
    """Runs a benchmark of TABLES for an interpreter, (path, root or None)."""
    path, root = chosen
    python = Python(os.path.realpath(path), folder, root)
    try:
        text = bench(python, options, folder)
    finally:
        python.remove()
    if options.docs:
        bench_page.replace("bench-" + name, text)


def with_heap_table(python, options):
    text = bench_heap.bench(TRACER, python, min(options.reps, 3))
    if options.docs:
        bench_page.replace("bench-heap", text)


def with_serve_table(python, options):
    text = bench_serve.bench(TRACER, python)
    if options.docs:
        bench_page.replace("bench-serve", text)


def main():
    parser = argparse.ArgumentParser(description="what tracing costs, next to other ways")
    parser.add_argument("--reps", type=int, default=5, help="repetitions (default 5)")
    parser.add_argument("--scale", type=float, default=1.0, help="multiplies the workloads' rounds")
    parser.add_argument("--workloads", default="w1,w2,w3,web")
    parser.add_argument(
        "--variants",
        default="",
        help="those whose names this regular expression finds (default: all)",
    )
    parser.add_argument(
        "--python",
        action="append",
        help="interpreter; repeatable (default: the newest with symbols, the distribution's, "
        "and in the root file systems those that have memray)",
    )
    parser.add_argument(
        "--only",
        default="speed,memory,attach,detach,replay,stats,sample,system,windows,unwind,heap,serve,columns,"
        "labels,greenlets,tasks,view,programs",
    )
    parser.add_argument("--other", help="columns, tasks: another tracer, in turn with ours")
    parser.add_argument(
        "--docs", action="store_true", help="write the tables into docs/benchmarks.md"
    )
    options = parser.parse_args()
    chosen, only = choose(options), options.only.split(",")
    only += ["budget"] if "windows" in only else []
    if not chosen:
        warn("no CPython with symbols and no distribution CPython found; name one by --python")
        return
    tables = []
    with tempfile.TemporaryDirectory() as folder:
        for path, root in chosen if "speed" in only else ():
            attempt(
                "speed",
                lambda: tables.append(
                    bench_speed(Python(os.path.realpath(path), folder, root), TOOLS, options)
                ),
            )
        if options.docs and tables:
            attempt("docs/benchmarks.md", bench_page.replace, "bench", "\n\n".join(tables))
        for name, (is_stripped, bench) in TABLES.items():
            if name in only:
                python = stripped(chosen) if is_stripped else chosen[0]
                attempt(name, with_table, name, python, options, folder, bench)
        if "unwind" in only:
            attempt("unwind", bench_unwind.bench, TOOLS, options)
        python = chosen[0][0]
        if "heap" in only:
            attempt("heap", with_heap_table, python, options)
        if "serve" in only:
            attempt("serve", with_serve_table, python, options)
        print("\nCPython %s" % pythons.version_of(python))
        if "replay" in only:
            attempt("replay", bench_replay, python, options.reps, folder)
        if "memory" in only:
            attempt("memory", bench_memory, python, folder)
        if "detach" in only:
            attempt("detach", bench_detach, python, options.reps, folder)
        if "stats" in only:
            attempt("stats", bench_stats.bench, TRACER, python, options.reps, environment(), folder)


if __name__ == "__main__":
    main()
