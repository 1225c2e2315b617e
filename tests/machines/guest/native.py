# SPDX-License-Identifier: Apache-2.0
"""Features of the native layer: malloc's callers, commands, late libraries, the whole machine."""
import os
import re
import subprocess

import harness
from guest import PRINTING, check, finish_named

STEPS = 4  # of native.c
LATE_ROUNDS = 4
BRIEFS = 10
SLEEPERS = 10  # with this many processes the tracer reports that it has attached to all
LIMIT = 900


def marks(live):
    """Lines with blocks, without the line of malloc's own figures."""
    return {mark: pair for mark, pair in live.items() if mark != "mallinfo" and pair != (0, 0)}


def steps(machine, layer, name, lines=dict):
    """A program that works in steps is attached to. lines: those of what it says that count."""
    target = machine.start(machine.binary(name), None)
    run = machine.trace("--layer", layer, "-p", target.pid, *PRINTING)
    for _ in range(STEPS):
        target.step()
        live = target.expect()
    check(machine, run, finish_named(run), lines(live), name + ".c")
    assert target.finish() == 0, "the target was harmed: status %s" % target.process.returncode


def native(machine):
    steps(machine, "native", "native", marks)


def command(machine):
    words = ("--layer", "native", "--", machine.binary("native"))
    run = machine.trace(*words, stdin=subprocess.PIPE, attached=False)
    for _ in range(STEPS):
        run.step()
        live = run.expect()
    run.process.stdin.close()
    assert run.wait() == 0, "status %s" % run.process.returncode
    report = run.report()
    check(machine, run, report, marks(live), "native.c")
    assert report.data["from_start"] is True, "not traced from its start"


def mapped(machine):
    """Ranges that are mapped, moved, shrunk, committed and unmapped."""
    steps(machine, "mmap", "mapped")


def late_library(machine):
    """An allocator that is loaded after the attach is probed, and its blocks are then counted."""
    library = machine.binary("liblate.so")
    target = machine.start(machine.binary("late_user"), None, library)
    run = machine.trace("-v", "-p", target.pid, "-i", "0.2", "--format", "json", "--top", 0)

    def say(answer):
        target.process.stdin.write(b"1")
        target.process.stdin.flush()
        target.read_until(answer)

    say("loaded")

    def reported():
        """The line's size and number of blocks in the second report from now on: it has all that
        is done."""
        reports = len(run.printed_reports()) + 2
        harness.wait_until(lambda: len(run.printed_reports()) >= reports, "two more reports")
        return run.printed_reports()[-1].line("late_user.c", "LATE")

    # Probes become active milliseconds after the library is mapped, one after the other.
    before = (0, 0)
    while not before[1]:
        say("done")
        before = reported()
    for _ in range(LATE_ROUNDS):
        say("done")
    after = run.finish().line("late_user.c", "LATE")
    kept = LATE_ROUNDS * 5
    wanted = (before[0] + 100 * kept, before[1] + kept)
    assert after == wanted, "%s blocks, not %s" % (after, wanted)
    assert target.finish() == 0, "the target was harmed: status %s" % target.process.returncode


def own_samples(machine):
    """A process that samples itself: its weights, and its semaphores with a listener and without."""
    target = machine.start(machine.binary("otel_program"), None)
    run = machine.trace("--layer", "native", "-p", target.pid)
    for _ in range(3):
        target.step()
        live = target.expect()
    samples, listeners = live.pop("samples")[0], live.pop("semaphores")
    report = run.finish()
    # The kernel counts each mapping of the page with the probes. Where pages are larger than 4 KiB,
    # it may be mapped a second time, with the read-only data behind the code.
    counts = {1} if os.sysconf("SC_PAGE_SIZE") == 4096 else {1, 2}
    wrong = "%d samples, semaphores %s" % (samples, listeners)
    assert samples and set(listeners) <= counts, wrong
    got = {mark: report.line("otel_program.c", mark)[0] for mark in live}
    wanted = {mark: size for mark, (size, _) in live.items()}
    # If a file took too long to read, its blocks have addresses, and the report says so.
    unnamed = report.data["not_seen"]["frames_unnamed"]
    assert report.data["total"]["size"] == sum(wanted.values()) and (
        got == wanted or unnamed
    ), "%s, not %s; %s lost" % (got, wanted, report.lost_events)

    def silent():
        target.process.stdin.write(b"look\n")
        target.process.stdin.flush()
        return target.expect()["semaphores"] == (0, 0)

    harness.wait_until(silent, "the semaphores are 0")
    assert target.finish() == 0, "the target was harmed: status %s" % target.process.returncode


def everything(machine):
    """-a: each short-lived program has its table, while other programs start and end."""
    for _ in range(SLEEPERS):
        machine.start("/bin/sleep", None, 1000, ready=False)
    run = machine.trace("-a", "-v", attached=False)
    ready = re.compile(r"^tracer: attached to \d+ of \d+ processes", re.M)

    def attached():
        assert run.process.poll() is None, "the tracer ended: " + run.stderr
        return ready.search(run.stderr)

    harness.wait_until(attached, "it has attached")
    programs = 20 if machine.settings["quick"] else 300
    storm = machine.start(machine.pythons["stripped"], "storm.py", programs, 20, ready=False)
    for _ in range(BRIEFS):
        assert subprocess.run([machine.binary("brief")]).returncode == 0, "a program was harmed"
    storm.read_until("done")
    seen = re.compile(r"attached to PID \d+ \(brief\)")
    harness.wait_until(lambda: len(seen.findall(run.stderr)) == BRIEFS, "all programs were seen")
    run.interrupt()
    assert run.wait() == 0, "status %s: %s" % (run.process.returncode, run.stderr[-300:])
    report = run.report("--layer", "native", "--by", "process", "--top", "0")
    assert report.data["not_seen"]["records_malformed"] == 0, "malformed records"
    # Each program is two processes; the child also has its parent's blocks.
    entries = [e for e in report.data["statistics"] if e["comm"] == "brief"]
    got = sorted((e["size"], e["count"]) for e in entries)
    live = [(3000, 3)] * BRIEFS + [(3500, 4)] * BRIEFS
    assert got == live, "brief: %s, not %s; %s lost" % (got, live, report.lost_events)
    lines = run.report("--layer", "native").marked("brief.c", ("KEPT", "CHILD"))
    named = (lines["KEPT"][1], lines["CHILD"][1])
    # If a program's file was not known in time, its blocks have addresses, and the report says so.
    assert named == (BRIEFS * 6, BRIEFS) or report.data["not_seen"]["frames_unnamed"], named


def features(settings):
    yield "native layer", native
    yield "native command", command
    yield "mapped memory", mapped
    yield "late library", late_library
    yield "own samples by USDT", own_samples
    yield "-a in a storm of processes", everything
