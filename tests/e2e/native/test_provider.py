# SPDX-License-Identifier: Apache-2.0
"""Processes that sample their own allocations and report them by the USDT probes of otel_memory:
the tracer's figures against the producer's own account of its live samples."""
import re
import signal
import subprocess

import pytest

from harness import compiled, environment, pprof, read_report, wait_until

MARKS = ("SMALL", "LARGE")


@pytest.fixture
def producer(tmp_path):
    return compiled(tmp_path / "producer", "otel_program.c", "-DPRODUCER", "-lm")


@pytest.fixture
def consumer(tmp_path):
    """The same program without a producer of its own."""
    return compiled(tmp_path / "consumer", "otel_program.c", "-lm")


def library(path, *flags):
    return compiled(path, "otel_library.c", "-shared", "-fPIC", "-lm", *flags)


@pytest.fixture
def sampler(tmp_path):
    return library(tmp_path / "libsampler.so")


def account(target, line=b"go\n"):
    """What the program says after that line: {mark: (bytes, blocks)}, the number of live samples,
    the semaphores of alloc and free."""
    target.process.stdin.write(line)
    target.process.stdin.flush()
    live = target.expect()
    return live, live.pop("samples")[0], live.pop("semaphores")


def check(report, live):
    for mark in MARKS:
        size, count = report.line("otel_program.c", mark)
        assert size == live[mark][0], mark
        assert abs(count - live[mark][1]) <= 1, mark  # both are rounded
    assert report.total["size"] == sum(live[mark][0] for mark in MARKS)
    assert report.lost_events == 0


def check_silent(target):
    """Nobody listens: the semaphores are 0 again, once the kernel has removed the probes."""
    wait_until(lambda: account(target, b"look\n")[2] == (0, 0), "the semaphores are 0")


@pytest.mark.parametrize("backend", ("session", "multi", "perf"))
def test_weights(start, trace, producer, backend):
    target = start(producer, None)
    assert account(target)[1:] == (0, (0, 0))
    run = trace("-p", target.pid, "--layer", "native", "--backend", backend)
    for _ in range(3):
        live, samples, semaphores = account(target)
        assert semaphores == (1, 1)
    report = run.finish()
    assert samples > 50 and live["SMALL"][0] and live["LARGE"][0]
    check(report, live)
    assert report.data["self_sampled"] and report.data["mode"] == "exact"
    # Standard errors: a sample of n blocks knows the sum to about one part in the root of n.
    assert 0 < report.total["size_error"] < report.total["size"] / 4
    check_silent(target)


def test_no_trap_on_malloc(start, trace, producer, run_tracer):
    """The process's malloc is not probed, and the plan says so."""
    target = start(producer, None)
    plan = run_tracer("-p", target.pid, "--layer", "native", "--dry-run").stdout
    assert "the process samples itself: 2 probes of the provider otel_memory" in plan
    assert "otel_memory:mmap         not probed: this probe is not understood" in plan
    assert "libc.so" not in plan
    run = trace("-p", target.pid, "--layer", "native")
    assert "; 2 probes" in run.stderr
    wait_until(
        lambda: "otel_memory:mmap is not heard: this probe is not understood" in run.stderr,
        "it is told",
    )
    account(target)
    assert run.finish().line("otel_program.c", "PLAIN") == (0, 0)


def test_late_library(start, trace, consumer, sampler):
    """The library is opened while its process is traced by malloc: from then on the process speaks
    for itself, its malloc has no probe, and what was traced before is dropped."""
    target = start(consumer, None, sampler)
    run = trace("-p", target.pid, "--layer", "native")
    account(target)
    account(target, b"look\n")
    wait_until(
        lambda: "samples its native allocations itself from here on" in run.stderr,
        "the tracer has found the library",
    )
    for _ in range(3):
        live, samples, semaphores = account(target)
        assert semaphores == (1, 1)
    report = run.finish()
    assert samples > 20
    check(report, live)
    assert report.line("otel_program.c", "PLAIN") == (0, 0)
    assert 0 < report.data["self_sampled_ns"] < report.data["duration_ns"]
    check_silent(target)


def test_no_frame_pointer(start, trace, consumer, tmp_path):
    """A producer without frame pointers: its caller is known all the same."""
    path = library(tmp_path / "libplain.so", "-O2", "-fomit-frame-pointer", "-DOUTLINE")
    target = start(consumer, None, path)
    account(target)
    account(target)
    run = trace("-p", target.pid, "--layer", "native")
    before, _, _ = account(target, b"look\n")
    live, _, _ = account(target)
    report = run.finish()
    assert before["LARGE"] == (0, 0)
    check(report, live)


def test_preloaded(start, trace, tmp_path):
    """A library that replaces malloc: stacks begin with malloc's caller, not with the library."""
    shim = library(tmp_path / "libshim.so", "-DSHIM")
    path = compiled(tmp_path / "program", "otel_program.c", "-DPLAIN", "-lm")
    target = start(path, None, env=environment(LD_PRELOAD=shim))
    run = trace("-p", target.pid, "--layer", "native", "--nframe", "1")
    assert "its own samples, otel_memory in libshim.so" in run.stderr
    for _ in range(3):
        account(target)
    report = run.finish()
    size, count = report.line("otel_program.c", "CALL")
    assert size > 1000000 and count > 10
    assert not [file for file, _ in report.lines() if "otel_library" in file or "shim" in file]


