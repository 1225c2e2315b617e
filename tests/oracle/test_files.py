# SPDX-License-Identifier: Apache-2.0
"""Files: round trips between tracemalloc's format and tracer's, and how other tools read them."""
import gzip
import json
import os
import pickle
import re
import shutil
import subprocess
import tracemalloc

import pytest

from conftest import GROUPS, environment
from hostile import made, refused


def version_of(name):
    return name.split("-")[0]


def test_round_trips(snapshots, ask, tracer, each, tmp_path):
    """tracemalloc -> tracemalloc keeps the order, too. A conversion by way of tracer's own format
    gives equal traces and statistics."""

    def convert(item):
        name, path = item
        direct, ours, back = (
            str(tmp_path / (name + suffix)) for suffix in (".direct", ".pb.gz", ".back")
        )
        tracer("export", path, "--format", "tracemalloc", "-o", direct)
        tracer("export", path, "--format", "pprof", "-o", ours)
        tracer("export", ours, "--format", "tracemalloc", "-o", back)
        # A copy of tracer's own file gives the same report.
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
    """Every Python loads a file that was written for any other one. A Python with the same pickle
    layout also computes statistics from it."""
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
    """pickle.dump() with protocols 2 to 5, by both of Python's picklers, each also with the output
    of pickletools.optimize(). Protocols 0 and 1 are refused."""
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
    # Names that occurred only in traces that were filtered out are removed.
    assert b"module1.py" in gzip.open(ours).read() and b"module2.py" not in gzip.open(ours).read()
    # A pattern that matches nothing gives an empty snapshot, as in tracemalloc.
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
    assert any(b"new\\x0aline.py:3" in line for line in lines)


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
            )  # two digits after the point


def test_go_profile_is_explained(tracer, tmp_path):
    """A heap profile of another tool is refused, with the reason."""
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
    """Usage errors: one line and status 2."""
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
    # With one frame per traceback the figures equal those without --cumulative, as in tracemalloc,
    # and a message says so.
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
    """The result is that of compare_to(), and the text names the different limits."""
    one = [p for n, p in snapshots.items() if "-1-plain" in n][0]
    many = [p for n, p in snapshots.items() if "-25-plain" in n][0]
    assert b"traceback limits differ, 25 frames and 1" in tracer("diff", one, many).stdout
    report = json.loads(tracer("diff", one, many, "--format", "json").stdout)
    assert report["traceback_limit"] == 25 and report["old"]["traceback_limit"] == 1


def test_source(tracer, tmp_path):
    """Source lines equal those of linecache. Nothing is printed where there is no source, and the
    tracer does not block on a path that is not a regular file."""
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
