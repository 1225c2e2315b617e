# SPDX-License-Identifier: Apache-2.0
"""Runs workloads under every way of watching their allocations, in turn, round after round, so that
a noisy minute affects all of them alike. Shows medians, ratios to untraced, and the bars that we
have set ourselves: met or missed, never asserted.

A way that this machine lacks, or that the tracer refuses, is left out and named.
"""
import collections
import contextlib
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile

import bench_page
from interpreters import TIMEOUT, environment

ROUNDS = {"w1": 100000, "w2": 120000, "w3": 60, "web": 1000}
# share of the rounds, for peers that would take minutes; the base is untraced at as many rounds
SLOW = 0.1
MODES = ("growth", "census", "exact")
MALLOC = {"PYTHONMALLOC": "malloc"}  # without it these peers see pymalloc's arenas and no blocks


class Missing(Exception):
    """A variant that cannot be run, and why."""


def find(python, *names):
    path = python.find(*names)
    if not path:
        raise Missing(
            "%s is not installed%s" % (names[0], " in " + python.root if python.root else "")
        )
    return path


Command = collections.namedtuple("Command", "argv env snapshot", defaults=({}, None))


def untraced(python, name, rounds):
    return Command(python.prefix + python.workload(name, rounds))


def tracemalloc(nframe):
    return lambda python, name, rounds: Command(
        python.prefix + python.workload(name, rounds, nframe)
    )


def memray(python, name, rounds):
    if subprocess.run(
        [*python.prefix, python.path, "-c", "import memray"],
        stderr=subprocess.DEVNULL,
        timeout=TIMEOUT,
    ).returncode:
        raise Missing("this interpreter has no memray")
    path, *arguments = python.workload(name, rounds)
    output = os.path.join(python.folder, "memray.bin")
    return Command(
        [
            *python.prefix,
            path,
            "-m",
            "memray",
            "run",
            "--trace-python-allocators",
            "-q",
            "-f",
            "-o",
            output,
            *arguments,
        ]
    )


def heaptrack(python, name, rounds):
    return Command(
        [
            *python.prefix,
            find(python, "heaptrack"),
            "-o",
            os.path.join(python.folder, "heaptrack"),
            *python.workload(name, rounds),
        ],
        MALLOC,
    )


def bpftrace_counting(python, name, rounds):
    if python.root:
        raise Missing("it runs outside of root file systems only")
    entries = (
        ("PyObject_Malloc", "PyObject_Free")
        if python.stripped
        else ("_PyObject_Malloc", "_PyObject_Free")
    )
    probes = ",".join("uprobe:%s:%s" % (python.runtime_file(), entry) for entry in entries)
    return Command(
        [
            find(python, "bpftrace"),
            "-e",
            probes + " { @[probe] = count(); }",
            "-c",
            " ".join(python.workload(name, rounds)),
        ]
    )


# A table of live blocks with their stacks; it is not printed.
LIVE = """
uprobe:LIBC:malloc { @bytes[tid] = arg0; }
uretprobe:LIBC:malloc /@bytes[tid]/ { @live[retval] = @bytes[tid]; @stacks[retval] = ustack; delete(@bytes[tid]); }
uprobe:LIBC:free /arg0/ { delete(@live[arg0]); delete(@stacks[arg0]); }
END { clear(@bytes); clear(@live); clear(@stacks); }
"""


def bpftrace_live(python, name, rounds):
    if python.root:
        raise Missing("it runs outside of root file systems only")
    room = {
        "BPFTRACE_MAP_KEYS_MAX": "4000000",
        "BPFTRACE_MAX_MAP_KEYS": "4000000",
    }  # its name up to 0.19, and its later name
    return Command(
        [
            find(python, "bpftrace"),
            "-e",
            LIVE.replace("LIBC", python.mapped("libc.so")),
            "-c",
            " ".join(python.workload(name, rounds)),
        ],
        {**MALLOC, **room},
    )


