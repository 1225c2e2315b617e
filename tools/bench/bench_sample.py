# SPDX-License-Identifier: Apache-2.0
"""Measures how far estimates from a sample are from the truth, and what sampling saves. Prints a
table, asserts nothing, ends with status 0.

w1 runs untraced, then under the tracer without and with --sample, in turn. The medians of the
seconds are shown. The truth is the live size in the runs without --sample. The error of the total
is shown as its root mean square over the repetitions, beside the standard error that the tracer
reports (also as its root mean square): with many repetitions the two are alike. usage:
bench_sample.py [--reps N] [--rounds N] [--mode exact|census]... [--sample BYTES]... [--python
PATH]
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

import bench_page  # noqa: E402
import interpreters  # noqa: E402
import pythons  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))
TRACER = os.path.abspath(
    os.environ.get("TRACER", os.path.join(HERE, "..", "..", "build", "tracer"))
)
MIB = 1 << 20


def run(command, options=None):
    """(seconds that w1 took, the report or None)"""
    if options is not None:
        command = [
            TRACER,
            "-q",
            "-n",
            "8",
            "--format",
            "json",
            "--top",
            "1",
            *options,
            "--",
            *command,
        ]
    done = subprocess.run(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        timeout=interpreters.TIMEOUT,
        env=interpreters.environment(),
        text=True,
    )
    if done.returncode:
        raise RuntimeError("%s: %s" % (" ".join(command), done.stderr))
    lines = done.stdout.splitlines()
    report = next((json.loads(line) for line in lines if line.startswith("{")), None)
    return float(next(line for line in lines if not line.startswith("{"))), report


def mean_square(values):
    return (sum(v * v for v in values) / len(values)) ** 0.5


def measure(command, modes, samples, reps):
    """[(way: options or None for untraced, [(seconds, report or None)])], taken in turn."""
    ways = [None] + [
        ["-m", mode, *sample]
        for mode in modes
        for sample in [[]] + [["--sample", sample] for sample in samples]
    ]
    runs = [(way, []) for way in ways]
    for _ in range(reps):
        for way, results in runs:
            print(
                "bench: samples of w1, %s" % (" ".join(way) if way else "untraced"),
                file=sys.stderr,
                flush=True,
            )
            results.append(run(command, way))
    return runs


def bench(python, reps, modes=("census", "exact"), samples=("16K", "128K", "1M"), rounds=100000):
    """python: an interpreters.Python. Measures and prints; the table's text."""
    runs = measure(python.prefix + python.workload("w1", rounds), modes, samples, reps)
    base = statistics.median(seconds for seconds, _ in runs[0][1])
    rows, truth = [
        [
            "traced by",
            "seconds (ratio to untraced)",
            "live, median",
            "error of the total",
            "standard error said",
        ]
    ], 0
    for way, results in runs:
        seconds = statistics.median(seconds for seconds, _ in results)
        row = [
            " ".join([way[1], *way[2:]]) if way else "untraced",
            "%.2f (%.1f)" % (seconds, seconds / base),
            "",
            "",
            "",
        ]
        sizes = [report["total"]["size"] for _, report in results if report]
        if sizes:
            row[2] = "%.1f MiB" % (statistics.median(sizes) / MIB)
        if way and len(way) == 2:
            truth = statistics.median(sizes)
        elif way:
            said = [report["total"]["size_error"] for _, report in results]
            row[3:] = [
                "%.2f %%" % (mean_square(values) * 100)
                for values in (
                    [size / truth - 1 for size in sizes],
                    [error / truth for error in said],
                )
            ]
        rows.append(row)
    table = bench_page.table(rows, "w1, " + python.label)
    print("\n%s" % table, flush=True)
    return table


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--reps", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=100000)
    parser.add_argument("--mode", action="append", choices=["exact", "census"])
    parser.add_argument("--sample", action="append", help="like 64K")
    parser.add_argument("--python")
    args = parser.parse_args()
    path = args.python or pythons.newest()
    with tempfile.TemporaryDirectory() as folder:
        bench(
            interpreters.Python(path, folder),
            args.reps,
            args.mode or ("census", "exact"),
            args.sample or ("16K", "128K", "1M"),
            args.rounds,
        )


if __name__ == "__main__":
    main()
