# SPDX-License-Identifier: Apache-2.0
"""OTLP profiles of real traces, read by tests/otlp.py: in each mode, and of each layer, the sums by
line are those of the report."""
import pty
import subprocess

import pytest

import otlp
from harness import (
    Report,
    compiled,
    environment,
    error_line,
    marked_line,
    program,
    read_report,
    wait_until,
)
from truth import tool

KEYS = {
    "inuse_space": "size",
    "inuse_objects": "count",
    "alloc_space": "allocated_size",
    "alloc_objects": "allocated_count",
}
BUILD_ID = "12ab" * 10
WHOLE = ("--no-skip", "--full-names")  # as profiles are


@pytest.fixture
def export(run_tracer, tmp_path):
    """export(snapshot, option…): {(PID, layer, type): profile}."""

    def run(snapshot, *options):
        out = tmp_path / "out.otlp"
        done = run_tracer("export", snapshot, "--format", "otlp", "--force", "-o", out, *options)
        assert done.returncode == 0, done.stderr
        profiles = otlp.read(out)
        found = {(p.resource["process.pid"], p.scope["tracer.layer"], p.type): p for p in profiles}
        assert len(found) == len(profiles)
        return found

    return run


def sums(statistics, key):
    found = {}
    for entry in statistics:
        frame = entry["traceback"][0]
        line = frame["filename"], frame["lineno"]
        found[line] = found.get(line, 0) + entry[key]
    return {line: value for line, value in found.items() if value}


def check(profiles, report, pid, layer, types=("inuse_space", "inuse_objects")):
    """The process has these types of the layer, with the sums of the report."""
    kinds = {kind for *of, kind in profiles if of == [pid, layer]}
    if profiles[pid, layer, "inuse_space"].attributes["tracer.mode"] == "windows":
        # Whether windows have seen enough to tell what was allocated is a matter of luck.
        assert kinds in (set(types), set(KEYS))
    else:
        assert kinds == set(types)
    for kind in types:
        profile = profiles[pid, layer, kind]
        assert profile.lines() == sums(report.statistics, KEYS[kind]), (layer, kind)
        assert profile.unit == ("bytes" if kind.endswith("space") else "count")


def both(trace, export, targets):
    """A trace of two processes that have made a step, and its profiles."""
    run = trace("-p", "%d,%d" % tuple(t.pid for t in targets), "-m", "exact", attached=2)
    for target in targets:
        target.step()
        target.expect()
    run.finish()
    return run, export(run.snapshot)


@pytest.mark.versions("3.11")
def test_exact(start, trace, python, export):
    """Two processes: each is a resource, and the file's first profile is inuse_space."""
    targets = [start(python, "golden.py") for _ in range(2)]
    run, profiles = both(trace, export, targets)
    assert next(iter(profiles))[1:] == ("python", "inuse_space")
    assert {pid for pid, _, _ in profiles} == {target.pid for target in targets}
    for target in targets:
        report = run.report("--pid", target.pid, "--sort", "allocated")
        check(profiles, report, target.pid, "python", KEYS)
        alone = export(run.snapshot, "--pid", target.pid)
        assert {key: profile.lines() for key, profile in alone.items()} == {
            key: profile.lines() for key, profile in profiles.items() if key[0] == target.pid
        }
    for (_, _, kind), profile in profiles.items():
        assert profile.attributes == {"tracer.mode": "exact", "tracer.traced_from": "attach"}
        assert bool(profile.duration_ns) == kind.startswith("alloc")


@pytest.mark.versions("3.11")
def test_sample(start, trace, python, export):
    """Estimates are rounded as the report rounds those of a line."""
    target = start(python, "golden.py")
    run = trace("-p", target.pid, "-m", "exact", "--sample", "1K")
    target.step()
    target.expect()
    run.finish()
    report = run.report("--sort", "allocated")
    profiles = export(run.snapshot)
    check(profiles, report, target.pid, "python", KEYS)
    profile = profiles[target.pid, "python", "inuse_space"]
    assert profile.period == ("alloc_space", "bytes", 1024)
    assert profile.attributes["tracer.estimated_from"] == "sample"
    assert profile.attributes["tracer.standard_error"] == report.total["size_error"] > 0


@pytest.mark.usefixtures("undisturbed")
@pytest.mark.versions("3.11")
def test_windows(start, trace, python, export):
    """What is older than the trace is a scope of its own."""
    target = start(python, "steady.py")
    run = trace("-v", "--window", "40/200", "-p", target.pid)
    target.step()
    wait_until(lambda: run.stderr.count(": a window of") >= 10, "10 windows are over")
    target.step()
    target.expect()
    report = run.finish()
    profiles = export(run.snapshot)
    check(profiles, report, target.pid, "python")
    older = Report({**report.data, **report.data["older"]})
    check(profiles, older, target.pid, "older")
    for layer, whole in (("python", report), ("older", older)):
        for kind, key in (("inuse_space", "size_error"), ("inuse_objects", "count_error")):
            attributes = profiles[target.pid, layer, kind].attributes
            assert attributes["tracer.mode"] == attributes["tracer.estimated_from"] == "windows"
            assert attributes.get("tracer.standard_error", 0) == whole.total[key]


