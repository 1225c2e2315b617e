# SPDX-License-Identifier: Apache-2.0
"""Reports, replays and pprof profiles of a finished trace, and hostile names in them."""
import fcntl
import gzip
import json
import os
import pty
import re
import shutil
import struct
import subprocess
import termios

import pytest

from cli_text import listed
from harness import ROOT, Report, TIMEOUT, environment, pprof, pprof_top, program
from harness import wait_until, without_budget


def printable(text):
    return all(line.isprintable() for line in text.split("\n"))


# --- reports --------------------------------------------------------------------------------------


@pytest.fixture
def finished(start, trace, any_python):
    """A finished run of golden.py, and what is live in it."""
    target = start(any_python, "golden.py")
    run = trace("-p", target.pid, "-n", 5)
    target.step()
    live = target.expect()
    run.finish()
    return run, live


@pytest.mark.parametrize("nframe", [1, 64])
def test_cut_totals(start, trace, python, run_tracer, tmp_path, nframe):
    """A total_nframe that need not be that of every block is told, with the number of them."""
    target = start(python, "golden.py")
    run = trace("-p", target.pid, "-n", nframe, "-m", "exact")
    target.step()
    target.expect()
    run.finish()
    out = tmp_path / "totals.pickle"
    for version, told in (("3.9", nframe == 1), ("3.8", False)):
        words = ("--format", "tracemalloc", "--python", version, "-o", out, "--force")
        done = run_tracer("export", run.snapshot, *words)
        assert done.returncode == 0, done.stderr
        found = re.search(r"\d+ of \d+ tracebacks were cut at 1 frames: ", done.stderr)
        assert bool(found) == told, done.stderr


def test_rss(start, trace, any_python, run_tracer):
    """The report has the target's RSS and the share of it that the reported blocks explain. A
    filtered report has neither."""
    target = start(any_python, "golden.py", 20000)
    run = trace("-p", target.pid)
    target.step()
    target.expect()
    data = run.finish().data
    with open("/proc/%d/statm" % target.pid) as file:
        rss = int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE")
    assert abs(data["rss"] - rss) < rss / 10
    assert data["explained"] == data["total"]["size"] > rss / 2
    assert not {"rss", "explained"} & set(run.report("--include", "*golden.py").data)


def test_text_is_the_report_of_the_snapshot(finished, run_tracer):
    """The text at the end of a trace equals the output of `report` for its snapshot."""
    run, _ = finished
    assert run_tracer("report", run.snapshot).stdout == run.stdout


def test_text(finished):
    run, live = finished
    assert printable(run.stdout)
    lines = run.stdout.splitlines()
    assert re.match(
        r"tracer: \S+ \(PID \d+\), CPython 3\.\d+\.\d+, census mode, [\d.]+ s$", lines[0]
    )
    assert re.match(r"(All \d+ lines|Top 10 lines of \d+) by size$", lines[1])
    assert re.match(
        r"  %s:\d+: size=\d+ KiB, count=%d, average=\d+ B, allocated=\d+ KiB in %d blocks$"
        % (re.escape(program("golden.py")), live["A"][1], live["A"][1]),
        lines[2],
    )
    assert [line for line in lines if line.startswith("Total: size=")]
    assert re.match(
        r"Not seen: [\d,]+ blocks \(\d+ KiB\) older than the trace; no event lost, (100\.0|99\.\d) % of [\d,]+ new small blocks traced; "
        r"RSS [\d.]+ [KM]iB: \d+ KiB in this report; --layer all shows more"
        r"(; the probes took .*)?$",
        lines[-1],
    ), run.stdout


