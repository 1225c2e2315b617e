# SPDX-License-Identifier: Apache-2.0
"""Applications that embed Python: they load it late with dlopen(), or are linked with it,
position-independent or not."""
import glob
import os
import shlex
import subprocess
import time

import pytest

import harness
import pythons
from harness import TIMEOUT, environment, error_line, program, wait_until

SOURCE = program("embed.c")


def compiled(folder, name, *options):
    output = os.path.join(str(folder), name)
    try:
        done = subprocess.run(
            ["cc", "-O1", "-o", output, *options[:1], SOURCE, *options[1:], "-lpthread", "-ldl"],
            stderr=subprocess.PIPE,
            text=True,
            timeout=TIMEOUT,
        )
    except FileNotFoundError:
        pytest.skip("no C compiler on this machine")
    assert done.returncode == 0, done.stderr
    return output


@pytest.fixture(scope="session")
def embed(tmp_path_factory):
    return compiled(tmp_path_factory.mktemp("embed"), "embed", "-DLATE")


def home(python):
    return environment(PYTHONHOME=os.path.dirname(os.path.dirname(python.path)))


def check(report, live):
    assert report.lost_events == 0
    assert report.marked("golden.py", live) == live
    assert report.data["not_seen"]["records_malformed"] == 0


@pytest.mark.versions("3.8", "3.11", "3.12", "3.13")
def test_late_command(trace, python, libpython, embed):
    run = trace(
        "--",
        embed,
        libpython(python),
        program("golden.py"),
        attached=False,
        stdin=subprocess.PIPE,
        env=home(python),
    )
    wait_until(lambda: "waiting\n" in run.stdout, "it waits")
    assert "attached" not in run.stderr
    run.step()
    wait_until(lambda: "loaded\n" in run.stdout, "it has loaded the library")
    run.wait_attached()
    wait_until(lambda: "has loaded Python" in run.stderr, "the tracer says so")
    run.step()
    wait_until(lambda: "ready\n" in run.stdout, "the program runs")
    run.step()
    live = run.expect()
    run.step()
    assert run.wait() == 0, run.stderr
    check(run.report(), live)


@pytest.mark.versions("3.8", "3.11", "3.12", "3.13")
def test_late_process(start, trace, python, libpython, embed):
    target = start(embed, libpython(python), program("golden.py"), ready=False, env=home(python))
    target.read_until("waiting")
    run = trace("-p", target.pid, "--wait", attached=False)
    wait_until(lambda: "waiting for it to load one" in run.stderr, "the tracer waits")
    target.step()
    target.read_until("loaded")
    run.wait_attached()
    target.step()
    target.read_until("ready")
    target.step()
    live = target.expect()
    report = run.finish()
    check(report, live)
    # The interpreter had not started: the trace contains all of it.
    assert report.data["coverage"]["old_blocks"] == 0
    assert report.data["coverage"]["seen_blocks"] >= 0.999 * report.data["coverage"]["new_blocks"]
    assert target.finish() == 0, "the target was harmed"


def test_not_waited_for(start, run_tracer, any_python, libpython, embed):
    target = start(
        embed, libpython(any_python), program("golden.py"), ready=False, env=home(any_python)
    )
    target.read_until("waiting")
    assert "--wait" in error_line(run_tracer("--layer", "python", "-p", target.pid), 1)


def test_never_loaded(start, trace, any_python, libpython, embed):
    """One process ends before it loads Python, and another never loads it. The trace of a third
    process continues."""
    first, second = (
        start(embed, libpython(any_python), program("golden.py"), ready=False, env=home(any_python))
        for _ in range(2)
    )
    other = start(any_python, "golden.py")
    for target in (first, second):
        target.read_until("waiting")
    pids = ",".join(str(target.pid) for target in (first, other, second))
    run = trace("--wait", "-p", pids, "--format", "json", "--top", 0, output=False)
    wait_until(
        lambda: run.stderr.count("waiting for it to load one") == 2, "the tracer waits for both"
    )
    first.kill()
    wait_until(
        lambda: "PID %d: it has ended" % first.pid in run.stderr, "the tracer has noticed the end"
    )
    other.step()
    live = other.expect()
    run.interrupt()
    assert run.wait() == 0
    assert "PID %d: it has loaded no Python" % second.pid in run.stderr
    (report,) = run.printed_reports()
    check(report, live)


def test_waited_in_vain(start, trace, any_python, libpython, embed):
    target = start(
        embed, libpython(any_python), program("golden.py"), ready=False, env=home(any_python)
    )
    target.read_until("waiting")
    run = trace("-p", target.pid, "--wait", attached=False)
    wait_until(lambda: "waiting for it to load one" in run.stderr, "the tracer waits")
    run.interrupt()
    assert run.wait() == 1
    assert "no Python while it was waited for" in run.stderr.splitlines()[-1]


