# SPDX-License-Identifier: Apache-2.0
"""Evidence of processes whose memory runs out (--on-oom, --on-memory): what a bundle says, what is
left behind, and bundles that lie."""
import contextlib
import json
import os
import pty
import re
import shutil
import signal
import struct
import subprocess
import tarfile
import termios
import fcntl
import time

import pytest

from cgroups import hierarchy, removed
from harness import (
    TIMEOUT,
    Target,
    environment,
    error_line,
    marked_line,
    program,
    wait_until,
    write_text,
)
from procfs import private_code
import schemas

MIB = 1 << 20
HELD = "sys.modules['__main__'].HISTORY"
SPOOL = ".tracer-evidence-"
SECRET = "hunter2-of-the-environment"

# --- cgroups with a limit -------------------------------------------------------------------------

LIMITS = (
    ("/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.memsw.limit_in_bytes"),
    ("/sys/fs/cgroup", "memory.max", "memory.swap.max"),
)


@contextlib.contextmanager
def limited(name, limit):
    """The folder of a memory cgroup, v1 or v2, with a limit that swap does not lengthen; limit None:
    without one."""
    for root, memory, swap in LIMITS:
        if not os.path.exists(os.path.join(root, "cgroup.procs")):
            continue
        path = os.path.join(root, "tracer-evidence-%d-%s" % (os.getpid(), name))
        os.mkdir(path)
        try:
            if not os.path.exists(os.path.join(path, memory)):
                continue
            if limit:
                write_text(os.path.join(path, memory), limit)
                if os.path.exists(os.path.join(path, swap)):
                    write_text(os.path.join(path, swap), limit if "memsw" in swap else 0)
            yield path
            return
        finally:
            with open(os.path.join(path, "cgroup.procs")) as file:
                for pid in file.read().split():
                    os.kill(int(pid), signal.SIGKILL)
            wait_until(
                lambda: subprocess.run(["rmdir", path], stderr=subprocess.DEVNULL).returncode == 0,
                "the cgroup is empty",
            )
    pytest.skip("no memory cgroup can be made here")


def in_cgroup(path):
    """A command prefix that moves a process into a cgroup first."""
    return ("sh", "-c", 'echo $$ >"$0" && exec "$@"', os.path.join(path, "cgroup.procs"))