def test_json(finished, run_tracer):
    run, live = finished
    data = json.loads(run_tracer("report", run.snapshot, "--format", "json", "--top", "1").stdout)
    assert (
        data["traceback_limit"] == 5
        and data["group_by"] == "lineno"
        and data["cumulative"] is False
    )
    assert data["lost_events"] == 0
    assert list(data["statistics"][0]) == [
        "traceback",
        "size",
        "count",
        "allocated_size",
        "allocated_count",
        "short_lived_size",
        "short_lived_count",
    ]
    assert [(s["size"], s["count"]) for s in data["statistics"]] == [live["A"]]
    whole = run.report().data
    assert (
        sum(s["size"] for s in whole["statistics"])
        == whole["total"]["size"]
        == data["total"]["size"]
    )
    assert (
        sum(s["count"] for s in whole["statistics"])
        == whole["total"]["count"]
        == data["total"]["count"]
    )
    sizes = [s["size"] for s in whole["statistics"]]
    assert sizes == sorted(sizes, reverse=True)


def test_groups(finished):
    run, live = finished
    files = run.report("--group-by", "filename")
    assert {s["traceback"][0]["filename"] for s in files.statistics} == {program("golden.py")}
    assert files.statistics[0]["size"] == files.total["size"]
    cumulative = run.report("--cumulative")
    calls = [s for s in cumulative.statistics if (s["size"], s["count"]) == live["A"]]
    assert len(calls) == 2, "the line itself and the call of its function"
    tracebacks = run.report("--group-by", "traceback")
    assert [
        len(s["traceback"]) for s in tracebacks.statistics if (s["size"], s["count"]) == live["A"]
    ] == [2]


FRAMEWORK = """
def call(function, *args):
    return function(*args)
def keep(count):
    return [bytearray(2000) for _ in range(count)]
"""


APPLICATION = """
import framework
def view(count):
    return framework.keep(count)
kept = framework.call(view, 300)
more = framework.call(framework.keep, 100)
framework.kept = framework.keep(50)
import os
os.kill(os.getpid(), 9)
"""


@pytest.fixture
def framework(trace, any_python, tmp_path):
    """framework(*args): a Traced program whose framework, in site-packages, allocates all blocks;
    the program's file and the framework's file."""
    library = tmp_path / "site-packages" / "framework.py"
    library.parent.mkdir()
    library.write_text(FRAMEWORK)
    path = tmp_path / "shop.py"
    path.write_text(APPLICATION)

    def run(*args):
        done = trace(
            *args, "--", any_python.path, str(path), env=environment(PYTHONPATH=str(library.parent))
        )
        done.wait()
        return done, str(path), str(library)

    return run


def lines_of(report, path):
    """{line: (blocks, whether the line belongs to the application)} of a file's lines with many
    bytes."""
    return {
        s["traceback"][0]["lineno"]: (s["count"], s["app"])
        for s in report.statistics
        if s["traceback"][0]["filename"] == path and s["size"] > 90000
    }


