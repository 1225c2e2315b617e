# SPDX-License-Identifier: Apache-2.0
"""A kernel that is locked down. Lockdown lasts until the next boot, so these features run last in a
boot."""
import os
import re

from guest import Absent, check

LOCKDOWN = "/sys/kernel/security/lockdown"


def lock_down(level):
    """Raises the lockdown level; if that fails, raises an exception with the reason."""
    if not os.path.exists(LOCKDOWN):
        raise Absent("this kernel has no lockdown, or it is not one of its security modules")
    with open(LOCKDOWN, "w") as file:
        file.write(level)
    with open(LOCKDOWN) as file:
        assert "[%s]" % level in file.read(), "the kernel did not take lockdown=" + level


def integrity(machine):
    """BPF may read all that the tracer needs: the figures equal the program's own."""
    target = machine.start(machine.pythons["stripped"], "golden.py")
    lock_down("integrity")
    run = machine.trace("-p", target.pid)
    target.step()
    live = target.expect()
    target.wait_reading()
    check(machine, run, run.finish(), live, "golden.py")
    assert target.finish() == 0, "the target was harmed: status %s" % target.process.returncode


def confidentiality(machine):
    """BPF may read nothing: one line says so and names the remedy, and the target continues."""
    target = machine.start(machine.pythons["stripped"], "golden.py")
    lock_down("confidentiality")
    for words in (("-p", target.pid, "-d", "1"), ("doctor",)):
        done = machine.run(*words)
        (line,) = re.findall("^.*locked down.*$", done.stdout + done.stderr, re.M) or [""]
        assert done.returncode == 1, "%s: status %d" % (words[0], done.returncode)
        assert "(confidentiality)" in line and "lockdown=integrity" in line, "%s: %s" % (
            words[0],
            line,
        )
    target.step()
    assert target.expect()
    assert target.finish() == 0, "the target was harmed: status %s" % target.process.returncode


def features(settings):
    for level in (integrity, confidentiality):
        yield "lockdown=" + level.__name__, level
