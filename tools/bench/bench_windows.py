# SPDX-License-Identifier: Apache-2.0
"""Measures what --overhead costs, and how far its figures are from the truth. Prints a table,
asserts nothing, ends with status 0.

A program (workloads/rate.py) runs untraced, then traced with --overhead, then untraced again, in one
run; the slow-down is that of its rounds for a second of its CPU time, without the first seconds, in which the governor chooses the
mode. The truth is what the program reports to have kept while it was traced. usage: bench_windows.py
[--reps N] [--seconds N] [--overhead PERCENT]... [--workload NAME]... [--python PATH]
"""
import argparse
import bisect
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

import bench_page  # noqa: E402
import interpreters  # noqa: E402
import pythons  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))
TRACER = os.path.abspath(
    os.environ.get("TRACER", os.path.join(HERE, "..", "..", "build", "tracer"))
)
UNTRACED = 8  # seconds before, and after
SETTLING = 5  # after the attach, and after the detach


class Progress:
    """What the program has printed: {time: (its CPU time, rounds, bytes on A, bytes on B)}."""

    def __init__(self, text):
        rows = [line.split() for line in text.splitlines() if len(line.split()) == 5]
        self.times = [float(row[0]) for row in rows]
        self.values = [tuple(map(float, row[1:])) for row in rows]

    def at(self, when):
        return self.values[min(bisect.bisect(self.times, when), len(self.times) - 1)]

    def rate(self, since, until):
        """Rounds for a second of CPU time: other programs do not matter."""
        (cpu, rounds), (cpu_before, rounds_before) = self.at(until)[:2], self.at(since)[:2]
        return (rounds - rounds_before) / (cpu - cpu_before)


def marked_lines():
    with open(os.path.join(HERE, "workloads", "rate.py")) as file:
        return {
            mark: number
            for number, text in enumerate(file, 1)
            for mark in "AB"
            if text.rstrip().endswith("# line " + mark)
        }


def run(python, workload, percent, seconds):
    """(slow-down, {mark: relative error of its share of both}, the modes that ran)"""
    with tempfile.TemporaryFile("w+") as out:
        target = subprocess.Popen(
            [
                *python.prefix,
                python.path,
                os.path.join(python.folder, "rate.py"),
                workload,
                str(seconds + 2 * UNTRACED + SETTLING + 5),
            ],
            stdout=out,
            env=interpreters.environment(),
        )
        try:
            time.sleep(UNTRACED)
            start = time.time()
            done = subprocess.run(
                [TRACER, "-q", "--overhead", str(percent), "-d", str(seconds)]
                + ["--format", "json", "--top", "0", "-p", str(target.pid)],
                stdout=subprocess.PIPE,
                timeout=interpreters.TIMEOUT,
            )
            end = time.time()
            target.wait(interpreters.TIMEOUT)
        finally:
            target.kill()
        out.seek(0)
        progress = Progress(out.read())
    report = json.loads(done.stdout)
    untraced = statistics.mean(
        [
            progress.rate(start - UNTRACED + 1, start),
            progress.rate(end + SETTLING, progress.times[-1]),
        ]
    )
    slower = 1 - progress.rate(start + SETTLING, end) / untraced
    sizes = {s["traceback"][0]["lineno"]: s["size"] for s in report["statistics"]}
    began = end - report["duration_ns"] / 1e9
    truth = {
        mark: progress.at(end)[column] - progress.at(began)[column]
        for column, mark in enumerate("AB", 2)
    }
    shown = {mark: sizes.get(line, 0) for mark, line in marked_lines().items()}
    errors = {
        mark: (shown[mark] / max(1, sum(shown.values()))) / (truth[mark] / sum(truth.values())) - 1
        for mark in truth
    }
    return slower, errors, [change["mode"] for change in report.get("modes", [])]


def bench(python, reps, budgets=(1, 5, 10), workloads=("w1", "w2", "w3"), seconds=40):
    """python: an interpreters.Python. Measures and prints; the table's text."""
    rows = [
        [
            "--overhead, " + python.label,
            "workload",
            "slow-down, median",
            "error of the share of A (3/4)",
            "of B (1/4)",
            "last mode",
        ]
    ]
    for percent in budgets:
        for workload in workloads:
            print("bench: --overhead %s, %s" % (percent, workload), file=sys.stderr, flush=True)
            runs = [run(python, workload, percent, seconds) for _ in range(reps)]
            rows.append(
                [
                    "%s %%" % percent,
                    workload,
                    "%.1f %%" % (100 * statistics.median(slower for slower, _, _ in runs)),
                    *(
                        "%.0f %%"
                        % (100 * statistics.median(abs(errors[mark]) for _, errors, _ in runs))
                        for mark in "AB"
                    ),
                    runs[-1][2][-1] if runs[-1][2] else "census",
                ]
            )
    print("\n%s" % bench_page.table(rows), flush=True)
    return bench_page.table(rows)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--reps", type=int, default=3)
    parser.add_argument("--seconds", type=int, default=40)
    parser.add_argument("--overhead", type=float, action="append")
    parser.add_argument("--workload", action="append", choices=["w1", "w2", "w3"])
    parser.add_argument("--python")
    args = parser.parse_args()
    path = args.python or pythons.newest()
    with tempfile.TemporaryDirectory() as folder:
        bench(
            interpreters.Python(path, folder),
            args.reps,
            args.overhead or (1, 5, 10),
            args.workload or ("w1", "w2", "w3"),
            args.seconds,
        )


if __name__ == "__main__":
    main()
