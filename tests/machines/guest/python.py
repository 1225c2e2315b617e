# SPDX-License-Identifier: Apache-2.0
"""Features of Python's layer: the modes on stripped and unstripped interpreters, with threads."""
import functools
import itertools

import harness
from guest import Absent, Reboot, check, command_line, kernel_release

KINDS = ("stripped", "unstripped")
POOL_USE = 0.75  # the share of its pools that a line's blocks fill at least


def exact_figures(machine, kind, program, arguments, *options, starter=()):
    """The table has the program's figures, to the byte. starter: a program that execs it."""
    words = (*starter, harness.program(program), *arguments)
    prefix = machine.prefixes.get(kind, ())
    target = machine.start(machine.pythons[kind], *words, prefix=prefix)
    run = machine.trace("-p", target.pid, *options)
    target.step()
    live = target.expect()
    target.wait_reading()
    check(machine, run, run.finish(), live, program)
    assert target.finish() == 0, "the target was harmed: status %s" % target.process.returncode


def mode_figures(machine, mode, kind, threads):
    if threads > 1:
        exact_figures(machine, kind, "threads.py", (threads, 500), "-m", mode)
    else:
        exact_figures(machine, kind, "golden.py", (), "-m", mode)


def growth(machine, kind, threads):
    """The line whose blocks fill new pools is charged for them."""
    program, mark = ("threads.py", "K") if threads > 1 else ("growth.py", "A")
    arguments = (threads, 2000) if threads > 1 else ()
    target = machine.start(machine.pythons[kind], program, *arguments)
    run = machine.trace("-m", "growth", "-p", target.pid)
    target.step()
    live = target.expect()
    target.wait_reading()
    report = run.finish()
    assert report.lost_events == 0, "%s events lost" % report.lost_events
    size, _ = report.line(program, mark)
    expected = live[mark][0]
    text = "line %s: pools of %d bytes, live %d" % (mark, size, expected)
    assert expected <= size + report.data["pool_size"] * 2, text
    assert size * POOL_USE <= expected, text
    assert target.finish() == 0, "the target was harmed: status %s" % target.process.returncode


def backend(machine, kind, name):
    """Links of the given kind, or the next lower one if the kernel lacks it (uprobe_multi: 6.6)."""
    exact_figures(machine, kind, "golden.py", (), "-m", "exact", "--backend", name)
    wanted = (
        harness.LINKS[1] if name == "multi" and kernel_release() >= (6, 6) else harness.LINKS[2]
    )
    # The line with the links is not the one that reports the attach.
    machine.note(attach=harness.attach_facts(machine.runs[-1].stderr))
    links = machine.notes["attach"].get("links")
    assert links == wanted, "%s, not %s" % (links, wanted)


def without_task_storage(machine):
    """Thread state is in a hash: from 6.19 on the kernel needs cmpxchg16b for task storage."""
    if kernel_release() < (6, 19):
        raise Absent("before 6.19 no kernel refuses task storage")
    if command_line().get("clearcpuid") != "cx16":
        raise Reboot("clearcpuid=cx16")
    exact_figures(machine, "stripped", "threads.py", (4, 500), "-m", "exact")
    exact_figures(machine, "unstripped", "golden.py", ())


MODES = {
    "census": functools.partial(mode_figures, mode="census"),
    "exact": functools.partial(mode_figures, mode="exact"),
    "growth": growth,
}


def features(settings):
    """A quick run has each mode with each interpreter, but not with each number of threads."""
    quick = settings["quick"]
    for mode, kind, threads in itertools.product(MODES, KINDS, (1, 4)):
        if quick and (kind == "stripped") == (threads == 1):
            continue
        name = "%s, %s, %d thread%s" % (mode, kind, threads, "s" if threads > 1 else "")
        yield name, functools.partial(MODES[mode], kind=kind, threads=threads)
    for mode, version in itertools.product(("census", "exact"), settings["roots"]):
        name = "%s, %s, stripped, 4 threads" % (mode, version)
        yield name, functools.partial(mode_figures, mode=mode, kind=version, threads=4)
    for name, kind in itertools.product(("multi", "perf"), KINDS[1:] if quick else KINDS):
        function = functools.partial(backend, kind=kind, name=name)
        yield "--backend %s, %s" % (name, kind), function
    yield "no task storage", without_task_storage
    yield "seccomp", lambda machine: exact_figures(
        machine, "unstripped", "golden.py", (), "-m", "exact", starter=("sandboxed.py",)
    )