def memleak(python, name, rounds):
    """The libbpf version of memleak, which takes a command without arguments. PYTHONMALLOC selects
    the C library's malloc."""
    script = os.path.join(python.host_folder, "memleak.sh")
    with open(script, "w") as file:
        file.write("#!/bin/sh\nexec %s\n" % " ".join(python.workload(name, rounds)))
    os.chmod(script, 0o755)
    command = os.path.join(python.folder, "memleak.sh")
    return Command(
        [*python.prefix, find(python, "memleak-libbpf", "memleak"), "-c", command, "1000"], MALLOC
    )


def refusal(argv):
    """The tracer's message about options that it does not have yet (exit status 2), or None."""
    done = subprocess.run(
        argv,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        timeout=TIMEOUT,
    )
    return (
        done.stderr.decode(errors="replace").strip().split("\n")[0]
        if done.returncode == 2
        else None
    )


def bare(tools, mode):
    def build(python, name, rounds):
        argv = [tools["bare"], "-q", "--mode", mode, "--"]
        why = refusal([*argv, *python.prefix, python.path, "-S", "-c", ""])
        if why:
            raise Missing(why)
        return Command([*argv, *python.prefix, *python.workload(name, rounds)])

    return build


def tracer(tools, mode, nframe):
    def build(python, name, rounds):
        argv = [tools["tracer"], "-q", "-m", mode, "-n", str(nframe)]
        why = refusal([*argv, "--dry-run", "--", *python.prefix, python.path, "-S", "-c", ""])
        if why:
            raise Missing(why)
        snapshot = os.path.join(python.host_folder, "speed.pb.gz")
        return Command(
            [*argv, "-o", snapshot, "--", *python.prefix, *python.workload(name, rounds)],
            snapshot=snapshot,
        )

    return build


Variant = collections.namedtuple("Variant", "name build slow", defaults=(False,))


def variants(tools):
    chosen = [
        Variant("untraced", untraced),
        Variant("untraced, 1/10", untraced, True),
        Variant("tracemalloc, 1 frame", tracemalloc(1)),
        Variant("tracemalloc, 25", tracemalloc(25)),
        Variant("memray", memray),
        Variant("heaptrack", heaptrack),
        Variant("bpftrace, counting", bpftrace_counting, True),
        Variant("bpftrace, live blocks", bpftrace_live, True),
        Variant("memleak", memleak, True),
    ]
    for mode in MODES:
        chosen.append(Variant("empty probes of %s" % mode, bare(tools, mode)))
        chosen += [
            Variant("%s, %s" % (mode, text), tracer(tools, mode, n))
            for n, text in ((1, "1 frame"), (25, "25"))
        ]
    return chosen


# Text, variant, the variant to compare with, the largest ratio of their times, the workloads to
# which the bar applies.
BARS = [
    ("growth at most 1.05 × untraced", "growth, %s", "untraced", 1.05, ROUNDS),
    ("census at most tracemalloc with 25 frames", "census, %s", "tracemalloc, 25", 1, ("w1", "w3")),
    (
        "census at most 1.25 × its empty probes",
        "census, %s",
        "empty probes of census",
        1.25,
        ROUNDS,
    ),
    ("exact at most 1.3 × its empty probes", "exact, %s", "empty probes of exact", 1.3, ROUNDS),
    ("exact at least 10 times as fast as memleak", "exact, %s", "memleak", 0.1, ROUNDS),
    (
        "exact at least 10 times as fast as bpftrace with a table of live blocks",
        "exact, %s",
        "bpftrace, live blocks",
        0.1,
        ROUNDS,
    ),
]


def run(command):
    """The seconds that the workload prints; ValueError with the output if there are none.
    Processes that outlive the command (memleak leaves its child behind when it fails) are killed,
    and not waited for.
    """
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        process = subprocess.Popen(
            command.argv,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            env={**environment(), **command.env},
            start_new_session=True,
        )
        try:
            process.wait(TIMEOUT)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        out.seek(0)
        err.seek(0)
        seconds = re.search(rb"^\d+\.\d{3}$", out.read(), re.M)  # among the tools' output
        if process.returncode != 0 or not seconds:
            raise ValueError(
                "status %d: %s"
                % (process.returncode, err.read().decode(errors="replace").strip()[-300:])
            )
    return float(seconds.group())


