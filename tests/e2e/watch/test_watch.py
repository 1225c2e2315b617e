# SPDX-License-Identifier: Apache-2.0
"""The live view in a real terminal (tmux): keys are sent, and the screen is read."""
import json
import os
import re
import shlex
import shutil
import subprocess

import pytest

from harness import TIMEOUT, compiled, environment, marked_line, program, wait_until, without_budget

pytestmark = pytest.mark.skipif(not shutil.which("tmux"), reason="no tmux")


class Screen:
    """A terminal of that size with a shell in it."""

    def __init__(self, columns=80, lines=24, **env):
        self.name = "tracer-test-%d-%d" % (os.getpid(), id(self))
        self.env = environment(**env)
        self.tmux("-f", "/dev/null", "new-session", "-d", "-x", columns, "-y", lines, "sh")

    def tmux(self, *words):
        done = subprocess.run(
            ["tmux", "-L", self.name, *map(str, words)],
            env=self.env,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            timeout=TIMEOUT,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def run(self, program, *args):
        words = without_budget(args) if os.path.basename(program) == "tracer" else args
        self.tmux("send-keys", "-l", shlex.join(map(str, [program, *words])))
        self.press("Enter")

    def press(self, *keys):
        self.tmux("send-keys", *keys)

    def text(self):
        return self.tmux("capture-pane", "-p")

    def wait(self, pattern):
        """The screen once it has the pattern."""

        def found():
            text = self.text()
            return text if re.search(pattern, text, re.M) else None

        try:
            return wait_until(found, "the screen shows " + pattern)
        except AssertionError:
            raise AssertionError("%s is not on the screen:\n%s" % (pattern, self.text())) from None

    def leave(self):
        """Quits a view. What is typed before the shell has the terminal again is lost to it."""
        self.press("q")
        wait_until(lambda: self.text().rstrip().endswith("#"), "the shell has the terminal")

    def close(self):
        subprocess.run(["tmux", "-L", self.name, "kill-server"], stderr=subprocess.DEVNULL)


@pytest.fixture
def screen():
    made = []

    def make(*args, **env):
        made.append(Screen(*args, **env))
        return made[-1]

    yield make
    for one in made:
        one.close()


def row_of(text, name, mark):
    """(size, number of blocks) of the row of a program's marked line; None: it is not shown."""
    line = "%s:%d" % (name, marked_line(name, mark))
    for row in text.splitlines():
        if row.endswith(line):
            size, unit, count = row.split()[:3]
            return "%s %s" % (size, unit), int(count.replace(",", ""))
    return None


def size_text(size):
    """As tracemalloc shows it."""
    for unit in ("B", "KiB", "MiB"):
        if abs(size) < 100 and unit != "B":
            return "%.1f %s" % (size, unit)
        if abs(size) < 10 * 1024:
            return "%.0f %s" % (size, unit)
        size /= 1024
    raise ValueError(size)


def report_row(size, count, line):
    """A row of the report's table, for re."""
    return r"^ *%s +[\d.]+ %% +%s .*phases\.py:%s$" % (
        re.escape(size_text(size)),
        format(count, ","),
        line,
    )


def test_keys(tracer, start, screen, any_python):
    """The rows are what the program says; every key does what the help says; q prints the report."""
    target = start(any_python, "phases.py")
    view = screen(120, 40)
    view.run(tracer, "-p", target.pid)
    view.wait(r"^python\S* \(PID %d\), python, census mode" % target.pid)
    target.step()
    size, count = target.expect()["G"]
    wanted = size_text(size), count
    wait_until(
        lambda: row_of(view.text(), "phases.py", "G") == wanted, "the row has what the program says"
    )
    text = view.wait(r"coverage 100\.0 %, heap read \d")
    assert "0 lost" in text and re.search(r"^RSS [\d.]+ \wiB, traced [\d.]+ \wiB in", text, re.M)
    view.press("m")
    view.wait(r"SIZE +COUNT +DIFF +GROWTH/s")
    target.step()
    left = target.expect()["G"]
    change = size_text(left[0] - size)
    text = view.wait(re.escape(change) + ".*phases.py:%d$" % marked_line("phases.py", "G"))
    assert row_of(text, "phases.py", "G") == (size_text(left[0]), left[1])
    view.press("g")
    view.wait(r"phases\.py in grow$")
    view.press("/")
    view.press("-l", "LEAK")
    view.press("Enter")
    view.wait(r"^by function, sorted by size, 0 rows .*filter: LEAK")
    view.press("p")
    view.wait("PAUSED")
    target.step()
    size, count = target.expect()["L"]
    view.press("p")
    text = view.wait(r"phases\.py in leak$")
    assert "in grow" not in text
    view.press("/", *4 * ["BSpace"], "Enter")
    view.press("1", "Enter")
    text = view.wait(r"^> *%d +leaked\[i\] = bytes\(600\)" % marked_line("phases.py", "L"))
    assert re.search(
        r"^%s in %s blocks$" % (re.escape(size_text(size)), "{:,}".format(count)), text, re.M
    )
    assert re.search(r"phases\.py:\d+ in <module>$", text, re.M)
    view.press("Escape")
    view.press("h")
    view.wait("sort by size, count, growth, allocation, difference")
    view.press("x", "s")
    view.wait("sorted by count")
    view.press("q")
    text = view.wait(r"^Figures: ")
    assert re.search(report_row(size, count, r"\d+"), text, re.M), text
    view.run("echo", "status", "$?")
    assert target.finish() == 0


def test_join(tracer, start, trace, screen, run_tracer, any_python, tmp_path):
    """ctl watch joins a session and leaves it running. Any size of the terminal works. A snapshot
    can be written. The view ends with the session."""
    target = start(any_python, "phases.py")
    run = trace("-p", target.pid)
    target.step()
    size, count = target.expect()["G"]
    view = screen(80, 24)
    view.run("cd", tmp_path)
    view.run(tracer, "ctl", target.pid, "watch")
    where = r"phases\.py:%d$" % marked_line("phases.py", "G")
    view.wait(where)
    for columns, lines in ((200, 60), (20, 5), (80, 24)):
        view.tmux("resize-window", "-x", columns, "-y", lines)
        view.wait(
            where
            if columns > 20
            else r"^ *%s /w?.*py:%d$" % (size_text(size), marked_line("phases.py", "G"))
        )
        view.wait("^q quit  h help  s [\u2026s]")
    assert row_of(view.wait(where), "phases.py", "G") == (size_text(size), count)
    view.press("w")
    view.wait(r"pb\.gz: snapshot of all processes written")
    (written,) = tmp_path.glob("tracer-%d-*.pb.gz" % target.pid)
    assert (
        ":%d: size=%s" % (marked_line("phases.py", "G"), size_text(size))
        in run_tracer("report", written).stdout
    )
    view.press("q")
    view.run("echo", "left")
    view.wait("^left")
    assert run.process.poll() is None
    view.run(tracer, "ctl", target.pid, "watch")
    view.wait(where)
    run.finish()
    view.wait("^tracer: the session has ended")


def test_ages(tracer, start, trace, screen, any_python):
    """Only blocks of an age, once they have it."""
    target = start(any_python, "phases.py")
    trace("-p", target.pid)
    target.step()
    size, count = target.expect()["G"]
    view = screen(120, 40)
    for words, header in (
        (["--younger-than=1h"], ", younger than 3600 s"),
        (["--older-than=0.5"], ", older than 0.5 s"),
        (["--older-than=100ms", "--younger-than=2h"], ", older than 0.1 s, younger than 7200 s"),
    ):
        view.run(tracer, "ctl", target.pid, "watch", *words)
        view.wait(header)
        wait_until(
            lambda: row_of(view.text(), "phases.py", "G") == (size_text(size), count),
            "all blocks have the age",
        )
        view.leave()
        view.run("clear")
    view.run(tracer, "ctl", target.pid, "watch", "--older-than=1h")
    text = view.wait(r"^by line, sorted by size, 0 rows of 0 B, older than 3600 s")
    assert row_of(text, "phases.py", "G") is None
    view.leave()


@pytest.mark.versions("3.8", "3.11", "3.13")
def test_age_columns(tracer, start, trace, screen, python):
    """Columns of ages that the key switches on and off; blocks grow old, and lines do not grow by it."""
    target = start(python, "phases.py")
    trace("-p", target.pid)
    target.step()
    size, count = target.expect()["G"]
    line = r"phases\.py:%d$" % marked_line("phases.py", "G")
    view = screen(140, 40)
    view.run(tracer, "ctl", target.pid, "watch", "--ages")
    view.wait(r"SIZE +COUNT +GROWTH/s +OLDEST +MEDIAN AGE ")

    def ages():
        """(oldest, median) of the row, in seconds, once it has all of its blocks."""
        text = view.text()
        if row_of(text, "phases.py", "G") != (size_text(size), count):
            return None
        (row,) = [each for each in text.splitlines() if re.search(line, each)]
        found = re.search(r"0 B +([\d.]+) s +([\d.]+) s ", row)
        return found and tuple(map(float, found.groups()))

    before = wait_until(ages, "the row has ages")
    assert before[0] >= before[1]
    wait_until(lambda: (ages() or before)[1] > before[1] + 1, "its blocks grow older")
    view.press("a")
    view.wait(r"SIZE +COUNT +GROWTH/s +(ALLOC/s +)?SIZE SO FAR")
    view.press("a")
    view.wait(r"OLDEST +MEDIAN AGE ")
    view.press("Enter")  # whichever is the first: a traceback is there once
    text = view.wait(r"^\d+ tracebacks?:")
    assert int(re.search(r"^(\d+) traceback", text, re.M)[1]) == len(
        re.findall(r"^\S+ \S+ in [\d,]+ blocks?$", text, re.M)
    )
    view.press("Escape", "7")
    view.wait("^by thread, sorted by size")
    assert "OLDEST" not in view.text()
    view.leave()
    view.run(tracer, "ctl", target.pid, "watch", "--born=2001-01-01T00:00..2001-01-02T00:00")
    view.wait(r"0 rows of 0 B, born from 2001-01-01 00:00:00 to 2001-01-02 00:00:00")
    view.leave()
    view.run(tracer, "ctl", target.pid, "watch", "--born=2001-01-01T00:00..")
    view.wait(r", born from 2001-01-01 00:00:00")
    view.wait(line)
    view.leave()


@pytest.mark.versions("3.8", "3.11", "3.13")
def test_collector(tracer, start, trace, screen, python):
    """What the collector does, to the collection: it stands still, and then it works."""
    target = start(python, "collector.py", "off", ready=False)
    said = json.loads(target.read_line())
    trace("-p", target.pid)
    done = sum(each["collections"] for each in said["stats"])
    freed = sum(each["collected"] for each in said["stats"])
    view = screen(160, 40)
    view.run(tracer, "ctl", target.pid, "watch")
    text = view.wait(r"^gc off: 0 collections/min, 0 objects freed/min")
    assert "; {:,} and {:,} so far, counts ".format(done, freed) in text
    view.leave()
    works = start(python, "collector.py", "works", ready=False)
    trace("-p", works.pid)
    view.run(tracer, "ctl", works.pid, "watch")
    view.wait(r"^gc on(, runs now)?: [1-9]\d+ collections/min, [1-9][\d,]+ objects freed/min")
    view.leave()


@pytest.mark.root_versions(since="3.15")
def test_collector_time(tracer, start, trace, screen, root_python):
    """The share of the time that it takes, where CPython counts that."""
    works = start(
        root_python.path,
        "collector.py",
        "works",
        prefix=("chroot", root_python.root),
        ready=False,
    )
    works.read_until("ready")
    trace("-p", works.pid)
    view = screen(160, 40)
    view.run(tracer, "ctl", works.pid, "watch")
    text = view.wait(r"^gc on.*: [1-9]\d* collections/min, .*, [\d.e-]+ % of the time; ")
    assert float(re.search(r", ([\d.e-]+) % of the time", text)[1]) > 0
    view.leave()


def test_threads(tracer, start, screen, any_python):
    """By thread: each with its name; opened, what it holds is what the program says."""
    target = start(any_python, "thread_owners.py")
    view = screen(120, 40)
    view.run(tracer, "-p", target.pid)
    view.wait("^by line, sorted by size")
    target.step()
    live = target.expect()
    view.press("7")
    for name, (size, count) in live.items():
        view.wait(r"%s \(TID %s\)$" % tuple(name.split()))
        view.press("/", *name.split()[0], "Enter")
        view.wait(", 1 row of .*filter: " + name.split()[0])
        view.press("Enter")
        view.wait(
            r"^%s in %d blocks\n  .*thread_owners.py:%d in work$"
            % (re.escape(size_text(size)), count, marked_line("thread_owners.py", "K"))
        )
        view.press("Escape", "/", *len(name.split()[0]) * ["BSpace"], "Enter")
    view.press("p")
    view.wait("PAUSED")
    view.press("1")  # what is asked for anew comes in a pause, too
    view.wait(r"thread_owners.py:%d$" % marked_line("thread_owners.py", "K"))
    view.press("q")
    view.wait("^Figures: ")


@pytest.mark.root_versions(since="3.14")
def test_tasks(tracer, start, screen, root_python):
    """By task, if the trace was begun so: what the program says of each. Names are escaped."""
    target = start(root_python.path, "task_owners.py", prefix=("chroot", root_python.root))
    view = screen(120, 40)
    view.run(tracer, "-p", target.pid, "--by", "task", "-m", "exact")
    view.wait("^by line, sorted by size")
    target.step()
    live = target.expect()
    line = r"\n  .*task_owners.py:%d in fill$" % marked_line("task_owners.py", "K")
    view.press("8")
    view.wait("^by task, sorted by size")
    for name in ("alpha", "beta", "third", "again-099", "later-049"):
        view.press("/", *name, "Enter")
        view.wait(", 1 row of .*filter: " + name)
        view.press("Enter")
        size, count = live[name]
        view.wait(r"^%s in %d blocks?%s" % (re.escape(size_text(size)), count, line))
        view.press("Escape", "/", *len(name) * ["BSpace"], "Enter")
    view.wait(r"\(no task\)$")
    view.press("/", *"script", "Enter")
    assert r"\x1b[2J" in view.wait(", 1 row of .*filter: script")
    view.press("q")
    view.wait("^Figures: ")


def test_tasks_not_told(tracer, start, screen, any_python):
    target = start(any_python, "thread_owners.py")
    view = screen(120, 40)
    view.run(tracer, "-p", target.pid)
    view.wait("^by line, sorted by size")
    view.press("8")
    view.wait("^tasks are told of a trace that was begun with --by task")
    view.press("7")
    view.wait("^by thread, sorted by size")
    view.press("g")
    view.wait("^by line, sorted by size")
    view.press("q")
    view.wait("^Figures: ")


@pytest.mark.parametrize("crowd", (200, pytest.param(1000, marks=pytest.mark.long)))
def test_crowd(tracer, start, screen, tmp_path, whole_machine, crowd):
    """Many processes under -a: a row for each, in order; the last is reached, and one found
    by its PID."""
    target = start(compiled(tmp_path / "crowd", "crowd.c"), None, crowd)
    view = screen(120, 40)
    view.run(tracer, "-a")
    text = view.wait(r"^\d{3,} processes, ")
    assert int(re.search(r"^(\d+) processes", text, re.M)[1]) > crowd
    target.step()
    first, last = target.read_line().split()
    most = size_text(100 * crowd), format(crowd, ","), last
    view.press("5")
    view.wait("^by process, sorted by size, ")
    view.press("/")
    view.press("-l", "crowd")
    view.press("Enter")
    # The one that has started them has taken nothing meanwhile.
    view.wait(", %d rows of .*filter: crowd" % crowd)
    rows = [line for line in view.text().splitlines() if "crowd (PID " in line]
    assert re.match(r"\W*%s +%s .*crowd \(PID %s\)" % most, rows[0])
    view.press("End")
    view.wait(r"^ *100 B +1 .*crowd \(PID %s\)" % first)
    assert rows[0] not in view.text()
    view.press("PageUp")
    view.press("Home")
    view.wait(r"^ *%s +%s .*crowd \(PID %s\)" % most)
    view.press("/", *5 * ["BSpace"])
    view.press("-l", "PID %s)" % first)
    view.press("Enter")
    view.wait(", 1 row of 100 B, filter: PID %s" % first)
    view.press("Enter")
    view.wait(r"^crowd \(PID %s\)\n\n1 traceback:\n\n100 B in 1 block\n  " % first)
    view.press("q")
    view.wait("^Native blocks ")
    assert target.finish() == 0


def test_stop(tracer, start, screen, any_python):
    """Ctrl-Z gives the terminal back to the shell, fg continues. When the target ends, the report
    follows."""
    target = start(any_python, "phases.py")
    view = screen(100, 30)
    view.run("set", "-m")
    view.run(tracer, "-p", target.pid)
    view.wait("^by line, sorted by size")
    view.press("C-z")
    view.wait(r"Stopped")
    view.run("echo", "at", "the", "shell")
    view.wait("^at the shell")
    view.run("fg")
    view.wait("^by line, sorted by size")
    for _ in range(3):
        target.step()
        live = target.expect()
    view.wait(r"phases\.py:%d$" % marked_line("phases.py", "L"))
    assert target.finish() == 0
    text = view.wait("^Figures: ")
    line = marked_line("phases.py", "L")
    assert re.search(report_row(*live["L"], line), text, re.M), text
    view.run("stty", "-a")
    view.wait(r" icanon .* echo |isig icanon")


def test_plain(tracer, start, screen, any_python):
    """The C locale has plain characters. Two processes are rows of their own. Ctrl-C ends the
    session as ever."""
    targets = [start(any_python, "phases.py") for _ in range(2)]
    view = screen(120, 30, LC_ALL="C")
    view.run(tracer, "-p", ",".join(str(target.pid) for target in targets))
    view.wait("^2 processes, ")
    for target in targets:
        target.step()
        target.expect()
    view.press("5")
    for target in targets:
        text = view.wait(r"\(PID %d\)$" % target.pid)
    assert text.isascii() and re.search(r" #{2,} .*PID", view.wait("## "))
    view.press("C-c")
    view.wait("^Figures: ")


def test_none(tracer, start, screen, run_tracer, any_python, tmp_path):
    """Without a terminal, on one that cannot place a cursor, and with --no-live there is no view."""
    target = start(any_python, "phases.py")
    views = []
    for options, env in (((), {"TERM": "dumb"}), (("--no-live",), {}), (("--top", "3", "-q"), {})):
        view = screen(100, 30)
        views.append(view)
        view.run(
            "env",
            *("%s=%s" % pair for pair in env.items()),
            tracer,
            "-d",
            "1",
            *options,
            "-p",
            target.pid
        )
    for view in views:
        assert "sorted by" not in view.wait("^Figures: ")
    # The last report is on the screen before its session has ended.
    wait_until(lambda: run_tracer("ctl", target.pid, "status").returncode, "the session has ended")
    done = run_tracer("ctl", target.pid, "watch")
    assert done.returncode == 1 and "no session traces" in done.stderr