def test_waiting_takes_no_time(start, trace, any_python, libpython, embed):
    """-d counts from the first attach."""
    target = start(
        embed, libpython(any_python), program("golden.py"), ready=False, env=home(any_python)
    )
    target.read_until("waiting")
    run = trace("-p", target.pid, "--wait", "-d", "1", attached=False)
    wait_until(lambda: "waiting for it to load one" in run.stderr, "the tracer waits")
    time.sleep(1.2)
    assert run.process.poll() is None, run.stderr
    target.step()
    run.wait_attached()
    assert run.wait() == 0 and run.report().data["moment"] == "running"
    assert "\r" not in run.stderr, "a line for a terminal"


def test_refused_before(trace, tmp_path, any_python, libpython, embed):
    """A program that is followed is refused while it has no Python: its malloc has a heap that
    cannot be read, and there is a budget. It loads Python later, and is traced."""
    library = harness.compiled(tmp_path / "libother.so", "other_malloc.c", "-shared", "-fPIC")
    run = trace(
        *("--overhead", 5, "--layer", "all", "--format", "json", "--top", 0),
        *("--", "sh", "-c", 'LD_PRELOAD=$0 PYTHONHOME=$1 "$2" "$3" "$4"; true'),
        *(library, home(any_python)["PYTHONHOME"]),
        *(embed, libpython(any_python), program("golden.py")),
        attached=False,
        output=False,
        stdin=subprocess.PIPE,
    )
    wait_until(lambda: "its heap cannot be read" in run.stderr, "it is refused")
    run.step()
    wait_until(lambda: "loaded\n" in run.stdout, "it has loaded the library")
    wait_until(lambda: "(embed): CPython" in run.stderr, "it is traced")
    run.process.stdin.close()
    assert run.wait() == 0, run.stderr


@pytest.mark.versions("3.10", "3.12")
def test_debug_build_unknown(tmp_path, start, run_tracer, python):
    """A debug build of a version for which no debug layout is known is recognized by its name."""
    application = os.path.join(str(tmp_path), "python%sd" % python.version)
    os.rename(linked(tmp_path, python, "-no-pie"), application)
    target = start(application, "-", program("golden.py"), env=home(python))
    line = error_line(run_tracer("-p", target.pid), 1)
    assert "a debug build of Python %s" % python.version in line and "3.11, 3.13" in line


def linked(folder, python, *options):
    """The application, linked with the version's static library."""
    code = "import sysconfig as s; print(*map(s.get_config_var, ('LIBPL', 'LIBRARY', 'INCLUDEPY')), sep='\\n'); print(*map(s.get_config_var, ('LIBS', 'SYSLIBS')))"
    done = subprocess.run(
        [python.path, "-I", "-c", code],
        stdout=subprocess.PIPE,
        text=True,
        timeout=TIMEOUT,
        check=True,
    )
    folder_of, library, _, libraries = done.stdout.splitlines()
    path = os.path.join(folder_of, library)
    pic = path.replace(".a", "-pic.a")  # Debian has both
    if "-pie" in options and os.path.exists(pic):
        path = pic
    if not os.path.exists(path):
        pytest.skip("CPython %s has no static library" % python.version)
    export = [] if "-s" in options and "-DHIDDEN" in options else ["-Wl,--export-dynamic"]
    return compiled(
        folder,
        "linked",
        "-DLINKED",
        *options,
        path,
        *export,
        *shlex.split(libraries),
        "-lm",
        "-lz",
        "-lexpat"
    )


def readelf(option, path):
    return subprocess.run(
        ["readelf", option, path], stdout=subprocess.PIPE, text=True, timeout=TIMEOUT, check=True
    ).stdout


def linked_and_check(start, trace, tmp_path, python, *options):
    application = linked(tmp_path, python, *options)
    kind = readelf("-hW", application)
    assert ("DYN (" if "-pie" in options else "EXEC (") in kind
    target = start(application, "-", program("golden.py"), env=home(python))
    run = trace("-p", target.pid)
    target.step()
    live = target.expect()
    report = run.finish()
    check(report, live)
    coverage = report.data["coverage"]
    assert 0.999 <= coverage["seen_blocks"] / coverage["new_blocks"] <= 1
    assert target.finish() == 0, "the target was harmed"


@pytest.mark.versions()
@pytest.mark.parametrize("option", ("-pie", "-no-pie"))
def test_linked(start, trace, tmp_path, python, option):
    linked_and_check(start, trace, tmp_path, python, option)