class Watch:
    """A tracer that watches, and the bundle that it may write."""

    def __init__(self, tracer, bundle, *options, pid):
        self.bundle = str(bundle)
        self.process = subprocess.Popen(
            [tracer, "-p", str(pid), *map(str, options)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            env=environment(),
        )
        self.first = self.process.stderr.readline()
        assert "watching the memory" in self.first, self.first
        wait_until(self.has_copy, "the heap was copied at the beginning")

    def folders(self):
        folder = os.path.dirname(self.bundle)
        return [os.path.join(folder, n) for n in os.listdir(folder) if n.startswith(SPOOL)]

    def copies(self):
        """The files of copies, and when each was written."""
        found = [os.path.join(f, name) for f in self.folders() for name in os.listdir(f)]
        return {(path, os.stat(path).st_mtime_ns) for path in found}

    def has_copy(self):
        """The first copy is kept under its name once it is whole, or there is the reason why not."""
        found = [os.path.join(f, name) for f in self.folders() for name in os.listdir(f)]
        kept = [path for path in found if re.search(r"/\d+\.(1\.dump|reason)$", path)]
        return any(os.path.getsize(path) for path in kept)

    def line(self):
        """The next line on stderr."""

        def late(*_):
            raise AssertionError("the tracer said nothing for %d s" % TIMEOUT)

        signal.signal(signal.SIGALRM, late)
        signal.alarm(TIMEOUT)
        try:
            return self.process.stderr.readline()
        finally:
            signal.alarm(0)

    def finish(self):
        """(exit status, stderr), once it has ended by itself."""
        err = self.process.communicate(timeout=300)[1]
        return self.process.returncode, self.first + err


@pytest.fixture
def watch(tracer, tmp_path):
    started = []

    def start(target, *options, bundle=tmp_path / "bundle"):
        words = [*options, bundle] if options else ["--on-oom", bundle]
        started.append(Watch(tracer, bundle, *words, pid=getattr(target, "pid", target)))
        return started[-1]

    yield start
    for each in started:
        if each.process.poll() is None:
            each.process.kill()
        each.process.communicate()


def members(bundle):
    """{name: bytes}, by Python's reader of such archives."""
    with tarfile.open(bundle) as archive:
        assert all(member.isreg() and member.mode == 0o600 for member in archive)
        return {member.name: archive.extractfile(member).read() for member in archive}


def facts_of(run_tracer, bundle):
    done = run_tracer("report", bundle, "--format", "json")
    assert done.returncode == 0 and done.stderr == "", done.stderr
    facts = json.loads(done.stdout)
    schemas.validate("evidence", facts)
    return facts


def has_named(run_tracer, bundle):
    """The report, if the holder, the type and the line are in it and in the JSON."""
    report = run_tracer("report", bundle).stdout
    line = "%s:%d in remember" % (program("runs_out.py"), marked_line("runs_out.py", "KEEP"))
    assert HELD in report and "__main__.Order" in report and line in report, report
    leaks = json.loads(members(bundle)["leaks.json"])
    schemas.validate("leaks", leaks)
    (holder,) = [h for h in leaks["holders"] if h["path"] == HELD]
    assert holder["verdict"] in ("grows", "unclear") and holder["type"] == "list"
    assert "__main__.Order" in {each["type"] for each in holder["types"]}
    filled = {(each["filename"], each["lineno"]) for each in holder["filled_by"]}
    assert (program("runs_out.py"), marked_line("runs_out.py", "KEEP")) in filled
    return report


# --- the kernel kills -----------------------------------------------------------------------------

# Arguments of runs_out.py, and the limit in MiB.
LEAKS = {
    "slow": (("1",), 40),
    "slow to 200": (("1",), 200),
    "fast": (("200",), 200),
    "forked": (("200", "fork"), 200),
}


def run_out(run_tracer, watch, python, folder, kind, number):
    """Lets a program run into the limit; its report, and the bundle's path."""
    words, limit = LEAKS[kind]
    bundle = folder / ("bundle%d" % number)
    env = environment(API_KEY=SECRET, EMPTY="")
    with limited("%s%d" % (words[0], number), limit * MIB) as group:
        with Target(python, "runs_out.py", *words, prefix=in_cgroup(group), env=env) as target:
            seen = watch(target, bundle=bundle)
            target.step()
            if "fork" in words:
                assert target.read_line() in ("ended", None)
                wait_until(bundle.exists, "the bundle is written")
                # The kernel may kill the parent, too, before the child's memory is free.
                assert target.finish() in (0, -signal.SIGKILL)
            else:
                assert target.process.wait(600) == -signal.SIGKILL
            status, said = seen.finish()
    assert status == 0 and "which the kernel killed for memory" in said, said
    assert not seen.folders()
    if "fork" in words and facts_of(run_tracer, bundle)["pid"] == target.pid:
        bundle = folder / (bundle.name + ".1")
    return has_named(run_tracer, bundle), bundle


@pytest.mark.versions("3.8", "3.13")
@pytest.mark.whole
@pytest.mark.parametrize("kind", ("slow", "fast", "forked"))
def test_killed(run_tracer, watch, python, tmp_path, kind):
    """The bundle names what held the memory, its type and the line, and no value of a variable of
    the environment."""
    report, bundle = run_out(run_tracer, watch, python, tmp_path, kind, 0)
    facts = facts_of(run_tracer, bundle)
    assert facts["reason"] == "oom" and facts["ended"] and len(facts["copies"]) > 1, facts
    assert facts["limit"]["bytes"] == LEAKS[kind][1] * MIB and facts["limit"]["kills"] >= 1
    assert facts["limit"]["where"].startswith("the cgroup /tracer-evidence-")
    assert facts["command"][1:3] == [program("runs_out.py"), LEAKS[kind][0][0]]
    assert {"API_KEY", "EMPTY", "PATH"} <= set(facts["environment"])
    parts = members(bundle)
    assert {"report.txt", "leaks.json", "paths.json", "heap-1.dump", "heap.dump"} < set(parts)
    for name, text in parts.items():
        if not name.endswith(".dump"):
            assert SECRET.encode() not in text and b"C.UTF-8" not in text, name
    assert report.index("The kernel killed it") < report.index(HELD)
    if kind != "forked":  # RSS is read while there is time
        assert report.index(HELD) < report.index("RSS as of")
        assert {"memory.txt", "memory.json"} < set(parts)
    assert "next: tracer heap why __main__.Order %s\n" % bundle in report
    assert os.stat(bundle).st_mode & 0o777 == 0o600


def test_killed_stripped(run_tracer, watch, debian_python, tmp_path):
    """The distribution's interpreter, which has no symbols."""
    run_out(run_tracer, watch, debian_python, tmp_path, "fast", 0)


@pytest.mark.long
@pytest.mark.parametrize("kind", ("slow to 200", "fast", "forked"))
def test_killed_often(run_tracer, watch, any_python, tmp_path, kind):
    """20 of 20."""
    failed = []
    for number in range(20):
        try:
            run_out(run_tracer, watch, any_python, tmp_path, kind, number)
        except AssertionError as error:
            failed.append((number, str(error)))
    assert not failed, failed


@pytest.fixture(scope="module")
def kept_bundle(tracer, any_python, tmp_path_factory):
    """A bundle of a threshold, as bytes, for tests that read it."""
    path = tmp_path_factory.mktemp("bundle") / "bundle"
    with Target(any_python, "runs_out.py", "50") as target:
        seen = Watch(tracer, path, "--on-memory", "60M", path, pid=target.pid)
        target.step()
        wait_until(path.exists, "the bundle is written")
        seen.process.send_signal(signal.SIGINT)
        assert seen.finish()[0] == 0
    return path


def test_worker_of_another_cgroup(run_tracer, watch, any_python, tmp_path):
    """A worker is killed for the limit of its own cgroup, from which its parent is far."""
    bundle = tmp_path / "bundle"
    with limited("parent", 2000 * MIB) as first, limited("worker", 60 * MIB) as second:
        procs = os.path.join(second, "cgroup.procs")
        prefix = in_cgroup(first)
        with Target(any_python, "runs_out.py", 5, "fork", procs, prefix=prefix) as target:
            seen = watch(target, bundle=bundle)
            target.step()
            worker = int(target.read_line())
            wait_until(lambda: str(worker) in open(procs).read().split(), "it has moved")
            time.sleep(5)  # it is found, and its cgroup is looked at
            target.step()
            assert target.read_line() == "ended"
            wait_until(bundle.exists, "the bundle is written")
            assert target.finish() == 0
            assert seen.finish()[0] == 0
    facts = facts_of(run_tracer, bundle)
    assert facts["pid"] == worker and facts["ended"]
    assert facts["limit"]["bytes"] == 60 * MIB and "-worker" in facts["limit"]["where"]
    has_named(run_tracer, bundle)


# --- thresholds -----------------------------------------------------------------------------------


def test_threshold(run_tracer, kept_bundle, tmp_path):
    """Every command that reads bundles, of one of RSS."""
    has_named(run_tracer, kept_bundle)
    facts = facts_of(run_tracer, kept_bundle)
    assert facts["reason"] == "memory" and facts["threshold"] == "60M" and not facts["ended"]
    assert facts["copies"][-1]["rss"] >= 60 * MIB and facts["copies"][-1]["whole"]
    assert facts["rss"] >= 60 * MIB
    assert "Its RSS has reached 60M; RSS " in run_tracer("report", kept_bundle).stdout
    assert HELD in run_tracer("heap", kept_bundle, "--by", "path").stdout
    why = run_tracer("heap", "why", "__main__.Order", kept_bundle)
    assert HELD in why.stdout, why.stderr
    leaks = json.loads(run_tracer("leaks", kept_bundle, "--format", "json").stdout)
    assert HELD in {holder["path"] for holder in leaks["holders"]}
    memory = json.loads(run_tracer("memory", kept_bundle, "--format", "json").stdout)
    assert memory["name"] == "rss"
    of, text = run_tracer("memory", kept_bundle).stdout.split("\n", 1)
    assert of.startswith("As of ") and text == members(kept_bundle)["memory.txt"].decode()
    # What the report names next is the file that it was read from.
    other = shutil.copy(kept_bundle, tmp_path / "other")
    assert "heap why __main__.Order %s\n" % other in run_tracer("report", other).stdout
    # tar unpacks it, and what it unpacks is read, too.
    subprocess.run(["tar", "-xf", kept_bundle, "-C", tmp_path], check=True)
    assert HELD in run_tracer("heap", tmp_path / "heap.dump", "--by", "path").stdout


def test_page(run_tracer, kept_bundle, tmp_path):
    """The page for a browser: one file, no script, all text escaped."""
    page = tmp_path / "page.html"
    done = run_tracer("export", kept_bundle, "--format", "html", "-o", page)
    assert done.returncode == 0, done.stderr
    text = page.read_text()
    assert "default-src 'none'; base-uri 'none'" in text and "<script" not in text
    assert "sys.modules['__main__'].HISTORY" in text and "<module>" not in text
    for _ in range(2):  # it is a file of ours
        assert run_tracer("export", kept_bundle, "--format", "html", "-o", page).returncode == 0
    error_line(run_tracer("export", kept_bundle, "--format", "folded", "-o", page), 1)


def test_terminal(tracer, kept_bundle):
    """A terminal gets a page, and -v all of it."""

    def shown(*words):
        ours, its = pty.openpty()
        fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        done = subprocess.Popen([tracer, "report", kept_bundle, *words], stdout=its, stderr=its)
        os.close(its)
        text = b""
        with contextlib.suppress(OSError):  # its end
            while True:
                text += os.read(ours, 65536)
        os.close(ours)
        assert done.wait() == 0
        return text.decode()

    page = shown()
    assert page.count("\n") <= 24 and HELD in page and "RSS as of" not in page, page
    assert "RSS as of" in shown("-v")


def test_share(run_tracer, watch, start, any_python, tmp_path):
    """A share of the limit, reached again and again: it fires again when less has been used
    meanwhile. --keep is the number of bundles."""
    bundle = tmp_path / "bundle"
    with limited("share", 200 * MIB) as group:
        target = start(any_python, "waves.py", 110, prefix=in_cgroup(group))
        seen = watch(target, "--keep", 2, "--on-memory", "40%")
        for wave in range(3):
            target.step()
            target.read_until("up")
            line = seen.line()
            assert "PID %d (python" % target.pid in line and "its threshold" in line, line
            time_now = facts_of(run_tracer, bundle)["time"]
            # While it stays up there is no other one.
            time.sleep(1)
            assert facts_of(run_tracer, bundle)["time"] == time_now
            target.step()
            target.read_until("down")
            time.sleep(2)  # more than two looks
        target.finish()
        status, said = seen.finish()
    assert status == 0 and "evidence" not in said, said
    assert sorted(os.listdir(tmp_path)) == ["bundle", "bundle.1"]
    facts = facts_of(run_tracer, bundle)
    assert facts["threshold"] == "40%" and facts["limit"]["bytes"] == 200 * MIB
    assert facts["time"] > facts_of(run_tracer, tmp_path / "bundle.1")["time"]


def test_each_threshold(run_tracer, watch, start, any_python, tmp_path):
    """Each threshold has a bundle of its own, and each process; what stays above one that it has
    reached is not copied again and again."""
    bundle = tmp_path / "bundle"
    with limited("each", 400 * MIB) as group:
        targets = [start(any_python, "waves.py", 70, prefix=in_cgroup(group)) for _ in range(2)]
        pids = ",".join(str(target.pid) for target in targets)
        seen = watch(pids, "--keep", 9, "--on-memory", "60M,35%", bundle=bundle)
        targets[0].step()
        targets[0].read_until("up")
        assert "PID %d" % targets[0].pid in (line := seen.line()) and "of 60M" in line
        targets[1].step()
        targets[1].read_until("up")
        lines = [seen.line(), seen.line()]
        assert any("PID %d" % targets[1].pid in line and "of 60M" in line for line in lines), lines
        assert any("of 35%" in line for line in lines), lines

        time.sleep(1)
        before = seen.copies()
        time.sleep(3)
        assert seen.copies() == before
        for target in targets:
            target.finish()
        assert seen.finish()[0] == 0
    thresholds = [facts_of(run_tracer, tmp_path / name) for name in os.listdir(tmp_path)]
    assert sorted(facts["threshold"] for facts in thresholds) == ["35%", "60M", "60M"]


def test_steady(watch, start, any_python):
    """One that stays below its threshold, and near it, is copied once there."""
    target = start(any_python, "waves.py", 100)
    seen = watch(target, "--on-memory", "120M")
    first = seen.copies()
    target.step()
    target.read_until("up")
    wait_until(lambda: seen.copies() != first, "it is copied near its threshold")
    time.sleep(2)  # that copy, too, is complete
    before = seen.copies()
    time.sleep(3)
    assert seen.copies() == before
    assert target.finish() == 0
    assert seen.finish()[0] == 0


def test_growth(run_tracer, watch, start, any_python, tmp_path):
    """RSS that was large before is no growth; what comes in a burst is."""
    bundle = tmp_path / "bundle"
    target = start(any_python, "waves.py", 40)
    target.step()
    target.read_until("up")
    seen = watch(target, "--on-memory", "1000G,30M/30s", bundle=bundle)
    target.step()
    target.read_until("down")
    time.sleep(3)  # three looks
    assert not bundle.exists()
    target.step()
    target.read_until("up")
    assert "its threshold" in seen.line()
    target.finish()
    assert seen.finish()[0] == 0
    facts = facts_of(run_tracer, bundle)
    assert facts["reason"] == "memory" and facts["threshold"] == "30M/30s"
    assert "Its RSS has grown by 30M/30s" in run_tracer("report", bundle).stdout


def test_pressure(run_tracer, watch, start, any_python, tmp_path):
    """A process that waits for pages of a file which its cgroup has no room for."""
    big, bundle = tmp_path / "big", tmp_path / "bundle"
    with open(big, "wb") as file:
        for _ in range(160):
            file.write(os.urandom(MIB))
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    with hierarchy(tmp_path, "v2") as mounted, limited("pressure", 60 * MIB) as group:
        prefix, waits = in_cgroup(group), group
        if not group.startswith(mounted):  # v1 counts memory, v2 has the pressure
            waits = os.path.join(mounted, os.path.basename(group))
            os.mkdir(waits)
            prefix += in_cgroup(waits)
        if not os.path.exists(os.path.join(waits, "memory.pressure")):
            pytest.skip("this kernel does not tell pressure")
        target = start(any_python, "reads_again.py", big, prefix=prefix)
        seen = watch(target, "--on-memory", "pressure:1%", bundle=bundle)
        target.step()
        try:
            assert "its threshold" in seen.line()
        finally:
            target.kill()
            if waits != group:
                wait_until(lambda: removed(waits), "the cgroup is empty")
        assert seen.finish()[0] == 0
    assert facts_of(run_tracer, bundle)["threshold"] == "pressure:1%"
    assert "(PSI) has reached 1%" in run_tracer("report", bundle).stdout


# --- nothing happens ------------------------------------------------------------------------------


@pytest.mark.versions("3.11", "3.14")
def test_ends_by_itself(watch, start, python, tmp_path):
    """Nothing is written when the target ends by itself. Nothing of it was changed."""
    target = start(python, "waves.py", 10)
    target.wait_reading()
    before = private_code(target.pid)
    seen = watch(target)
    target.step()
    target.read_until("up")
    assert private_code(target.pid) == before
    target.finish()
    status, said = seen.finish()
    assert status == 0 and "not written: no memory ran out" in said, said
    assert os.listdir(tmp_path) == []


def test_no_limit(run_tracer, watch, start, any_python, tmp_path):
    """Without a limit of its cgroup the machine's memory is the limit."""
    with limited("none", None) as group:
        target = start(any_python, "waves.py", 100, prefix=in_cgroup(group))
        seen = watch(target, "--on-memory", "80M")
        target.step()
        target.read_until("up")
        wait_until((tmp_path / "bundle").exists, "the bundle is written")
        target.finish()
        assert seen.finish()[0] == 0
    assert facts_of(run_tracer, tmp_path / "bundle")["limit"]["where"] == "the machine"


@pytest.mark.parametrize("how", (signal.SIGINT, signal.SIGTERM))
def test_interrupted(watch, start, any_python, tmp_path, how):
    target = start(any_python, "waves.py", 10)
    seen = watch(target)
    seen.process.send_signal(how)
    status, said = seen.finish()
    assert status == 0 and "not written" in said, said
    assert os.listdir(tmp_path) == []
    assert target.finish() == 0


def children(pid):
    with open("/proc/%d/task/%d/children" % (pid, pid)) as file:
        return [int(word) for word in file.read().split()]


def test_tracer_killed(watch, start, any_python, tmp_path):
    """No process of a tracer that was killed goes on, and the next one removes its copies."""
    target = start(any_python, "large_heap.py", 400000)
    seen = watch(target, "--on-memory", "1M")
    workers = wait_until(lambda: children(seen.process.pid), "it copies the heap")
    seen.process.kill()
    seen.process.wait()
    wait_until(lambda: not any(os.path.exists("/proc/%d" % pid) for pid in workers), "they end")
    (left,) = seen.folders()
    assert os.listdir(left)
    other = tmp_path / (SPOOL + "in-use")  # one that a tracer has locked is not removed
    other.mkdir()
    with open(other / "1.1.dump", "w"):
        lock = os.open(other, os.O_RDONLY)
        fcntl.flock(lock, fcntl.LOCK_EX)
        second = watch(target)
    assert left not in second.folders() and str(other) in second.folders()
    os.close(lock)
    second.process.send_signal(signal.SIGINT)
    assert second.finish()[0] == 0
    assert os.listdir(other) == ["1.1.dump"]
    assert target.finish() == 0


def test_no_python(run_tracer, watch, tmp_path):
    """Of a program without Python there is what RSS consisted of, and the reason why no heap."""
    with subprocess.Popen(["sleep", "300"]) as target:
        seen = watch(target, "--on-memory", "1M")
        wait_until((tmp_path / "bundle").exists, "the bundle is written")
        target.kill()
    assert seen.finish()[0] == 0
    report = run_tracer("report", tmp_path / "bundle").stdout
    assert "Its heap was not copied: " in report and "no Python" in report, report
    assert "RSS as of" in report and "\nrss: " in report
    facts = facts_of(run_tracer, tmp_path / "bundle")
    assert facts["copies"] == [] and "no Python" in facts["heap_reason"]
    error_line(run_tracer("leaks", tmp_path / "bundle"), 1)
    error_line(run_tracer("heap", tmp_path / "bundle"), 1)


# --- files that cannot be written -----------------------------------------------------------------


def refused(run_tracer, target, path, *why):
    done = run_tracer("-p", target.pid, "--on-oom", path, budget=True)
    assert all(word in error_line(done, 1) for word in why), done.stderr


def test_refused_files(run_tracer, start, any_python, tmp_path):
    """Before anything is waited for."""
    target = start(any_python, "waves.py", 1)
    theirs, link = tmp_path / "theirs", tmp_path / "link"
    theirs.write_text("a letter\n")
    link.symlink_to(theirs)
    refused(run_tracer, target, theirs, "no file that tracer has written")
    refused(run_tracer, target, link, "symbolic link")
    refused(run_tracer, target, tmp_path, "is a directory")
    refused(run_tracer, target, tmp_path / "none" / "file", "its directory: No such file")
    refused(run_tracer, target, "/proc/bundle", "/proc/bundle")
    assert theirs.read_text() == "a letter\n"
    assert sorted(os.listdir(tmp_path)) == ["link", "theirs"]


@contextlib.contextmanager
def tmpfs(path, options):
    path.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "none", path], check=True)
    try:
        yield path
    finally:
        subprocess.run(["umount", "-l", path], check=True)


