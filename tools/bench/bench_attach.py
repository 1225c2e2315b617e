# SPDX-License-Identifier: Apache-2.0
"""How long a command takes until it observes a running process, beside bpftrace and perf: from the
command's start to tracer's line "attached", to the first line of bpftrace's BEGIN, and to perf's
answer that its events are enabled. bpftrace has one probe, in malloc; perf samples; tracer has its
census mode, in an interpreter with the search for inlined allocators if it is stripped.

The commands take turns, on an otherwise idle machine and beside eight busy programs. RT: at
real-time priority, which makes a machine that others use an idle one.
"""
import os
import resource
import signal
import statistics
import subprocess
import time

import bench_page

BUSY = 8
TARGET = "import json, time\nprint(1, flush=True)\nwhile True: time.sleep(0.2)"
PROBE = 'BEGIN { printf("begun\\n"); } uprobe:%s:malloc { @ = count(); }'


def until_line(command, stream, text, end=signal.SIGTERM):
    """Runs a command until it prints a line with that text; the seconds. end: stops it."""
    start = time.monotonic()
    streams = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    process = subprocess.Popen(command, **{**streams, stream: subprocess.PIPE})
    try:
        for line in getattr(process, stream):
            if text in line:
                return time.monotonic() - start
    finally:
        process.send_signal(end)
        process.communicate()
    raise RuntimeError("%s has not begun" % command[0])


def libc_of(pid):
    with open("/proc/%d/maps" % pid) as file:
        return next(line.split()[-1] for line in file if "libc.so" in line)


def run_tracer(tracer, pid, before, _folder):
    command = [*before, tracer, "-p", str(pid), "--top", "0"]
    return until_line(command, "stderr", b"attached to")


def run_bpftrace(_tracer, pid, before, _folder):
    command = ["bpftrace", "-B", "line", "-p", str(pid), "-e", PROBE % libc_of(pid)]
    # Without real-time priority it may take minutes to end by SIGTERM.
    return until_line([*before, *command], "stdout", b"begun", signal.SIGKILL)


def run_perf(_tracer, pid, before, folder):
    control, answer = (os.pipe() for _ in range(2))
    events = ["perf", "record", "-q", "-e", "cpu-clock", "-o", os.path.join(folder, "perf.data")]
    wait = ["-D", "-1", "--control", "fd:%d,%d" % (control[0], answer[1]), "-p", str(pid)]
    start = time.monotonic()
    process = subprocess.Popen(
        [*before, *events, *wait], pass_fds=(control[0], answer[1]), stderr=subprocess.DEVNULL
    )
    try:
        os.close(answer[1])
        os.write(control[1], b"enable\n")
        if not os.read(answer[0], 16):
            raise RuntimeError("perf has not begun")
        return time.monotonic() - start
    finally:
        process.terminate()
        process.wait()
        for fd in (*control, answer[0]):
            os.close(fd)


def cpu_seconds():
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def measure(tools, tracer, pid, before, reps, folder):
    """{tool: [(seconds until it has begun, CPU seconds of the whole run)]}"""
    runs = {tool: [] for tool in tools}
    for _ in range(reps):
        for tool, run in tools.items():
            spent = cpu_seconds()
            seconds = run(tracer, pid, before, folder)
            runs[tool].append((seconds, cpu_seconds() - spent))
    return runs


def bench(tracer, python, reps, folder):
    tools = {"tracer -p": run_tracer, "bpftrace -p": run_bpftrace, "perf record -p": run_perf}
    before = ["chrt", "-f", "1"] if os.environ.get("RT") else []
    target = subprocess.Popen([*python.prefix, python.path, "-c", TARGET], stdout=subprocess.PIPE)
    busy = []
    try:
        target.stdout.readline()
        idle = measure(tools, tracer, target.pid, before, reps, folder)
        busy += [subprocess.Popen(["sh", "-c", "while :; do :; done"]) for _ in range(BUSY)]
        loaded = measure(tools, tracer, target.pid, [], reps, folder)
    finally:
        for process in [target, *busy]:
            process.kill()
            process.wait()
    rows = [["command", "until it observes, s", "fastest", "beside %d busy" % BUSY, "CPU time, s"]]
    for tool in tools:
        seconds, cpu = zip(*idle[tool])
        rows.append([tool, "%.2f" % statistics.median(seconds), "%.2f" % min(seconds)])
        rows[-1].append("%.2f" % statistics.median(one for one, _ in loaded[tool]))
        rows[-1].append("%.2f" % statistics.median(cpu))
    text = bench_page.table(rows, "attaching to a process that sleeps, %s" % python.label)
    print("\n" + text, flush=True)
    return text
