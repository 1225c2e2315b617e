# SPDX-License-Identifier: Apache-2.0
"""Files: round trips between tracemalloc's and ours, what others make of them, and what is refused.
"""
import gzip
import json
import os
import pickle
import re
import shutil
import struct
import subprocess
import time
import tracemalloc
import zlib

import pytest

from conftest import environment
from protobuf import field

GROUPS = [
    ("filename", False),
    ("lineno", False),
    ("traceback", False),
    ("filename", True),
    ("lineno", True),
]


def version_of(name):
    return name.split("-")[0]


def test_round_trips(snapshots, ask, tracer, each, tmp_path):
    """tracemalloc -> tracemalloc keeps the order, too; by way of ours, equal traces and
    statistics."""

    def convert(item):
        name, path = item
        direct, ours, back = (
            str(tmp_path / (name + suffix)) for suffix in (".direct", ".pb.gz", ".back")
        )
        tracer("export", path, "--format", "tracemalloc", "-o", direct)
        tracer("export", path, "--format", "pprof", "-o", ours)
        tracer("export", ours, "--format", "tracemalloc", "-o", back)
        # The same twice is the same again, and ours of ours.
        tracer("filter", ours, "-o", ours + "2")
        report = ["--format", "json", "--top", "0", "--group-by", "traceback"]
        assert (
            tracer("report", ours, *report).stdout
            == tracer("report", path, *report).stdout
            == tracer("report", ours + "2", *report).stdout
        )
        return name, path, direct, back

    converted = each(convert, snapshots.items())
    for version in {version_of(name) for name in snapshots}:
        mine = [c[1:] for c in converted if version_of(c[0]) == version]
        assert all(
            ask([{"op": "same", "a": path, "b": direct} for path, direct, _ in mine], version)
        )
        read = iter(
            ask(
                [{"op": "traces", "file": file} for path, _, back in mine for file in (path, back)],
                version,
            )
        )
        for path, _, _ in mine:
            (limit, traces), (back_limit, back_traces) = next(read), next(read)
            assert limit == back_limit and sorted(traces, key=repr) == sorted(back_traces, key=repr)
        jobs = [
            {"op": "statistics", "file": file, "group_by": g, "cumulative": c, "filters": None}
            for path, _, back in mine
            for g, c in GROUPS
            for file in (path, back)
        ]
        results = ask(jobs, version)
        assert results[::2] == results[1::2]


def test_every_version_loads(snapshots, interpreters, tracer, tmp_path):
    """What is written for a Python is loaded by it and by every other, and by that one computed
    with."""
    code = (
        "import sys, tracemalloc as t\n"
        "s = t.Snapshot.load(sys.argv[1])\n"
        "print(len(s.traces), s.traces[0].traceback[0].filename)\n"
    )
    compute = (
        code
        + "print(sum(x.size for x in s.statistics('lineno')), sum(x.count for x in s.statistics('lineno', True)))\n"
    )
    name = [n for n in snapshots if n.endswith("-25-plain")][0]
    total = json.loads(tracer("report", snapshots[name], "--format", "json").stdout)["total"]
    for version in interpreters:
        file = str(tmp_path / version)
        tracer(
            "export", snapshots[name], "--format", "tracemalloc", "--python", version, "-o", file
        )
        for other, path in interpreters.items():
            alike = (version == "3.8") == (other == "3.8")
            done = subprocess.run(
                [path, "-I", "-c", compute if alike else code, file],
                stdout=subprocess.PIPE,
                env=environment(),
                timeout=60,
            )
            lines = done.stdout.decode().splitlines()
            assert done.returncode == 0 and lines[0].split()[0] == str(total["count"])
            assert not alike or lines[1].split()[0] == str(total["size"])


