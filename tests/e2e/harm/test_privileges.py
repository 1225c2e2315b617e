# SPDX-License-Identifier: Apache-2.0
"""A running tracer holds no more privileges than it needs to continue."""
import os
import re

import pytest

from harness import wait_until

KEPT = ("CapPrm", "CapEff", "CapInh", "CapAmb", "CapBnd", "NoNewPrivs", "SigBlk", "SigIgn")
SYS_PTRACE, BPF, DAC_READ_SEARCH, DAC_OVERRIDE, PERFMON, CHECKPOINT_RESTORE = (
    1 << n for n in (19, 39, 2, 1, 38, 40)
)
PICK_UP = PERFMON | CHECKPOINT_RESTORE


def status(pid):
    with open("/proc/%s/status" % pid) as file:
        return dict(re.findall(r"^(\w+):\s+(\S+)", file.read(), re.M))


def check(pid, allowed):
    fields = status(pid)
    for kind in ("CapPrm", "CapEff", "CapInh", "CapAmb"):
        assert int(fields[kind], 16) & ~allowed == 0, kind
    assert fields["NoNewPrivs"] == "1"
    assert fields["Seccomp"] == "2", "no list of system calls"


def mapped(pid):
    with open("/proc/%d/maps" % pid) as file:
        return {line.split(None, 5)[5].rstrip() for line in file if line.count("/")}


@pytest.mark.parametrize("follow", (False, True), ids=("one process", "and what it starts"))
@pytest.mark.parametrize("output", (False, True), ids=("no file", "a file"))
def test_attached(start, trace, any_python, output, follow):
    """The tracer reads the target's memory and its BPF maps, attaches to children, and (to write
    files) accesses other users' folders."""
    target = start(any_python, "golden.py")
    run = trace(
        "-p", target.pid, "--interval", "0.1", *(() if follow else ("--no-follow",)), output=output
    )
    # The message about the attach precedes the drop of the privileges. The first report follows it.
    wait_until(lambda: "Total:" in run.stdout, "it follows the target")
    check(
        run.pid,
        SYS_PTRACE
        | BPF
        | DAC_READ_SEARCH
        | (DAC_OVERRIDE if output else 0)
        | (PICK_UP if follow else 0),
    )
    target.step()
    live = target.expect()
    run.interrupt()
    assert run.wait() == 0
    if output:
        assert run.report().marked("golden.py", live) == live


def test_every_thread(start, trace, any_python):
    """Capabilities belong to threads: each thread has dropped them."""
    target = start(any_python, "golden.py")
    run = trace("-p", target.pid, "--interval", "0.1")
    wait_until(lambda: "Total:" in run.stdout, "it follows the target")
    for task in os.listdir("/proc/%d/task" % run.pid):
        check(int(task), SYS_PTRACE | BPF | DAC_READ_SEARCH | DAC_OVERRIDE | PICK_UP)


def test_the_worker_holds_nothing(start, trace, any_python):
    """The process that reads DWARF holds its socket, and no link, BPF map or descriptor of the
    target."""
    target = start(any_python, "golden.py")
    run = trace("-p", target.pid, "--layer", "native", "--interval", "0.1")
    wait_until(lambda: "Total:" in run.stdout, "it follows the target")
    with open("/proc/%d/task/%d/children" % (run.pid, run.pid)) as file:
        children = {status(pid)["Name"]: pid for pid in file.read().split()}
    worker = children["tracer-symbols"]
    fields = status(worker)
    assert int(fields["CapPrm"], 16) == 0 and fields["Seccomp"] == "2"
    held = {
        os.readlink("/proc/%s/fd/%s" % (worker, fd)) for fd in os.listdir("/proc/%s/fd" % worker)
    }
    assert all(
        name == "/dev/null"
        or name.startswith(("socket:", "/usr/lib/debug/"))
        or name.endswith(tuple(mapped(target.pid)))
        for name in held
    ), held
    assert not any("bpf" in name or "perf_event" in name or "/proc/" in name for name in held), held
    assert len(os.listdir("/proc/%d/fd" % run.pid)) > len(held)


def test_the_command_keeps_its_own(trace, any_python):
    """A command runs with the user's privileges. It does not inherit the tracer's reduced
    capabilities or its signal mask."""
    code = (
        "import json; s = dict(l.split(':', 1) for l in open('/proc/self/status'));"
        "print(json.dumps({k: [int(s[k], 16), 0] for k in %r}))" % (KEPT,)
    )
    run = trace("--", any_python.path, "-c", code)
    ours = status("self")
    assert {k: v[0] for k, v in run.expect().items()} == {k: int(ours[k], 16) for k in KEPT}
    assert run.wait() == 0
