# SPDX-License-Identifier: Apache-2.0
"""What the features have in common: the machine, its interpreters, and what a feature found.

A feature is a function feature(machine). It returns when all is as it must be, raises
AssertionError where it is not and Absent where this kernel, or this image, lacks what the feature
is about. machine.note() keeps figures for the report.
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
    """This kernel or this image lacks it; says what."""


class Reboot(Exception):
    """It can be had only by a parameter of the kernel's command line, which the exception names."""


def kernel_release():
    return tuple(int(n) for n in re.match(r"(\d+)\.(\d+)", os.uname().release).groups())


def command_line():
    with open("/proc/cmdline") as file:
        words = file.read().split()
    return dict(word.partition("=")[::2] for word in words)


class Machine:
    """The guest. settings: what the host put into /t/settings.json."""

    def __init__(self, settings, folder):
        self.settings = settings
        self.folder = folder
        self.tracer = os.path.join(T, "build", "tracer")
        self.pythons = {
            "stripped": os.path.realpath("/usr/bin/python3"),
            "unstripped": settings["unstripped"],
        }
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
        """harness.Target, ended with the feature."""
        self.targets.append(harness.Target(*args, **options))
        return self.targets[-1]

    def trace(self, *args, **options):
        """harness.Traced, ended with the feature; what it says of attaching is noted."""
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
        """The tracer, or another program by its path, to its end."""
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
        """Hands something to the host, which looks at it when the feature is done here."""
        self.sent.append(dict(parts, name=name))

    def said(self):
        """All that the tracer printed, for the log."""
        texts = list(self.outputs)
        for run in self.runs:
            words = " ".join(run.process.args[1:])
            texts.append("$ tracer %s\n%s%s" % (words, run.stdout[-4000:], run.stderr[-6000:]))
        return "\n".join(texts)

    def end(self):
        for one in self.runs + self.targets:
            one.kill()


def are_told(report, got, live):
    """What the lines lack is no more than the tracebacks that the report says it could not read."""
    missing = [live[mark][1] - got[mark][1] for mark in live]
    sizes = [live[mark][0] - got[mark][0] for mark in live]
    return min(missing + sizes) >= 0 and sum(missing) <= report.data["not_seen"]["frame_faults"]


def check(machine, run, report, live, name):
    """The table has what the program says that it has; nothing was lost."""
    got = report.marked(name, live)
    pairs = {mark: "%s, not %s" % (got[mark], live[mark]) for mark in live}
    wrong = {mark: text for mark, text in pairs.items() if got[mark] != live[mark]}
    if wrong and are_told(report, got, live):
        machine.note(
            remark="blocks whose traceback is unknown are told of: a page was not resident"
        )
        wrong = {}
    lost = {k: v for k, v in (report.data["not_seen"] or {}).items() if v and k.startswith("lost")}
    text = "wrong (table, not program): %s; %s lost: %s"
    assert not wrong, text % (wrong, report.lost_events, lost)
    assert report.lost_events == 0, "%s events lost: %s" % (report.lost_events, lost)
    assert report.data["not_seen"]["records_malformed"] == 0, "malformed records"


def read_settings():
    with open(os.path.join(T, "settings.json")) as file:
        return json.load(file)