def test_protocols(snapshots, tracer, tmp_path):
    """pickle.dump() with the protocols 2 to 5, by both of Python's picklers, and with what
    pickletools leaves of it."""
    path = [p for n, p in snapshots.items() if n.endswith("-25-names") and version_of(n) != "3.8"][
        0
    ]
    wanted = tracer("report", path, "--format", "json", "--top", "0").stdout
    snapshot = tracemalloc.Snapshot.load(path)
    import pickletools

    for protocol in range(2, 6):
        for number, data in enumerate(
            (pickle.dumps(snapshot, protocol), pickle._dumps(snapshot, protocol))
        ):
            for suffix, variant in (("", data), ("o", pickletools.optimize(data))):
                file = tmp_path / ("%d-%d%s" % (protocol, number, suffix))
                file.write_bytes(variant)
                assert (
                    tracer("report", file, "--format", "json", "--top", "0").stdout == wanted
                ), file
    for protocol in (0, 1):
        file = tmp_path / str(protocol)
        file.write_bytes(pickle.dumps(snapshot, protocol))
        done = tracer("report", file, ok=False)
        assert done.returncode == 1 and b"protocol 0 or 1" in done.stderr


def test_filter_writes_what_passes(snapshots, ask, tracer, tmp_path):
    path = [p for n, p in snapshots.items() if n.endswith("-25-domains")][0]
    ours, back = str(tmp_path / "ours.pb.gz"), str(tmp_path / "back")
    tracer("filter", path, "--include", "*module1.py", "--not-domain", "2", "-o", ours)
    tracer(
        "export",
        path,
        "--include",
        "*module1.py",
        "--not-domain",
        "2",
        "--format",
        "tracemalloc",
        "-o",
        back,
    )
    filters = [{"inclusive": True, "pattern": "*module1.py"}, {"inclusive": False, "domain": 2}]
    for file in (ours, back):
        found = json.loads(tracer("report", file, "--format", "json", "--top", "0").stdout)
        expected = ask(
            [
                {
                    "op": "statistics",
                    "file": path,
                    "group_by": "lineno",
                    "cumulative": False,
                    "filters": filters,
                }
            ]
        )[0]
        assert [
            [[[f["filename"], f["lineno"]] for f in s["traceback"]], s["size"], s["count"]]
            for s in found["statistics"]
        ] == expected
    # Names that only others had are gone.
    assert b"module1.py" in gzip.open(ours).read() and b"module2.py" not in gzip.open(ours).read()
    # A pattern that matches nothing is an empty snapshot, as in tracemalloc.
    tracer("filter", path, "--include", "nothing", "-o", ours)
    done = tracer("report", ours, "--include", "nothing")
    assert b"no block passes the filters" in done.stdout
    assert json.loads(tracer("report", ours, "--format", "json").stdout)["statistics"] == []


def test_folded(snapshots, tracer, tmp_path):
    path = [p for n, p in snapshots.items() if n.endswith("-25-names")][0]
    total = json.loads(tracer("report", path, "--format", "json").stdout)["total"]
    for weight in ("size", "count"):
        lines = tracer(
            "export", path, "--format", "folded", "--weight", weight, "-o", "-"
        ).stdout.split(b"\n")
        assert lines.pop() == b""
        assert sum(int(line.rpartition(b" ")[2]) for line in lines) == total[weight]
    assert any(line.startswith(b"new_line.py:3") or b";new_line.py:" in line for line in lines)


def test_go_pprof(snapshots, tracer, tmp_path):
    if not shutil.which("go"):
        pytest.skip("no go on this machine")
    units = {"B": 1, "kB": 1024, "MB": 1 << 20, "GB": 1 << 30, "TB": 1 << 40}
    for name in [n for n in snapshots if n.endswith(("-25-plain", "-25-recursion"))][:2]:
        ours = str(tmp_path / (name + ".pb.gz"))
        tracer("export", snapshots[name], "--format", "pprof", "-o", ours)
        total = json.loads(tracer("report", ours, "--format", "json").stdout)["total"]
        for index, wanted in (("inuse_space", total["size"]), ("inuse_objects", total["count"])):
            done = subprocess.run(
                [
                    "go",
                    "tool",
                    "pprof",
                    "-top",
                    "-nodecount=100000",
                    "-nodefraction=0",
                    "-sample_index=" + index,
                    ours,
                ],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                timeout=120,
                env=dict(environment(), HOME=str(tmp_path), GOFLAGS="-mod=mod"),
            )
            assert done.returncode == 0, done.stderr.decode()
            shown = re.search(r"of ([\d.]+)([kMGT]?B)? total", done.stdout.decode())
            unit = units[shown.group(2)] if shown.group(2) else 1
            assert (
                abs(float(shown.group(1)) * unit - wanted) <= 0.005 * unit
            )  # two digits behind the point