def test_app(framework, run_tracer, tmp_path):
    run, path, library = framework("--app", "--top", "4")
    assert ", at the most recent frame of the application\n" in run.stdout
    assert re.search(r"\nWithout a frame of the application: size=.*, count=\d+", run.stdout)
    assert re.search(
        r"\n  %s:4: size=.* average=\d+ B, allocated=.* blocks?(, short-lived=\d+)?\n"
        % re.escape(path),
        run.stdout,
    )
    plain, report = run.report(), run.report("--app")
    assert {
        line: found[0] >= 300 for line, found in lines_of(report, path).items() if line != 2
    } == {4: True, 6: False, 7: False}
    assert all(is_app for _, is_app in lines_of(report, path).values()) and not lines_of(
        report, library
    )
    assert report.data["total"] == plain.data["total"] and "app" not in plain.data
    outside = [s for s in report.statistics if not s["app"]]
    assert report.data["app"]["outside"] == {
        k: sum(s[k] for s in outside) for k in ("size", "count")
    }
    # (Line 2 imports.) The author of the framework passes --mine, and the framework's lines are the
    # application's.
    report = run.report("--mine", "*/framework.py")
    assert {line: is_app for line, (_, is_app) in lines_of(report, library).items()} == {5: True}
    assert (
        run.report("--app", "--include", path).data["total"]
        == run.report("--include", path).data["total"]
    )
    done = run_tracer("report", run.snapshot, "--app", "--by", "process")
    assert done.returncode == 2 and "--by" in done.stderr
    done = run_tracer("diff", run.snapshot, run.snapshot, "--app", "--format", "json")
    assert json.loads(done.stdout)["app"] == json.loads(done.stdout)["old_app"]
    folded = str(tmp_path / "folded")
    assert (
        run_tracer("export", run.snapshot, "--app", "--format", "folded", "-o", folded).returncode
        == 0
    )
    with open(folded) as file:
        leaves = [line.rpartition(";")[2] for line in file]
    assert any("view (%s:4) " % path in leaf for leaf in leaves) and not any(
        library in leaf for leaf in leaves
    )
    exported = str(tmp_path / "app.pb.gz")
    done = run_tracer("export", run.snapshot, "--app", "--format", "pprof", "-o", exported)
    assert "are in tracebacks without a frame of the application" in done.stderr
    done = run_tracer("report", exported)
    assert (
        "Tracebacks begin at their most recent frame of the application" in done.stdout
        and "%s:4: " % path in done.stdout
    )


def test_app_of_one_frame(framework):
    run, path, library = framework("--app", "-n", "1")
    assert (
        "Only one frame of each traceback is kept" in run.stdout
        and "(tracer -n N keeps more)" in run.stdout
    )
    assert not lines_of(run.report("--app"), path)


def test_several_snapshots(finished, run_tracer):
    run, _ = finished
    done = run_tracer("report", run.snapshot, run.snapshot)
    assert done.returncode == 0 and done.stdout == 2 * run.stdout


def test_pprof(finished, run_tracer, tmp_path):
    """pprof shows the report's figures for every function, and a few header lines above them. The
    tracer reads a file that pprof writes."""
    run, _ = finished
    head, rows = pprof_top(run.snapshot)
    assert len(head) < 12 and "inuse_space" in " ".join(head)
    assert run.stdout.splitlines()[0] in head and "lost events: none" in head
    functions = run.report("--group-by", "function").statistics
    assert rows == {
        (s["traceback"][0]["function"], s["traceback"][0]["filename"]): s["size"]
        for s in functions
        if s["size"]
    }
    assert "<module>" in {name for name, _ in rows}
    pprof("-proto", "-output=%s" % (tmp_path / "again"), run.snapshot)
    texts = [
        run_tracer("report", file, "--format", "json", "--top", 0).stdout
        for file in (run.snapshot, tmp_path / "again")
    ]
    assert texts[0] and texts[0] == texts[1]


def test_snapshot_on_stdout(start, tracer, run_tracer, any_python, tmp_path):
    """The snapshot on stdout is not mixed with text: reports go to stderr."""
    with start(any_python, "golden.py") as target:
        capture = tmp_path / "events"
        for name, *words in (
            "live",
            "-p",
            target.pid,
            "-d",
            0.3,
            "-i",
            0.1,
            "--capture",
            capture,
        ), ("again", "replay", capture):
            with open(tmp_path / name, "wb") as out:
                done = subprocess.run(
                    [tracer, *without_budget(words), "-o", "-"],
                    stdout=out,
                    stderr=subprocess.PIPE,
                    env=environment(),
                    timeout=TIMEOUT,
                )
            report = run_tracer("report", tmp_path / name)
            assert done.returncode == 0 and report.returncode == 0, report.stderr
            assert done.stderr.decode().endswith(report.stdout)