@pytest.mark.parametrize("options", (("-pie", "-s"), ("-no-pie", "-s")))
def test_linked_stripped(start, trace, tmp_path, debian_python, options):
    """Debian's static library is the result of link-time optimization. Once stripped, it has
    inlined copies only."""
    linked_and_check(start, trace, tmp_path, debian_python, *options)


@pytest.mark.versions("3.13")
@pytest.mark.parametrize("static", (False, True), ids=("dynamic", "static"))
def test_linked_hidden(start, trace, run_tracer, tmp_path, python, static):
    """The application has no symbol. It is recognized by the section that contains only _PyRuntime,
    and by the contents of that section. The error names the events that cannot be seen."""
    application = linked(tmp_path, python, "-s", "-DHIDDEN", *(["-static"] if static else []))
    assert "_PyRuntime" not in readelf("-sW", application)
    target = start(application, "-", program("golden.py"), env=home(python))
    line = error_line(run_tracer("--layer", "python", "-p", target.pid), 1)
    assert "free lists" in line and "--mode growth" in line and application in line
    run = trace("-p", target.pid, "--mode", "growth", "-d", "0.2")
    assert "CPython %s." % python.version in run.stderr and run.wait() == 0


@pytest.mark.versions("3.13")
def test_linked_static(start, trace, tmp_path, python):
    """The application has no .eh_frame_hdr. Reuse of objects from free lists is seen
    nevertheless."""
    application = linked(tmp_path, python, "-static")
    assert ".eh_frame_hdr" not in readelf("-SW", application)
    target = start(application, "-", program("reuse.py"), env=home(python))
    run = trace("-p", target.pid)
    target.step()
    live = target.expect()
    report = run.finish()
    ours = report.marked("reuse.py", live)
    assert {mark: count for mark, (_, count) in ours.items()} == {
        mark: count for mark, (_, count) in live.items()
    }
    assert target.finish() == 0, "the target was harmed"


@pytest.mark.versions("3.12")
def test_linked_hidden_unknown(start, run_tracer, tmp_path, python):
    """Before 3.13 nothing in such a file identifies the version. The error states that."""
    target = start(
        linked(tmp_path, python, "-s", "-DHIDDEN"), "-", program("golden.py"), env=home(python)
    )
    line = error_line(run_tracer("--layer", "python", "-p", target.pid), 1)
    assert "tell its Python version" in line and str(tmp_path) in line


@pytest.mark.versions("3.8", "3.10")
def test_linked_hidden_old(start, run_tracer, tmp_path, python):
    """Before 3.11 nothing in such a file locates its runtime, but its constants show that it
    contains one."""
    application = linked(tmp_path, python, "-s", "-DHIDDEN")
    target = start(application, "-", program("golden.py"), env=home(python))
    line = error_line(run_tracer("-p", target.pid), 1)
    assert (
        "%s has Python %s linked into it" % (application, python.version) in line
        and "--export-dynamic" in line
    )
    done = run_tracer("-p", target.pid, "--layer", "native", "-d", "0.2")
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    path = os.path.join(str(tmp_path_factory.mktemp("two")), "two")
    subprocess.run(["cc", "-O1", "-o", path, program("two.c"), "-ldl"], check=True, timeout=TIMEOUT)
    return path


def home_of(path):
    return os.path.dirname(os.path.dirname(path))


@pytest.mark.versions("3.12", "3.13")
@pytest.mark.parametrize("other", ("3.6", "3.7", "3.12", "3.13"))
@pytest.mark.parametrize("started", (False, True), ids=("idle", "started"))
@pytest.mark.differ("python", "other")
def test_two(start, trace, two, python, libpython, other, started):
    """Two libpythons: the one that runs is traced. If both may run, or one has an unknown version,
    the other one is named."""
    old = other in ("3.6", "3.7")
    if not pythons.pyenv(other):
        pytest.skip("no pyenv %s on this machine" % other)
    other_home = home_of(pythons.pyenv(other))
    library = glob.glob(os.path.join(glob.escape(other_home), "lib", "libpython%s*.so.1.0" % other))
    if not library:
        pytest.skip("pyenv's %s has no shared library" % other)
    path = libpython(python)
    target = start(
        two,
        None,
        path,
        home_of(python.path),
        library[0],
        other_home if started else "-",
        program("golden.py"),
    )
    run = trace("-p", target.pid, "-d", "0.2")
    assert run.wait() == 0
    named = "it has another Python, of %s" % (
        library[0] if old or not started or "CPython %s." % python.version in run.stderr else path
    )
    if not started:
        assert "CPython %s." % python.version in run.stderr
    assert (named in run.stderr) == (started or old), run.stderr
    assert target.finish() == 0
