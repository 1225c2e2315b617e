# SPDX-License-Identifier: Apache-2.0
"""Traces every available build of CPython and compares it with its own tracemalloc: the table
docs/pythons.md.

usage: pythons_table.py [--only REGEX] [--resume] [--report FILE]

Builds: the distribution's, pyenv's, those in root file systems, and the archives of pythons.PACKED.
Absent builds are named. Results are kept in build/pythons.json. Last line: pythons: N passed, N failed[, N skipped].
Exit status: 0, 1 if a figure exceeded its bound without a message.
"""
import argparse
import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile

import interpreters
import pythons
from markdown import Notes, shown, table

sys.path.insert(0, os.path.join(pythons.ROOT, "tests", "e2e"))

import harness  # noqa: E402
import parity  # noqa: E402

TRACER = os.path.abspath(os.environ.get("TRACER", os.path.join(pythons.ROOT, "build", "tracer")))
RESULTS = os.path.join(pythons.ROOT, "build", "pythons.json")
THREADS = "par_threads"
WORKS = ("par", "par_leak", "par_big", "par_peak", THREADS, "par_async")
BLOCKS, BYTES, ATTACH_MS = 0.001, 0.005, 300
COVERAGE = 0.999

INTRODUCTION = """# Pythons

Written by `make pythons`: builds of CPython, each of which ran the same programs under the tracer and then
with its own tracemalloc. What threads do differs from run to run, all the more if a JIT compiles it: where that exceeds
the bound, tracemalloc runs in the traced process.

- `par` keeps a few thousand things of every kind, `par_leak` a little of each of many requests, `par_big` large
  blocks, `par_peak` little of much; `par_threads` is eight threads, `par_async` an event loop with tasks and
  connections. Figures are percent of blocks / percent of bytes that stand at another line than tracemalloc has them at.
- `heap`: how far `tracer heap` is off in blocks / in the bytes of one type's objects. `growth`: in pools / in large
  blocks' bytes, in growth mode.
- `covered`: percent of new blocks with a traceback, `rounded`: of blocks whose size is known only as rounded up, in `par`.

`attach` is the fastest of five. Bold is over the bound: {blocks} % of blocks, {bytes} % of bytes, {attach} ms to attach, {coverage} % covered. `–` is an error
that the tracer gave. A number leads to what it said, below.
""".format(
    blocks=100 * BLOCKS, bytes=100 * BYTES, attach=ATTACH_MS, coverage=100 * COVERAGE
)
HEADER = ("build", "attach, ms", "probes", "covered", "rounded", *WORKS, "heap", "growth")
# Messages of every attach, about other sessions, and about the cost, which is not measured here.
USUAL = re.compile(
    r"tracer: (attached to|raw, mem, obj:|PID \d+: (\d+ breakpoints|the probes take))"
)


class Row:
    """A build's cells: {name: (text, whether it is within its bound, reasons)}."""

    def __init__(self, label, cells=None):
        self.label, self.cells = label, dict(cells or {})

    def put(self, name, text, good, reasons):
        self.cells[name] = (text, bool(good), list(reasons))

    def refuse(self, name, reason):
        self.put(name, "–", True, [reason])

    def failed(self):
        """Figures that exceeded their bound without a message."""
        return [
            "%s: %s: %s" % (self.label, name, text)
            for name, (text, good, _) in self.cells.items()
            if not good
        ]

    def passed(self):
        return len(self.cells) - len(self.failed())

    def row(self, notes):
        def shown_cell(text, good, reasons):
            numbers = ", ".join(str(notes.number(reason)) for reason in reasons)
            return (text if good else "**%s**" % text) + (" (%s)" % numbers if numbers else "")

        none = ("–", True, ())
        return [self.label, *(shown_cell(*self.cells.get(name, none)) for name in HEADER[1:])]


class Results:
    """The rows of this tracer's runs, in a file of the build's folder."""

    def __init__(self, resume):
        with open(TRACER, "rb") as file:
            self.tracer = hashlib.sha256(file.read()).hexdigest()[:16]
        self.rows = {}
        if resume and os.path.exists(RESULTS):
            with open(RESULTS) as file:
                kept = json.load(file)
            if kept["tracer"] == self.tracer:
                self.rows = {label: Row(label, cells) for label, cells in kept["rows"].items()}

    def is_good(self, label):
        return label in self.rows and not self.rows[label].failed()

    def add(self, row):
        self.rows[row.label] = row
        with open(RESULTS + ".new", "w") as file:
            rows = {label: each.cells for label, each in self.rows.items()}
            json.dump({"tracer": self.tracer, "rows": rows}, file, indent=1)
        os.rename(RESULTS + ".new", RESULTS)


def percent(share):
    """Never rounded down to a bound that was not met."""
    return "%.2f" % (-int(-share * 10000) / 100 if share < 0.0001 else share * 100)


def pair(blocks, size):
    return "%s / %s" % (percent(blocks), percent(size)), blocks <= BLOCKS and size <= BYTES


