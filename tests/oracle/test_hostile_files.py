# SPDX-License-Identifier: Apache-2.0
"""Hostile and damaged files: which ones are refused, and how much memory they take."""
import gzip
import json
import os
import pickle
import re
import struct
import subprocess
import time
import tracemalloc
import zlib

from conftest import environment
from hostile import made, refused
from protobuf import field

TRACE = (0, 1, (("a", 1),), 1)
HEAD = b"\x80\x04"


def test_hostile_pickles(tracer, tmp_path):
    evil = tmp_path / "evil"
    os_system = b"cos\nsystem\n(X%s%st R." % (
        struct.pack("<I", len("touch " + str(evil))),
        b"touch " + str(evil).encode(),
    )
    cases = [
        (HEAD + os_system, "byte 2", "os.system", "nothing was executed"),
        (HEAD + b"\x8c\x02os\x8c\x06system\x93.", "os.system"),
        (b"\x80\x02ctracemalloc\nFilter\n.", "byte 2", "tracemalloc.Filter"),
        (HEAD + b"cbuiltins\neval\n.", "builtins.eval"),
        (HEAD + b"R.", "byte 2: 0x52"),  # REDUCE
        (HEAD + b"\x82\x01.", "0x82"),  # EXT1
        (HEAD + b"P1\n.", "0x50"),  # PERSID
        (b"\x80\x06.", "protocol 6"),
        (b"\x80", "truncated"),
        (HEAD, "byte 2", "truncated"),
        (HEAD + b".", "byte 2", "stack"),
        (HEAD + b"N.", "without a complete Snapshot"),
        (HEAD + b"X\xff\xff\xff\x7f", "2147483647 bytes"),
        (HEAD + b"\x8d" + b"\xff" * 8, "18446744073709551615 bytes"),
        (HEAD + b"\x8b\xff\xff\xff\x7f", "0x8b"),  # LONG4
        (HEAD + b"\x8a\xff" + b"\x01" * 255, "64 bits"),
        (HEAD + b"\x8a\x01\xff", "negative"),
        (HEAD + b"J\xff\xff\xff\xff", "negative"),
        (HEAD + b"Nr\xff\xff\xff\xff", "entry 4294967295 of a memo of 0"),
        (HEAD + b"j\x05\x00\x00\x00", "entry 5 of a memo of 0"),
        (HEAD + b"(" * 17, "byte 18", "nested"),
        (HEAD + b"\x95" + b"\xff" * 8, "frame"),
        (HEAD + b"]]", "second list"),
        (HEAD + b"}}}", "third dictionary"),
        (HEAD + b"(KK)t", "tuple"),
        (HEAD + b"\x8c\x01\xff", "not UTF-8"),
        (HEAD + b"\x8c\x01\0", "NUL"),
        (HEAD + b"(t" * 100000, "truncated"),
        # Each level doubles the one below. Nothing is expanded, since tracemalloc writes no such
        # tuple.
        (
            HEAD + b"K\x01K\x01\x86\x94" + b"".join(b"h%ch%c\x86\x94" % (i, i) for i in range(200)),
            "byte",
        ),
    ]
    for data, *words in cases:
        refused(tracer, tmp_path, data, *words)
    assert not evil.exists()
    good = made([TRACE] * 3)
    refused(tracer, tmp_path, good + b"more", "byte %d" % (len(good) - 1), "more bytes follow")
    for traces, word in (
        ([(0, -1, (("a", 1),), 1)], "negative"),
        ([(0, 1, (("a", -1),), 1)], "negative"),
        ([(0, 1, (), 1)], "trace"),
        ([(0, 1, (("a", 1 << 40),), 1)], "line number"),
        ([(1 << 40, 1, (("a", 1),), 1)], "trace"),
        ([(0, 1 << 70, (("a", 1),), 1)], "64 bits"),
        ([(0, 1 << 59, (("a", 1),), 1)] * 20, "2^63"),
        ([(0, 1.0, (("a", 1),), 1)], "0x47"),
        ([TRACE, None], "not a trace"),
        ([(0, 1, (("a", 1),))[:2]], "tuple"),
        ([(0, 1, (("a\0b", 1),), 1)], "NUL"),
        ([set()], "0x8f"),
        ({}, "dictionary"),
    ):
        refused(tracer, tmp_path, made(traces), "byte", word)
    for attributes in ({"traces": 1}, {"other": 1}):
        snapshot = tracemalloc.Snapshot([TRACE], 1)
        vars(snapshot).update(attributes)
        refused(tracer, tmp_path, pickle.dumps(snapshot, 4), "byte")
    for limit in (-1, None, "x", 1 << 40):
        refused(tracer, tmp_path, made([TRACE], limit), "byte")


def test_damaged_pickles(tracer, tmp_path):
    """Every truncated file is refused with the byte offset. A changed byte causes at most that."""
    good = made([TRACE, (7, 300, (("b", 2), ("a", 1)), 2)], 2)
    for size in range(2, len(good)):
        refused(tracer, tmp_path, good[:size], "byte")
    accepted = 0
    for at in range(2, len(good)):
        (tmp_path / "changed").write_bytes(good[:at] + bytes([good[at] ^ 0x55]) + good[at + 1 :])
        done = tracer("report", tmp_path / "changed", ok=False)
        assert done.returncode in (0, 1)
        accepted += done.returncode == 0
    assert accepted < len(good) / 2  # changed sizes, lines and names are still valid


