# SPDX-License-Identifier: Apache-2.0
"""Target files that take long to read: other targets are traced as usual, and Ctrl-C ends every
command."""
import os
import signal
import struct
import subprocess
import time
import tracemalloc

import pytest

from harness import compiled, environment, program, read_report, wait_until

# Reading all of them to the end takes minutes.
SOON = 30


@pytest.fixture(scope="module")
def slow_program(tmp_path_factory):
    folder = tmp_path_factory.mktemp("slow")
    (folder / "blocks").write_bytes((b"\3" + struct.pack("<QI", 1, 1)) * 1000)
    for i in range(3):
        subprocess.run(
            [
                "gcc",
                "-shared",
                "-DWORK=work_%d" % i,
                "-o",
                "libwork_%d.so" % i,
                program("slow_dwarf.S"),
            ],
            cwd=folder,
            check=True,
        )
    libraries = [str(folder / ("libwork_%d.so" % i)) for i in range(3)]
    subprocess.run(
        ["gcc", "-o", "slow", program("slow_dwarf.c"), *libraries], cwd=folder, check=True
    )
    return str(folder / "slow")


def test_names_do_not_hold_the_end(start, trace, slow_program, tmp_path):
    """Each of three files has 200 places that take part of a second each. The session ends promptly
    on request, and frames without a name are counted."""
    slow = start(slow_program, None)
    native = compiled(tmp_path / "native", "native.c")
    honest = start(native, None, env=environment(GLIBC_TUNABLES="glibc.malloc.tcache_count=0"))
    pids = "%d,%d" % (slow.pid, honest.pid)
    printing = ("-i", "0.5", "--format", "json", "--top", 0)
    run = trace("-p", pids, "--layer", "native", *printing, attached=2)
    slow.step()
    slow.expect()
    honest.step()
    live = honest.expect()
    # Names are looked up during the trace, one process at a time. Only a few of the slow ones are
    # looked up.
    wait_until(
        lambda: any(
            all(r.line("native.c", mark)[1] for mark in live if mark != "mallinfo")
            for r in run.printed_reports()[-1:]
        ),
        "the honest process's names are known",
    )
    run.interrupt()
    assert run.wait(SOON) == 0, run.stderr
    report = read_report(run.tracer, run.snapshot, "--pid", honest.pid)
    live.pop("mallinfo")
    assert {mark: report.line("native.c", mark) for mark in live} == live
    assert report.lost_events == 0
    report = read_report(run.tracer, run.snapshot, "--pid", slow.pid)
    assert report.total["count"] >= 600
    assert report.data["not_seen"]["frames_slow"] > 0


def large_snapshot(path, traces):
    """A tracemalloc snapshot that takes the tracer a second or more to read."""
    snapshot = tracemalloc.Snapshot(
        [(0, 1, (("f%d.py" % (i % 1000), i), ("g.py", i)), 2) for i in range(traces)], 2
    )
    snapshot.dump(path)


@pytest.mark.unprivileged
@pytest.mark.parametrize(
    "command",
    (
        ["report"],
        ["report", "--format", "json"],
        ["export", "--format", "folded", "-o", "-"],
        ["diff"],
        ["filter", "-o", "OUT"],
    ),
    ids=lambda command: " ".join(command[:3]),
)
def test_ctrl_c_ends_reading(tracer, tmp_path_factory, tmp_path, command):
    folder = tmp_path_factory.getbasetemp()
    snapshot = str(folder / "large.pickle")
    if not os.path.exists(snapshot):
        large_snapshot(snapshot, 1000000)
    args = [str(tmp_path / "out") if word == "OUT" else word for word in command]
    files = [snapshot] * (2 if command == ["diff"] else 1)
    process = subprocess.Popen(
        [tracer, args[0], *files, *args[1:]], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=SOON)
    assert process.returncode == -signal.SIGINT, stderr


def sparse_file_write(path):
    """A library whose tables are 250 MiB of zeros each and take some KiB on disk. Reading the data
    that no other library shares takes 4 s."""
    table, page = 250 << 20, 4096
    names = b"\0.symtab\0.strtab\0.dynsym\0.dynstr\0.shstrtab\0.text\0"
    sections, at = [bytes(64)], 2 * page

    def section(name, kind, flags, address, offset, size, link=0, entry=0):
        sections.append(
            struct.pack(
                "<IIQQQQIIQQ",
                names.index(name + b"\0"),
                kind,
                flags,
                address,
                offset,
                size,
                link,
                0,
                8,
                entry,
            )
        )

    for name, kind, flags, link in (
        (b".symtab", 2, 0, 2),
        (b".strtab", 3, 0, 0),
        (b".dynsym", 11, 2, 4),
        (b".dynstr", 3, 2, 0),
    ):
        section(
            name,
            kind,
            flags,
            at if flags else 0,
            at,
            table // 24 * 24 if link else table,
            link,
            24 if link else 0,
        )
        at += table
    section(b".shstrtab", 3, 0, 0, at, len(names))
    section(b".text", 1, 6, page, page, page)
    header = b"\x7fELF\2\1\1" + bytes(9)
    header += struct.pack(
        "<HHIQQQIHHHHHH", 3, 62, 1, page, 64, at + page, 0, 64, 56, 1, 64, len(sections), 5
    )
    with open(path, "wb") as file:
        file.write(header + struct.pack("<IIQQQQQQ", 1, 5, 0, 0, 0, 2 * page, 2 * page, page))
        for offset, data in ((page, b"\x90" * 100), (at, names), (at + page, b"".join(sections))):
            file.seek(offset)
            file.write(data)
        file.truncate(at + 2 * page)


@pytest.fixture
def sparse_files(tmp_path):
    paths = [str(tmp_path / ("sparse_%d.so" % i)) for i in range(12)]
    for path in paths:
        sparse_file_write(path)
    return paths


def is_deaf(process):
    """Whether the process has blocked SIGINT until it can handle it, or has ended."""
    try:
        with open("/proc/%d/status" % process.pid) as file:
            blocked = next(line for line in file if line.startswith("SigBlk:"))
    except (OSError, StopIteration):
        return True
    return int(blocked.split()[1], 16) >> (signal.SIGINT - 1) & 1


COMMANDS = (
    ["-p", "PID", "--layer", "all"],
    ["-a"],
    ["-p", "PID", "--dry-run"],
    ["heap", "-p", "PID"],
    ["memory", "-p", "PID"],
    ["perfmap", "-p", "PID"],
    ["list"],
    ["doctor"],
)


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: " ".join(command))
@pytest.mark.usefixtures("whole_machine")
def test_ctrl_c_ends_looking(tracer, start, any_python, sparse_files, command):
    """Ctrl-C ends the command at any stage: the program has mapped files that take most of a minute
    to read to the end."""
    target = start(any_python, "sparse.py", *sparse_files)
    args = [str(target.pid) if word == "PID" else word for word in command]
    process = subprocess.Popen([tracer, *args], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    end = time.monotonic() + 3
    while not is_deaf(process) and time.monotonic() < end:
        time.sleep(0.01)
    time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=SOON)
    assert target.finish() == 0
