# SPDX-License-Identifier: Apache-2.0
"""Measures the cost of one request and its free, in C and in Python, by threads: untraced, with
empty probes, traced, and under peers.

The price of such a pair is in microseconds of a processor: the seconds of the work, times the
processors that can take part in it (one in Python, whose threads take turns), divided by the pairs
of all threads.
"""
import collections
import os
import shutil
import statistics
import subprocess
import sys
import tempfile

import bench_page
import pythons
from bench_speed import LIVE, Command, Missing, lost_events, run
from interpreters import TIMEOUT

THREADS = (1, 2, 4)
PROCESSORS = len(os.sched_getaffinity(0))
PAIRS, MANY, FEW = (
    400000,
    20000000,
    40000,
)  # for traced runs, for untraced ones, and for peers that would take minutes
PYTHON_PAIRS, PYTHON_MANY = 200000, 1000000

Way = collections.namedtuple(
    "Way", "name build pairs empty", defaults=(None,)
)  # empty: the way with the same probes, without programs


def traced(tools, folder, *options):
    snapshot = os.path.join(folder, "system.pb.gz")
    return lambda argv: Command(
        [tools["tracer"], "-q", *options, "-o", snapshot, "--", *argv], snapshot=snapshot
    )


def empty(tools, *options):
    return lambda argv: Command([tools["bare"], "-q", *options, "--", *argv])


def bpftrace(program):
    def build(argv):
        path = shutil.which("bpftrace")
        if not path:
            raise Missing("it is not installed")
        room = {
            "BPFTRACE_MAP_KEYS_MAX": "4000000",
            "BPFTRACE_MAX_MAP_KEYS": "4000000",
        }  # its name up to 0.19, and its later name
        return Command([path, "-e", program.replace("LIBC", libc()), "-c", " ".join(argv)], room)

    return build


def memleak(stack, folder):
    """libbpf's memleak, of this machine or in a root file system. It takes a command without
    arguments."""
    roots = ["", *(root.rstrip("/") for root in pythons.roots())]
    names = ("/usr/sbin/memleak-libbpf", "/usr/sbin/memleak")
    root, path = next(
        ((root, name) for root in roots for name in names if os.access(root + name, os.X_OK)),
        ("", ""),
    )
    place = stack.enter_context(tempfile.TemporaryDirectory(dir=root + "/tmp")) if root else folder

    def build(argv):
        if not path:
            raise Missing("libbpf's memleak is not installed, nor in a root file system")
        if not os.path.exists(root + "/sys/kernel/btf/vmlinux"):
            raise Missing("/sys is not mounted in %s" % root if root else "the kernel has no BTF")
        os.chmod(place, 0o755)
        program, script = shutil.copy(argv[0], os.path.join(place, "memleak-pairs")), os.path.join(
            place, "memleak.sh"
        )
        with open(script, "w") as file:
            file.write("#!/bin/sh\nexec %s\n" % " ".join([program[len(root) :], *argv[1:]]))
        os.chmod(script, 0o755)
        return Command(
            [*(["chroot", root] if root else []), path, "-c", script[len(root) :], "1000"]
        )

    return build


def native_ways(tools, folder, stack):
    native = ("--layer", "native")
    return [
        Way("untraced", Command, MANY),
        Way("empty probes", empty(tools, *native), PAIRS),
        Way("exact, caller only", traced(tools, folder, *native, "-n", "1"), PAIRS, "empty probes"),
        Way("exact, 16 frames", traced(tools, folder, *native, "-n", "16"), PAIRS, "empty probes"),
        Way(
            "bpftrace, counting malloc alone", bpftrace("uprobe:LIBC:malloc { @ = count(); }"), FEW
        ),
        Way("bpftrace, live blocks", bpftrace(LIVE), FEW),
        Way("memleak", memleak(stack, folder), FEW),
    ]