@pytest.mark.versions("3.8", "3.13")
def test_replay(start, trace, run_tracer, python, tmp_path):
    """A capture contains everything that the report needs. Replaying it does not need root."""
    target = start(python, "golden.py")
    capture = tmp_path / "run.cap"
    run = trace("-p", target.pid, "--capture", capture)
    target.step()
    live = target.expect()
    report = run.finish()
    again = tmp_path / "again.pb.gz"
    done = run_tracer("replay", capture, "-o", again)
    assert done.returncode == 0 and done.stderr == ""
    assert done.stdout == run.stdout
    for group in ("lineno", "filename", "traceback"):
        arguments = ("--top", "0", "--format", "json", "--group-by", group)
        assert (
            json.loads(run_tracer("report", again, *arguments).stdout)
            == run.report("--group-by", group).data
        )
        assert (
            json.loads(run_tracer("replay", capture, *arguments).stdout)
            == run.report("--group-by", group).data
        )
    assert report.marked("golden.py", live) == live


def test_replay_of_two(start, trace, run_tracer, any_python, tmp_path):
    targets = [start(any_python, "golden.py", scale) for scale in (100, 300)]
    capture = tmp_path / "run.cap"
    run = trace(
        "--capture",
        capture,
        "-p",
        ",".join(str(t.pid) for t in targets),
        "--format",
        "json",
        output=False,
        attached=2,
    )
    for target in targets:
        target.step()
        target.expect()
    run.interrupt()
    assert run.wait() == 0
    done = run_tracer("replay", capture, "--format", "json")
    assert done.returncode == 0
    assert [Report(json.loads(t)).data for t in done.stdout.splitlines()] == [
        r.data for r in run.printed_reports()
    ]


# --- hostile names --------------------------------------------------------------------------------

HOSTILE = "a\x1b[31m\nb\x07\u009bc\u202e d"


def check_harmless(text):
    """The text contains neither C0 nor C1 controls, except newlines."""
    assert text and not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f]", text), ascii(text)


@pytest.fixture
def hostile(any_python, tmp_path):
    """A program with terminal escapes in its process name, file and command line."""
    folder = tmp_path / HOSTILE
    folder.mkdir()
    path = folder / ("x" + HOSTILE + ".py")
    shutil.copy(program("golden.py"), str(path))
    # The process name contains them, too. The kernel cuts it to 15 bytes.
    source = path.read_text().replace(
        "warm_up()\nos",
        "open('/proc/self/comm', 'wb').write(b'e\\x1b[1m\\x07\\nf')\nwarm_up()\nos",
        1,
    )
    path.write_text(source)
    return str(path)


def test_hostile_names(start, trace, run_tracer, any_python, hostile, tmp_path):
    target = start(any_python, hostile)
    run = trace("-v", "-p", target.pid, "--group-by", "traceback")
    target.step()
    live = target.expect()
    report = run.finish()
    assert hostile in {name for name, _ in report.lines()}, "JSON has the name as it is"
    assert live["A"] in report.lines().values()
    for text in (
        run.stdout,
        run.stderr,
        run_tracer("--dry-run", "-p", target.pid).stdout,
        run_tracer("list").stdout,
    ):
        check_harmless(text)
    (line,) = listed(run_tracer, target.pid)
    assert "\\x1b" in line.lower()


def test_hostile_library_path(start, run_tracer, any_python, tmp_path, libpython):
    """The path of the runtime itself contains escapes."""
    folder = tmp_path / HOSTILE
    folder.mkdir()
    shutil.copy(libpython(any_python), str(folder))
    target = start(any_python, "golden.py", env=environment(LD_LIBRARY_PATH=str(folder)))
    for arguments in (("-d", "0.1", "-p", target.pid), ("--dry-run", "-p", target.pid), ("list",)):
        done = run_tracer(*arguments)
        assert done.returncode == 0
        check_harmless(done.stdout + done.stderr)


# --- terminals ------------------------------------------------------------------------------------