def frames_bomb(samples):
    """A profile in tracer's format, whose samples have up to 65,536 frames of one byte each."""
    texts = (b"", b"tracer:snapshot=1", b"f.py", b"f", b"bytes", b"domain")
    tables = b"".join(field(6, text) for text in texts) + field(13, b"\x01")
    tables += field(5, field(1, 1) + field(2, 3) + field(4, 2))
    tables += field(4, field(1, 1) + field(4, field(1, 1) + field(2, 1)))
    rest = field(2, b"\x01\x08") + field(3, field(1, 4) + field(3, 8)) + field(3, field(1, 5))
    pack = zlib.compressobj(9, zlib.DEFLATED, 31)
    out = pack.compress(tables)
    for number in range(samples):
        out += pack.compress(field(2, field(1, b"\x01" * (65536 - number)) + rest))
    # Incompressible data keeps the ratio of unpacked to packed size within the limit.
    return out + pack.compress(field(100, os.urandom(samples * 65536 // 195))) + pack.flush()


def test_memory_stays_in_proportion(tracer, tmp_path):
    """The memory that a hostile file takes is a small multiple of its size."""
    bombs = {
        "gzip": gzip.compress(bytes(400 << 20), 9),
        "gzip of strings": gzip.compress(b"\x32\x00" * (200 << 20), 9),
        "values": HEAD + b")" * (4 << 20),
        "memo": HEAD + b"N" + b"\x94" * (4 << 20),
    }
    path = tracer("--version").args[0]
    with open(path, "rb") as binary:
        limit = (
            "unlimited" if b"__asan_init" in binary.read() else "400000"
        )  # the sanitizer itself maps terabytes of addresses
    for name, data in bombs.items():
        file = tmp_path / "bomb"
        file.write_bytes(data)
        # The limit applies to address space, since that can be limited. A tracer that unpacked
        # everything would exceed it.
        done = subprocess.run(
            ["/bin/sh", "-c", 'ulimit -v %s; exec "$@"' % limit, "sh", path, "report", str(file)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            timeout=60,
            env=environment(),
        )
        text = done.stderr.decode()
        assert done.returncode == 1 and text.count("\n") == 1 and "allocate memory" not in text, (
            name,
            text,
        )


def peak_of(run):
    """The peak memory of a process in kilobytes, sampled until it ends. (wait4() reports at least
    the peak of the calling process.)"""
    peak = 0
    while run.poll() is None:
        with open("/proc/%d/status" % run.pid) as status:
            peak = max(peak, *map(int, re.findall(r"VmHWM:\s+(\d+)", status.read())), 0)
        time.sleep(0.005)
    return peak


def is_sanitized(path):
    with open(path, "rb") as binary:
        return b"__asan_init" in binary.read()


def test_frames_bomb(tracer, tmp_path):
    """Frames of one byte each, which compress well: 420 KB that took 1.5 GB."""
    path = tracer("--version").args[0]
    (tmp_path / "small").write_bytes(frames_bomb(3))
    assert b"f.py" in tracer("report", tmp_path / "small").stdout
    (tmp_path / "bomb").write_bytes(frames_bomb(1000))
    with subprocess.Popen(
        [path, "report", str(tmp_path / "bomb")],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env=environment(),
    ) as run:
        peak = peak_of(run)
        text = run.stderr.read().decode()
    assert (
        run.returncode == 1
        and text.count("\n") == 1
        and "takes more memory than a profile of its size may" in text
    )
    assert is_sanitized(path) or peak < 400 << 10, peak


def test_forks_in_a_capture(tracer, tmp_path):
    """A capture of 1.5 MB with one process that forks repeatedly, each child with a copy of its
    table: 1.1 GB."""

    def record(kind, body, tgid):
        return struct.pack("<IIQII", kind, 24 + len(body), 1, tgid, tgid) + body

    def process(tgid, parent):
        return record(
            256,
            struct.pack("<IIQII64sII64sQ", 0x030D00F0, 16, 0, 1, 1, b"python3", parent, 0, b"", 0),
            tgid,
        )

    path = tracer("--version").args[0]
    blocks = [record(1, struct.pack("<QQQII", 16 * n, 40, 0, 0, 2), 1) for n in range(1, 20001)]
    children = [process(n, 1) for n in range(2, 1502)]
    (tmp_path / "capture").write_bytes(
        b"TRACERCP" + struct.pack("<II", 1, 0) + b"".join([process(1, 0), *blocks, *children])
    )
    with open(tmp_path / "out", "w+") as out, subprocess.Popen(
        [path, "replay", str(tmp_path / "capture"), "--format", "json"],
        stdout=out,
        env=environment(),
    ) as run:
        peak = peak_of(run)
    assert run.returncode == 0
    report = json.loads((tmp_path / "out").read_text())
    whole = [one for one in report["processes"] if one["count"] == 20000]
    assert len(whole) > 20 and report["processes"][0]["size"] == 800000
    assert is_sanitized(path) or peak < 300 << 10, peak


def test_other_files(tracer, tmp_path):
    foreign = gzip.compress(b"\x0a\x04\x08\x01\x10\x02\x32\x00\x32\x03cpu\x32\x05nanos")
    refused(tracer, tmp_path, foreign, "pprof profile, but not written by tracer", "lacks")
    refused(tracer, tmp_path, gzip.compress(b"plain text"), "corrupt")
    refused(tracer, tmp_path, b"plain text", "neither a snapshot of tracer")
    refused(tracer, tmp_path, b"", "empty")
    refused(tracer, tmp_path, b"\x1f", "neither")
    refused(tracer, tmp_path, gzip.compress(made([TRACE])), "corrupt")
    assert tracer("report", tmp_path / "absent", ok=False).returncode == 1
    assert tracer("report", tmp_path, ok=False).returncode == 1
