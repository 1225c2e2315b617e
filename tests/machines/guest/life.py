# SPDX-License-Identifier: Apache-2.0
"""Features for the lifetime of processes: fork, exec, and the tracer's own end."""
import functools

import harness
import procfs


def fork(machine):
    """Children of two generations: the blocks of its parent that each one frees and keeps."""
    target = machine.start(machine.pythons["unstripped"], "family.py", "now", 2)
    run = machine.trace("-p", target.pid, "-m", "exact", "-v")
    target.step()
    told = {}
    for _ in range(3):
        live = target.expect()
        told[live.pop("pid")[0]] = live
    for pid in told:
        harness.wait_reading(pid)
    run.interrupt()
    assert run.wait() == 0, "status %s" % run.process.returncode
    for pid, live in told.items():
        got = run.report("--pid", pid).marked("family.py", live)
        assert got == live, "PID %d: %s, not %s" % (pid, got, live)
    assert target.finish() == 0, "the target was harmed: status %s" % target.process.returncode


def execute(machine):
    """A program that a child executes is traced, too."""
    target = machine.start(machine.pythons["unstripped"], "runner.py", "fork and exec")
    run = machine.trace("-p", target.pid, "-v")
    target.step()
    pid = target.expect()["pid"][0]
    target.read_until("again")
    run.wait_attached(2)
    target.step()
    live = target.expect()
    assert target.finish() == 0, "the target was harmed: status %s" % target.process.returncode
    assert run.wait() == 0, "status %s" % run.process.returncode
    got = run.report("--pid", pid).marked("runner.py", live)
    assert got == live, "%s, not %s" % (got, live)


def killed(machine, target, *options):
    """SIGKILL to the tracer while the target works: no byte of a probe remains, and the target
    continues."""
    # Before 6.6 the kernel may still be removing the probes of the previous session.
    harness.wait_until(lambda: procfs.text_differs(target.pid) == 0, "no probe is in the code")
    run = machine.trace("-p", target.pid, *options)
    machine.note(bytes_probed=procfs.text_differs(target.pid))
    assert machine.notes["bytes_probed"] > 0, "no probe is in the code: what is compared here?"
    run.process.kill()
    run.process.wait()
    harness.wait_until(
        lambda: procfs.text_differs(target.pid) == 0, "the target's code is as its file"
    )
    assert target.process.poll() is None, "the target died: status %s" % target.process.returncode
    target.step()
    assert target.expect() is not None
    assert target.finish() == 0, "the target was harmed: status %s" % target.process.returncode


def killed_python(machine, kind):
    killed(machine, machine.start(machine.pythons[kind], "busy.py"), "-m", "exact")


def killed_native(machine):
    killed(machine, machine.start(machine.binary("blocks"), None, "busy"), "--layer", "native")


def features(settings):
    yield "fork", fork
    yield "exec", execute
    for kind in ("unstripped",) if settings["quick"] else ("stripped", "unstripped"):
        yield "SIGKILL of the tracer, %s" % kind, functools.partial(killed_python, kind=kind)
    yield "SIGKILL of the tracer, native", killed_native
