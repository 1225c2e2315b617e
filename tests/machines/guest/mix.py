# SPDX-License-Identifier: Apache-2.0
"""Eight threads on two processors, preempted at any point: the figures of every run are right.

From 6.13 on the kernel may give programs with a large stack one stack per processor. A program that
is preempted then shares it with the next one, and figures are wrong without a message.

Before 6.2 a program finds no task storage while another task is preempted in the kernel's part for
it, on the same processor. Processes that do little else make that frequent.
"""
import functools
import os
import re

import harness
from guest import PRINTING, Absent, Reboot, command_line, finish_named, kernel_release

PREEMPT = "/sys/kernel/debug/sched/preempt"
THREADS, ROUNDS = 8, 1000
RUNS = 5  # of the target per session; a block that one run gets wrong stays wrong
LIMIT = 900


def choose_preemption(model):
    """Selects a preemption model; if that fails, raises an exception with the reason."""
    if os.path.exists(PREEMPT):
        with open(PREEMPT) as file:
            models = re.findall(r"\w+", file.read())
        if model not in models:
            raise Absent("this kernel has no preempt=%s, only %s" % (model, ", ".join(models)))
        with open(PREEMPT, "w") as file:
            file.write(model)
        with open(PREEMPT) as file:
            assert "(%s)" % model in file.read(), "the kernel did not take preempt=%s" % model
    elif command_line().get("preempt") != model:
        raise Reboot("preempt=" + model)


def one_session(machine, runs, others):
    """What is wrong after some runs, {mark: (bytes and blocks more than are live)}, with all that the
    report names as not seen, and whether it reported lost blocks."""
    if others:
        machine.start(machine.binary("task_storage"), None, others)
    target = machine.start(machine.binary("mix"), None, THREADS, ROUNDS)
    run = machine.trace("--layer", "native", "-p", target.pid, *PRINTING)
    for _ in range(runs):
        target.step()
        live = target.expect()
    report = finish_named(run)
    got = report.marked("mix.c", live)
    off = {mark: (got[mark][0] - live[mark][0], got[mark][1] - live[mark][1]) for mark in live}
    assert target.finish() == 0, "the target was harmed: status %s" % target.process.returncode
    said = bool(report.lost_events or report.data["not_seen"]["no_thread_memory"])
    wrong = {mark: pair for mark, pair in off.items() if any(pair)}
    if wrong:
        wrong["not seen"] = {kind: n for kind, n in report.data["not_seen"].items() if n}
    return wrong, said


def mixed(machine, model, others=0):
    choose_preemption(model)
    sessions = machine.settings["sessions"]
    outcomes = [one_session(machine, RUNS, others) for _ in range(sessions)]
    wrong = [outcome for outcome in outcomes if outcome[0]]
    unsaid = sum(not said for _, said in wrong)
    machine.note(sessions=sessions, runs=sessions * RUNS, wrong=len(wrong), wrong_unsaid=unsaid)
    text = "%d of %d sessions of %d runs wrong; %d of them without a word: %s"
    assert not wrong, text % (len(wrong), sessions, RUNS, unsaid, [off for off, _ in wrong])


def features(settings):
    for model in ("full", "lazy"):
        yield "8 threads, preempt=%s" % model, functools.partial(mixed, model=model)
    if not settings["quick"] or kernel_release() < (6, 2):
        name = "8 threads, preempt=full, beside task storage"
        yield name, functools.partial(mixed, model="full", others=2)