def lost_events(tools, snapshot):
    report = subprocess.run(
        [tools["tracer"], "report", snapshot, "--format", "json", "--top", "1"],
        stdout=subprocess.PIPE,
        timeout=TIMEOUT,
    )
    return json.loads(report.stdout)["lost_events"]


class Measured:
    """The results of one interpreter: seconds of every run by (workload, variant), lost events, and
    the variants that were left out."""

    def __init__(self, python, tools, options):
        self.python, self.tools, self.options = python, tools, options
        self.variants = [
            v
            for v in variants(tools)
            if re.search(options.variants, v.name) or v.name.startswith("untraced")
        ]
        self.times, self.lost, self.left_out = collections.defaultdict(list), {}, {}
        self.workloads = options.workloads.split(",")

    def measure(self):
        for workload in self.workloads:
            commands = {}
            for variant in self.variants:
                rounds = ROUNDS[workload] * self.options.scale * (SLOW if variant.slow else 1)
                try:
                    commands[variant.name] = variant.build(
                        self.python, workload, max(1, int(rounds))
                    )
                except Missing as why:
                    self.left_out[variant.name] = str(why)
            for _ in range(self.options.reps):
                for name, command in list(commands.items()):
                    if not self.measure_once(workload, name, command):
                        del commands[name]

    def measure_once(self, workload, name, command):
        print(
            "bench: %s, %s, %s" % (self.python.label, workload, name), file=sys.stderr, flush=True
        )
        try:
            self.times[workload, name].append(run(command))
            if command.snapshot:
                self.lost[name] = self.lost.get(name, 0) + lost_events(self.tools, command.snapshot)
            return True
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            self.left_out["%s on %s" % (name, workload)] = str(error)
            self.times.pop((workload, name), None)
            return False

    def seconds(self, workload, name):
        times = self.times.get((workload, name))
        return statistics.median(times) if times else None

    def ratio(self, workload, name):
        """The ratio to untraced at as many rounds; None if it was not measured."""
        slow = any(v.slow for v in self.variants if v.name == name)
        seconds, base = self.seconds(workload, name), self.seconds(
            workload, "untraced, 1/10" if slow else "untraced"
        )
        return seconds / base if seconds is not None and base else None

    def cell(self, variant, workload):
        ratio = self.ratio(workload, variant.name)
        if ratio is None:
            return "–"
        return "%.2f s%s (%.*f)" % (
            self.seconds(workload, variant.name),
            " of 1/10" if variant.slow else "",
            1 if ratio >= 1.995 else 2,
            ratio,
        )

    def table(self):
        rows = [["traced by", *self.workloads]]
        for variant in self.variants:
            cells = [self.cell(variant, workload) for workload in self.workloads]
            if any(cell != "–" for cell in cells) and variant.name != "untraced, 1/10":
                rows.append([variant.name, *cells])
        return bench_page.table(rows, self.python.label)

    def bars(self):
        """A line for each bar: the ratio to the other's time, met or missed."""
        lines = []
        for text, ours, theirs, limit, workloads in BARS:
            results = []
            for frames in ("1 frame", "25"):
                for workload in (w for w in self.workloads if w in workloads):
                    a, b = self.ratio(workload, ours % frames), self.ratio(workload, theirs)
                    if a and b:
                        results.append(
                            "%s %s %.2f %s"
                            % (
                                workload,
                                "1 frame" if frames == "1 frame" else "25 frames",
                                a / b,
                                "met" if a <= limit * b else "MISSED",
                            )
                        )
            lines.append("- %s: %s" % (text, "; ".join(results) or "not measured"))
        return "\n".join(lines)

    def remarks(self):
        lines = (
            [
                "- lost events: %s"
                % (", ".join("%s %d" % item for item in self.lost.items() if item[1]) or "none")
            ]
            if self.lost
            else []
        )
        return "\n".join(lines + ["- left out: %s: %s" % item for item in self.left_out.items()])


def bench(python, tools, options):
    """Measures and prints; returns the text of the table."""
    measured = Measured(python, tools, options)
    try:
        measured.measure()
    finally:
        python.remove()
    print(
        "\n%s\n\nBars:\n%s\n%s" % (measured.table(), measured.bars(), measured.remarks()),
        flush=True,
    )
    return measured.table()