def test_two_processes(start, trace, producer):
    first, second = start(producer, None), start(producer, None)
    silent = start(producer, None)
    run = trace("-p", "%d,%d" % (first.pid, second.pid), "--layer", "native", attached=2)
    for _ in range(2):
        live = [account(first), account(second)]
    # Another process of the same program is not listened to.
    account(silent)
    assert account(silent, b"look\n")[1] == 0
    report = run.finish()
    for mark in MARKS:
        assert report.line("otel_program.c", mark)[0] == sum(one[0][mark][0] for one in live)
    sizes = {p["pid"]: p["size"] for p in report.data["processes"]}
    for target, (said, _, _) in zip((first, second), live):
        assert sizes[target.pid] == sum(said[mark][0] for mark in MARKS)
    check_silent(first)
    check_silent(second)


def test_killed(start, trace, producer):
    """The kernel takes the semaphores back although nobody is left to ask it to."""
    target = start(producer, None)
    run = trace("-p", target.pid, "--layer", "native")
    assert account(target)[2] == (1, 1)
    run.process.send_signal(signal.SIGKILL)
    run.process.wait()
    check_silent(target)


def test_fork(start, trace, producer):
    """A child begins without its parent's samples, and its own count."""
    target = start(producer, None)
    run = trace("-p", target.pid, "--layer", "native")
    account(target)
    target.process.stdin.write(b"fork\n")
    target.process.stdin.flush()
    # The child's list has its parent's samples, too: what it frees of them is unknown here.
    target.expect()
    parent = target.expect()
    report = run.finish()
    processes = {p["pid"]: p for p in report.data["processes"]}
    assert processes[target.pid]["size"] == sum(parent[mark][0] for mark in MARKS)
    (child,) = [p for pid, p in processes.items() if pid != target.pid]
    assert 0 < child["size"] and child["inherited"]["size"] == 0


@pytest.mark.usefixtures("whole_machine")
def test_everywhere(trace, start, producer, tmp_path):
    """-a: a producer that runs, and one that begins later; another program is traced by malloc."""
    plain = compiled(tmp_path / "native", "native.c")
    target = start(producer, None)
    run = trace("-a", "--layer", "native", attached=False)
    wait_until(lambda: "tracing" in run.stderr or "attached" in run.stderr, "it traces")
    wait_until(lambda: account(target, b"look\n")[2] == (1, 1), "the semaphores are raised")
    late, other = start(producer, None), start(plain, None)
    wait_until(lambda: account(late, b"look\n")[2] == (1, 1), "its semaphores are raised")
    other.step()
    other.expect()
    for _ in range(2):
        live = {t.pid: account(t)[0] for t in (target, late)}
    report = run.finish()
    sizes = {p["pid"]: p for p in report.data["processes"]}
    for pid, said in live.items():
        assert sizes[pid]["size"] == sum(said[mark][0] for mark in MARKS)
        assert sizes[pid]["self_sampled"]
    assert sizes[other.pid]["size"] and "self_sampled" not in sizes[other.pid]
    check_silent(target)
    check_silent(late)


def test_snapshot(start, trace, producer, tracer, tmp_path):
    """The weights survive a file, and pprof understands them."""
    target = start(producer, None)
    capture = str(tmp_path / "capture")
    run = trace("-p", target.pid, "--layer", "native", "--capture", capture)
    live, samples, _ = account(target)
    report = run.finish()
    check(report, live)
    text = subprocess.run(
        [tracer, "report", run.snapshot], stdout=subprocess.PIPE, text=True, check=True
    ).stdout
    assert "sampled by the process itself" in text
    again = str(tmp_path / "again.pb.gz")
    subprocess.run([tracer, "export", run.snapshot, "--format", "pprof", "-o", again], check=True)
    assert read_report(tracer, again).data == report.data
    replayed = str(tmp_path / "replayed.pb.gz")
    subprocess.run([tracer, "replay", capture, "-o", replayed], check=True)
    check(read_report(tracer, replayed), live)
    dump = pprof("-raw", run.snapshot)
    counts = re.findall(r"self_sampled:\[(\d+)\]", dump)
    assert sum(map(int, counts)) == samples


SCRIPT = """
import sys
kept = []
print("ready", flush=True)
for line in sys.stdin:
    kept.extend(b"x" * 100001 for _ in range(200))  # line 6
    print("{}", flush=True)
"""


def test_python(start, trace, tmp_path):
    """Python's frames follow the native ones, and the Python layer is as exact as ever."""
    shim = library(tmp_path / "libshim.so", "-DSHIM")
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    target = start("/usr/bin/python3", str(script), env=environment(LD_PRELOAD=shim))
    run = trace("-p", target.pid, "--layer", "all", "-m", "exact")
    target.step()
    target.expect()
    report = run.finish()
    size, count = report.lines()[(str(script), 6)]
    assert count >= 200 and size >= 200 * 100034
    assert report.total.get("size_error", 0) == 0
    native = report.data["native"]
    assert native["total"]["size_error"] > 0
    # 200 blocks of which each is sampled with p = 0.78
    blocks = run.report("--layer", "native", "--group-by", "traceback").statistics
    ours = [s for s in blocks if (str(script), 6) in frames(s)]
    assert abs(sum(s["size"] for s in ours) - 200 * 100034) < 5 * native["total"]["size_error"]
    run = trace("-p", target.pid, "--layer", "native")
    target.step()
    target.expect()
    blocks = run.finish("--group-by", "traceback").statistics
    ours = [frames(s) for s in blocks if (str(script), 6) in frames(s)]
    assert ours and not [f for one in ours for f, _ in one if "otel_library" in f]


def frames(entry):
    return [(frame["filename"], frame["lineno"]) for frame in entry["traceback"]]
