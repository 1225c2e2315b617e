#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Short sessions in every mode over trees of processes that try to end at a bad moment
(tests/e2e/programs/processes/unruly.py). Meant for a tracer with sanitizers.

usage: unruly.py [--rounds N] [--seed N]    (root; the tracer is build/san/tracer, or TRACER)

A round runs one session in each of the ways below, then reports its snapshot and replays its
capture. A session is wrong if a command ends by a signal or a sanitizer, or with a status that it
does not document. Prints what was wrong; the last line is `unruly: N sessions, N wrong`.
"""
import argparse
import os
import random
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
TESTS = os.path.dirname(HERE)
sys.path[:0] = [os.path.join(TESTS, "e2e")]

import harness  # noqa: E402
from harness import pythons  # noqa: E402

TRACER = os.environ.get("TRACER") or os.path.join(os.path.dirname(TESTS), "build", "san", "tracer")
SECONDS = 2  # of a session
WAYS = (
    (),
    ("-m", "exact"),
    ("-m", "growth"),
    ("--layer", "all"),
    ("--layer", "native"),
    ("-m", "exact", "--overhead", "3"),
    ("--sample", "4K"),
    ("--no-follow",),
)
ERRORS = ("AddressSanitizer", "LeakSanitizer", "runtime error")


def is_wrong(command, limit=60):
    """What was wrong with a command, with its output; None if nothing was."""
    done = subprocess.run(
        ["timeout", "-s", "INT", "-k", "10", str(limit), *command],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={**os.environ, "ASAN_OPTIONS": "exitcode=99"},
        check=False,
    )
    text = done.stdout.decode(errors="replace")
    if done.returncode in (0, 1) and not any(error in text for error in ERRORS):
        return None
    return "%s: status %d\n%s" % (" ".join(command), done.returncode, text[-4000:])


def session(way, choice, interpreters, folder):
    """What was wrong in a session over a process tree of its own."""
    snapshot, capture = os.path.join(folder, "snap.pb.gz"), os.path.join(folder, "events.cap")
    command = [choice.choice(interpreters), harness.program("unruly.py"), str(SECONDS + 2)]
    tree = subprocess.Popen(
        [*command, str(choice.randrange(1 << 30)), *interpreters],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        tree.stdout.readline()
        traced = ["-p", str(tree.pid), "-d", str(SECONDS), "--top", "3"]
        yield is_wrong([TRACER, *traced, *way, "-o", snapshot, "--capture", capture])
        if os.path.exists(snapshot):
            yield is_wrong([TRACER, "report", snapshot, "--top", "3"])
        if os.path.exists(capture):
            yield is_wrong([TRACER, "replay", capture, "--top", "3"])
    finally:
        tree.kill()
        tree.wait()
        tree.stdout.close()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    choice = random.Random(options.seed)
    interpreters = sorted({pythons.DISTRIBUTION, *pythons.unstripped().values()})
    sessions = wrong = 0
    for _ in range(options.rounds):
        for way in WAYS:
            with tempfile.TemporaryDirectory() as folder:
                found = [text for text in session(way, choice, interpreters, folder) if text]
            sessions += 1
            wrong += bool(found)
            for text in found:
                print(text, flush=True)
    print("unruly: %d sessions, %d wrong" % (sessions, wrong))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
