# SPDX-License-Identifier: Apache-2.0
"""Corrupt captures and snapshots, and outputs that cannot be written: one line of error, the right
status, and an existing file is not changed."""
import gzip
import os
import resource
import stat
import struct
import subprocess
import zlib

import pytest

from harness import environment, error_line, program
from protobuf import field

# --- captures and snapshots -----------------------------------------------------------------------


@pytest.fixture(scope="module")
def recorded(tracer, any_python, tmp_path_factory):
    """(capture, snapshot) of a short run, as bytes."""
    folder = tmp_path_factory.mktemp("recorded")
    capture, snapshot = folder / "run.cap", folder / "run.pb.gz"
    subprocess.run(
        [
            tracer,
            "--capture",
            str(capture),
            "-o",
            str(snapshot),
            "--",
            any_python.path,
            "-S",
            program("short.py"),
        ],
        check=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        timeout=60,
        env=environment(),
    )
    return capture.read_bytes(), snapshot.read_bytes()


def flipped(data, count=40):
    """The same data with one bit flipped, at positions spread over all of it."""
    for i in range(count):
        at = i * (len(data) - 1) // (count - 1)
        yield data[:at] + bytes([data[at] ^ 1 << i % 8]) + data[at + 1 :]


def cut(data):
    for size in (
        0,
        1,
        7,
        8,
        12,
        15,
        16,
        17,
        30,
        40,
        63,
        64,
        100,
        len(data) // 3,
        len(data) // 2,
        len(data) - 1,
    ):
        yield size, data[:size]


def record_ends(capture):
    """Where its records end: a capture that is cut there is one of a shorter session."""
    ends, at = set(), 16
    while at < len(capture):
        at += int.from_bytes(capture[at + 4 : at + 8], "little")
        ends.add(at)
    return ends


def foreign_profile():
    """A valid pprof file of another tool: cpu/nanoseconds, one sample of one location."""
    strings = b"".join(field(6, s) for s in (b"", b"cpu", b"nanoseconds", b"main", b"main.c"))
    sample_type = field(1, b"\x08\x01\x10\x02")
    sample = field(2, b"\x0a\x01\x01\x12\x01\x05")
    location = field(4, b"\x08\x01\x22\x04\x08\x01\x10\x07")
    function = field(5, b"\x08\x01\x10\x03\x20\x04")
    return sample_type + sample + location + function + strings


def limited():
    resource.setrlimit(resource.RLIMIT_AS, (1 << 31, 1 << 31))


def refused(run_tracer, folder, command, name, data):
    path = folder / name
    path.write_bytes(data)
    done = run_tracer(command, path)
    assert str(path) in error_line(done, 1)
    return done


@pytest.mark.parametrize("command", ("report", "replay"))
def test_no_such_file(run_tracer, tmp_path, command):
    assert str(tmp_path / "none") in error_line(run_tracer(command, tmp_path / "none"), 1)
    assert str(tmp_path) in error_line(run_tracer(command, tmp_path), 1)


def test_cut_capture(run_tracer, recorded, tmp_path):
    """The records before the cut are reported, and the report states that the capture is
    incomplete."""
    ends = record_ends(recorded[0])
    for size, data in cut(recorded[0]):
        if size == 16:
            continue  # the header without a record: no process to report
        if size in ends:
            size, data = size + 1, recorded[0][: size + 1]  # the next record is cut
        done = refused(run_tracer, tmp_path, "replay", "cut%d.cap" % size, data)
        if size > len(recorded[0]) // 4:
            assert "Total:" in done.stdout


def test_empty_capture(run_tracer, recorded, tmp_path):
    (tmp_path / "empty.cap").write_bytes(recorded[0][:16])
    error_line(run_tracer("replay", tmp_path / "empty.cap"), 1)


def test_flipped_capture(run_tracer, recorded, tmp_path):
    """A capture has no checksum: impossible records are refused or counted as malformed."""
    for i, data in enumerate(flipped(recorded[0])):
        path = tmp_path / ("flip%d.cap" % i)
        path.write_bytes(data)
        done = run_tracer("replay", path)
        assert done.returncode in (0, 1)
        if done.returncode:
            error_line(done, 1)
        else:
            assert done.stderr == ""


