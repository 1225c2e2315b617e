# SPDX-License-Identifier: Apache-2.0
"""Compares native stacks with those of perf record --call-graph dwarf, of the same requests in the
same run, for each program of programs.py. Prints a Markdown table, and on stderr what differs.
Exit status 1: a figure is below SHARE. Then stacks do not count that were cut because another
process, such as the tracer, had locked the process's mappings, up to BUSY of all. usage: stacks_table.py [--only REGEX] [--docs]"""
import argparse
import collections
import os
import re
import signal
import subprocess
import sys
import tempfile

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "bench"))

import bench_page  # noqa: E402
import compare  # noqa: E402
import programs  # noqa: E402
import records  # noqa: E402
import recorders  # noqa: E402

SHARE = 0.99
BUSY = 0.1
PAGE = os.path.join(recorders.ROOT, "docs", "benchmarks.md")


def start(program, folder, hold, log):
    """The program, held, and the FIFO's descriptor."""
    fifo = os.path.join(folder, "hold")
    os.mkfifo(fifo)
    os.chmod(fifo, 0o644)
    env = {k: v for k, v in os.environ.items() if not k.startswith(("LD_", "PYTHON"))}
    env.update(HOLD=fifo, LC_ALL="C.UTF-8", **({"LD_PRELOAD": hold} if program.preload else {}))
    process = subprocess.Popen(
        program.command,
        env=env,
        user=program.user,
        group=program.user,
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
    )
    return process, os.open(fifo, os.O_WRONLY)


def record(program, folder, hold):
    """Runs it under both recorders: compare.Comparison, and whether perf lost samples."""
    capture, snapshot, data = (os.path.join(folder, n) for n in ("capture", "s.pb.gz", "perf.data"))
    with open(os.path.join(folder, "log"), "ab") as log:
        process, fifo = start(program, folder, hold, log)
        try:
            with recorders.probes(process.pid, program.sites) as events, recorders.perf(
                process.pid, events, data, program.copied, program.only
            ), recorders.tracer(process.pid, capture, snapshot):
                os.write(fifo, b"x")
                if program.use:
                    program.use()
                    process.send_signal(signal.SIGTERM)
                process.wait(recorders.TIMEOUT)
        finally:
            os.close(fifo)
            if process.poll() is None:
                process.kill()
                process.wait()
    lines, lost = recorders.perf_lines(data)
    perf = records.PerfReader(bool(program.sites), program.interpreter).read(lines)
    ours = records.read_capture(capture, perf.maps)
    return compare.compare(ours, perf.requests), lost


def share(part, whole):
    return part / whole if whole else 0.0


def percent(value):
    """Rounded down, so that 100 % is all."""
    return "%.2f %%" % (int(value * 10000) / 100)


SHOWN = 4  # frames before the first that differs, and four times as many from there on


def show(frames, common):
    first = max(common - SHOWN, 0)
    lines = ["        … %d frames" % first] if first else []
    for path, at in frames[first : common + 4 * SHOWN]:
        lines.append("        %s+%#x" % (os.path.basename(path), at))
    return "\n".join(lines)


def explain(comparison, limit, out):
    kinds = collections.Counter()
    for one in comparison.differences:
        kinds[one.kind] += one.requests
    for kind, count in kinds.most_common():
        print("    %d: %s" % (count, kind), file=out)
    for one in comparison.differences[:limit]:
        theirs = compare.comparable(one.ours, one.theirs)
        common = compare.common_frames(one.ours.frames, theirs)
        print("    %s (%d requests)\n      tracer" % (one.kind, one.requests), file=out)
        print(show(one.ours.frames, common) + "\n      perf", file=out)
        print(show(theirs, common), file=out)


def row(name, result, lost):
    """Whether it is good, and its line in the table."""
    pairs = [(result.whole, result.ours), (result.equal, result.both)]
    shares = [share(part[i], all[i]) for part, all in pairs for i in (0, 1)]
    wrong = sum(one.requests for one in result.differences if one.kind == compare.DISAGREE)
    if not result.both[0]:
        pairs, equal = pairs[:1], ["–", "–"]
    else:
        equal = list(map(percent, shares[2:]))
    at_rest = [share(result.whole[i], result.ours[i] - result.busy[i]) for i in (0, 1)]
    good = min(at_rest + shares[2 : 2 * len(pairs)]) >= SHARE
    good = good and result.busy[0] <= BUSY * result.ours[0]
    return good, [
        name,
        "{:,}".format(result.ours[0]),
        "%.1f" % share(result.frames, result.ours[0]),
        *map(percent, shares[:2]),
        "{:,}".format(result.both[0]) + (" (some lost)" if lost else ""),
        *equal,
        "{:,}".format(wrong),
        "{:,}".format(result.cut[0]),
    ]


HEAD = ["program", "requests", "frames each", "whole", "whole, by bytes", "perf's"]
HEAD += ["equal", "equal, by bytes", "disagree", "perf's end early"]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default="", help="programs whose name matches")
    parser.add_argument("--differences", type=int, default=3, help="examples that are printed")
    parser.add_argument("--keep", help="folder for the recordings")
    parser.add_argument("--docs", action="store_true", help="write the table into the documents")
    options = parser.parse_args()
    recorders.with_tracefs()
    rows, failed = [HEAD], []
    for name, make in programs.ALL.items():
        if not re.search(options.only, name):
            continue
        with tempfile.TemporaryDirectory(dir=options.keep) as folder:
            os.chmod(folder, 0o755)  # a program may have a user of its own
            hold = os.path.join(folder, "hold.so")
            programs.run("cc", "-shared", "-fPIC", "-o", hold, programs.HOLD)
            try:
                comparison, lost = record(make(folder), folder, hold)
            except programs.Missing as missing:
                print("%s: this machine has no %s" % (name, missing), file=sys.stderr)
                continue
        good, line = row(name, comparison, lost)
        print("%s: %s" % (name, " ".join(line[1:])), file=sys.stderr)
        explain(comparison, options.differences, sys.stderr)
        rows.append(line)
        failed += [] if good else [name]
    text = bench_page.table(rows)
    print(text)
    if options.docs:
        bench_page.replace("stacks", text, PAGE)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
