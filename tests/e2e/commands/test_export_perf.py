# SPDX-License-Identifier: Apache-2.0
"""`tracer export --format perf`, read by the installed perf: equal sums, named frames with file and
line, no warnings."""
import ast
import json
import os
import re
import resource
import shutil
import subprocess
import tracemalloc

import pytest

from harness import TIMEOUT, Target, Traced, environment, error_line, program, read_report

unprivileged = pytest.mark.unprivileged


@pytest.fixture
def perf(tmp_path):
    """perf(*args, cwd=None): its stdout. Its stderr must be empty."""
    path = shutil.which("perf")
    if not path:
        pytest.skip("perf is not installed")
    home = tmp_path / "home"
    home.mkdir()

    def run(*args, stderr=""):
        env = environment(HOME=str(home), PERF_CONFIG="/dev/null", PAGER="cat")
        done = subprocess.run(
            [path, *map(str, args)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=env,
            timeout=TIMEOUT,
        )
        assert done.stderr.decode() == stderr
        return done.stdout.decode()

    return run


def export(tracer, snapshot, out, *args):
    done = subprocess.run(
        [tracer, "export", snapshot, "--format", "perf", "-o", out, *args],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        timeout=TIMEOUT,
    )
    assert done.returncode == 0 and not done.stdout, done.stderr.decode()
    assert "%s.python" % out in done.stderr.decode()
    return done.stderr.decode()


def sums(perf, data, *args):
    """{symbol: period} of perf report."""
    out = perf(
        "report",
        "-i",
        data,
        "--stdio",
        "--no-children",
        "--sort",
        "symbol",
        "-F",
        "period,symbol",
        "-g",
        "none",
        "-t",
        "|",
        *args
    )
    lines = [
        line.split("|", 1) for line in out.splitlines() if line.strip() and not line.startswith("#")
    ]
    found = {}
    for period, symbol in lines:
        # perf adds empty columns of its own.
        symbol = re.sub(r"^\[\.\] ", "", re.sub(r"\|-\s+-\s*$", "", symbol).strip())
        found[symbol] = found.get(symbol, 0) + int(period)
    return found


def chains(perf, data, *args):
    """[(period, event, [(symbol, "file:line")])] of perf script, in its order."""
    out = perf(
        "script",
        "-i",
        data,
        "-F",
        "comm,tid,time,event,period,ip,sym,srcline",
        "--full-source-path",
        *args
    )
    samples = []
    for text in out.split("\n\n"):
        if not text.strip():
            continue
        head, *lines = text.strip("\n").split("\n")
        period, event = re.search(r"(\d+) ([\w-]+): *$", head).groups()
        frames = []
        for i in range(0, len(lines), 2):
            frames.append((re.match(r"\s*[0-9a-f]+ (.*)$", lines[i]).group(1), lines[i + 1][2:]))
        samples.append((int(period), event, frames))
    return samples


def traced(tracer, folder, python, name, *args, prefix=()):
    """The snapshot's path, and the program's answer."""
    with Target(python, name, *args, prefix=prefix) as target:
        with Traced(tracer, folder, "-p", target.pid, "-n", "32") as run:
            target.step()
            said = json.loads(target.read_line())
            run.finish()
        return run.snapshot, said


def functions_of(path):
    """{line: qualified name} of a source file."""
    with open(path) as file:
        tree = ast.parse(file.read())
    found = {}

    def visit(node, name):
        for child in ast.iter_child_nodes(node):
            inner = name
            if isinstance(child, (ast.FunctionDef, ast.ClassDef)):
                inner = (
                    name + ("." if isinstance(node, ast.ClassDef) else ".<locals>.") if name else ""
                ) + child.name
            if hasattr(child, "lineno"):
                for line in range(child.lineno, child.end_lineno + 1):
                    found[line] = inner or "<module>"
            visit(child, inner)

    visit(tree, "")
    return found


def shown(text):
    """A name as perf_name_append() writes it."""
    return (
        re.sub(r"[\x00-\x1f\x7f]", lambda m: "\\x%02x" % ord(m.group()), text)
        .encode("ascii", "backslashreplace")
        .decode()
    )


@pytest.mark.versions("3.8", "3.13")
def test_same_sums_and_stacks(tracer, perf, python, tmp_path):
    snapshot, _ = traced(tracer, tmp_path, python, "golden.py")
    data = tmp_path / "perf.data"
    export(tracer, snapshot, data)
    path = program("golden.py")
    functions = functions_of(path)
    report = read_report(tracer, snapshot)
    expected = {}
    for (file, line), (size, _) in report.lines().items():
        function = functions[line] if file == path else None
        if function:
            expected[function] = expected.get(function, 0) + size
    found = sums(perf, data)
    assert sum(found.values()) == report.total["size"]
    own = {symbol: size for symbol, size in found.items() if symbol.endswith(":" + path)}
    # Before 3.11 CPython has no qualified names.
    assert len(expected) > 3 and {
        name.split(":")[2].split(".")[-1]: size for name, size in own.items()
    } == {name.split(".")[-1]: size for name, size in expected.items()}

    # The tracebacks are complete, most recent frame first, each frame with its function, file and
    # line. Equal tracebacks with different block sizes are separate samples.
    by_traceback = {}
    for s in read_report(tracer, snapshot, "--group-by", "traceback").statistics:
        frames = tuple("%s:%d" % (f["filename"], f["lineno"]) for f in s["traceback"])
        by_traceback[frames] = by_traceback.get(frames, 0) + s["size"]
    by_chain = {}
    for period, event, frames in chains(perf, data):
        assert event == "live-bytes"
        for symbol, place in frames:
            file, line = place.rsplit(":", 1)
            assert symbol.startswith("py::") and symbol.endswith(":" + file)
            if file == path:
                assert symbol.split(":")[2].split(".")[-1] == functions[int(line)].split(".")[-1]
        places = tuple(place for _, place in frames)
        by_chain[places] = by_chain.get(places, 0) + period
    assert by_chain == by_traceback and max(map(len, by_chain)) > 1

    head = perf("script", "-i", data, "-F", "comm,pid,tid,time").splitlines()[0].split()
    assert (
        head[0] == os.path.basename(os.path.realpath(python.path))[:15]
        and float(head[2].rstrip(":")) > 1.7e9
    )
    assert "live-bytes" in perf("evlist", "-i", data)
    assert "%s.python" % data in perf("buildid-list", "-i", data)


def test_blocks(tracer, perf, any_python, tmp_path):
    snapshot, _ = traced(tracer, tmp_path, any_python, "golden.py")
    data = tmp_path / "perf.data"
    export(tracer, snapshot, data, "--weight", "count")
    assert sum(sums(perf, data).values()) == read_report(tracer, snapshot).total["count"]
    assert perf("evlist", "-i", data).split() == ["live-blocks"]


def test_annotate(tracer, perf, any_python, tmp_path):
    """The source lines of the program, each with its share of the function's bytes."""
    if not shutil.which("objdump"):
        pytest.skip("perf annotate needs objdump (binutils)")
    snapshot, _ = traced(tracer, tmp_path, any_python, "names.py")
    data = tmp_path / "perf.data"
    export(tracer, snapshot, data)
    out = perf("annotate", "-i", data, "--stdio", "-s", "py::Worker.again:" + program("names.py"))
    assert "100.00" in out and re.search(r": +\d+ +kept\.append\(bytes\(n\)\)$", out, re.M)


@pytest.mark.versions("3.8", "3.13")
def test_hostile_function_names(tracer, perf, python, tmp_path):
    snapshot, said = traced(tracer, tmp_path, python, "names.py")
    data = tmp_path / "perf.data"
    export(tracer, snapshot, data)
    found = sums(perf, data)
    path = program("names.py")
    for name, size in said:
        symbol = "py::%s:%s" % (shown(name), path) if name else "py::again:/srv/other\\x0afile.py"
        # The interpreter's own lists may grow in the same function.
        assert size <= found[symbol.rstrip()] < size + 100000, symbol
    for line in perf("script", "-i", data).split("\n") + perf(
        "report", "-i", data, "--stdio"
    ).split("\n"):
        assert line.replace("\t", "").isprintable(), ascii(line)
    if shutil.which("objdump"):
        perf("annotate", "-i", data, "--stdio")


def dump(path, traces, limit=25):
    tracemalloc.Snapshot(traces, limit).dump(str(path))
    return path


@unprivileged
def test_hostile_file_names(tracer, perf, tmp_path):
    """A tracemalloc file has no function names: each file becomes a symbol."""
    names = [
        "a\nb.py",
        "\x1b[31mred\x07.py",
        "x" * 4096,
        "h\u00e9\U0001f600.py",
        "frog\udcff.py",
        "lone\ud800.py",
        "",
        "a:12",
        "c1\x9b.py",
        "?",
        "??",
    ]
    snapshot = dump(
        tmp_path / "names",
        [(0, 100 + i, ((name, i + 1), ("main.py", 1)), 2) for i, name in enumerate(names)],
    )
    data = tmp_path / "perf.data"
    export(tracer, snapshot, data)
    assert sums(perf, data) == {
        "py::" + (shown(name) or "<unknown>"): 100 + i for i, name in enumerate(names)
    }
    found = chains(perf, data)
    # perf treats a file named "??" as unknown, as addr2line prints it.
    assert [frames[0][1] for _, _, frames in found[:-1]] == [
        "%s:%d" % (shown(name).replace(":", "\\x3a") or "<unknown>", i + 1)
        for i, name in enumerate(names[:-1])
    ]
    assert all(frames[1] == ("py::main.py", "main.py:1") for _, _, frames in found)


@unprivileged
def test_empty(tracer, perf, tmp_path):
    data = tmp_path / "perf.data"
    export(tracer, dump(tmp_path / "empty", []), data)
    assert perf("script", "-i", data) == ""
    assert perf("evlist", "-i", data).split() == ["live-bytes"]
    # perf prints the same for a perf.data of its own without samples.
    perf("report", "-i", data, "--stdio", stderr="Error:\nThe %s data has no samples!\n" % data)


@unprivileged
def test_long_tracebacks(tracer, perf, tmp_path):
    lengths = (3, 1000, 9000)
    snapshot = dump(
        tmp_path / "long",
        [(0, 64, tuple(("/srv/f%d.py" % (i % 50), i + 1) for i in range(n)), n) for n in lengths],
        65535,
    )
    data = tmp_path / "perf.data"
    said = export(tracer, snapshot, data)
    assert "--max-stack 8160" in said and "1 samples have more frames than the 8160" in said
    found = chains(perf, data, "--max-stack", "8160", "--no-inline")
    assert sorted(len(frames) for _, _, frames in found) == [3, 1000, 8160]
    for _, _, frames in found:
        assert frames == [
            ("py::/srv/f%d.py" % (i % 50), "/srv/f%d.py:%d" % (i % 50, i + 1))
            for i in range(len(frames))
        ]


@unprivileged
@pytest.mark.parametrize("count", (250000, pytest.param(1000000, marks=pytest.mark.long)))
def test_a_million_traces(tracer, perf, tmp_path, count):
    traces = [
        (
            0,
            i % 1000 + 1,
            tuple(
                ("/srv/app/module%d.py" % ((i + d * 7) % 500), i // 500 + 1 + d) for d in range(8)
            ),
            8,
        )
        for i in range(count)
    ]
    snapshot = dump(tmp_path / "million", traces)
    data = tmp_path / "perf.data"
    report = read_report(tracer, snapshot, "--group-by", "filename")
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    export(tracer, snapshot, data)
    # These are bounds, not measurements: with linear searches this would take hours.
    assert resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before < TIMEOUT
    assert data.stat().st_size < 150e6 and os.path.getsize("%s.python" % data) < 10e6
    expected = {"py::" + s["traceback"][0]["filename"]: s["size"] for s in report.statistics}
    assert len(expected) == 500 and sums(perf, data) == expected


def test_a_target_in_another_mount_namespace(tracer, perf, any_python, tmp_path):
    """perf enters the mount namespace of a process that still runs. The exported file does not
    exist there."""
    hidden = tmp_path / "hidden"
    hidden.mkdir()
    prefix = ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs none "$0" && exec "$@"', hidden]
    with Target(any_python, "golden.py", prefix=prefix) as target:
        with Traced(tracer, tmp_path, "-p", target.pid) as run:
            target.step()
            target.expect()
            run.finish()
        data = hidden / "perf.data"
        export(tracer, run.snapshot, data)
        assert not os.listdir("/proc/%d/root%s" % (target.pid, hidden))
        found = sums(perf, data)
        assert any(symbol.endswith(":" + program("golden.py")) for symbol in found) and not [
            s for s in found if s.startswith("0x")
        ]


@unprivileged
def test_moved(tracer, perf, tmp_path):
    """perf finds the file of names by its build ID in its cache. It does not use a file of another
    snapshot."""
    data, moved = tmp_path / "perf.data", tmp_path / "moved.data"
    export(tracer, dump(tmp_path / "one", [(0, 100, (("one.py", 1),), 1)]), data)
    perf("buildid-cache", "--add", "%s.python" % data)
    data.rename(moved)
    export(tracer, dump(tmp_path / "two", [(0, 100, (("two.py", 1),), 1)]), data)
    assert sums(perf, data) == {"py::two.py": 100}
    assert sums(perf, moved) == {"py::one.py": 100}
    shutil.rmtree(tmp_path / "home" / ".debug")
    found = sums(perf, moved)
    assert len(found) == 1 and "one.py" not in str(found) and "two.py" not in str(found)


@unprivileged
def test_refused(tracer, tmp_path):
    snapshot = dump(tmp_path / "one", [(0, 100, (("one.py", 1),), 1)])

    def refuse(out, reason):
        done = subprocess.run(
            [tracer, "export", str(snapshot), "--format", "perf", "-o", str(out)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            timeout=TIMEOUT,
            universal_newlines=True,
        )
        assert reason in error_line(done, 1) and not done.stdout

    refuse("-", "two files")
    (tmp_path / "perf.data.python").symlink_to(tmp_path / "elsewhere")
    refuse(tmp_path / "perf.data", "is a symbolic link")
    (tmp_path / "perf.data.python").unlink()
    os.mkfifo(str(tmp_path / "perf.data.python"))
    refuse(tmp_path / "perf.data", "is not a regular file")
    assert sorted(os.listdir(str(tmp_path))) == ["one", "perf.data.python"]