def test_read_only(run_tracer, start, any_python, tmp_path):
    target = start(any_python, "waves.py", 1)
    with tmpfs(tmp_path / "mount", "ro") as folder:
        refused(run_tracer, target, folder / "bundle", "Read-only file system")


def test_full(run_tracer, watch, start, any_python, tmp_path):
    """A folder without room for the last copies: what is known is written without them. One that is
    full: one line, and the target goes on."""
    target = start(any_python, "waves.py", 100)
    with tmpfs(tmp_path / "mount", "size=30m") as folder:
        bundle = folder / "bundle"
        seen = watch(target, "--on-memory", "80M", bundle=bundle)
        target.step()
        target.read_until("up")
        wait_until(bundle.exists, "the bundle is written")
        facts = facts_of(run_tracer, bundle)
        assert "a copy would fill the file system" in facts["heap_reason"], facts
        assert "memory.txt" in members(bundle)
        target.step()
        target.read_until("down")
        write_text(folder / "rest", "")
        with pytest.raises(OSError), open(folder / "rest", "wb") as file:
            file.write(b"x" * 40 * MIB)
        time.sleep(2)  # more than two looks
        target.step()
        target.read_until("up")
        said = seen.line() + seen.line()
        assert "the evidence is lost" in said and "No space left" in said, said
        assert members(bundle)  # the one before
        seen.process.send_signal(signal.SIGINT)
        assert seen.finish()[0] == 0
    assert target.finish() == 0


