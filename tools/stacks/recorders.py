# SPDX-License-Identifier: Apache-2.0
"""Runs tracer and perf on one process at once. perf's probes are where tracer's are, so both see
the same requests. Needs root. The caller has a tracefs (see with_tracefs())."""
import contextlib
import os
import re
import select
import signal
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.join(HERE, "..", "..")
TRACER = os.environ.get("TRACER", os.path.join(ROOT, "build", "tracer"))
PROBES = "/sys/kernel/tracing/uprobe_events"
TIMEOUT = 300
NFRAME = 128

# Lines of --dry-run: "malloc   file offset 0x98930  pushq %r12   push at +0 is emulated; bytes …"
FILE = re.compile(r"^(/.*?)(?: \(build id \w+\))?: \d+ functions? of")
SITE = re.compile(r"^  (\S+) +file offset (0x[0-9a-f]+) +(.*)$")
WORD = re.compile(r"(bytes|count) still in %(\w+)")
DISTANCE = re.compile(r" at \+(\d+) is emulated")
# perf's names of registers
REGISTERS = {"rdi": "di", "rsi": "si", "rdx": "dx", "rcx": "cx"}


def with_tracefs():
    """Where none is mounted, runs this program again in a mount namespace that has one."""
    if os.path.exists(PROBES):
        return
    if os.environ.get("STACKS_TRACEFS"):
        sys.exit("tracefs cannot be mounted here")
    script = 'mount -t tracefs tracefs /sys/kernel/tracing; exec "$@"'
    command = ["unshare", "-m", "sh", "-c", script, "sh", sys.executable, *sys.argv]
    os.execvpe("unshare", command, dict(os.environ, STACKS_TRACEFS="1"))


def probe_lines(pid):
    """Definitions of perf's probes: at the functions of a process's allocators that return a block,
    where tracer's are."""
    done = subprocess.run(
        [TRACER, "--layer", "native", "--dry-run", "-p", str(pid)],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=TIMEOUT,
    )
    lines, path = [], None
    for line in done.stdout.splitlines():
        file, site = FILE.match(line), SITE.match(line)
        path = file[1] if file else path
        place = site and path and probe_place(site[1], int(site[2], 16), site[3])
        if place:
            lines.append("p:stacks/a%d_%d %s:%s" % (os.getpid(), len(lines), path, place))
    return lines


def probe_place(function, offset, text):
    """Where perf samples such a function, and where its size is then; None: nowhere."""
    words = dict(WORD.findall(text))
    if "bytes" in words:
        fetched = ["%s=%%%s:x64" % (key, REGISTERS[name]) for key, name in words.items()]
        return "%#x %s" % (offset, " ".join(fetched))
    # Functions that only pass the request on: operator new, whose first argument is the size.
    if not function.startswith(("_Znw", "_Zna")) or "ret (two traps)" in text:
        return None
    distance = DISTANCE.search(text)
    return "%#x bytes=%%di:x64" % (offset - (int(distance[1]) if distance else 0))


def define(line):
    """A line of uprobe_events, which cannot be sought in, as open() in Python would."""
    file = os.open(PROBES, os.O_WRONLY | os.O_APPEND)
    try:
        os.write(file, line.encode() + b"\n")
    finally:
        os.close(file)


@contextlib.contextmanager
def probes(pid, sites=()):
    """The names of perf's events. sites: the places of calls, instead of the allocators'."""
    lines = ["p:stacks/c%d_%d %s" % (os.getpid(), i, site) for i, site in enumerate(sites)]
    lines = lines or probe_lines(pid)
    for line in lines:
        define(line)
    try:
        yield ["stacks:" + re.match(r"p:stacks/(\S+)", line)[1] for line in lines]
    finally:
        for line in lines:
            define("-:" + re.match(r"p:(\S+)", line)[1])


def read_until(stream, text, what):
    said = b""
    while text not in said:
        if not select.select([stream], [], [], TIMEOUT)[0]:
            raise TimeoutError(what)
        data = os.read(stream.fileno(), 65536)
        if not data:
            raise ValueError("%s: %s" % (what, said.decode(errors="replace").strip()))
        said += data


@contextlib.contextmanager
def perf(pid, events, path, copied, only=None):
    """perf record of a process and of what it forks; copied: bytes of the stack per sample; only:
    a filter of requests."""
    command = ["perf", "record", "-m", "32768", "-D", "-1", "-p", str(pid), "-o", path]
    command += ["--call-graph", "dwarf,%d" % copied]
    for event in events:
        command += ["-e", event, *(["--filter", only] if only else [])]
    enable, wake = os.pipe()
    acknowledged, acknowledge = os.pipe()
    command += ["--control", "fd:%d,%d" % (enable, acknowledge)]
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        pass_fds=(enable, acknowledge),
    )
    os.close(enable)
    os.close(acknowledge)
    try:
        os.write(wake, b"enable\n")
        with os.fdopen(acknowledged, "rb") as stream:
            read_until(stream, b"ack", "perf record")
        yield process
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
        process.communicate(timeout=TIMEOUT)
    finally:
        os.close(wake)
        if process.poll() is None:
            process.kill()
            process.wait()


@contextlib.contextmanager
def tracer(pid, capture, snapshot):
    process = subprocess.Popen(
        [TRACER, "--overhead=0", "--layer", "native", "-n", str(NFRAME), "-p", str(pid)]
        + ["--capture", capture, "-o", snapshot],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        bufsize=0,
    )
    try:
        read_until(process.stderr, b"tracer: attached to", "tracer")
        yield process
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
        process.communicate(timeout=TIMEOUT)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


def perf_lines(path):
    """What perf script prints of a recording: (lines, lost samples?)."""
    done = subprocess.run(
        ["perf", "script", "-i", path, "--no-inline", "--max-stack", "512", "--show-mmap-events"]
        + ["--show-task-events"]
        + ["-F", "comm,pid,tid,event,trace,ip,dso"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        timeout=TIMEOUT,
    )
    return done.stdout.splitlines(), "lost" in done.stderr
