# SPDX-License-Identifier: Apache-2.0
"""Situations from public bug reports, in the folder that CASES names (default ../shared/cases
beside the checkout). Each test runs the program of one folder, types a command that a user would
type, and compares the answer with what the folder's case.md expects. CASES_ONLY='04|16' picks.

A test checks everything that it can and fails at its end, with all that was expected and came.
"""
import collections
import glob
import json
import os
import re
import signal
import subprocess
import sys

import pytest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "e2e"))

import harness  # noqa: E402
import pythons  # noqa: E402

# Without links: as their processes tell their folder.
CASES = os.path.realpath(
    os.environ.get("CASES") or os.path.join(os.path.dirname(harness.ROOT), "shared", "cases")
)


def pytest_configure(config):
    config.addinivalue_line("markers", "long: left out of a test run (CASES_QUICK=1)")


def pytest_collection_modifyitems(items):
    only = os.environ.get("CASES_ONLY") or "[0-9]+"
    items[:] = [item for item in items if re.match(r"test_(%s)_" % only, item.name)]
    if os.geteuid() != 0:
        for item in items:
            item.add_marker(pytest.mark.skip(reason="root is needed to trace"))


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem):
    arguments = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
    pyfuncitem.obj(**arguments)
    if arguments["case"].wrong:
        pytest.fail("\n".join(["", *arguments["case"].wrong]), pytrace=False)
    return True


class Program(harness.Target):
    """A situation's program, from the line "pid N" on. go() ends its WAIT."""

    def __init__(self, command, env, cwd):
        prefix = ("env", "-C", cwd)
        super().__init__(command[0], None, *command[1:], env=env, ready=False, prefix=prefix)
        self.said = []
        self.pid = int(self.line("pid").split()[1])

    def line(self, word):
        """The next line that begins with the word."""
        while True:
            line = self.read_line()
            assert line is not None, "the program ended: " + self.process.stderr.read().decode()
            self.said.append(line)
            if line.startswith(word):
                return line

    def go(self, word="done"):
        self.process.stdin.close()
        return self.line(word) if word else None

    def kill(self):
        if self.pid != self.process.pid and self.process.poll() is None:
            try:
                os.kill(self.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        super().kill()


class Case:
    """One situation. expect() collects what is wrong."""

    def __init__(self, number, tracer, tmp_path):
        found = glob.glob(os.path.join(glob.escape(CASES), number + "-*"))
        if not found:
            pytest.skip("no situation %s in %s (CASES)" % (number, CASES))
        self.folder, self.tracer, self.tmp = found[0], tracer, tmp_path
        self.wrong, self._started = [], []

    def path(self, name):
        return os.path.join(self.folder, name)

    def expect(self, what, came, wanted):
        """wanted: a value, or a function that is true of the right ones."""
        if not (wanted(came) if callable(wanted) else came == wanted):
            told = "" if callable(wanted) else ": expected %r" % (wanted,)
            self.wrong.append(("%s%s, came %r" % (what, told, came))[:1200])

    def start(self, *command, python=pythons.DISTRIBUTION, env=(), cwd=None):
        """The program and its arguments under Python; python=None: any other command."""
        words = [*([python, self.path(command[0])] if python else command[:1]), *command[1:]]
        given = {"PYTHONPATH": os.path.join(HERE, "wait"), "HOLD": "600", "WAIT": "1", **dict(env)}
        self._started.append(Program(words, harness.environment(**given), cwd or self.folder))
        return self._started[-1]

    def attach(self, *options, **how):
        self._started.append(harness.Traced(self.tracer, self.tmp, *options, **how))
        return self._started[-1]

    def trace(self, program, *options, word="done", report=()):
        """T -p PID until the program has printed "done": the Report."""
        run = self.attach(*options, "-p", program.pid)
        program.go(word)
        return run.finish(*report)

    def run(self, *args, status=0):
        """The tracer's answer as text."""
        done = subprocess.run(
            [self.tracer, *harness.without_budget(args)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            timeout=harness.TIMEOUT,
            env=harness.environment(),
        )
        assert done.returncode == status, done.stderr
        return done.stdout

    def ask(self, *args):
        """The tracer's answer in JSON."""
        return json.loads(self.run(*args, "--format", "json", "--top", "0"))

    def line(self, report, name, number):
        """(bytes, blocks) of a line of the program."""
        path = name if name[0] in "/<" else self.path(name)
        return report.lines().get((path, number), (0, 0))

    def tracebacks(self, run, *args):
        """[((bytes, blocks), the frames with the names of their functions, a line each)]."""
        args = ("report", run.snapshot, "--group-by", "traceback", *args)
        rows = self.ask(*args)["statistics"]
        text = re.split(r"^Total:", self.run(*args, "--top", "0"), flags=re.M)[0]
        entries = re.split(r"^  (?=\S)", text, flags=re.M)[1:]
        frames = [re.findall(r"^    (\S.*)$", entry, re.M) for entry in entries]
        assert len(frames) == len(rows), "text and JSON have other entries"
        return [((r["size"], r["count"]), "\n".join(f)) for r, f in zip(rows, frames)]

    def heap(self, program, *options):
        """{type with its module: (bytes, objects)} of tracer heap."""
        answer = self.ask("heap", "-p", program.pid, *options)
        counted = collections.Counter()
        for row in answer["statistics"]:
            counted[row["type_name"]] += row["count"]
        return counted

    def why(self, program, name):
        """tracer heap why: [(objects, the path in one line of words)], and the answer."""
        answer = self.ask("heap", "why", name, "-p", program.pid)
        return [(path["count"], told(path)) for path in answer["paths"]], answer

    def end(self):
        for each in reversed(self._started):
            each.kill()
            if isinstance(each, harness.Traced):
                print(each.stderr)  # shown with a test that failed


def told(path):
    """A path of `heap why` in one line: its expression, and each step's kind, name and type."""
    steps = [
        " ".join(str(step[k]) for k in ("kind", "name", "function", "type") if step.get(k))
        for step in path["steps"]
    ]
    return " -> ".join([path.get("expression") or "", *steps])


@pytest.fixture(scope="session")
def tracer():
    return harness.tracer_path()


@pytest.fixture
def case(request, tracer, tmp_path):
    made = Case(re.match(r"test_(\d+)", request.node.name)[1], tracer, tmp_path)
    yield made
    made.end()


@pytest.fixture
def python_of():
    """python_of("3.12"): the path of an unstripped CPython."""
    found = pythons.unstripped()

    def find(version):
        return found.get(version) or pytest.skip("no unstripped CPython " + version)

    return find