# --- what is refused ------------------------------------------------------------------------------


def made(traces, limit=1, protocol=4):
    return pickle.dumps(tracemalloc.Snapshot(traces, limit), protocol)


TRACE = (0, 1, (("a", 1),), 1)
HEAD = b"\x80\x04"


def refused(tracer, tmp_path, data, *words, status=1):
    file = tmp_path / "refused"
    file.write_bytes(data)
    done = tracer("report", file, ok=False)
    lines = done.stderr.decode().splitlines()
    assert done.returncode == status and done.stdout == b"" and len(lines) == 1, (done, data[:40])
    assert lines[0].startswith("tracer: %s: " % file) and all(
        word in lines[0] for word in words
    ), lines
    return lines[0]


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
        (HEAD + b"N.", "no whole Snapshot"),
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
        # Each level twice the one below: nothing is unfolded, since no such tuple is anything of
        # tracemalloc's.
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
        ([TRACE, None], "no trace"),
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
    """Every cut is refused where it is; no changed byte does more harm than to be refused, too."""
    good = made([TRACE, (7, 300, (("b", 2), ("a", 1)), 2)], 2)
    for size in range(2, len(good)):
        refused(tracer, tmp_path, good[:size], "byte")
    accepted = 0
    for at in range(2, len(good)):
        (tmp_path / "changed").write_bytes(good[:at] + bytes([good[at] ^ 0x55]) + good[at + 1 :])
        done = tracer("report", tmp_path / "changed", ok=False)
        assert done.returncode in (0, 1)
        accepted += done.returncode == 0
    assert accepted < len(good) / 2  # sizes, lines and names are as good as others


