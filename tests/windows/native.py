#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Runs a C++ program that windows of malloc's probes may get wrong, and compares what its functions
keep with what it has counted itself.

usage: native.py [--rounds 2,30,…] [--runs N] [--seconds N] [--older N] [--overhead PERCENT]
                 [--keep FOLDER] [--judge FOLDER]
(root; the tracer is build/tracer, or TRACER)

The program works for `older` seconds, is traced for `seconds`, stops, and says what it has kept since
the attach. --keep leaves the capture and the truth of each run in a folder; --judge replays those of a
folder instead.
"""
import argparse
import glob
import json
import os
import re
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
SOURCE = os.path.join(HERE, "programs", "books.cc")
NAME = os.path.basename(SOURCE)
# The first walk, and the last one, are over then.
SETTLED = 1.5, 6


def functions():
    """[(name, first line, last line)] of those that are judged."""
    found = []
    with open(SOURCE) as file:
        for number, text in enumerate(file, 1):
            name = re.match(r"APART static .*?(\w+)\(", text)
            if name:
                found.append([name[1], number, None])
            if text == "}\n" and found and not found[-1][2]:
                found[-1][2] = number
    return found


def function_of(traceback, known):
    for frame in traceback:
        for name, first, last in known:
            if os.path.basename(frame["filename"]) == NAME and first <= frame["lineno"] <= last:
                return name
    return "elsewhere"


def judge(title, truth, snapshot):
    report = harness.read_report(TRACER, snapshot, "--group-by", "traceback").data
    total = sum(size for size, _ in truth.values())
    known, found = functions(), {}
    for entry in report["statistics"]:
        name = function_of(entry["traceback"], known)
        size, count = found.get(name, (0, 0))
        found[name] = (size + entry["size"], count + entry["count"])
    windows = report["windows"]
    print(
        "%s: %d windows, %.1f %% of the time; not seen %.1f %% of the bytes"
        % (
            title,
            windows["count"],
            100 * windows["time_share"],
            100 * windows["unseen"]["size"] / total,
        )
    )
    for name in [name for name, *_ in known] + ["elsewhere"]:
        size, count = found.get(name, (0, 0))
        if name in truth:
            print(
                "    %-16s %4.1f %% of the bytes, error %+5.1f %% (blocks %+5.1f %%)"
                % (
                    name,
                    100 * truth[name][0] / total,
                    100 * (size / truth[name][0] - 1),
                    100 * (count / truth[name][1] - 1),
                )
            )
        else:
            print("    %-16s keeps nothing, is given %.1f %%" % (name, 100 * size / total))
    sys.stdout.flush()


def run(program, rounds, options, folder, keep):
    limit = ["--layer", "native", "--overhead", options.overhead]
    with harness.Target(program, None, rounds, ready=False) as target:
        assert target.read_line(60) == "ready"
        time.sleep(options.older)
        os.kill(target.pid, signal.SIGUSR1)
        target.read_line(60)
        if keep:
            limit += ["--capture", keep + ".cap"]
        with harness.Traced(TRACER, folder, *limit, "-p", target.pid) as traced:
            time.sleep(SETTLED[0])
            target.step()
            time.sleep(options.seconds)
            os.kill(target.pid, signal.SIGUSR1)
            truth = json.loads(target.read_line(60))
            time.sleep(SETTLED[1])
            traced.finish()
            if keep:
                with open(keep + ".json", "w") as file:
                    json.dump(truth, file)
            judge("%s rounds" % rounds, truth, traced.snapshot)


def judge_kept(path):
    with tempfile.TemporaryDirectory() as folder:
        snapshot = os.path.join(folder, "snap.pb.gz")
        capture = path[: -len("json")] + "cap"
        subprocess.run(
            [TRACER, "replay", "-o", snapshot, capture], stdout=subprocess.DEVNULL, check=True
        )
        with open(path) as file:
            judge(os.path.basename(path), json.load(file), snapshot)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", default="2,30")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--older", type=int, default=10)
    parser.add_argument("--overhead", type=float, default=5)
    parser.add_argument("--keep", help="leave captures and truths in that folder")
    parser.add_argument("--judge", help="replay the runs of that folder instead")
    options = parser.parse_args()
    if options.judge:
        for path in sorted(glob.glob(os.path.join(glob.escape(options.judge), "books-*.json"))):
            judge_kept(path)
        return
    if options.keep:
        os.makedirs(options.keep, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        program = os.path.join(folder, "books")
        subprocess.run(["g++", "-O1", "-g", "-o", program, SOURCE], check=True)
        for rounds in options.rounds.split(","):
            for number in range(options.runs):
                keep = options.keep and os.path.join(
                    options.keep, "books-%s-%d" % (rounds, number + 1)
                )
                run(program, rounds, options, folder, keep)


if __name__ == "__main__":
    main()
