# SPDX-License-Identifier: Apache-2.0
"""The common parts of the features: the machine, its interpreters, and a feature's findings.

A feature is a function feature(machine). It returns if everything is correct. It raises
AssertionError if something is wrong, and Absent if this kernel or this image lacks something that
the feature needs. machine.note() records figures for the report.
"""
import json
import os
import re
import subprocess
import sys

T = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
sys.path.insert(0, os.path.join(T, "tests", "e2e"))

import harness  # noqa: E402


class Absent(Exception):
    """This kernel or this image lacks something, which the exception names."""


class Reboot(Exception):
    """The feature needs a parameter on the kernel's command line, which the exception names."""


def kernel_release():
    return tuple(int(n) for n in re.match(r"(\d+)\.(\d+)", os.uname().release).groups())


def command_line():
    with open("/proc/cmdline") as file:
        words = file.read().split()
    return dict(word.partition("=")[::2] for word in words)


class Machine:
    """The guest. settings: the data that the host put into /t/settings.json."""

    def __init__(self, settings, folder):
        self.settings = settings
        self.folder = folder
        self.tracer = os.path.join(T, "build", "tracer")
        self.pythons = {
            "stripped": os.path.realpath("/usr/bin/python3"),
            "unstripped": settings["unstripped"],
        }
        self.prefixes = {}  # words of a command that runs an interpreter
        for version, root in settings["roots"].items():
            self.pythons[version] = "/usr/bin/python" + version
            self.prefixes[version] = ("chroot", root)
        self.notes = {}
        self.runs = []
        self.targets = []
        self.outputs = []
        self.sent = []

    def binary(self, name):
        return os.path.join(T, "bin", name)

    def note(self, **facts):
        self.notes.update(facts)

    def start(self, *args, **options):
        """A harness.Target that ends with the feature."""
        self.targets.append(harness.Target(*args, **options))
        return self.targets[-1]

    def trace(self, *args, **options):
        """A harness.Traced that ends with the feature; its figures of the attach are recorded."""
        attached = options.pop("attached", True)
        subcommand = args[:1] if not str(args[0]).startswith("-") else ()
        words = (*subcommand, "-v", *args[len(subcommand) :])
        run = harness.Traced(self.tracer, self.folder, *words, attached=False, **options)
        self.runs.append(run)
        if attached:
            run.wait_attached()
            self.note(attach=harness.attach_facts(run.stderr))
        return run

    def run(self, *args, **options):
        """Runs the tracer, or another program by its path, to its end."""
        command = list(map(str, args))
        if not command[0].startswith("/"):
            command.insert(0, self.tracer)
        options.setdefault("env", harness.environment())
        options.setdefault("timeout", harness.TIMEOUT)
        options.update(stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace")
        done = subprocess.run(command, **options)
        said = done.stdout + done.stderr
        self.outputs.append("$ %s -> %d\n%s" % (" ".join(command), done.returncode, said))
        return done

    def send(self, name, **parts):
        """Sends data to the host, which checks it when the feature has ended here."""
        self.sent.append(dict(parts, name=name))

    def said(self):
        """Everything that the tracer printed, for the log."""
        texts = list(self.outputs)
        for run in self.runs:
            words = " ".join(run.process.args[1:])
            texts.append("$ tracer %s\n%s%s" % (words, run.stdout[-4000:], run.stderr[-6000:]))
        return "\n".join(texts)

    def end(self):
        for one in self.runs + self.targets:
            one.kill()


# Of the last walk of the heap: what it did not read, and how old what it left is.
UNREAD = ("unread", "pools_unreadable", "elapsed")


def are_told(report, got, live):
    """The lines lack no more blocks than the tracebacks that the report says it could not read."""
    missing = [live[mark][1] - got[mark][1] for mark in live]
    sizes = [live[mark][0] - got[mark][0] for mark in live]
    return min(missing + sizes) >= 0 and sum(missing) <= report.data["not_seen"]["frame_faults"]


def is_slow(report, live):
    """A file took too long to read, so that frames have no lines, and the report says so. What it has
    is what the program prints, all lines together."""
    if not report.data["not_seen"].get("frames_slow"):
        return False
    total = report.data["total"]
    return (total["size"], total["count"]) == tuple(map(sum, zip(*live.values())))


PRINTING = ("-i", 1, "--format", "json", "--top", 0)


def finish_named(run):
    """The last report of a run with PRINTING, which ends when all frames have names. On request of the
    end, names are looked up for half a second only, which is little where the machine is emulated.
    """

    def named():
        return any(not r.data["not_seen"].get("frames_slow") for r in run.printed_reports()[-1:])

    seen = len(run.printed_reports()) + 1
    harness.wait_until(lambda: len(run.printed_reports()) > seen and named(), "all is named")
    return run.finish()


def check(machine, run, report, live, name):
    """The table has the figures that the program prints; nothing was lost."""
    got = report.marked(name, live)
    pairs = {mark: "%s, not %s" % (got[mark], live[mark]) for mark in live}
    wrong = {mark: text for mark, text in pairs.items() if got[mark] != live[mark]}
    if wrong and are_told(report, got, live):
        machine.note(
            remark="blocks whose traceback is unknown are told of: a page was not resident"
        )
        wrong = {}
    if wrong and is_slow(report, live):
        machine.note(remark="all lines together: the program's file took too long to read")
        wrong = {}
    unseen = {k: v for k, v in (report.data["not_seen"] or {}).items() if v}
    unread = {
        k: v for k, v in (report.data["coverage"] or {}).items() if v and k.startswith(UNREAD)
    }
    text = "wrong (table, not program): %s; not seen: %s; walk: %s; said: %s"
    assert not wrong, text % (wrong, unseen, unread, run.stderr.splitlines()[-4:])
    assert report.lost_events == 0, "%s events lost: %s" % (report.lost_events, unseen)
    assert report.data["not_seen"]["records_malformed"] == 0, "malformed records"


def read_settings():
    with open(os.path.join(T, "settings.json")) as file:
        return json.load(file)
