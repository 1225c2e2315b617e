# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the end-to-end tests. A test that needs something the machine lacks is skipped, and
the skip names it.

    @pytest.mark.versions("3.11", "3.12")   one run each; `python` is an Interpreter(version, path);
                                            no arguments: any version (matrix.py)
    root_python                             a CPython in a root file system (harness.root_names)
    @pytest.mark.root_versions(since="3.14", before="3.15")
                                            of these versions; either end may be left out
    @pytest.mark.differ("python", "other")  no run in which these parameters are equal
    cpython                                 each CPython, in root file systems and outside of them
    @pytest.mark.unprivileged               needs neither root nor BPF
    @pytest.mark.long                       runs only with --long or --all-versions
    @pytest.mark.whole                      runs with all its sets of parameters (matrix.SETS)

With --all-versions (make e2e-all) each test runs with every version; with --long (make e2e-long)
only the long ones run, with those versions that they have in CI.
"""
import ctypes
import fcntl
import filecmp
import os
import platform
import re
import shutil
import subprocess
import tempfile

import pytest

# What their assertions compared is told, too.
pytest.register_assert_rewrite(
    "cgroups",
    "cli_text",
    "containers",
    "ctl_client",
    "harness",
    "parity",
    "perfmaps",
    "schemas",
    "truth",
)

import harness  # noqa: E402
import matrix  # noqa: E402
import procfs  # noqa: E402
import pythons  # noqa: E402
import schemas  # noqa: E402
from interpreters import packed as packed_python  # noqa: E402


def pytest_addoption(parser):
    parser.addoption(
        "--all-versions", action="store_true", help="run versioned tests with CPython 3.8 to 3.15"
    )
    parser.addoption("--long", action="store_true", help="run what takes long, and nothing else")
    parser.addoption(
        "--kills", type=int, default=12, help="how often test_kill.py kills the tracer"
    )


def pytest_configure(config):
    # A system call that is not on the allow list ends the session, which reports the call
    # (user/proc/sandbox/calls.h).
    os.environ["TRACER_CALLS"] = "kill"
    harness.check_json = schemas.check
    config.addinivalue_line("markers", "versions(*minor): run once for each of these CPythons")
    config.addinivalue_line("markers", "root_versions(since, before): those of root_python")
    config.addinivalue_line("markers", "differ(*names): parameters that are not to be equal")
    config.addinivalue_line("markers", "unprivileged: needs neither root nor BPF")
    config.addinivalue_line("markers", "long: is there with --long and --all-versions")
    config.addinivalue_line("markers", "disturbing: ends traces of the tests beside it")
    config.addinivalue_line("markers", "whole: all sets of parameters")


def pytest_generate_tests(metafunc):
    if "python" in metafunc.fixturenames:
        mark = metafunc.definition.get_closest_marker("versions")
        chosen = mark.args if mark and not metafunc.config.getoption("--all-versions") else ()
        metafunc.parametrize("python", chosen or pythons.VERSIONS, indirect=True)
    everything = metafunc.config.getoption("--all-versions")
    if "root_python" in metafunc.fixturenames:
        mark = metafunc.definition.get_closest_marker("root_versions")
        names = harness.root_names(everything, **(mark.kwargs if mark else {}))
        metafunc.parametrize("root_python", names or [None], indirect=True)
    if "cpython" in metafunc.fixturenames:
        names = [*pythons.unstripped(), "distribution", *harness.root_names(everything)]
        metafunc.parametrize("cpython", names, indirect=True)


def _bpf_missing():
    """Why this kernel or these privileges do not allow BPF uprobes, or None. Checked without the
    program under test."""
    if os.geteuid() != 0:
        return "root is needed to trace"
    if platform.machine() != "x86_64":
        return "x86-64 is needed to trace"
    if not os.path.exists("/sys/bus/event_source/devices/uprobe/type"):
        return "the kernel lacks uprobes (CONFIG_UPROBE_EVENTS)"

    class MapAttr(ctypes.Structure):
        _fields_ = [
            (n, ctypes.c_uint32) for n in ("map_type", "key_size", "value_size", "max_entries")
        ] + [("rest", ctypes.c_uint8 * 112)]

    libc = ctypes.CDLL(None, use_errno=True)
    ring_buffer = MapAttr(27, 0, 0, 4096)
    fd = libc.syscall(321, 0, ctypes.byref(ring_buffer), ctypes.sizeof(ring_buffer))
    if fd < 0:
        return "bpf(BPF_MAP_CREATE) of a ring buffer: " + os.strerror(ctypes.get_errno())
    os.close(fd)
    return None


def _is_of_equals(item):
    mark = item.get_closest_marker("differ")
    return mark and len({item.callspec.params[name] for name in mark.args}) < len(mark.args)


def pytest_collection_modifyitems(config, items):
    items[:] = [item for item in items if not _is_of_equals(item)]
    if not config.getoption("--all-versions"):
        long = config.getoption("--long")
        items[:] = [item for item in items if bool(item.get_closest_marker("long")) == long]
        left_out = set(matrix.left_out(items))
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]
        if not long:
            beyond = set(matrix.beyond(items))
            config.hook.pytest_deselected(items=beyond)
            items[:] = [item for item in items if item not in beyond]
    why = _bpf_missing()
    for item in items:
        if why and not item.get_closest_marker("unprivileged"):
            item.add_marker(pytest.mark.skip(reason=why))


def _locked(how):
    with open(os.path.join(tempfile.gettempdir(), "tracer-tests-machine.lock"), "w") as lock:
        fcntl.flock(lock, how)
        yield


@pytest.fixture
def whole_machine():
    """For a test that traces all processes, those of a test beside it, too. Its probes are gone
    when the next one begins."""
    for _ in _locked(fcntl.LOCK_EX):
        yield
        harness.wait_until(lambda: not procfs.orphans("tracer-links"), "all probes are removed")


@pytest.fixture
def undisturbed(request):
    """For a test that looks for probes in its target's text, or whose probes are in files: no other
    test traces all processes, or runs what no file may have probes for."""
    disturbs = request.node.get_closest_marker("disturbing")
    yield from _locked(fcntl.LOCK_EX if disturbs else fcntl.LOCK_SH)


@pytest.fixture(scope="session")
def tracer():
    return harness.tracer_path()


@pytest.fixture(scope="session")
def interpreters():
    """{version: path} of the CPythons that have symbols."""
    return pythons.unstripped()


@pytest.fixture(scope="session")
def blocks_program(tmp_path_factory):
    """tests/e2e/programs/native/blocks.c, compiled."""
    path = str(tmp_path_factory.mktemp("blocks") / "blocks")
    subprocess.run(
        ["cc", "-O1", "-g", "-fno-builtin", "-o", path, harness.program("blocks.c")], check=True
    )
    return path


@pytest.fixture
def python(request, interpreters):
    if request.param not in interpreters:
        pytest.skip("no unstripped CPython %s on this machine" % request.param)
    return harness.Interpreter(request.param, interpreters[request.param])


@pytest.fixture(scope="session")
def any_python():
    """An unstripped CPython, for tests that accept any version."""
    path = pythons.newest()
    if not path:
        pytest.skip("no unstripped CPython on this machine")
    return harness.Interpreter(pythons.version_of(path), path)


@pytest.fixture(scope="session")
def debian_python():
    path = pythons.distribution()
    if path is None:
        pytest.skip("%s is no stripped distribution CPython" % pythons.DISTRIBUTION)
    return harness.Interpreter(pythons.version_of(path), path)


def _programs_put(there):
    """The test programs as they are now. They stay: a test beside this one may run them."""
    for folder, _, names in os.walk(harness.PROGRAMS):
        inside = os.path.join(there, os.path.relpath(folder, harness.PROGRAMS))
        if os.path.basename(folder) == "__pycache__":
            continue
        os.makedirs(inside, exist_ok=True)
        for name in names:
            source, copy = os.path.join(folder, name), os.path.join(inside, name)
            if not os.path.exists(copy) or not filecmp.cmp(source, copy, shallow=False):
                new = "%s.%d" % (copy, os.getpid())
                shutil.copy(source, new)
                os.replace(new, copy)


@pytest.fixture
def root_python(request):
    """A CPython of another distribution. It finds the test programs under the same paths as the
    host."""
    if request.param is None:
        pytest.skip("no root file system with such a CPython: run make roots (HACKING.md)")
    root, path = pythons.in_roots()[request.param]
    _programs_put(root + harness.PROGRAMS)
    return harness.RootInterpreter(
        re.match(r"3\.\d+", path[len("/usr/bin/python") :]).group(), path, root, path.endswith("d")
    )


@pytest.fixture
def libpython():
    """libpython(interpreter): the path of the shared library that contains its runtime."""

    def find(interpreter):
        path = os.path.join(
            os.path.dirname(os.path.dirname(interpreter.path)),
            "lib",
            "libpython%s.so.1.0" % interpreter.version,
        )
        if not os.path.exists(path):
            pytest.skip("CPython %s has no shared libpython" % interpreter.version)
        return path

    return find


@pytest.fixture
def own_python(interpreters, libpython, tmp_path):
    """own_python(version): an interpreter whose files, also its libc, no other process has mapped,
    and the environment that it needs."""

    def copy(version):
        if version not in interpreters:
            pytest.skip("no unstripped CPython %s on this machine" % version)
        python = harness.Interpreter(version, interpreters[version])
        folder = tmp_path / "own"
        folder.mkdir()
        path = shutil.copy(python.path, str(folder / os.path.basename(python.path)))
        shutil.copy(libpython(python), str(folder))
        shutil.copy(procfs.mapped_file(os.getpid(), "/libc.so.6"), str(folder))
        prefix = os.path.dirname(os.path.dirname(python.path))
        return harness.Interpreter(version, path), harness.environment(
            LD_LIBRARY_PATH=str(folder), PYTHONHOME=prefix
        )

    return copy


@pytest.fixture
def packed(tmp_path):
    """packed(name): the interpreters.Python of that name."""
    builds = {pythons.packed_name(each): each for each in pythons.PACKED}
    made = []

    def make(name):
        try:
            made.append(packed_python(builds[name], str(tmp_path)))
        except LookupError as error:
            pytest.skip("%s: %s" % (name, error))
        return made[-1]

    yield make
    for python in made:
        python.remove()


@pytest.fixture
def start():
    """Target(...), terminated at the end of the test."""
    started = []

    def make(*args, **options):
        started.append(harness.Target(*args, **options))
        return started[-1]

    yield make
    for target in started:
        target.kill()


@pytest.fixture
def trace(tracer, tmp_path):
    """Traced(...) with tracer and folder filled in, terminated at the end of the test."""
    started = []

    def make(*args, **options):
        started.append(harness.Traced(tracer, tmp_path, *args, **options))
        return started[-1]

    yield make
    for run in started:
        run.kill()
        print(run.stderr)  # shown with a test that failed


@pytest.fixture
def run_tracer(tracer):
    """Runs the tracer to completion: subprocess.CompletedProcess with text output."""

    def run(*args, budget=False, **options):
        options.setdefault("timeout", harness.TIMEOUT)
        options.setdefault("env", harness.environment())
        done = subprocess.run(
            [tracer, *(map(str, args) if budget else harness.without_budget(args))],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            **options
        )
        schemas.check(args, done.stdout)
        return done

    return run


@pytest.fixture(params=("trace", "dry run", "heap"))
def attempt(request, run_tracer):
    """Tries to trace a process's Python, to plan the trace, or to read its heap."""

    words = {
        "trace": ["--layer", "python"],
        "dry run": ["--dry-run", "--layer", "python"],
        "heap": ["heap"],
    }

    def run(pid, *options):
        return run_tracer(*words[request.param], *options, "-p", pid)

    return run