def python_ways(tools, folder):
    ways = [Way("untraced", Command, PYTHON_MANY)]
    for mode in ("census", "exact"):
        base = "empty probes of %s" % mode
        ways.append(Way(base, empty(tools, "-m", mode), PYTHON_PAIRS))
        for frames, text in (("1", "1 frame"), ("16", "16 frames")):
            ways.append(
                Way(
                    "%s, %s" % (mode, text),
                    traced(tools, folder, "-m", mode, "-n", frames),
                    PYTHON_PAIRS,
                    base,
                )
            )
    return ways


class Prices:
    """The prices of one program: microseconds by (way, threads), lost events, and the ways that
    were left out."""

    def __init__(self, label, argv, ways, tools, parallel):
        self.label, self.argv, self.ways, self.tools, self.parallel = (
            label,
            argv,
            ways,
            tools,
            parallel,
        )
        self.us, self.lost, self.left_out = collections.defaultdict(list), collections.Counter(), {}

    def measure(self, reps, scale):
        for _ in range(reps):
            for threads in THREADS:
                for way in self.ways:
                    if way.name not in self.left_out:
                        self.measure_once(way, threads, max(1, int(way.pairs * scale / threads)))

    def measure_once(self, way, threads, pairs):
        print(
            "bench: %s, %d thread%s, %s" % (self.label, threads, "s" * (threads > 1), way.name),
            file=sys.stderr,
            flush=True,
        )
        try:
            command = way.build([*self.argv, str(threads), str(pairs)])
            seconds = run(command)
            if command.snapshot:
                self.lost["%s, %d threads" % (way.name, threads)] += lost_events(
                    self.tools, command.snapshot
                )
        except (Missing, OSError, ValueError, subprocess.SubprocessError) as why:
            self.left_out[way.name] = str(why)
            return
        self.us[way.name, threads].append(
            seconds * (min(threads, PROCESSORS) if self.parallel else 1) / (pairs * threads) * 1e6
        )

    def median(self, name, threads):
        values = self.us.get((name, threads))
        return statistics.median(values) if values else None

    def cell(self, way, threads):
        us, base, empty = (self.median(name, threads) for name in (way.name, "untraced", way.empty))
        if us is None or not base:
            return "–"
        return "%.*f µs (%.*f%s)" % (
            3 if us < 0.1 else 2,
            us,
            0 if us / base >= 9.95 else 1,
            us / base,
            "; %.2f" % (us / empty) if empty else "",
        )

    def table(self):
        rows = [
            ["traced by", *("%d thread%s" % (threads, "s" * (threads > 1)) for threads in THREADS)]
        ]
        rows += [
            [way.name, *(self.cell(way, threads) for threads in THREADS)]
            for way in self.ways
            if way.name not in self.left_out
        ]
        return bench_page.table(rows, self.label)

    def remarks(self):
        lost = ["%s %d" % item for item in self.lost.items() if item[1]]
        return "\n".join(
            ["- lost events: %s" % (", ".join(lost) or "none")]
            + ["- left out: %s: %s" % item for item in self.left_out.items()]
        )


def libc():
    """The C library that this machine's programs have mapped."""
    with open("/proc/self/maps") as file:
        return next(line.split(None, 5)[5].strip() for line in file if "/libc.so" in line)


def bench(tools, pairs, python, options, folder, stack):
    """pairs: the built program; python: an interpreters.Python. Measures and prints; the tables'
    text."""
    prices = [
        Prices("malloc and free, in C", [pairs], native_ways(tools, folder, stack), tools, True),
        Prices(
            "a request and a free, " + python.label,
            [*python.prefix, python.path, os.path.join(python.folder, "pairs.py")],
            python_ways(tools, folder),
            tools,
            False,
        ),
    ]
    for price in prices:
        price.measure(options.reps, options.scale)
        print("\n%s\n\n%s" % (price.table(), price.remarks()), flush=True)
    return "\n\n".join(price.table() for price in prices)
