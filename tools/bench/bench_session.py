# SPDX-License-Identifier: Apache-2.0
"""Measures the cost of a snapshot for a session that continues tracing. Prints figures, asserts
nothing, ends with status 0.

The target holds a million blocks and continues to allocate and free. The session measures the pause
itself: the longest time for which a snapshot request has kept it from the ring buffer. While the
snapshot is written, another client requests the status continuously. Its longest wait for an answer
is shown beside the pause, and may include a heap walk, during which the ring buffer is drained.
usage: bench_session.py [--blocks N] [--reps N] [--mode exact|census] [--python PATH]
"""
import argparse
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time

sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

import pythons  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))
TRACER = os.path.abspath(
    os.environ.get("TRACER", os.path.join(HERE, "..", "..", "build", "tracer"))
)

HOLDER = """
import os
os.read(0, 100)
kept = [None] * %d
for i in range(len(kept)):
    kept[i] = bytes(i %% 48 + 1)
os.write(1, b"done\\n")
while True:
    for i in range(0, len(kept), 7):
        kept[i] = bytes(i %% 480 + 1)
"""


class Client:
    def __init__(self, session):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(60)
        self.socket.connect("/run/tracer/%d.sock" % session)
        self.lines = self.socket.makefile()

    def status(self):
        """(answer, seconds it took)"""
        start = time.monotonic()
        self.socket.sendall(b'{"request": "status"}\n')
        return json.loads(self.lines.readline()), time.monotonic() - start


def resident(pid):
    """{field: bytes} of a process's memory; Pss divides shared pages among their processes."""
    with open("/proc/%d/smaps_rollup" % pid) as file:
        return {
            name: int(kib) * 1024
            for name, kib in re.findall(r"^(\w+): +(\d+) kB", file.read(), re.M)
        }


def children(pid):
    with open("/proc/%d/task/%d/children" % (pid, pid)) as file:
        return [int(child) for child in file.read().split()]


def measure_snapshot(client, session, target, path):
    """(seconds, longest answer, peak memory of session and writer together)"""
    start, longest, most = time.monotonic(), 0.0, 0
    snapshot = subprocess.Popen(
        [TRACER, "ctl", str(target), "snapshot", path],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    while snapshot.poll() is None:
        longest = max(longest, client.status()[1])
        try:
            most = max(most, sum(resident(pid)["Pss"] for pid in [session] + children(session)))
        except (OSError, KeyError, ProcessLookupError):
            pass  # the writer has just ended
    if snapshot.returncode:
        raise RuntimeError(snapshot.stderr.read().decode().strip())
    return time.monotonic() - start, longest, most


def bench(python, options, folder):
    target = subprocess.Popen(
        [python, "-c", HOLDER % options.blocks], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    tracer = None
    try:
        tracer = subprocess.Popen(
            [TRACER, "-p", str(target.pid), "--mode", options.mode],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        if b"attached to" not in tracer.stderr.readline():
            raise RuntimeError("the tracer did not attach")
        empty = resident(tracer.pid)["Pss"]
        target.stdin.write(b"go\n")
        target.stdin.flush()
        target.stdout.readline()
        client = Client(tracer.pid)
        usual = max(client.status()[1] for _ in range(200))
        before = resident(tracer.pid)["Pss"]
        runs = [
            measure_snapshot(client, tracer.pid, target.pid, os.path.join(folder, "snapshot.pb.gz"))
            for _ in range(options.reps)
        ]
        status = client.status()[0]
        print(
            "snapshot of %d live blocks while the target allocates: longest pause %.1f ms, written in %.2f s, lost events: %d; "
            "another client waits for at most %.1f ms (without a snapshot %.1f ms)"
            % (
                status["live_blocks"],
                status["longest_pause_ns"] / 1e6,
                max(run[0] for run in runs),
                status["lost_events"],
                max(run[1] for run in runs) * 1e3,
                usual * 1e3,
            )
        )
        print(
            "memory of the session: tables %.1f, process %.1f bytes a live block; with its writer at most %.1f"
            % (
                status["tracer_memory"] / status["live_blocks"],
                (before - empty) / status["live_blocks"],
                (max(run[2] for run in runs) - empty) / status["live_blocks"],
            ),
            flush=True,
        )
    finally:
        target.kill()
        target.wait()
        if tracer:
            try:
                tracer.communicate(timeout=60)
            except subprocess.TimeoutExpired:
                tracer.send_signal(signal.SIGKILL)
                tracer.wait()


def main():
    parser = argparse.ArgumentParser(description="what a snapshot costs a session that goes on")
    parser.add_argument("--blocks", type=int, default=1000000)
    parser.add_argument("--reps", type=int, default=5, help="snapshots (default 5)")
    parser.add_argument("--mode", default="exact", help="of the session (default exact)")
    parser.add_argument(
        "--python", help="interpreter (default: the newest with symbols, or the distribution's)"
    )
    options = parser.parse_args()
    python = options.python or pythons.newest() or pythons.distribution()
    if not python:
        print("bench: no CPython found; name one by --python", file=sys.stderr)
        return
    print("\nCPython %s" % pythons.version_of(python))
    with tempfile.TemporaryDirectory() as folder:
        try:
            bench(python, options, folder)
        except Exception as error:  # a failed figure must not prevent the others
            print("bench: session: %s" % error, file=sys.stderr)


if __name__ == "__main__":
    main()