@pytest.mark.unprivileged
@pytest.mark.parametrize(
    "words, why",
    (
        (("-p", "1", "--on-memory", "90%"), "needs a file"),
        (("-p", "1", "--on-memory", "0%", "f"), "from 1% to 100%"),
        (("-p", "1", "--on-memory", "101%", "f"), "from 1% to 100%"),
        (("-p", "1", "--on-memory", "some", "f"), "2G"),
        (("-p", "1", "--on-memory", "90", "f"), "no size from 1M"),
        (("-p", "1", "--on-memory", "500M/", "f"), "no time from 1s"),
        (("-p", "1", "--on-memory", "500M/2d", "f"), "1s to 24h"),
        (("-p", "1", "--on-memory", "pressure:0%", "f"), "from 1% to 100%"),
        (("-p", "1", "--on-memory", "90%,2G,80%", "f"), "of the same kind"),
        (("-p", "1", "--on-memory", "90%,", "f"), "2G of RSS"),
        (("-p", "1", "--on-oom", "f", "-o", "g"), "places no probe"),
        (("--on-oom", "f", "--", "true"), "running processes"),
    ),
)
@pytest.mark.whole
def test_usage(run_tracer, words, why):
    assert why in error_line(run_tracer(*words), 2)


# --- bundles that lie -----------------------------------------------------------------------------


