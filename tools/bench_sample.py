# SPDX-License-Identifier: Apache-2.0
"""How far estimates from a sample are from the truth, and what sampling saves. Prints a table, asserts nothing, ends with status 0.

w1 runs untraced, then under the tracer without and with --sample, in turn. Of the seconds medians are shown. The truth is what
the same run without --sample says is live; the error of the total is shown as its root mean square over the repetitions, beside
the standard error that the tracer says itself (root mean square, too): with many repetitions they are alike.
usage: bench_sample.py [--reps N] [--rounds N] [--mode exact|census]... [--sample BYTES]... [--python PATH]
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

import interpreters
import pythons

HERE = os.path.dirname(os.path.abspath(__file__))
TRACER = os.path.abspath(os.environ.get("TRACER", os.path.join(HERE, "..", "build", "tracer")))
UNITS = {"K": 1 << 10, "M": 1 << 20}


def run(command, options=None):
    """(seconds that w1 took, the report or None)"""
    if options is not None:
        command = [TRACER, "-q", "-n", "8", "--format", "json", "--top", "1", *options, "--", *command]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=interpreters.TIMEOUT, env=interpreters.environment(), text=True)
    if done.returncode:
        sys.exit("%s: %s" % (" ".join(command), done.stderr))
    lines = done.stdout.splitlines()
    report = next((json.loads(line) for line in lines if line.startswith("{")), None)
    return float(next(line for line in lines if not line.startswith("{"))), report


def mean_square(values):
    return (sum(v * v for v in values) / len(values)) ** 0.5


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--reps", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=100000)
    parser.add_argument("--mode", action="append", choices=["exact", "census"])
    parser.add_argument("--sample", action="append", help="like 64K")
    parser.add_argument("--python")
    args = parser.parse_args()
    path = args.python or list(pythons.unstripped().values())[-1]
    with tempfile.TemporaryDirectory() as folder:
        python = interpreters.Python(path, folder)
        command = python.workload("w1", args.rounds)
        ways = [None] + [["-m", m, *s] for m in args.mode or ["census", "exact"] for s in [[]] + [["--sample", s] for s in args.sample or ["16K", "128K", "1M"]]]
        runs = {str(way): [] for way in ways}
        for _ in range(args.reps):
            for way in ways:
                runs[str(way)].append(run(command, way))
    base = statistics.median(seconds for seconds, _ in runs["None"])
    print("| %s, w1 | seconds (ratio to untraced) | live, median | error of the total | standard error said |" % python.label)
    print("|---|---|---|---|---|")
    for way in ways:
        seconds = statistics.median(s for s, _ in runs[str(way)])
        name = "untraced" if way is None else " ".join([way[1], *way[2:]])
        row = "| %s | %.2f (%.1f) |" % (name, seconds, seconds / base)
        if way is None:
            print(row + " | | |")
            continue
        sizes = [report["total"]["size"] for _, report in runs[str(way)]]
        row += " %.1f MiB |" % (statistics.median(sizes) / UNITS["M"])
        if len(way) == 2:
            truth = statistics.median(sizes)
            print(row + " | |")
            continue
        said = [report["total"]["size_error"] for _, report in runs[str(way)]]
        print(row + " %.2f %% | %.2f %% |" % (mean_square([size / truth - 1 for size in sizes]) * 100, mean_square(said) / truth * 100))


if __name__ == "__main__":
    main()
