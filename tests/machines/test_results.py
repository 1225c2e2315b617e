# SPDX-License-Identifier: Apache-2.0
"""The guest's findings become results, a table and an exit status; a failure is never dropped."""
import base64
import gzip
import json
import os
import re
import struct
import time

import pytest

import guest
import harness
import inside
import kernels
import life
import machine
import packages
import procfs
import replay
import report
import system
import vm
from arch import AMD64


class NoMachine:
    """The parts of a guest.Machine that inside.py needs."""

    def __init__(self):
        self.notes, self.sent = {}, []

    def end(self):
        pass

    def said(self):
        return "what it said"


def raises(error):
    def feature(machine):
        raise error

    return feature


@pytest.mark.parametrize(
    "change, taken",
    (
        ({}, True),
        ({"tracer": "another"}, False),
        ({"version": "6.1.1-1"}, False),
        ({"quick": True}, False),
        ({"only": ["demo"]}, False),
        ({"features": {"demo": {"feature": "demo", "status": "no", "reason": "why"}}}, False),
        ({"features": {}}, False),
    ),
)
def test_an_earlier_run_is_taken(monkeypatch, tmp_path, change, taken):
    """Only a complete run of the same tracer without a failure need not be repeated."""
    monkeypatch.setattr(kernels.arches, "folder", lambda arch: str(tmp_path))
    monkeypatch.setattr(kernels, "tracer_identity", lambda arch: "this")
    demo = {"demo": {"feature": "demo", "status": "yes", "reason": ""}}
    result = {"tracer": "this", "version": "6.1.2-1", "quick": False, "only": [], "features": demo}
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "6.1.json").write_text(json.dumps(dict(result, **change)))
    kernel = packages.Kernel("linux-image-6.1-cloud-amd64", "6.1.2-1", (6, 1))
    assert bool(kernels.earlier("6.1", kernel, AMD64)) == taken
    assert not kernels.earlier("6.12", kernel, AMD64)


@pytest.mark.parametrize(
    "error, status, reason",
    (
        (AssertionError("3 blocks, not 4"), "no", "3 blocks, not 4"),
        (guest.Absent("no such thing"), "absent", "no such thing"),
        (guest.Reboot("preempt=full"), "reboot", "preempt=full"),
        (KeyError("K"), "no", "KeyError: 'K'"),
    ),
)
def test_a_feature_that_raises(error, status, reason):
    assert inside.run_feature(raises(error), NoMachine()) == (status, reason)


def test_a_tracer_that_ended():
    """The reason is the tracer's own message, not libbpf's messages before it."""
    said = "the tracer ended: libbpf: prog 'mapping': refused\n0: R1=ctx\ntracer: trace: refused\n"
    assert inside.one_line(said) == "the tracer ended: trace: refused"
    assert inside.one_line("the tracer ended: tracer: why\n") == "the tracer ended: why"
    assert inside.one_line("two\nlines") == "two lines"


def test_a_feature_that_returns():
    assert inside.run_feature(lambda machine: None, NoMachine()) == ("yes", "")


@pytest.fixture
def no_strays(monkeypatch):
    """The host's processes are not the guest's: only the feature's own process is ended."""
    pids, fork = [], os.fork

    def counted():
        pids.append(fork())
        return pids[-1]

    monkeypatch.setattr(inside.os, "fork", counted)
    monkeypatch.setattr(inside, "kill_strays", lambda: os.kill(pids[-1], 9))


def test_bounded(no_strays):
    result = inside.run_bounded(raises(AssertionError("wrong")), NoMachine(), 60)
    assert (result["status"], result["reason"], result["log"]) == ("no", "wrong", "what it said")


def test_a_feature_without_end(no_strays):
    result = inside.run_bounded(lambda machine: time.sleep(1000), NoMachine(), 0.1)
    assert result["status"] == "no" and "no end within" in result["reason"]


def test_a_feature_that_dies(no_strays):
    result = inside.run_bounded(lambda machine: os._exit(1), NoMachine(), 60)
    assert (result["status"], result["reason"]) == ("no", "its process died")


@pytest.mark.parametrize("flags, failed", (("00010246", False), ("fc224302", True)))
def test_a_processor_that_failed(tmp_path, flags, failed):
    """The flags 22 to 31 are 0 in every processor."""
    console = tmp_path / "console"
    console.write_text(
        "traps: PANIC: double fault\nRSP: 0018:ff7dc6744176fbd0 EFLAGS: %s\nRAX: 0\n" % flags
    )
    assert vm.processor_failed(console) == failed