def test_noise_for_a_capture(run_tracer, recorded, tmp_path):
    header = recorded[0][:16]
    for i, data in enumerate(
        (
            os.urandom(1000),
            header + os.urandom(4000),
            header + bytes(4000),
            header + b"\xff" * 4000,
            b"TRACERCP" + b"\x02" + bytes(7),
            recorded[1],
        )
    ):
        refused(run_tracer, tmp_path, "replay", "noise%d.cap" % i, data)


def test_cut_snapshot(run_tracer, recorded, tmp_path):
    for size, data in cut(recorded[1]):
        assert refused(run_tracer, tmp_path, "report", "cut%d.pb.gz" % size, data).stdout == ""


def test_flipped_snapshot(run_tracer, recorded, tmp_path):
    """gzip has a checksum. It does not cover the header (time, name, system), so these bytes may
    differ."""
    for i, data in enumerate(flipped(recorded[1])):
        path = tmp_path / ("flip%d.pb.gz" % i)
        path.write_bytes(data)
        done = run_tracer("report", path)
        if i:
            error_line(done, 1)
        else:
            assert done.returncode in (0, 1)


def test_flipped_profile(run_tracer, recorded, tmp_path):
    """The same damage inside the profile, under a correct checksum."""
    for i, data in enumerate(flipped(gzip.decompress(recorded[1]))):
        path = tmp_path / ("flip%d.pb.gz" % i)
        path.write_bytes(gzip.compress(data, 1))
        done = run_tracer("report", path)
        assert done.returncode in (0, 1)
        if done.returncode:
            error_line(done, 1)