def header(name, size, content=b""):
    """A member, with a size that may lie."""
    info = tarfile.TarInfo(name)
    info.size = size
    data = info.tobuf(tarfile.GNU_FORMAT if size >= 1 << 33 else tarfile.USTAR_FORMAT)
    return data.replace(b"ustar  \0", b"ustar\x0000") + content + bytes(-len(content) % 512)


def sealed(data):
    """A header with its sum made right."""
    data = bytearray(data)
    data[148:156] = b" " * 8
    data[148:156] = b"%06o\0 " % sum(data[:512])
    return bytes(data)


FIRST = header("evidence.json", 3, b"{}\n")

LIES = {
    "cut within a header": FIRST + header("report.txt", 5, b"text\n")[:300],
    "cut within a member": FIRST + header("report.txt", 5000, b"text\n"),
    "no end": FIRST,
    "wrong sum": FIRST + b"X" + header("report.txt", 5, b"text\n")[1:],
    "huge size": FIRST + sealed(header("report.txt", 1 << 62, b"text\n")),
    "largest size": FIRST + sealed(header("report.txt", (1 << 64) - 1, b"text\n")),
    "no number": FIRST
    + sealed(
        header("report.txt", 5)[:124] + b"9999999999x\0" + header("report.txt", 5, b"text\n")[136:]
    ),
    "many members": FIRST + header("x", 0) * 100 + bytes(1024),
    "names": FIRST + header("\x1b]0;owned\x07\n", 0) + header("../../report.txt", 5, b"text\n") * 9,
}