@pytest.mark.parametrize("byte, failed", (("cc", False), ("66", True)))
def test_a_breakpoint_that_is_not_there(tmp_path, byte, failed):
    """If memory has the breakpoint, the kernel left it there. Otherwise the processor ran bytes
    that are not in memory."""
    console = tmp_path / "console"
    console.write_text(
        "Oops: int3: 0000 [#1] SMP\nRIP: 0010:uprobe_prog_run\nCode: 8b 7f 28 %s <90> 48\nEFLAGS: 00000286\n"
        % byte
    )
    assert vm.processor_failed(console) == failed


LOAD, CODE = 0x100000, b"\xfa\xeb\xfe"  # disable interrupts, branch to itself


def endless_kernel():
    """A kernel that a boot loader of the Multiboot specification loads to LOAD: a header, then CODE."""
    magic, flags, header = 0x1BADB002, 1 << 16, 32
    checksum = -(magic + flags) & 0xFFFFFFFF
    end = LOAD + header + len(CODE)
    fields = (magic, flags, checksum, LOAD, LOAD, end, end, LOAD + header)
    return struct.pack("<8I", *fields) + CODE


def test_a_guest_that_stands_still(tmp_path, monkeypatch):
    """It ends, it is said where the processors were, and the rest runs in another boot, once."""
    monkeypatch.setattr(vm, "STILL_S", 3)
    monkeypatch.setattr(vm, "MONITOR_S", 1)
    monkeypatch.setattr(machine, "tell", lambda series, record: None)
    (tmp_path / "kernel").write_bytes(endless_kernel())
    kernel = packages.Kernel("linux-image-6.1-cloud-amd64", "6.1.2-1", (6, 1))
    folder = str(tmp_path / "serial")
    one = machine.Machine("6.1", kernel, str(tmp_path / "kernel"), None, "tcg", "", folder)
    again = {"feature": "no task storage", "status": "reboot", "reason": "clearcpuid=cx16"}
    one.features[again["feature"]] = again
    result = one.run(())
    assert len(result["stood_still"]) == 1
    assert "%08x" % (LOAD + len(CODE) - 2 + 32) in result["stood_still"][0]
    assert "stood still" in result["features"]["to the end"]["reason"]
    assert sorted(os.listdir(folder)) == ["boot", "boot-1", "clearcpuid-cx16"]
    said = (tmp_path / "serial" / "clearcpuid-cx16" / "qemu").read_text()
    assert "Invalid parameter" not in said
    assert result["stood_still"][0] in report.text({"6.1": result})


def test_a_guest_that_is_slow(no_strays):
    """The host hears of a feature that takes long."""
    heard = []
    inside.run_bounded(lambda machine: time.sleep(1000), NoMachine(), 0.1, lambda: heard.append(1))
    assert heard


def test_the_rest_of_the_features():
    """The features that remain for a guest that is booted again."""
    settings = {"quick": False, "sessions": 1, "unstripped": "", "roots": {"3.13": "/roots/trixie"}}
    names = [name for name, _, _ in inside.wanted_features(settings, {})]
    assert len(set(names)) == len(names) > 30
    for i, name in enumerate(names):
        line = {"machines.after": machine.words_pattern(name)}
        assert [each for each, _, _ in inside.wanted_features(settings, line)] == names[i + 1 :]
    only = {"machines.only": "doctor,demo"}
    assert [name for name, _, _ in inside.wanted_features(settings, only)] == ["doctor", "demo"]


def test_kernels_share_the_features():
    """Each feature runs on one kernel at least; what hangs on the kernel runs on each."""
    settings = {"quick": True, "sessions": 1, "unstripped": "", "roots": {}}

    def names(**line):
        line = {"machines." + name: words for name, words in line.items()}
        return [name for name, _, _ in inside.wanted_features(settings, line)]

    shares = [names(share="%d/2" % i) for i in range(2)]
    assert set(shares[0]) | set(shares[1]) == set(names())
    both = set(shares[0]) & set(shares[1])
    assert both == {name for name in names() if inside.OF_EACH.fullmatch(name)}
    # Each part of the pattern is still a feature's name.
    patterns = inside.OF_EACH.pattern.split("|")
    assert all(any(re.fullmatch(each, name) for name in both) for each in patterns)
    assert abs(len(shares[0]) - len(shares[1])) <= 1
    # A guest that is booted again has the rest of its share.
    after = machine.words_pattern(shares[1][3])
    assert names(share="1/2", after=after) == shares[1][4:]