def warnings(run):
    """The tracer's messages, except the usual ones."""
    said = [
        re.sub(r"^tracer: (PID \d+: )?", "", line)
        for line in run.stderr.split("\n")
        if line and not USUAL.match(line)
    ]
    return list(dict.fromkeys(said + run.report.data.get("warnings", [])))


def reason(error):
    """Why there is no figure: the tracer's own message, if it ended with one, or the module that
    the build has not."""
    said = re.search(r"^.*?(tracer: (?!attached).*|ModuleNotFoundError: .*)$", str(error), re.M)
    return said[1] if said else None


def fail(row, name, error):
    """Marks a missing figure: the tracer refused, or it failed for another reason."""
    why = reason(error)
    if why:
        row.refuse(name, shown(why))
    else:
        row.put(name, "failed", False, [shown(str(error).strip().split("\n")[-1])])


def works(row, python, folder):
    attaches = []
    for work in WORKS:
        try:
            measured = parity.Parity(TRACER, folder, python, work)
        except (AssertionError, subprocess.SubprocessError) as error:
            fail(row, work, error)
            continue
        run = measured.run
        text, good = pair(measured.blocks_off, measured.bytes_off)
        reasons = [shown(said) for said in warnings(run)]
        if not good and work == THREADS:
            reasons.append("%s against another run; this is against tracemalloc in the same run" % text)
            measured = parity.Parity(TRACER, folder, python, work, together=True)
            text, good = pair(measured.blocks_off, measured.bytes_off)
        row.put(work, text, good, reasons)
        if not good:
            print("%s: %s: %s" % (row.label, work, measured.worst), file=sys.stderr)
        attaches.append(run.attach["ms"])
        if work == WORKS[0]:
            row.put("probes", str(run.attach["probes"]), True, ())
            covered = run.coverage()
            text = "?" if covered is None else percent(covered)
            row.put("covered", text, covered is not None and covered >= COVERAGE, ())
            row.put(
                "rounded",
                percent(run.report.data["not_seen"]["rounded_blocks"] / measured.blocks),
                True,
                (),
            )
    if attaches:  # other work on the machine makes some attaches slower
        row.put("attach, ms", str(min(attaches)), min(attaches) <= ATTACH_MS, ())


def others(row, python, folder):
    for name, measure in (
        ("heap", lambda: parity.heap_off(TRACER, python)),
        ("growth", lambda: parity.growth_off(TRACER, folder, python)),
    ):
        try:
            row.put(name, *pair(*measure()), ())
        except (AssertionError, subprocess.SubprocessError) as error:
            fail(row, name, error)


def measure(row, python, folder):
    """All cells of a row. A build that is refused as a whole need not be able to
    run the programs."""
    why = parity.refusal(TRACER, python)
    if why:
        for name in (*WORKS, "heap", "growth"):
            row.refuse(name, shown(why))
        return
    works(row, python, folder)
    others(row, python, folder)


def builds(folder, absent):
    """Every available interpreters.Python; absent ones are appended to absent."""
    yield from interpreters.everything(folder)
    for packed in pythons.PACKED:
        try:
            yield interpreters.packed(packed, folder)
        except (LookupError, subprocess.SubprocessError) as error:
            absent.append("%s (%s): %s" % (pythons.packed_name(packed), packed.like, error))


def main():
    parser = argparse.ArgumentParser(
        description="every build of CPython, held against its own tracemalloc"
    )
    parser.add_argument(
        "--only", default="", help="builds whose names this regular expression finds"
    )
    parser.add_argument("--report", help="the table's file (default: build/pythons.md)")
    parser.add_argument(
        "--resume",
        action="store_true",
        help="repeat only builds that an earlier run of this tracer did not finish or that failed",
    )
    options = parser.parse_args()
    rows, absent, notes, results = [], [], Notes(), Results(options.resume)
    with tempfile.TemporaryDirectory() as folder:
        for python in builds(folder, absent):
            try:
                if not re.search(options.only, python.label):
                    continue
                if not results.is_good(python.label):
                    print("pythons: " + python.label, file=sys.stderr, flush=True)
                    row = Row(python.label)
                    measure(row, python, folder)
                    results.add(row)
                rows.append(results.rows[python.label])
            finally:
                python.remove()
    parts = [INTRODUCTION, table(HEADER, [row.row(notes) for row in rows])]
    parts += [notes.text()] if notes.numbers else []
    parts += ["Absent:\n\n" + "".join("- %s\n" % shown(text) for text in absent)] if absent else []
    with open(options.report or os.path.join(pythons.ROOT, "build", "pythons.md"), "w") as file:
        file.write("\n".join(parts))
    for text in [text for row in rows for text in row.failed()]:
        print("FAILED " + text)
    for text in absent:
        print("SKIPPED " + text)
    failed = sum(len(row.failed()) for row in rows)
    print(
        "pythons: %d passed, %d failed, %d skipped"
        % (sum(row.passed() for row in rows), failed, len(absent))
    )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
