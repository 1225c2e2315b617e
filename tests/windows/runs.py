#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Runs programs that estimates from windows may get wrong, and compares each line with tracemalloc,
which was on in the program from its start, or with what the program has counted itself.

usage: runs.py [--programs churn,short,…] [--runs N] [--seconds N] [--older N] [--python PATH]
               [--window ON/OFF | --overhead PERCENT] [--json FILE] [--keep FOLDER]
       runs.py --judge FOLDER [--programs churn,short,…] [--json FILE]
(root; the tracer is build/tracer, or TRACER)

The program works for `older` seconds, is traced for `seconds`, and then stops and says what is
alive of the time since the attach. Prints a line per run and program, and in the end a table in
Markdown. --keep leaves the capture, the truth and the tracer's messages of each run in a folder; --judge
replays those of a folder instead, so that a change of the estimates is judged by the same runs in
seconds.
"""
import argparse
import glob
import json
import os
import signal
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
TESTS = os.path.dirname(HERE)
sys.path[:0] = [os.path.join(TESTS, "e2e")]

import harness  # noqa: E402

TRACER = os.environ.get("TRACER") or os.path.join(os.path.dirname(TESTS), "build", "tracer")
PROGRAM = os.path.join(HERE, "programs", "fools.py")
PROGRAMS = "steady churn same lifo bursts in_step start_up lines short w1 w2 w3 service".split()
# As in the programs, which say what for.
TRACE_BYTES = 16
# sizeof(traceback_t) with one frame, of which tracemalloc has one for each line. A line with no
# more than that was seen in no window.
TRACEBACK_BYTES = 24
# Programs of which older blocks that are not marked as churn stay for good.
KEEPING = set("steady churn bursts in_step start_up short w1 w2 service".split())


def key_of(entry):
    frame = entry["traceback"][0]
    return "%s:%d" % (frame["filename"], frame["lineno"])


def churning():
    with open(PROGRAM) as file:
        return {
            "%s:%d" % (PROGRAM, number) for number, text in enumerate(file, 1) if "# churns" in text
        }


class Run:
    """One trace of a program: the truth, and what the report says."""

    def __init__(self, name, before, truth, snapshot):
        self.name, self.before, self.truth = name, before, truth
        self.data = harness.read_report(TRACER, snapshot).data
        self.found = {key_of(entry): entry for entry in self.data["statistics"]}
        # By line, the number of blocks that tracemalloc keeps beside those of the program.
        for line, count in harness.traces_by_size(TRACER, snapshot)[TRACE_BYTES].items():
            self.found["%s:%d" % line]["size"] -= count * TRACE_BYTES

    def judge(self):
        """Figures of the run; shares are of all new bytes."""
        total = sum(size for size, _ in self.truth.values())
        found = self.found
        figures = {"total": total, "intervals": 0, "right": 0, "missing": 0, "errors": []}
        # Of 10,000 lines none is large: all that were seen count, but not those that were not.
        least = total / 100 if self.name != "lines" else 0
        for key, (size, _) in self.truth.items():
            if size < least or (not least and "size_error" not in found.get(key, {})):
                continue
            entry = found.get(key)
            if not entry or (entry["size"] <= TRACEBACK_BYTES and not entry.get("size_error")):
                figures["missing"] += 1
                figures["errors"].append((size / total, 1.0))
                continue
            error = abs(entry["size"] - size)
            figures["intervals"] += 1
            # Deviations are kept in eighths of a block.
            figures["right"] += error <= 1.96 * entry.get("size_error", 0) + size / 200
            figures["errors"].append((size / total, error / size))
        figures["false"] = sum(
            entry["size"] for key, entry in found.items() if key not in self.truth
        ) / max(total, 1)
        windows = self.data.get("windows") or {}
        figures["unseen"] = windows.get("unseen", {}).get("size", 0) / max(total, 1)
        figures["windows"] = windows.get("count", 0)
        figures["time_share"] = windows.get("time_share", 0)
        figures["sum"] = self.data["total"]["size"] / max(total, 1)
        figures["old"] = self._judge_older()
        return figures

    def _older_truth(self):
        drop = churning()
        return {k: size for k, (size, _) in self.before.items() if k not in drop}

    def _judge_older(self):
        if self.name not in KEEPING or "older" not in self.data:
            return None
        truth = self._older_truth()
        total = sum(truth.values())
        if not total:
            return None
        found = {key_of(entry): entry["size"] for entry in self.data["older"]["statistics"]}
        right = sum(min(size, found.get(key, 0)) for key, size in truth.items())
        return right / total

    def print_lines(self):
        found = self.found
        lines = sorted(
            set(self.truth) | set(found),
            key=lambda k: -max(self.truth.get(k, (0, 0))[0], found.get(k, {}).get("size", 0)),
        )
        for key in lines[:12]:
            entry = found.get(key, {"size": 0, "size_error": 0})
            print(
                "    %-40s truth %9d estimate %9d +- %8d"
                % (
                    key[-40:],
                    self.truth.get(key, (0, 0))[0],
                    entry["size"],
                    entry.get("size_error", 0),
                )
            )
        older = {key_of(entry): entry["size"] for entry in self.data["older"]["statistics"]}
        truth = self._older_truth()
        for key in sorted(set(older) | set(truth), key=lambda k: -truth.get(k, older.get(k, 0)))[:12]:
            print(
                "    older %-40s truth %9d estimate %9d"
                % (key[-40:], truth.get(key, 0), older.get(key, 0))
            )


class RealRun(Run):
    def __init__(self, name, options, folder, capture=None):
        with harness.Target(options.python, PROGRAM, name, options.older, ready=False) as target:
            self._ready(target, options.older)
            limit = (
                ["--no-follow", "--overhead", options.overhead]
                if options.overhead
                else ["--no-follow", "--window", options.window]
            )
            if capture:
                limit += ["--capture", capture + ".cap"]
            os.kill(target.pid, signal.SIGUSR1)
            before = json.loads(target.read_line(120))
            with harness.Traced(TRACER, folder, "-v", *limit, "-p", target.pid) as traced:
                target.step()
                time.sleep(options.seconds)
                os.kill(target.pid, signal.SIGUSR1)
                target.wait_reading()
                traced.finish()
                truth = json.loads(target.read_line(120))
                super().__init__(name, before, truth, traced.snapshot)
        if capture:
            with open(capture + ".txt", "w") as file:
                file.write(traced.stderr)
            with open(capture + ".json", "w") as file:
                json.dump({"program": name, "before": before, "truth": truth}, file)

    def _ready(self, target, seconds):
        line = target.read_line(seconds + 60)
        assert line == "ready", target.process.stderr.read().decode()


class ReplayedRun(Run):
    def __init__(self, path):
        with open(path) as file:
            kept = json.load(file)
        capture = path[: -len("json")] + "cap"
        with tempfile.TemporaryDirectory() as folder:
            snapshot = os.path.join(folder, "snap.pb.gz")
            subprocess.run(
                [TRACER, "replay", "-o", snapshot, capture], stdout=subprocess.DEVNULL, check=True
            )
            super().__init__(kept["program"], kept["before"], kept["truth"], snapshot)


def percentile(values, share):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))] if ordered else 0


def summary(name, runs):
    """A row of the table: of all runs of a program."""
    large = [e for run in runs for share, e in run["errors"] if share >= 0.05]
    small = [e for run in runs for share, e in run["errors"]]
    old = [run["old"] for run in runs if run["old"] is not None]
    mean = lambda key: sum(run[key] for run in runs) / len(runs)  # noqa: E731
    return "| %s | %d | %.0f | %d of %d | %.0f %% | %.0f %% | %.1f %% | %.1f %% | %s |" % (
        name,
        len(runs),
        mean("windows"),
        sum(run["right"] for run in runs),
        sum(run["intervals"] for run in runs),
        100 * percentile(large, 0.95),
        100 * percentile(small, 0.95),
        100 * mean("false"),
        100 * mean("unseen"),
        "%.0f %%" % (100 * sum(old) / len(old)) if old else "–",
    )


HEAD = """| program | runs | windows | 95 % intervals right | error of lines >= 5 % | of lines >= 1 % | at lines that hold nothing | not seen | older at the right line |
|---|---|---|---|---|---|---|---|---|"""


def real(name, options):
    for number in range(options.runs):
        keep = options.keep and os.path.join(options.keep, "%s-%d" % (name, number + 1))
        with tempfile.TemporaryDirectory() as folder:
            yield RealRun(name, options, folder, keep)


def replayed(folder, name):
    for path in sorted(glob.glob(os.path.join(glob.escape(folder), name + "-*.json"))):
        yield ReplayedRun(path)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--programs", default=",".join(PROGRAMS))
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--older", type=int, default=10)
    parser.add_argument("--python", default="/usr/bin/python3")
    parser.add_argument("--window", default="40/1000")
    parser.add_argument("--overhead", type=float)
    parser.add_argument("--lines", action="store_true", help="print the lines of each run")
    parser.add_argument("--json", help="append the figures of each run to that file")
    parser.add_argument("--keep", help="leave captures, truths and messages in that folder")
    parser.add_argument("--judge", help="replay the runs of that folder instead")
    options = parser.parse_args()
    if options.keep:
        os.makedirs(options.keep, exist_ok=True)
    rows = []
    for name in options.programs.split(","):
        runs = []
        for run in replayed(options.judge, name) if options.judge else real(name, options):
            figures = run.judge()
            runs.append(figures)
            print("%s %d: %s" % (name, len(runs), json.dumps(figures)), flush=True)
            if options.lines:
                run.print_lines()
            if options.json:
                with open(options.json, "a") as file:
                    file.write(json.dumps({"program": name, **figures}) + "\n")
        if runs:
            rows.append(summary(name, runs))
    print("\n" + HEAD)
    print("\n".join(rows))


main()