@pytest.mark.parametrize(
    "message",
    (
        "WARNING: CPU: 0 PID: 1 at kernel/events/uprobes.c:1",
        "BUG: kernel NULL pointer dereference",
        "Oops: 0000 [#1] PREEMPT SMP",
        "rcu: INFO: rcu_preempt self-detected stall on CPU",
        "watchdog: BUG: soft lockup - CPU#1 stuck for 22s!",
        "INFO: task python3:123 blocked for more than 120 seconds.",
        "ref_ctr going negative; leaking uprobe",
    ),
)
def test_bad_messages(message):
    assert inside.bad_messages(["fine", message, "installed"]) == [message]


def sent_as(report_of_guest):
    """What capture.py sends; its events are the report that a stand-in for the tracer prints."""
    events = json.dumps({"statistics": [1], "total": 5}).encode()
    packed = base64.b64encode(gzip.compress(events)).decode()
    return {"capture": packed, "report": report_of_guest}


@pytest.fixture
def replayer(tmp_path):
    path = tmp_path / "tracer"
    path.write_text('#!/bin/sh\n[ "$1" = replay ] && cat "$2"\n')
    path.chmod(0o755)
    return str(path)


def test_replay(replayer, tmp_path):
    folder = str(tmp_path)
    assert replay.differs(replayer, sent_as({"statistics": [1], "total": 5}), folder) == ""
    assert "total" in replay.differs(replayer, sent_as({"statistics": [1], "total": 6}), folder)
    assert "empty" in replay.differs(replayer, sent_as({"statistics": [], "total": 5}), folder)
    assert "whole" in replay.differs(replayer, {"capture": "AAAA", "report": {}}, folder)
    assert "status 1" in replay.differs("/bin/false", sent_as({}), folder)


def test_text_is_compared():
    assert procfs.text_differs(os.getpid()) == 0


def test_attach_facts():
    said = "tracer: attached to PID 9 (python3): CPython 3.11.2, census mode, 16 frames; 874 probes; 2635 ms\n"
    facts = {"ms": 2635, "probes": 874, "links": "uprobe_multi links"}
    assert harness.attach_facts(said + "tracer: uprobe_multi links\n") == facts
    assert harness.attach_facts("") == {}


def test_largest_program():
    table = (
        "program     verified    insns  stack  frame   ms\n"
        "begin            900      120     64     32  1.5\n"
        "mapping         5000      640    544     96  9.0  OVER\n"
    )
    assert system.largest_program(table) == {"name": "mapping", "insns": 5000, "stack": 544}
    assert system.largest_program("") is None


def result_of(**statuses):
    features = {}
    for name, status in statuses.items():
        reason = "" if status == "yes" else "why|so"
        features[name] = {"feature": name, "status": status, "reason": reason, "notes": {}}
    facts = {"release": "6.1.0", "accelerator": "tcg", "seconds": 5, "boot_messages": []}
    return dict(facts, features=features)


def test_summary(capsys):
    assert kernels.summary({"6.1": result_of(demo="yes", lazy="absent"), "6.6": None}) == 0
    assert capsys.readouterr().out.endswith("kernels: 1 passed, 0 failed, 2 skipped\n")
    assert kernels.summary({"6.1": result_of(demo="yes", doctor="no")}) == 1
    assert "FAILED 6.1: doctor: why|so" in capsys.readouterr().out


@pytest.mark.parametrize("statuses", ({}, {"lazy": "absent"}, {"full": "reboot", "demo": "yes"}))
def test_what_did_not_run_is_a_failure(statuses, capsys):
    assert kernels.summary({"6.1": result_of(**statuses)}) == 1


def test_report():
    old, new = result_of(demo="yes", doctor="no"), result_of(demo="no")
    text = report.text({"6.1": old, "6.6": None, "7.3": new})
    lines = [line.split("|")[1:-1] for line in text.split("\n") if line.startswith("|")]
    rows = {cells[0].strip(): [cell.strip() for cell in cells[1:]] for cells in lines}
    assert rows["demo"] == ["yes", "**no** (1)"]
    assert rows["doctor"] == ["**no** (1)", "not run"]
    assert rows["6.6"][0] == "no package: untested"
    assert "1. why/so" in text


def test_lines_of_a_port(tmp_path):
    """Half a line is not read until its other half is there; a line that is not JSON is skipped."""
    path = tmp_path / "results"
    path.write_bytes(b'SeaBIOS\r\n{"feature": "a"}\r\n{"feat')
    lines = vm.Lines(str(path))
    assert lines.new() == [{"feature": "a"}]
    with open(path, "ab") as file:
        file.write(b'ure": "b"}\n')
    assert lines.new() == [{"feature": "b"}]