@pytest.mark.versions("3.11")
def test_layers(start, trace, python, export):
    """Each layer is a scope. Native stacks go on with Python's frames."""
    target = start(python, "golden.py", 500)
    run = trace("-p", target.pid, "--layer", "all", "-m", "exact", "-n", 16)
    target.step()
    target.expect()
    run.finish()
    profiles = export(run.snapshot)
    for layer in ("python", "native", "mmap"):
        report = run.report("--layer", layer, *WHOLE)
        types = list(KEYS) if layer != "mmap" else list(KEYS)[:2]
        if layer != "mmap":
            report = run.report("--layer", layer, "--sort", "allocated", *WHOLE)
        check(profiles, report, target.pid, layer, types)
        only = export(run.snapshot, "--layer", layer)
        assert {key[1] for key in only} == {layer}
        check(only, report, target.pid, layer, types)
    frames = {
        frame
        for stack, _ in profiles[target.pid, "native", "inuse_space"].samples
        for frame in stack
    }
    assert {frame.kind for frame in frames} == {"cpython", "native"}


@pytest.mark.parametrize("debug", ["-g", "-g0"])
def test_native(tracer, export, tmp_path, debug):
    """Functions that are inlined are lines of one location, the innermost first. Frames without a
    line belong to their binary."""
    binary = compiled(tmp_path / "program", "inlined.c", "-O2", debug)
    snapshot = str(tmp_path / "snapshot.pb.gz")
    subprocess.run(
        [tracer, "--layer", "native", "-n", "64", "-o", snapshot, "--", binary],
        check=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
    )
    report = read_report(tracer, snapshot, *WHOLE)
    profiles = export(snapshot)
    pid = next(iter(profiles))[0]
    check({key: p for key, p in profiles.items() if "inuse" in key[2]}, report, pid, "native")
    samples = profiles[pid, "native", "inuse_space"].samples
    (stack,) = [stack for stack, value in samples if value == 10100]
    lines = [frame.line for frame in stack if frame.file == program("inlined.c")]
    mapped = [frame.function for frame in stack if frame.mapping == binary]
    if debug == "-g0":
        assert not lines and mapped[:2] == ["outer", "main"]
    else:
        marks = ("inner", "middle", "outer", "main")
        assert lines == [marked_line("inlined.c", mark) for mark in marks]


def test_stripped(tracer, export, tmp_path):
    """Functions that are not known are addresses of a binary that has its build ID. The resource is
    the service that the process says it is."""
    options = ("-O2", "-no-pie", "-Wl,--build-id=0x" + BUILD_ID)
    binary = compiled(tmp_path / "program", "inlined.c", *options)
    named = subprocess.run([tool("nm"), binary], check=True, stdout=subprocess.PIPE, text=True)
    (start,) = [int(line.split()[0], 16) for line in named.stdout.splitlines() if " outer" in line]
    subprocess.run([tool("strip"), binary], check=True)
    snapshot = str(tmp_path / "snapshot.pb.gz")
    subprocess.run(
        [tracer, "--layer", "native", "-n", "64", "-o", snapshot, "--", binary],
        env=environment(OTEL_SERVICE_NAME="shop", OTEL_RESOURCE_ATTRIBUTES="service.version=1.0"),
        check=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
    )
    profiles = export(snapshot)
    pid = next(iter(profiles))[0]
    report = read_report(tracer, snapshot, *WHOLE)
    check({key: p for key, p in profiles.items() if "inuse" in key[2]}, report, pid, "native")
    resource = profiles[pid, "native", "inuse_space"].resource
    assert (resource["service.name"], resource["service.version"]) == ("shop", "1.0")
    request = otlp.messages().Request()
    request.ParseFromString((tmp_path / "out.otlp").read_bytes())
    tables = request.dictionary
    names = [tables.string_table[each.filename_strindex] for each in tables.mapping_table]
    (mapping,) = [index for index, name in enumerate(names) if name == binary]
    (attribute,) = tables.mapping_table[mapping].attribute_indices
    assert tables.attribute_table[attribute].value.string_value == BUILD_ID
    located = [each for each in tables.location_table if each.mapping_index == mapping]
    assert located and not any(each.lines for each in located)
    assert any(start < each.address < start + 64 for each in located)


def test_terminal(start, trace, any_python, tracer, run_tracer):
    """A terminal would show bytes; the report of a wrong format names this one."""
    target = start(any_python, "golden.py")
    run = trace("-p", target.pid)
    target.step()
    target.expect()
    run.finish()
    master, slave = pty.openpty()
    done = subprocess.run(
        [tracer, "export", run.snapshot, "--format", "otlp", "-o", "-"],
        stdout=slave,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert done.returncode == 2 and "not written to a terminal" in done.stderr
    assert "otlp" in error_line(run_tracer("export", run.snapshot, "--format", "otl", "-o", "x"), 2)


@pytest.mark.versions("3.11")
def test_kinds(start, trace, python, export, tmp_path):
    """Processes whose first layers differ: each has its own first."""
    targets = [start(python, "golden.py"), start(compiled(tmp_path / "program", "native.c"), None)]
    run, profiles = both(trace, export, targets)
    for target, layer in zip(targets, ("python", "native")):
        report = run.report("--pid", target.pid, "--sort", "allocated", *WHOLE)
        check(profiles, report, target.pid, layer, KEYS)
        assert {key[1] for key in profiles if key[0] == target.pid} == {layer}


@pytest.mark.versions("3.11")
def test_peak_and_filters(start, trace, python, export):
    """What is chosen is what is written."""
    target = start(python, "golden.py")
    run = trace("-p", target.pid, "-m", "exact")
    target.step()
    target.expect()
    run.finish()
    peak = export(run.snapshot, "--at-peak")
    check(peak, run.report("--at-peak"), target.pid, "python")
    assert {p.attributes["tracer.moment"] for p in peak.values()} == {"peak"}
    words = ("--include", "%s:%d" % (program("golden.py"), marked_line("golden.py", "B")))
    profiles = export(run.snapshot, *words)
    check(profiles, run.report("--sort", "allocated", *words), target.pid, "python", KEYS)
    assert len(profiles[target.pid, "python", "inuse_space"].lines()) == 1
