# SPDX-License-Identifier: Apache-2.0
"""Runs a Python program under the tracer: the target, the tracer and the report. Every wait is
bounded.

    target = Target(python, "golden.py")            starts programs/python/golden.py, waits for "ready"
    run = Traced(tracer, folder, "-p", target.pid)  returns once the tracer has attached
    target.step(); live = target.expect()           a line on its stdin; its answer in JSON
    report = run.finish()                           SIGINT, wait, read the snapshot
    assert report.line("golden.py", "A") == live["A"]

    run = Traced(tracer, folder, "--", python.path, program("golden.py"), stdin=subprocess.PIPE)
    run.step(); live = run.expect()                 the same for a program that the tracer starts
"""
import collections
import contextlib
import functools
import glob
import json
import os
import re
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
PROGRAMS = os.path.join(HERE, "programs")
sys.path[:0] = [os.path.join(ROOT, "tools"), os.path.join(ROOT, "tests")]

import pythons  # noqa: E402

# Seconds. An operation takes this long only if it hangs. An emulated machine is slower.
TIMEOUT = int(os.environ.get("TRACER_TEST_TIMEOUT") or 120)

# Flags for C programs with native stacks: keep frame pointers and calls of malloc().
NATIVE_FLAGS = ("-g", "-O1", "-fno-omit-frame-pointer", "-fno-builtin")

# The number of read(2), as /proc/PID/syscall has it.
SYSCALL_READ = {"aarch64": "63"}.get(os.uname().machine, "0")

# Called with the arguments and the output of a tracer that was asked for JSON. conftest.py sets it to
# schemas.check(); the guests of tests/machines have no jsonschema.
check_json = None

LINKS = ("uprobe_multi session links", "uprobe_multi links", "perf-event uprobes")

Interpreter = collections.namedtuple("Interpreter", "version path")
RootInterpreter = collections.namedtuple("RootInterpreter", "version path root py_debug")


@functools.lru_cache(maxsize=None)
def program(name):
    """The path of a program of tests/e2e/programs, in whichever of its folders it is."""
    if os.path.isabs(name):
        return name
    paths = glob.glob(os.path.join(glob.escape(PROGRAMS), "*", name))
    found = [path for path in paths if os.path.isfile(path)]
    assert len(found) < 2, "two programs have the name " + name
    return found[0] if found else os.path.join(PROGRAMS, name)


def compiled(path, name, *flags, compiler="gcc"):
    """Compiles that program of tests/e2e/programs to `path` and returns the path as a string. The
    extra flags come last."""
    command = [compiler, *NATIVE_FLAGS, "-o", str(path), program(name), "-pthread", *flags]
    done = subprocess.run(command, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 0, done.stderr
    return str(path)


def marked_line(name, mark):
    """Number of the program's line that carries "# line MARK"."""
    with open(program(name)) as file:
        for number, text in enumerate(file, 1):
            if re.search(r"# line %s\b" % re.escape(mark), text):
                return number
    raise KeyError("%s has no line %s" % (name, mark))


def environment(**more):
    """The current environment without the variables that change a Python's allocations. Hashes do
    not vary from run to run."""
    env = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "PYTEST"))}
    env.update(PYTHONHASHSEED="0", PYTHONDONTWRITEBYTECODE="1", LC_ALL="C.UTF-8", NO_COLOR="1")
    env.update(more)
    return env


def wait_until(condition, what, timeout=TIMEOUT):
    """The first true value of condition()."""
    end = time.monotonic() + timeout
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise AssertionError("timed out after %d s waiting until %s" % (timeout, what))
        time.sleep(0.01)


def wait_reading(pid):
    """Returns once the process waits for its stdin."""

    def reading():
        with open("/proc/%d/syscall" % pid) as file:
            return file.read().split()[:2] == [SYSCALL_READ, "0x0"]

    wait_until(reading, "PID %d waits for its stdin" % pid)