def on_a_terminal(arguments, env, columns=80):
    """The command's output on a terminal."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    process = subprocess.Popen(
        arguments, stdin=subprocess.DEVNULL, stdout=slave, stderr=subprocess.DEVNULL, env=env
    )
    os.close(slave)
    output = b""
    try:
        while True:
            data = os.read(master, 65536)
            if not data:
                break
            output += data
    except OSError:  # EIO: the other end is closed
        pass
    os.close(master)
    assert process.wait(60) == 0
    return output


def test_colour(finished, tracer):
    run, _ = finished
    plain = {k: v for k, v in os.environ.items() if k != "NO_COLOR"}
    arguments = [tracer, "report", run.snapshot]
    assert b"\x1b[" in on_a_terminal(arguments, plain)
    assert b"\x1b[" not in on_a_terminal(arguments, dict(plain, NO_COLOR="1"))
    assert (
        b"\x1b["
        not in subprocess.run(arguments, stdout=subprocess.PIPE, env=plain, timeout=60).stdout
    )


@pytest.fixture(scope="module")
def bundle(tracer, tmp_path_factory):
    """Of this process, by a threshold that it has reached."""
    path = tmp_path_factory.mktemp("bundle") / "shop.evidence"
    command = [tracer, "-p", str(os.getpid()), "--on-memory", "1M", path]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
        wait_until(path.exists, "the bundle is written")
        process.terminate()
    return path


@pytest.mark.parametrize("columns", (80, 160))
def test_width(finished, tracer, bundle, columns):
    """No line is wider than the terminal; figures stand below each other. A pipe has tracemalloc's
    words."""
    run, _ = finished
    pid = ("-p", str(os.getpid()))
    for command, title in (
        (("report", run.snapshot), "SIZE SHARE"),
        (("report", run.snapshot, "--group-by", "filename"), "SIZE SHARE"),
        (("report", run.snapshot, "--group-by", "traceback"), "SIZE SHARE"),
        (("diff", run.snapshot, run.snapshot), "SIZE CHANGE COUNT CHANGE LINE"),
        (("heap", *pid), "SIZE SHARE COUNT AVERAGE TYPE"),
        (("heap", *pid, "--retained"), "RETAINED OBJECTS SIZE COUNT WHAT"),
        (("heap", *pid, "--by", "path"), "SIZE COUNT WHAT"),
        (("memory", *pid), "SIZE SHARE COUNT VIRTUAL PART"),
        (("memory", bundle), "As of "),
        (("report", bundle), "tracer: evidence of"),
        (("report", bundle, "-v"), "RSS as of"),
        (("list",), "PID PARENT"),  # containers of other tests take the room of columns
    ):
        plain = dict(os.environ, NO_COLOR="1")
        lines = on_a_terminal([tracer, *command], plain, columns).decode().splitlines()
        wide = [line for line in lines if len(line) > columns]
        assert all(" " not in line.strip() for line in wide), command
        shown = [" ".join(line.split()) + " " for line in lines]
        assert any(line.startswith(title) for line in shown), (command, lines)
        piped = subprocess.run([tracer, *command], stdout=subprocess.PIPE, timeout=60).stdout
        assert (b"size" in piped or b"MiB" in piped) and b"\t" not in piped, command


def test_foreign_files_are_kept(finished, run_tracer, tmp_path):
    """A file that tracer has not written is not replaced, whichever command is asked to; its own
    ones are, in each format."""
    run, _ = finished
    notes = tmp_path / "notes.txt"
    notes.write_text("my notes\n")
    commands = (
        ("export", run.snapshot, "--format", "folded", "-o"),
        ("filter", run.snapshot, "-o"),
        ("-p", str(os.getpid()), "-d", "1", "-o"),
        ("-p", str(os.getpid()), "-d", "1", "--record"),
        ("heap", "-p", str(os.getpid()), "-o"),
    )
    for command in commands:
        done = run_tracer(*command, str(notes))
        assert "--force" in done.stderr and done.returncode == 1, done
        assert notes.read_text() == "my notes\n"
    for kind in ("tracemalloc", "folded", "pprof", "perf", "html", "speedscope", "otlp"):
        for _ in range(2):
            done = run_tracer("export", run.snapshot, "--format", kind, "-o", str(tmp_path / kind))
            assert done.returncode == 0, done.stderr
    done = run_tracer("export", run.snapshot, "--format", "html", "--force", "-o", str(notes))
    assert done.returncode == 0 and notes.read_text().startswith("<!doctype"), done.stderr


def test_path_that_is_not_utf8(start, trace, run_tracer, tracer, any_python, tmp_path):
    """Every reader opens what is written: all of it is UTF-8, the path is spelt as on the disk, and
    a profile that is read again has the path itself."""
    folder = os.fsencode(str(tmp_path)) + b"/caf\xe9"
    os.mkdir(folder)
    path = os.path.join(folder, b"golden.py")
    shutil.copy(program("golden.py"), path)
    target = start(any_python, os.fsdecode(path))
    run = trace("-p", target.pid)
    target.step()
    target.expect()
    report = run.finish()
    assert os.fsdecode(path) in {name for name, _ in report.lines()}
    assert "caf\\xe9/golden.py" in run.stdout
    for kind in ("folded", "pprof"):
        out = str(tmp_path / kind)
        assert run_tracer("export", run.snapshot, "--format", kind, "-o", out).returncode == 0
    with open(str(tmp_path / "folded"), encoding="utf-8") as file:
        assert "caf\\xe9/golden.py" in file.read()
    for name in (run.snapshot, str(tmp_path / "pprof")):
        with open(name, "rb") as file:
            profile = gzip.decompress(file.read())
        done = subprocess.run(
            ["protoc", "-I", os.path.join(ROOT, "user/report/pprof"), "profile.proto"]
            + ["--decode=perftools.profiles.Profile"],
            input=profile,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert done.returncode == 0 and not done.stderr, done.stderr
    done = run_tracer("report", run.snapshot, "--format", "csv")
    assert "caf\\xe9/golden.py" in done.stdout


def test_no_space(finished, tracer):
    """The reason is the one that the kernel gave."""
    run, _ = finished
    for arguments in (["report", run.snapshot], ["report", run.snapshot, "--format", "json"]):
        with open("/dev/full", "wb") as full:
            done = subprocess.run([tracer, *arguments], stdout=full, stderr=subprocess.PIPE)
        assert done.returncode == 1 and b"No space left on device" in done.stderr


def test_csv_on_a_terminal(start, trace, tracer, any_python, hostile):
    target = start(any_python, hostile)
    run = trace("-p", target.pid)
    target.step()
    target.expect()
    run.finish()
    for command in (
        ["report", run.snapshot, "--format", "csv"],
        ["export", run.snapshot, "--format", "folded", "-o", "-"],
    ):
        shown = on_a_terminal([tracer, *command], dict(os.environ))
        assert shown.strip()
        check_harmless(re.sub("\r+\n", "\n", shown.decode()))


def test_cut_tracebacks_are_told(start, trace, run_tracer, any_python, tmp_path):
    """Callers that were not kept are missing from flame graphs: the remedy is named, but not where
    whole tracebacks do not matter, nor where they were kept."""
    target = start(any_python, "deep.py", 40)
    runs = [trace("-p", target.pid, "-n", limit) for limit in (8, 64)]
    target.step()
    target.expect()
    for run in runs:
        run.finish()
    said = "bytes have tracebacks that were cut at 8 frames"
    out = str(tmp_path / "out.folded")
    for run, is_cut in zip(runs, (True, False)):
        done = run_tracer("report", run.snapshot, "--group-by", "traceback")
        assert (said in done.stderr and "-n 64" in done.stderr) == is_cut, done.stderr
        done = run_tracer("export", run.snapshot, "--format", "folded", "-o", out)
        assert (said in done.stderr) == is_cut, done.stderr
        assert "cut at" not in run_tracer("report", run.snapshot).stderr