def test_other_contents(run_tracer, recorded, tmp_path):
    unpacked = gzip.decompress(recorded[1])
    for name, data in (
        ("text", b"a text\n" * 100),
        ("noise", os.urandom(5000)),
        ("packed-text", gzip.compress(b"a text\n" * 100)),
        ("packed-nothing", gzip.compress(b"")),
        ("packed-noise", gzip.compress(os.urandom(5000))),
        ("cut-inside", gzip.compress(unpacked[: len(unpacked) // 2])),
        ("another-tools", gzip.compress(foreign_profile())),
        ("another-tools-unpacked", foreign_profile()),
        ("capture", recorded[0]),
    ):
        assert refused(run_tracer, tmp_path, "report", name, data).stdout == ""


def test_gzip_bomb(tracer, tmp_path):
    """A few hundred kilobytes that unpack to more than the memory allows. The tracer refuses the
    file before the kernel kills it."""
    bomb = tmp_path / "bomb.pb.gz"
    part = gzip.compress(bytes(64 << 20), 9)
    bomb.write_bytes(part * 32)  # 2 GiB
    done = subprocess.run(
        [tracer, "report", str(bomb)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        timeout=60,
        preexec_fn=limited,
    )
    assert str(bomb) in error_line(done, 1)


def test_broken_stdout(tracer, recorded, tmp_path):
    """A report that cannot be printed is a failure."""
    (tmp_path / "good.pb.gz").write_bytes(recorded[1])
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [tracer, "report", str(tmp_path / "good.pb.gz"), "--top", "0"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
        )
    error_line(done, 1)


# --- output files ---------------------------------------------------------------------------------

OLD = b"what was there before"


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 64 KiB that is nearly full, with an old output file on it."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(folder)], stderr=subprocess.PIPE
    )
    if mounted.returncode:
        pytest.skip("no tmpfs can be mounted: " + mounted.stderr.decode().strip())
    (folder / "old").write_bytes(OLD)
    with open(str(folder / "filler"), "wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError:
            pass
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


@pytest.mark.parametrize("name", ("old", "new"))
@pytest.mark.parametrize("option", ("-o", "--capture"))
def test_full_disk(run_tracer, any_python, small_disk, option, name):
    path = small_disk / name
    done = run_tracer("-q", "--force", option, path, "--", any_python.path, program("short.py"))
    line = error_line(done, 1)
    assert str(path) in line and "No space left" in line
    assert sorted(os.listdir(str(small_disk))) == ["filler", "old"]
    assert (small_disk / "old").read_bytes() == OLD
    if option == "-o":
        assert "Total:" in done.stdout, "the report is not lost with the file"


def test_full_disk_leaves_the_target_alone(start, run_tracer, any_python, small_disk):
    target = start(any_python, "golden.py")
    error_line(run_tracer("-q", "-d", "0.2", "-o", small_disk / "new", "-p", target.pid), 1)
    target.step()
    target.expect()
    assert target.finish() == 0


def outputs(folder):
    (folder / "file").write_bytes(OLD)
    (folder / "folder").mkdir()
    os.symlink("file", str(folder / "link"))
    os.symlink("none", str(folder / "broken"))
    os.mkfifo(str(folder / "pipe"))
    return ("folder", "folder/", "link", "broken", "pipe", "none/x", "file/x", "")


@pytest.mark.parametrize("option", ("-o", "--capture"))
def test_unusable_outputs(run_tracer, any_python, tmp_path, option):
    """The output is refused before any work is done: the command is not started."""
    for name in outputs(tmp_path):
        mark = tmp_path / "ran"
        path = os.path.join(str(tmp_path), name) if name else ""
        done = run_tracer(option, path, "--", any_python.path, "-c", "open(%r, 'w')" % str(mark))
        error_line(done, 1)
        assert not mark.exists()
        assert sorted(os.listdir(str(tmp_path))) == ["broken", "file", "folder", "link", "pipe"]
        assert (tmp_path / "file").read_bytes() == OLD


def test_replay_to_unusable_outputs(run_tracer, recorded, tmp_path):
    (tmp_path / "run.cap").write_bytes(recorded[0])
    for name in outputs(tmp_path):
        path = os.path.join(str(tmp_path), name) if name else ""
        error_line(run_tracer("replay", tmp_path / "run.cap", "-o", path), 1)
        assert (tmp_path / "file").read_bytes() == OLD


def test_failure_keeps_the_old_file(run_tracer, tmp_path):
    """Without a target no snapshot is written, and the old file remains."""
    (tmp_path / "old").write_bytes(OLD)
    error_line(run_tracer("-o", tmp_path / "old", "-p", 4194304), 1)
    error_line(
        run_tracer("-o", tmp_path / "old", "--capture", tmp_path / "old.cap", "--", "/bin/true"), 1
    )
    assert os.listdir(str(tmp_path)) == ["old"]
    assert (tmp_path / "old").read_bytes() == OLD


def test_success_replaces_the_old_file(run_tracer, any_python, tmp_path):
    (tmp_path / "old").write_bytes(OLD)
    os.chmod(str(tmp_path / "old"), 0o644)
    done = run_tracer("--force", "-o", tmp_path / "old", "--", any_python.path, program("short.py"))
    assert done.returncode == 0
    assert os.listdir(str(tmp_path)) == ["old"]
    assert run_tracer("report", tmp_path / "old").returncode == 0
    assert (
        stat.S_IMODE(os.stat(str(tmp_path / "old")).st_mode) & 0o077 == 0
    ), "file names of another's program are not for all"


def test_bad_capture_keeps_the_old_file(run_tracer, recorded, tmp_path):
    (tmp_path / "old").write_bytes(OLD)
    (tmp_path / "bad.cap").write_bytes(os.urandom(1000))
    error_line(run_tracer("replay", tmp_path / "bad.cap", "-o", tmp_path / "old"), 1)
    assert (tmp_path / "old").read_bytes() == OLD
    assert sorted(os.listdir(str(tmp_path))) == ["bad.cap", "old"]


# --- recordings -----------------------------------------------------------------------------------


def test_recording_without_a_moment(run_tracer, tmp_path):
    """Records whose contents do not apply, or none: each command says that there is no snapshot."""
    path = tmp_path / "damaged.rec"
    head = b"\x89TRACER\n" + struct.pack("<IIQQ", 2, 0, 10**18, 0)
    two = recording_record(b"\0") + recording_record(b"\1", 0, 10**9)
    for body in (b"", recording_record(b"\0"), two, b"x" * 100):
        path.write_bytes(head + body)
        for command in (["timeline"], ["timeline", "--format", "json"], ["leaks"], ["report"]):
            done = run_tracer(*command, path)
            error_line(done, 1)


def recording_record(payload, flags=1, since_ns=0):
    """A record of a recording, with the right checksum."""
    # A frame of zstd: its magic number, the size, the last block, as it is.
    block = struct.pack("<I", len(payload) << 3 | 1)[:3] + payload
    packed = bytes.fromhex("28b52ffd20") + bytes([len(payload)]) + block
    head = struct.pack(
        "<IIQQQII", 0x64726352, flags, since_ns, 2**64 - 1, 0, len(packed), len(payload)
    )
    return head + struct.pack("<II", zlib.crc32(packed, zlib.crc32(head)), 0) + packed