@contextlib.contextmanager
def memory_cgroup(limit):
    """The folder of a memory cgroup with a limit in bytes, v1 or v2. On exit, waits until its
    processes have ended."""
    for root, name in (
        ("/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
        ("/sys/fs/cgroup", "memory.max"),
    ):
        path = os.path.join(root, "tracer-test-%d" % os.getpid())
        try:
            os.mkdir(path)
        except OSError:
            continue
        try:
            if not os.path.exists(os.path.join(path, name)):
                continue
            write_text(os.path.join(path, name), limit)
            yield path
            return
        finally:
            wait_until(
                lambda: subprocess.run(["rmdir", path], stderr=subprocess.DEVNULL).returncode == 0,
                "the cgroup is empty",
            )
    import pytest  # the guests of tests/machines have no pytest

    pytest.skip("no memory cgroup can be made here")


def write_text(path, text):
    with open(path, "w") as file:
        file.write(str(text))


def tracer_path():
    """The tracer that is tested: $TRACER, or the one that make has built."""
    path = os.path.abspath(os.environ.get("TRACER", os.path.join(ROOT, "build", "tracer")))
    assert os.access(path, os.X_OK), "%s is not there: run make" % path
    return path


def error_line(done, status):
    """The only line on stderr of a tracer that failed: what, target, why, remedy."""
    assert done.returncode == status, "status %d: %s" % (done.returncode, done.stderr)
    assert done.stderr.startswith("tracer: ") and done.stderr.endswith("\n"), done.stderr
    assert done.stderr.count("\n") == 1, "more than one line:\n" + done.stderr
    assert done.stderr[:-1].isprintable(), ascii(done.stderr)
    return done.stderr


def attach_facts(stderr):
    """The figures that the tracer prints on attaching, {"ms", "probes", "links"}, as far as it
    prints them."""
    facts = {}
    line = re.search(r"^tracer: attached to PID .*$", stderr, re.M)
    if line:
        for key, pattern in (("ms", r"; (\d+) ms$"), ("probes", r"; (\d+) probes?")):
            number = re.search(pattern, line[0])
            facts.update({key: int(number[1])} if number else {})
    links = [name for name in LINKS if name in stderr]
    return dict(facts, links=links[0]) if links else facts


def minor(version):
    """3.14: (3, 14)"""
    return tuple(map(int, version.split(".")))


def root_names(everything, since="3.0", before="3.99"):
    """The entries of pythons.in_roots() with which a test runs. All of them, if the caller selected
    them or asks for all. Otherwise one of each version that is present, and one debug build: each
    takes a quarter of a minute."""
    names = [
        name
        for name in pythons.in_roots()
        if minor(since) <= minor(re.search(r"3\.\d+", name.partition(":")[2])[0]) < minor(before)
    ]
    if everything or "TRACER_ROOTS" in os.environ:
        return names
    versions = {name.partition(":")[2]: name for name in names if not name.endswith("d")}
    return [*versions.values(), *[name for name in names if name.endswith("d")][-1:]]


def state_of(pid):
    """What a process does, for a message: its program, its state, where it waits in the kernel."""
    told = []
    for name in ("cmdline", "stat", "wchan", "syscall"):
        try:
            with open("/proc/%d/%s" % (pid, name)) as file:
                told.append("%s: %s" % (name, file.read(200).replace("\0", " ").strip()))
        except OSError as error:
            told.append("%s: %s" % (name, error.strerror))
    return "; ".join(told)


TARGETS = ("-p", "-c", "-a", "--pid", "--container", "--comm", "--cgroup", "--all")
PRICES = ("-m", "--mode", "--overhead", "--on-oom", "--on-memory")


def without_budget(args):
    """The tracer's arguments. A trace of running processes without a mode is under a budget, and its
    figures are estimates. Most tests are about all blocks: they have --overhead 0, here and nowhere
    else. test_default.py tests the default, with budget=True."""
    words = [str(word) for word in args]
    options = words[: words.index("--")] if "--" in words else words
    first = options[0] if options else "--"
    named = lambda names: any(word.split("=")[0] in names for word in options)  # noqa: E731
    if first != "trace" and not first.startswith("-") or "--" in words:
        return words
    at = first == "trace"
    return words[:at] + ["--overhead=0"] * (named(TARGETS) and not named(PRICES)) + words[at:]


class Target:
    """A program of tests/e2e/programs that communicates by lines: "ready", then one answer for each
    step(). name: the script that the interpreter runs, or None if the program needs none."""

    def __init__(self, python, name, *args, env=None, prefix=(), ready=True):
        path = python.path if isinstance(python, Interpreter) else python
        command = [*prefix, path, *([program(name)] if name is not None else []), *map(str, args)]
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=env or environment(),
        )
        self.pid = self.process.pid
        self._pending = b""
        if ready:
            self.read_until("ready")

    def step(self):
        self.process.stdin.write(b"go\n")
        self.process.stdin.flush()

    def read_line(self, timeout=TIMEOUT):
        """The next line on stdout without its newline, or None at end of file."""
        fd = self.process.stdout.fileno()
        end = time.monotonic() + timeout
        while b"\n" not in self._pending:
            ready, _, _ = select.select([fd], [], [], max(0, end - time.monotonic()))
            if not ready:
                raise AssertionError(
                    "the target said nothing for %d s; it is %s" % (timeout, state_of(self.pid))
                )
            data = os.read(fd, 65536)
            if not data:
                return None
            self._pending += data
        line, self._pending = self._pending.split(b"\n", 1)
        return line.decode()

    def wait_reading(self):
        """Returns once the program waits for its stdin. From then on the figures that it printed
        are exact to the block."""

        wait_reading(self.pid)

    def read_until(self, text):
        while True:
            line = self.read_line()
            if line == text:
                return
            if line is None:
                raise AssertionError(
                    "the target ended before %r: %s" % (text, self.process.stderr.read().decode())
                )

    def expect(self):
        """{mark: (bytes, blocks)}: what the program reports as live."""
        line = self.read_line()
        assert line is not None, "the target ended: " + self.process.stderr.read().decode()
        return {mark: tuple(pair) for mark, pair in json.loads(line).items()}

    def finish(self, timeout=TIMEOUT):
        """Closes its stdin, which ends it, and returns its exit status (negative: the signal)."""
        try:
            self.process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            self.kill()
            raise
        return self.process.returncode

    def kill(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(TIMEOUT)
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            try:
                stream.close()
            except OSError:
                pass

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.kill()


class Report:
    """The parsed JSON of `tracer report`."""

    def __init__(self, data):
        self.data = data
        self.total = data["total"]
        self.lost_events = data["lost_events"]
        self.statistics = data["statistics"]

    def lines(self):
        """{(file, line): (bytes, blocks)} of a report by line."""
        return {
            (s["traceback"][0]["filename"], s["traceback"][0]["lineno"]): (s["size"], s["count"])
            for s in self.statistics
        }

    def line(self, name, mark):
        """(bytes, blocks) of a marked line of the program."""
        return self.lines().get((program(name), marked_line(name, mark)), (0, 0))

    def marked(self, name, marks):
        """{mark: (bytes, blocks)}, to compare with Target.expect()."""
        return {mark: self.line(name, mark) for mark in marks}

    def contradictions(self):
        """What the heap says otherwise. On a loaded machine the last walk is a while before the end,
        which is no contradiction."""
        said = self.data.get("warnings", [])
        return [text for text in said if not text.startswith("the heap was last read ")]


def json_checked(args, text):
    """The text, after check_json()."""
    if check_json:
        check_json(args, text)
    return text


def native_snapshot(tracer, program, snapshot):
    """Runs a program without arguments to its end, and writes the snapshot of its native layer."""
    done = subprocess.run(
        [tracer, "--layer", "native", "-o", snapshot, "--", program],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        timeout=TIMEOUT,
    )
    assert done.returncode == 0, done.stderr


def read_report(tracer, snapshot, *args):
    words = ["report", snapshot, "--format", "json", "--top", "0", *map(str, args)]
    done = subprocess.run(
        [tracer, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=TIMEOUT
    )
    assert done.returncode == 0, done.stderr.decode()
    json_checked(words, done.stdout.decode())
    return Report(json.loads(done.stdout))


def traces_by_size(tracer, snapshot):
    """{size: {(file, line): blocks}}, by the file for tracemalloc."""
    import tracemalloc

    found = collections.defaultdict(collections.Counter)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "traces.pickle")
        version = "%d.%d" % sys.version_info[:2]
        how = ["--format=tracemalloc", "--python=" + version, "-o", path]
        subprocess.run([tracer, "export", snapshot, *how], check=True, stderr=subprocess.DEVNULL)
        for _domain, size, traceback, *_total in tracemalloc.Snapshot.load(path).traces._traces:
            found[size][traceback[0]] += 1
    return found


def free_port():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


def pprof(*args):
    """The output of golang's pprof."""
    import pytest

    if not shutil.which("go"):
        pytest.skip("go tool pprof is not installed")
    done = subprocess.run(
        ["go", "tool", "pprof", *map(str, args)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        timeout=TIMEOUT,
    )
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode()


def pprof_top(snapshot):
    """(lines above its table, {(function, file): flat bytes}), by golang's pprof."""
    options = ("-symbolize=none", "-unit=B", "-nodefraction=0", "-nodecount=0")
    text = pprof("-top", "-filefunctions", *options, snapshot)
    head, table = re.split(r"^ *flat .*\n", text, flags=re.M)
    fields = [line.split(None, 6) for line in table.splitlines()]
    return head.splitlines(), {(f[5], f[6]): int(f[0][:-1]) for f in fields if f[0] != "0"}


class Traced:
    """A running tracer. Its output goes to files, so that it never waits for a reader. With
    output=False it gets no -o."""

    def __init__(
        self,
        tracer,
        folder,
        *args,
        attached=True,
        output=True,
        stdin=subprocess.DEVNULL,
        env=None,
        budget=False
    ):
        self.tracer = tracer
        self._lines_read = 0
        name = "trace%d" % time.monotonic_ns()
        self.snapshot = os.path.join(str(folder), name + ".pb.gz")
        self._stdout_path = os.path.join(str(folder), name + ".out")
        self._stderr_path = os.path.join(str(folder), name + ".err")
        # Options come first: the words after a "--" belong to the command.
        with open(self._stdout_path, "wb") as out, open(self._stderr_path, "wb") as err:
            self.process = subprocess.Popen(
                [
                    tracer,
                    *(["-o", self.snapshot] if output else []),
                    *(map(str, args) if budget else without_budget(args)),
                ],
                stdin=stdin,
                stdout=out,
                stderr=err,
                env=env or environment(),
            )
        self.pid = self.process.pid
        if attached:
            self.wait_attached(int(attached))

    @property
    def stdout(self):
        with open(self._stdout_path, errors="replace") as file:
            return file.read()

    @property
    def stderr(self):
        with open(self._stderr_path, errors="replace") as file:
            return file.read()

    def wait_attached(self, processes=1):
        def attached():
            if len(re.findall(r"^tracer: attached to ", self.stderr, re.M)) >= processes:
                return True
            assert self.process.poll() is None, "the tracer ended: " + self.stderr
            return False

        try:
            wait_until(attached, "the tracer has attached")
        except AssertionError:
            self.kill()
            raise

    def step(self):
        """Writes a line to the stdin of the command that the tracer started."""
        self.process.stdin.write(b"go\n")
        self.process.stdin.flush()

    def expect(self):
        """As Target.expect(), from the command that the tracer started: the next line of JSON on
        stdout that is not a report."""

        def line():
            said = [text for text in self.stdout.split("\n")[:-1] if text.startswith("{")]
            assert len(said) > self._lines_read or self.process.poll() is None, (
                "the tracer ended: " + self.stderr
            )
            return said[self._lines_read] if len(said) > self._lines_read else None

        text = wait_until(line, "the command has said what is live")
        self._lines_read += 1
        return {mark: tuple(pair) for mark, pair in json.loads(text).items()}

    def printed_reports(self):
        """The Reports on stdout, for a run with --format json."""
        return [
            Report(json.loads(json_checked(["trace", "--format=json"], t)))
            for t in self.stdout.split("\n")[:-1]
            if t.startswith('{"traceback_limit"')
        ]

    def wait(self, timeout=TIMEOUT):
        """Waits until the tracer ends by itself and returns its exit status."""
        try:
            return self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.kill()
            raise

    def interrupt(self):
        self.process.send_signal(signal.SIGINT)

    def finish(self, *args, status=0):
        """Interrupts the tracer as Ctrl-C does if it still runs, checks its status and reads the
        snapshot. args are passed to `report`."""
        if self.process.poll() is None:
            self.interrupt()
        assert self.wait() == status, self.stderr
        return self.report(*args)

    def report(self, *args):
        return read_report(self.tracer, self.snapshot, *args)

    def kill(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(TIMEOUT)
        if self.process.stdin:
            self.process.stdin.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.kill()


def alive(figures):
    """A statistic or total without what was allocated and is not alive any more."""
    gone = ("allocated_", "short_lived_")
    return {name: value for name, value in figures.items() if not name.startswith(gone)}


def agreement(ours, theirs):
    """Shares of bytes and of blocks on which two {key: (bytes, blocks)} agree, each from 0 to 1."""
    shares = []
    for field in (0, 1):
        total = sum(pair[field] for pair in theirs.values())
        differ = sum(
            abs(ours.get(k, (0, 0))[field] - theirs.get(k, (0, 0))[field])
            for k in set(ours) | set(theirs)
        )
        shares.append(1 - differ / total if total else 1.0 if not differ else 0.0)
    return tuple(shares)