@pytest.mark.unprivileged
@pytest.mark.whole
@pytest.mark.parametrize("name", LIES)
def test_lying_bundle(run_tracer, tmp_path, name):
    """One clear line each, whatever reads it."""
    path = tmp_path / "bundle"
    path.write_bytes(LIES[name])
    for words in (
        ("report",),
        ("leaks",),
        ("heap",),
        ("memory",),
        ("heap", "why", "int"),
        ("export", "--format", "html", "-o", tmp_path / "page"),
    ):
        done = run_tracer(*words, path)
        # An export has only the parts that there are.
        if words[0] == "export" and done.returncode == 0:
            continue
        assert str(path) in error_line(done, 1)
        assert "\x1b" not in done.stdout


@pytest.mark.unprivileged
def test_hostile_text(run_tracer, tmp_path):
    """What would act on a terminal is escaped, and of repeated names the first counts."""
    path = tmp_path / "bundle"
    text = b"\x1b[2Jred\r\n" + b"long " * 30000 + b"\n\xff\0after\n<script>&"
    path.write_bytes(
        FIRST
        + header("report.txt", len(text), text)
        + header("report.txt", 6, b"second")
        + bytes(1024)
    )
    done = run_tracer("report", path)
    assert done.returncode == 0 and "\\x1b[2Jred\\x0d\n" in done.stdout, done.stderr
    assert done.stdout.count("long ") == 30000 and "second" not in done.stdout
    assert run_tracer("export", path, "--format", "html", "-o", tmp_path / "page").returncode == 0
    page = (tmp_path / "page").read_text()
    assert "&lt;script&gt;&amp;" in page and "<script" not in page and "\x1b" not in page


def test_hostile_dumps(run_tracer, kept_bundle, tmp_path):
    """A dump of another version or another process, a part of one: one line."""
    parts = members(kept_bundle)
    dump, path = parts["heap.dump"], tmp_path / "bundle"
    for lie in (
        dump[:8] + struct.pack("<I", 99) + dump[12:],
        dump[: len(dump) // 2],
        dump[:100],
        b"trcrheap" + b"\xff" * 4000,
        b"",
    ):
        path.write_bytes(
            FIRST
            + header("heap-1.dump", len(parts["heap-1.dump"]), parts["heap-1.dump"])
            + header("heap.dump", len(lie), lie)
            + bytes(1024)
        )
        for words in (("heap",), ("leaks",), ("heap", "why", "int")):
            assert str(path) in error_line(run_tracer(*words, path), 1)
