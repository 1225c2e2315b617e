# SPDX-License-Identifier: Apache-2.0
"""Measures `tracer heap` of ten million objects: the copying of their memory beside
process_vm_readv() alone, processor time on one core, memory, and for how long --freeze stops the
process, which the process itself measures. Asserts nothing, ends with status 0.
"""
import json
import os
import re
import statistics
import subprocess

import bench_page
from interpreters import TIMEOUT

HERE = os.path.dirname(os.path.abspath(__file__))
OBJECTS = 10000000
BAR_SECONDS, BAR_OBJECT, BAR_EDGE, BAR_RATE, BAR_SHARE = 8, 64, 8, 1.5, 0.7

# Copies the largest mapping that can be written, in pieces, to memory that was never used.
ALONE = """
import ctypes, mmap, re, sys, time
class Vector(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("bytes", ctypes.c_size_t)]
copy = ctypes.CDLL(None, use_errno=True).process_vm_readv
copy.restype = ctypes.c_ssize_t
copy.argtypes = [ctypes.c_int, *[ctypes.POINTER(Vector), ctypes.c_ulong] * 2, ctypes.c_ulong]
maps = re.findall("^([0-9a-f]+)-([0-9a-f]+) rw", open("/proc/%s/maps" % sys.argv[1]).read(), re.M)
start, end = max(((int(a, 16), int(b, 16)) for a, b in maps), key=lambda pair: pair[1] - pair[0])
memory = mmap.mmap(-1, end - start, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
memory.madvise(mmap.MADV_HUGEPAGE)
base, done, copied = ctypes.addressof(ctypes.c_char.from_buffer(memory)), 0, 0
began = time.perf_counter()
while done < end - start:
    size = min(2 << 20, end - start - done)
    to, source = Vector(base + done, size), Vector(start + done, size)
    copied += max(0, copy(int(sys.argv[1]), to, 1, source, 1, 0))
    done += size
print(copied / (time.perf_counter() - began))
"""


class Target:
    def __init__(self, python):
        self.process = subprocess.Popen(
            [python, os.path.join(HERE, "workloads", "objects.py"), str(OBJECTS)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self.pid = self.process.pid
        self.process.stdout.readline()
        with open("/proc/%d/status" % self.pid) as file:
            self.bytes = int(re.search(r"RssAnon:\s*(\d+)", file.read()).group(1)) << 10

    def ask(self):
        self.process.stdin.write(b"\n")
        self.process.stdin.flush()
        return self.process.stdout.readline()

    def longest_stop(self, function):
        """(seconds of the longest time that it did not run while function ran, its result)"""
        self.ask()
        result = function()
        return int(self.ask()) / 1e9, result

    def end(self):
        self.process.kill()
        self.process.wait()


def heap(tracer, target, *options):
    """(stdout, seconds of processor time, peak bytes) of tracer heap on one core."""
    core = str(max(os.sched_getaffinity(0)))
    process = subprocess.Popen(
        ["taskset", "-c", core, tracer, "heap", "-p", str(target.pid), *options],
        stdout=subprocess.PIPE,
        text=True,
    )
    out = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError("tracer heap: status %d" % process.returncode)
    return out, usage.ru_utime + usage.ru_stime, usage.ru_maxrss << 10


def copied_seconds(text):
    return float(re.search(r"memory copied in ([0-9.]+) ms", text).group(1)) / 1e3


def measure(tracer, target, reps):
    seen = {"alone": [], "rate": [], "seconds": [], "peak": [], "stop": [], "frozen": []}
    for _ in range(reps):
        alone = subprocess.check_output(
            [target.process.args[0], "-c", ALONE, str(target.pid)], timeout=TIMEOUT
        )
        seen["alone"].append(float(alone))
        text, seconds, peak = heap(tracer, target, "--retained", "--top", "10")
        seen["rate"].append(target.bytes / copied_seconds(text))
        seen["seconds"].append(seconds)
        seen["peak"].append(peak)
        stop, (text, _, _) = target.longest_stop(
            lambda: heap(tracer, target, "--by", "root", "--freeze")
        )
        seen["stop"].append(stop)
        seen["frozen"].append(copied_seconds(text))
    return {name: statistics.median(values) for name, values in seen.items()}


def bench(tracer, python, reps):
    """The table."""
    target = Target(python)
    try:
        answer = json.loads(heap(tracer, target, "--by", "root", "--format", "json")[0])
        seen = measure(tracer, target, reps)
    finally:
        target.end()
    objects, edges = answer["total"]["count"], answer["edges"]
    room = (seen["peak"] - target.bytes) / objects
    bar = BAR_OBJECT + BAR_EDGE * edges / objects
    share = seen["rate"] / seen["alone"]
    rows = [
        ("figure", "measured", "bar"),
        (
            "copying, beside process_vm_readv alone",
            "%.2f GB/s, %.2f of it" % (seen["rate"] / 1e9, share),
            "%.1f GB/s or %.1f of it" % (BAR_RATE, BAR_SHARE),
        ),
        (
            "processor time for 10 million objects",
            "%.1f s" % (seen["seconds"] * OBJECTS / objects),
            "%d s" % BAR_SECONDS,
        ),
        (
            "memory beside the copy, an object",
            "%.1f bytes" % room,
            "%.1f: %d, and %d for each of %.2f edges"
            % (bar, BAR_OBJECT, BAR_EDGE, edges / objects),
        ),
        (
            "longest stop of the process with `--freeze`",
            "%.2f of the copying" % (seen["stop"] / seen["frozen"]),
            "1.00",
        ),
    ]
    text = bench_page.table(
        rows,
        "%.1f million objects, %.1f million edges, %d MiB"
        % (objects / 1e6, edges / 1e6, target.bytes >> 20),
    )
    print(text, flush=True)
    return text
