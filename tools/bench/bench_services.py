# SPDX-License-Identifier: Apache-2.0
"""`tracer leaks` beside the twenty services of tests/e2e/programs/leaks/service.py, each in one
process and in four: what its first row says, and the requests a second before, during and after.
usage: bench_services.py [NAME/PROCESSES...]; prints a table in Markdown

Before and after are medians of intervals of two seconds; the noise is half of their span.
"""
import json
import os
import statistics
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path.append(os.path.join(ROOT, "tests", "e2e", "programs", "leaks"))

import service  # noqa: E402

TRACER = os.environ.get("TRACER", os.path.join(ROOT, "build", "tracer"))
SCRIPT = service.__file__
INTERVALS, SECONDS = 5, 2


class Service:
    def __init__(self, name, workers):
        self.process = subprocess.Popen(
            [sys.executable, SCRIPT, name, str(workers)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self.pids = self.process.stdout.readline().split()[1:]

    def counted(self):
        """[(requests, entries, seconds)] of each process."""
        self.process.stdin.write(b"?")
        self.process.stdin.flush()
        answer = json.loads(self.process.stdout.readline())
        return answer if isinstance(answer[0], list) else [answer]

    def rates(self):
        """Requests a second in some intervals."""
        counts = [self.counted()]
        for _ in range(INTERVALS):
            time.sleep(SECONDS)
            counts.append(self.counted())
        return [rate(a, b, 0) for a, b in zip(counts, counts[1:])]

    def end(self):
        self.process.stdin.close()
        self.process.wait()


def rate(before, after, which):
    """A second; which: 0: requests; 1: entries. Of all processes."""
    return sum((b[which] - a[which]) / (b[2] - a[2]) for a, b in zip(before, after))


def filled_by(row):
    lines = ["%s:%d" % (os.path.basename(f["filename"]), f["lineno"]) for f in row["filled_by"]]
    return lines[0] if lines else ""


def measure(name, workers):
    served = Service(name, workers)
    time.sleep(1)
    before, first = served.rates(), served.counted()
    began = time.monotonic()
    done = subprocess.run(
        [TRACER, "leaks", "-p", str(served.process.pid), "--format", "json"],
        stdout=subprocess.PIPE,
        check=True,
    )
    took, last = time.monotonic() - began, served.counted()
    after = served.rates()
    served.end()
    answer = json.loads(done.stdout)
    grow = [row for row in answer["holders"] if row["verdict"] == "grows"]
    base = statistics.median(before + after)
    cells = [name, str(max(1, workers)), "%.0f s" % took]
    if grow:
        cells += [grow[0]["path"], filled_by(grow[0])]
        told, own = grow[0]["entries_per_minute"], None
        if first[0][1] is not None:
            own = rate(first, last, 1) * 60
        cells += ["%.0f" % told, "%.0f (%+.1f %%)" % (own, (told / own - 1) * 100) if own else ""]
    else:
        cells += ["nothing grows", "", "", ""]
    cells += [str(len(grow))]
    during = rate(first, last, 0)
    cells += ["%.1f" % statistics.median(before), "%.1f" % during]
    cells += ["%.1f" % statistics.median(after), "%+.2f %%" % ((during / base - 1) * 100)]
    noise = (max(before + after) - min(before + after)) / 2 / base * 100
    cells += ["%.2f %%" % noise]
    print("| %s |" % " | ".join(cells), flush=True)


def main():
    print(
        "| service | processes | took | the first row | filled by | entries/min | it counts itself"
        " | rows that grow | requests/s before | during | after | change | noise |"
    )
    print("|---" * 13 + "|")
    names = [*service.HOLDERS, *service.STEADY]
    for each in sys.argv[1:] or ["%s/%d" % (name, n) for n in (1, 4) for name in names]:
        name, workers = each.split("/")
        measure(name, int(workers) if workers != "1" else 0)


if __name__ == "__main__":
    main()
