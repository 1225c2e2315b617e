# SPDX-License-Identifier: Apache-2.0
"""Reads the heaps of programs of Debian's packages as they run, and writes what share of their
reference counts is explained into docs/heap.md. Programs whose package is absent are named. Ends
with status 1 if a share is below its bar; programs that change while they are read have none."""
import argparse
import json
import os
import re
import signal
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path.append(os.path.join(ROOT, "tools", "bench"))
import bench_page  # noqa: E402

PAGE = os.path.join(ROOT, "docs", "heap.md")
PYTHON = "/usr/bin/python3"
EXACT, ALL_FOUND = 0.99, 0.999
TIMEOUT = 300

# (name in the table, module that it needs, argument of programs.py, options)
ROWS = [
    ("Flask service, 300 requests", "flask", "flask", []),
    ("the same, under load, `--freeze`", "flask", "flask load", ["--freeze"]),
    ("the same, running on", "flask", "flask load", []),
    ("Django with its admin, 300 requests", "django", "django", []),
    ("the same, under load, `--freeze`", "django", "django load", ["--freeze"]),
    ("the same, running on", "django", "django load", []),
    ("pandas, frames of 200,000 rows", "pandas", "pandas", []),
    ("gevent, 3,000 waiting greenlets", "gevent", "gevent", []),
    ("asyncio, 10,000 tasks", "asyncio", "asyncio", []),
    ("Jupyter's kernel, 200 cells", "ipykernel", "ipykernel", []),
    ("ansible-playbook, 200 hosts", "ansible", "ansible", []),
]


def has(module):
    return not subprocess.run([PYTHON, "-c", "import " + module], stderr=subprocess.DEVNULL).returncode


def read(tracer, program, options):
    """What tracer heap says as JSON."""
    process = subprocess.Popen(
        [PYTHON, os.path.join(HERE, "programs.py"), program],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        word, pid = process.stdout.readline().split()
        done = subprocess.run(
            [tracer, "heap", "--retained", "--top", "0", "--format", "json", "-p", pid, *options],
            stdout=subprocess.PIPE,
            check=True,
            timeout=TIMEOUT,
        )
        return json.loads(done.stdout)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="programs that this regular expression finds")
    parser.add_argument("--docs", action="store_true", help="write the table into docs/heap.md")
    options = parser.parse_args()
    head = (
        "program",
        "CPython",
        "objects",
        "count explained to the unit",
        "all references found",
        "with those that are nowhere",
    )
    rows, short = [head], []
    for title, module, program, more in ROWS:
        if not re.search(options.only, program):
            continue
        if not has(module):
            print("heaps: %s is not installed: %s is left out" % (module, title), file=sys.stderr)
            continue
        answer = read(os.environ["TRACER"], program, more)
        proof = answer["references"]
        exact, found = (proof[key] / proof["objects"] for key in ("exact", "all_found"))
        known = (proof["all_found"] + proof["lost"]) / proof["objects"]
        rows.append(
            (
                title,
                answer["python_version"],
                "{:,}".format(proof["objects"]),
                "%.2f %%" % (100 * exact),
                "%.2f %%" % (100 * found),
                "%.2f %%" % (100 * known),
            )
        )
        print(" | ".join(rows[-1]), flush=True)
        changes = program.endswith("load") and not more
        if not changes and (exact < EXACT or known < ALL_FOUND):
            short.append(title)
    if options.docs:
        bench_page.replace("heaps", bench_page.table(rows), PAGE)
    for title in short:
        print("heaps: %s: below %.1f or %.1f %%" % (title, 100 * EXACT, 100 * ALL_FOUND))
    return 1 if short else 0


if __name__ == "__main__":
    sys.exit(main())
