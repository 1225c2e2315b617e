# SPDX-License-Identifier: Apache-2.0
"""Features of Python's layer: the modes on a stripped and on an unstripped interpreter, with one thread and with four."""
import functools

import harness
from guest import Absent, check, kernel_release

POOL_USE = 0.75  # the share of its pools that a line's blocks fill at least


def exact_figures(machine, kind, program, arguments, *options, starter=()):
    """The program's own figures stand in the table, to the byte and the block. starter: what executes it, if not we."""
    words = (*starter, harness.program(program), *arguments)
    target = machine.start(machine.pythons[kind], *words)
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
    """The line whose blocks fill new pools stands there with them."""
    program, mark = ("threads.py", "K") if threads > 1 else ("growth.py", "A")
    target = machine.start(machine.pythons[kind], program, *((threads, 2000) if threads > 1 else ()))
    run = machine.trace("-m", "growth", "-p", target.pid)
    target.step()
    live = target.expect()
    target.wait_reading()
    report = run.finish()
    assert report.lost_events == 0, "%s events lost" % report.lost_events
    size, _ = report.line(program, mark)
    expected = live[mark][0]
    assert expected <= size + report.data["pool_size"] * 2, "line %s: pools of %d bytes, live %d" % (mark, size, expected)
    assert size * POOL_USE <= expected, "line %s: pools of %d bytes, live %d" % (mark, size, expected)
    assert target.finish() == 0, "the target was harmed: status %s" % target.process.returncode


NEEDED = {"multi": (6, 6), "perf": (4, 17)}


def backend(machine, kind, name):
    """Where the kernel has no such links, the tracer refuses in one line."""
    if kernel_release() < NEEDED[name]:
        target = machine.start(machine.pythons[kind], "golden.py")
        done = machine.run("-p", target.pid, "-d", 1, "--backend", name)
        harness.error_line(done, 1)
        raise Absent("not in this kernel: %s" % done.stderr.strip())
    exact_figures(machine, kind, "golden.py", (), "-m", "exact", "--backend", name)


def features(settings):
    for mode in ("census", "exact", "growth"):
        for kind in ("stripped", "unstripped"):
            for threads in (1, 4):
                function = functools.partial(growth if mode == "growth" else mode_figures, kind=kind, threads=threads)
                if mode != "growth":
                    function = functools.partial(function, mode=mode)
                yield "%s, %s, %d thread%s" % (mode, kind, threads, "s" if threads > 1 else ""), function
    for name in ("multi", "perf"):
        for kind in ("stripped", "unstripped"):
            yield "--backend %s, %s" % (name, kind), functools.partial(backend, kind=kind, name=name)
    yield "seccomp", lambda machine: exact_figures(
        machine, "unstripped", "golden.py", (), "-m", "exact", starter=("sandboxed.py",)
    )