def frames_bomb(samples):
    """A profile of ours, whose samples have up to 65,536 frames of one byte each."""
    texts = (b"", b"tracer:snapshot=1", b"f.py", b"f", b"bytes", b"domain")
    tables = b"".join(field(6, text) for text in texts) + field(13, b"\x01")
    tables += field(5, field(1, 1) + field(2, 3) + field(4, 2))
    tables += field(4, field(1, 1) + field(4, field(1, 1) + field(2, 1)))
    rest = field(2, b"\x01\x08") + field(3, field(1, 4) + field(3, 8)) + field(3, field(1, 5))
    pack = zlib.compressobj(9, zlib.DEFLATED, 31)
    out = pack.compress(tables)
    for number in range(samples):
        out += pack.compress(field(2, field(1, b"\x01" * (65536 - number)) + rest))
    # What does not pack makes the file as large as one that unpacks to so much may be.
    return out + pack.compress(field(100, os.urandom(samples * 65536 // 195))) + pack.flush()


def test_memory_stays_in_proportion(tracer, tmp_path):
    """What a hostile file costs is a small multiple of its size."""
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
        )  # the sanitizer takes terabytes of addresses itself
    for name, data in bombs.items():
        file = tmp_path / "bomb"
        file.write_bytes(data)
        # Address space is the measure that a limit can be set for; a tracer that unpacked it all
        # would not fit.
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
    """The kilobytes that a process has had at most, once it has ended. (wait4() tells no less than
    what this one has had.)"""
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
    """Frames of one byte each, which pack well: 420 KB that came to 1.5 GB."""
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
        and "takes more memory than a profile of its size can" in text
    )
    assert is_sanitized(path) or peak < 400 << 10, peak


def test_forks_in_a_capture(tracer, tmp_path):
    """A capture of 1.5 MB whose one process forks over and over, each child with a copy of its
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


def test_go_profile_is_explained(tracer, tmp_path):
    """A heap profile of another tool."""
    if not shutil.which("go"):
        pytest.skip("no go on this machine")
    (tmp_path / "main.go").write_text(
        'package main\nimport ("os"; "runtime/pprof")\nvar kept [][]byte\n'
        "func main() { for i := 0; i < 100; i++ { kept = append(kept, make([]byte, 1<<20)) }\n"
        'f, _ := os.Create("heap.pb.gz"); pprof.WriteHeapProfile(f); f.Close() }\n'
    )
    done = subprocess.run(
        ["go", "run", "main.go"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=120,
        env=dict(environment(), HOME=str(tmp_path), GO111MODULE="off"),
    )
    if done.returncode:
        pytest.skip("go runs no program here: %s" % done.stdout.decode().strip()[-200:])
    refused(
        tracer,
        tmp_path,
        (tmp_path / "heap.pb.gz").read_bytes(),
        "pprof profile, but not written by tracer",
    )


def test_usage(snapshots, tracer, tmp_path):
    """The wrong thing asked for: one line and status 2."""
    path = next(iter(snapshots.values()))
    out = str(tmp_path / "out")
    for words in (
        ["report"],
        ["diff", path],
        ["diff", path, path, path],
        ["filter", path],
        ["filter", "-o", out],
        ["export", path, "-o", out],
        ["export", path, "--format", "xml", "-o", out],
        ["export", path, "--format", "folded"],
        ["report", path, "--domain", "x"],
        ["report", path, "--not-domain", "4294967296"],
        ["export", path, "--format", "tracemalloc", "--python", "2.7", "-o", out],
        ["export", path, "--format", "folded", "--weight", "x", "-o", out],
        ["report", path, "--cumulative", "--group-by", "traceback"],
        ["diff", path, path, "--cumulative", "--group-by", "traceback"],
        ["report", path, "--include"],
        ["report", path, "--format", "xml"],
    ):
        done = tracer(*words, ok=False)
        assert done.returncode == 2 and done.stderr.count(b"\n") == 1 and not done.stdout, (
            words,
            done,
        )
    assert not os.path.exists(out)
    # One frame a traceback: as in tracemalloc the figures are the others', and a remark says so.
    one = [p for n, p in snapshots.items() if "-1-" in n][0]
    done = tracer("report", one, "--cumulative", "--format", "json")
    plain = json.loads(tracer("report", one, "--format", "json").stdout)
    cumulative = json.loads(done.stdout)["statistics"]
    assert all(
        entry.pop("once") == {k: entry[k] for k in ("size", "count")} for entry in cumulative
    )
    assert (
        cumulative == plain["statistics"]
        and done.stderr.count(b"\n") == 1
        and b"one frame" in done.stderr
    )


def test_different_limits(snapshots, tracer):
    """As compare_to() does, and the text says it."""
    one = [p for n, p in snapshots.items() if "-1-plain" in n][0]
    many = [p for n, p in snapshots.items() if "-25-plain" in n][0]
    assert b"traceback limits differ, 25 frames and 1" in tracer("diff", one, many).stdout
    report = json.loads(tracer("diff", one, many, "--format", "json").stdout)
    assert report["traceback_limit"] == 25 and report["old"]["traceback_limit"] == 1


def test_source(tracer, tmp_path):
    """Lines as linecache has them; nothing where there is none, and no waiting for what is no
    file."""
    script = tmp_path / "caf\xe9.py"
    script.write_bytes(b"first\r\n  second = [  1 ]  \rthird\n\n\x1b[31mlast")
    os.mkfifo(tmp_path / "fifo")
    names = [(str(script), n) for n in range(7)] + [
        (str(tmp_path / "fifo"), 1),
        ("/dev/zero", 1),
        ("<stdin>", 1),
        ("", 1),
        (str(tmp_path), 1),
    ]
    (tmp_path / "s").write_bytes(
        made(
            [
                (0, 1000 - i, ((name, line), (str(script), 1)), 2)
                for i, (name, line) in enumerate(names)
            ],
            2,
        )
    )
    text = tracer("report", tmp_path / "s", "--source", "--top", "0").stdout.decode()
    lines = text.split("\n")
    for number, source in enumerate(
        (None, "first", "second = [  1 ]", "third", None, "\\x1b[31mlast", None)
    ):
        at = [i for i, line in enumerate(lines) if line.startswith("  %s:%d: " % (script, number))]
        assert len(at) == 1
        assert (
            lines[at[0] + 1] == "    " + source
            if source
            else lines[at[0] + 1].startswith(("  ", "Total"))
            and not lines[at[0] + 1].startswith("    ")
        )
    text = tracer(
        "report", tmp_path / "s", "--source", "--top", "2", "--group-by", "traceback"
    ).stdout.decode()
    assert "    %s:1\n        first\n" % script in text
