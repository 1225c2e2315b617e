# SPDX-License-Identifier: Apache-2.0
"""Measures the share of blocks with a traceback, among those that were allocated since the attach
and are live at the snapshot: for every interpreter found (also in root file systems) and every
workload. Prints a Markdown table.

Small blocks are counted on the heap itself, in the target's memory; blocks of more than 512 bytes
are counted by the growth of their number. Bytes are those of small blocks, since the heap has only
their sizes. What cannot be traced is named. usage: coverage_table.py [--mode MODE] [--workloads
NAME,…] [--only REGEX] [--docs]
"""
import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile

sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

import bench_page  # noqa: E402
import interpreters  # noqa: E402
from bench import TRACER, wait_line  # noqa: E402

HOLD = os.path.join(interpreters.HERE, "..", "tests", "e2e", "programs", "python", "hold.py")
ROUNDS = {"w1": 10000, "w2": 20000, "w3": 40, "every_type": 1000}
TIMEOUT = 300


def start_tracer(pid, options, snapshot):
    """The attached tracer and its output; ValueError with the output if it did not attach."""
    process = subprocess.Popen(
        [TRACER, "--overhead=0", "-p", str(pid), "-o", snapshot, *options],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        bufsize=0,
    )
    said = b""
    while b"tracer: attached to" not in said or not said.endswith(b"\n"):
        data = os.read(process.stderr.fileno(), 65536)
        said += data
        if not data:
            process.wait(TIMEOUT)
            raise ValueError(said.decode(errors="replace").strip())
    return process, said.decode(errors="replace")


def traced(python, workload, options):
    """The report of a workload that still holds its blocks, and the tracer's first output."""
    snapshot = os.path.join(python.host_folder, "coverage.pb.gz")
    path, *arguments = python.workload(workload, ROUNDS[workload])
    shutil.copy(HOLD, python.host_folder)
    target = subprocess.Popen(
        [*python.prefix, path, os.path.join(python.folder, "hold.py"), *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=interpreters.environment(),
        bufsize=0,
    )
    try:
        wait_line(target.stdout, b"ready", TIMEOUT)
        process, said = start_tracer(target.pid, options, snapshot)
        target.stdin.write(b"go\n")
        wait_line(target.stdout, b"done", TIMEOUT)
        process.send_signal(signal.SIGINT)
        rest = process.communicate(timeout=TIMEOUT)[1]
        if process.returncode:
            raise ValueError(rest.decode(errors="replace").strip())
        report = subprocess.run(
            [TRACER, "report", snapshot, "--format", "json", "--top", "0"],
            stdout=subprocess.PIPE,
            check=True,
            timeout=TIMEOUT,
        )
        return json.loads(report.stdout), said
    finally:
        target.kill()
        target.wait()


def shares(report):
    """The shares of new blocks and of new bytes that have a traceback, each at most 1."""
    coverage = report["coverage"]
    if not coverage:
        raise ValueError("its heap could not be read")
    unknown = [s for s in report["statistics"] if s["traceback"][0]["filename"] == "<unknown>"]
    blocks = coverage["new_blocks"] + coverage["large_new"]
    seen = (
        coverage["seen_blocks"]
        + min(coverage["large_seen"], coverage["large_new"])
        - sum(s["count"] for s in unknown)
    )
    seen_bytes = coverage["seen_bytes"] - sum(s["size"] for s in unknown)
    return seen / blocks, seen_bytes / coverage["new_bytes"]


def probes(said):
    return re.search(r"(\d+) probes", said).group(1)


def percent(share):
    """Never rounded up to a bar that was not met."""
    return "%.2f" % (int(share * 10000) / 100)


def row(python, options, left_out):
    """A row of the table, or None when nothing of it can be traced."""
    cells, count, reasons = [], "", {}
    for workload in options.workloads.split(","):
        try:
            report, said = traced(python, workload, ["-m", options.mode])
            count = probes(said)
            cells.append("%s / %s" % tuple(map(percent, shares(report))))
            if report["lost_events"]:
                reasons.setdefault("%d lost events" % report["lost_events"], []).append(workload)
        except (OSError, ValueError, RuntimeError, subprocess.SubprocessError) as error:
            reasons.setdefault(re.sub(r"PID \d+: ", "", str(error)[-300:]), []).append(workload)
            cells.append("–")
    left_out += [
        "%s, %s: %s" % (python.label, ", ".join(names), why) for why, names in reasons.items()
    ]
    return [python.label, count, *cells] if count else None


def main():
    parser = argparse.ArgumentParser(
        description="the share of new blocks that has a traceback, per interpreter"
    )
    parser.add_argument("--mode", default="census")
    parser.add_argument("--workloads", default=",".join(ROUNDS))
    parser.add_argument(
        "--only", default="", help="interpreters whose names this regular expression finds"
    )
    parser.add_argument(
        "--docs", action="store_true", help="write the tables into docs/benchmarks.md"
    )
    options = parser.parse_args()
    rows, left_out = [["interpreter", "probes", *options.workloads.split(",")]], []
    with tempfile.TemporaryDirectory() as folder:
        for python in interpreters.everything(folder):
            try:
                if re.search(options.only, python.label):
                    print("coverage: " + python.label, file=sys.stderr, flush=True)
                    rows.append(row(python, options, left_out))
            finally:
                python.remove()
    table = bench_page.table([r for r in rows if r], "blocks / bytes with a traceback, %")
    print(table)
    for text in left_out:
        print("- " + text)
    if options.docs:
        bench_page.replace("coverage", table)


if __name__ == "__main__":
    main()
