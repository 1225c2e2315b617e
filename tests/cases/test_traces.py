# SPDX-License-Identifier: Apache-2.0
"""Lines of Python in every situation in which a profiler may go wrong: other allocators, short
peaks, many threads, signals, ended processes."""
import os
import re
import shutil
import subprocess
import time

import pytest

import harness
import pythons

LIB = "/usr/lib/x86_64-linux-gnu/"
SMALL, LARGE = (2_660_000, 20_000), (10_066_000, 2000)

ALLOCATORS = {
    "plain": ((), {}),
    "malloc": ((), {"PYTHONMALLOC": "malloc"}),
    "debug": ((), {"PYTHONMALLOC": "debug"}),
    "malloc_debug": ((), {"PYTHONMALLOC": "malloc_debug"}),
    "dev": (("-X", "dev"), {}),
    "optimized": (("-OO",), {}),
    "tracemalloc": ((), {"PYTHONTRACEMALLOC": "10"}),
    "perturb": ((), {"MALLOC_PERTURB_": "165"}),
    "one_arena": ((), {"MALLOC_ARENA_MAX": "1"}),
    "hugepages": ((), {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}),
    "jemalloc": ((), {"LD_PRELOAD": LIB + "libjemalloc.so.2"}),
    "tcmalloc": ((), {"LD_PRELOAD": LIB + "libtcmalloc_minimal.so.4"}),
    "mimalloc": ((), {"LD_PRELOAD": LIB + "libmimalloc.so.2.0"}),
    "malloc_jemalloc": ((), {"LD_PRELOAD": LIB + "libjemalloc.so.2", "PYTHONMALLOC": "malloc"}),
    "malloc_tcmalloc": (
        (),
        {"LD_PRELOAD": LIB + "libtcmalloc_minimal.so.4", "PYTHONMALLOC": "malloc"},
    ),
    "malloc_mimalloc": ((), {"LD_PRELOAD": LIB + "libmimalloc.so.2.0", "PYTHONMALLOC": "malloc"}),
}


@pytest.mark.parametrize("setting", list(ALLOCATORS))
def test_20_every_allocator(case, setting):
    flags, env = ALLOCATORS[setting]
    if "LD_PRELOAD" in env and not os.path.exists(env["LD_PRELOAD"]):
        pytest.skip("no " + env["LD_PRELOAD"])
    leak = case.path("leak.py")
    program = case.start(pythons.DISTRIBUTION, *flags, leak, python=None, env=env)
    report = case.trace(program)
    case.expect("leak.py:16", case.line(report, leak, 16), SMALL)
    case.expect("leak.py:18", case.line(report, leak, 18), LARGE)


def near(size, blocks):
    """A few small objects more or less."""
    return lambda came: abs(came[0] - size) < 500 and abs(came[1] - blocks) <= 5


def test_27_peak_spikes(case):
    program = case.start("spikes.py")
    run = case.attach("-m", "exact", "-p", program.pid)
    program.go()
    report = run.finish()
    mine = {k: v for k, v in report.lines().items() if k[0] == case.path("spikes.py")}
    case.expect("at the end", sum(size for size, _ in mine.values()), lambda n: n < 1000)
    peak = run.report("--at-peak")
    # A list's head of 56 bytes may come from a free list, as one that is older than the trace.
    case.expect("peak, spikes.py:16", case.line(peak, "spikes.py", 16), near(40_000_056, 2))
    case.expect("peak, spikes.py:11", case.line(peak, "spikes.py", 11), near(20_000_056, 2))
    case.expect("peak", peak.total["size"], lambda n: abs(n - 60_000_112) < 4096)
    rows = run.report("--sort", "allocated").statistics
    came = {
        r["traceback"][0]["lineno"]: (r["allocated_size"], r["allocated_count"])
        for r in rows if r["traceback"][0]["filename"] == case.path("spikes.py")
    }
    case.expect("allocated, spikes.py:16", came.get(16), near(200_000_280, 10))
    case.expect("allocated, spikes.py:11", came.get(11), near(20_000_056, 2))


def test_28_small_and_large(case):
    program = case.start("both.py")
    case.trace(program, "-n", 10)
    came = {}
    for (size, count), text in case.tracebacks(case._started[-1]):
        if "both.py:13 in allocate" in text.splitlines()[0]:
            caller = re.search(r" in (small|large)$", text, re.M)[1]
            came[caller] = tuple(map(sum, zip(came.get(caller, (0, 0)), (size, count))))
    # As tracemalloc has it: nine lists come from the free list.
    wanted = {"small": (12_779_016, 81_911), "large": (10_486_040, 10)}
    case.expect("both.py:13 by caller", came, wanted)


BUILT = {
    "app.pyz": ((), "out/app.pyz", "{}/out/app.pyz/store/__init__.py"),
    "bare": ((), "out/bare", "out/bare/store/__init__.py"),
    "opt": (("-OO",), "out/opt", "out/src/store/__init__.py"),
    "bare.pyz": ((), "out/bare.pyz", "out/bare/store/__init__.py"),
}


@pytest.mark.parametrize("built", list(BUILT))
def test_37_zipapp_pyc(case, built):
    folder = str(case.tmp)
    subprocess.run(["cp", case.path("build.sh"), folder], check=True)
    subprocess.run(["sh", folder + "/build.sh"], check=True, stdout=subprocess.DEVNULL)
    flags, path, name = BUILT[built]
    program = case.start(
        pythons.DISTRIBUTION, *flags, os.path.join(folder, path), python=None, cwd=folder
    )
    report = case.trace(program)
    name = name.format(folder)
    stored = [(k, v) for k, v in report.lines().items() if "store/__init__" in k[0]]
    line6 = [(k, v) for k, v in stored if k[1] == 6]
    case.expect("%s:6" % name, line6, lambda rows: len(rows) == 1 and rows[0][0][0].endswith(name)
                and rows[0][1] == (1_533_000, 1000))
    snapshot = case._started[-1].snapshot
    text = case.run("report", snapshot, "--source", "--include", "*/store/__init__.pyc")
    case.expect("*.pyc as *.py, with its size", text, lambda t: "1.46 MiB" in t or "1497 KiB" in t)
    if not os.path.exists(os.path.join(folder, name)):
        case.expect("no source line", text, lambda t: "X * 1500" not in t)


def test_41_many_threads(case):
    program = case.start("threads.py")
    report = case.trace(program)
    case.expect("threads.py:25", case.line(report, "threads.py", 25), (733_000, 1000))
    rows = case.ask("report", case._started[-1].snapshot, "--by", "thread",
                    "--include", "*/threads.py:25")["statistics"]
    case.expect("threads of threads.py:25", len(rows), 1)
    paths, _ = case.why(program, "bytes")
    case.expect("by frames %s" % paths[:2], count_of(paths, r"frame local\b"), 2000)
    case.expect("by KEEP", count_of(paths, r"KEEP\["), 1000)
    tree = case.ask("memory", "-p", program.pid)
    stacks = [n for n in nodes(tree) if "other threads" in n["name"]]
    case.expect("stacks of other threads", [n.get("count") for n in stacks], [2001])
    case.expect("virtual", [n.get("virtual", 0) >> 20 for n in stacks],
                lambda came: came and 490 <= came[0] <= 530)
    resident = sum(n["size"] for n in stacks)
    case.expect("resident", resident, lambda n: n <= 2001 * 40960)


def count_of(paths, word):
    return sum(n for n, text in paths if re.search(word, text))


def nodes(tree):
    yield tree
    for child in tree["children"]:
        yield from nodes(child)


@pytest.mark.parametrize("mode", ["census", "exact"])
def test_51_signal_handler(case, mode):
    program = case.start("ticks.py")
    run = case.attach("-m", mode, "-n", 16, "-p", program.pid)
    said = program.go()
    report = run.finish()
    case.expect("ticks", int(said.split()[1]), 1000)
    case.expect("ticks.py:15", case.line(report, "ticks.py", 15), (333_000, 1000))
    texts = [text for _, text in case.tracebacks(run, "--include", "*/ticks.py:15")]
    whole = r"in tick\n\S+ in (busy|<lambda>|<listcomp>|<module>)"
    alien = [text for text in texts if not re.search(whole, text)]
    case.expect("tracebacks", alien, [])


def test_01_fork_cow(case):
    program = case.start("cow.py")
    workers = {}
    while len(workers) < 3:
        words = program.line("pid").split()
        workers[words[3]] = int(words[1])
    pids = ",".join(map(str, [program.pid, *workers.values()]))
    run = case.attach("-p", pids, attached=4)
    program.process.stdin.close()
    for _ in range(3):
        assert " done:" in program.read_line()
    run.finish()
    rows = case.ask("report", run.snapshot, "--no-inherited")["statistics"]
    cow = {r["traceback"][0]["lineno"]: r["size"] for r in rows
           if r["traceback"][0]["filename"] == case.path("cow.py")}
    case.expect("--no-inherited", cow, lambda lines: all(n < 16384 for n in lines.values()))
    answer = case.ask("heap", "-p", workers["reads"])["statistics"]
    came = [(r["count"], r["size"]) for r in answer if r["type_name"] == "__main__.Row"]
    # A block of 64 bytes each, as in situation 43; 56 of them are the object and its head.
    case.expect("Row", came, [(200_000, 200_000 * 64)])
    tree = case.ask("memory", "-p", workers["idle"])
    case.expect("memory tells private from shared in Python's heap", str(tree),
                lambda text: re.search("shared", text))
    for pid in workers.values():
        os.kill(pid, 9)


def test_03_celery_prefork(case):
    celery = os.path.exists("/usr/lib/python3/dist-packages/celery")
    if not celery:
        pytest.skip("no celery (python3-celery)")
    folder = str(case.tmp / "broker")
    env = harness.environment(BROKER_FOLDER=folder)
    worker = subprocess.Popen(
        [pythons.DISTRIBUTION, "-m", "celery", "-A", "tasks", "worker", "-P", "prefork", "-c", "2",
         "-l", "ERROR"],
        cwd=case.folder, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )
    try:
        def children():
            with open("/proc/%d/task/%d/children" % (worker.pid, worker.pid)) as file:
                found = file.read().split()
                return found if len(found) == 2 else None
        pool = harness.wait_until(children, "the pool has two children")
        # A trace of the main process alone names them: "-p 1,2 reads them, too".
        run = case.attach("-n", 40, "-p", ",".join([str(worker.pid), *pool]), attached=3)
        send = [pythons.DISTRIBUTION, "send.py", "400"]
        subprocess.run(send, cwd=case.folder, env=env, check=True, stdout=subprocess.DEVNULL)
        queue = os.path.join(folder, "queue")
        harness.wait_until(lambda: not os.listdir(queue), "all tasks are taken")
        time.sleep(2)  # each child finishes the tasks that it has fetched
        report = run.finish()
        case.expect("tasks.py:25", case.line(report, "tasks.py", 25), (4_013_400, 400))
        rows = case.ask("report", run.snapshot, "--by", "process", "--include", "*/tasks.py:25")
        holders = [row for row in rows["statistics"] if row["count"]]
        case.expect("processes", len(holders), 2)
    finally:
        worker.kill()
        worker.wait()


def test_15_ipython_out(case):
    pytest.importorskip("IPython")
    program = case.start("cells.py", env={"HOME": str(case.tmp)})
    report = case.trace(program)
    cells = {k: v for k, v in report.lines().items() if "ipython-input-1-" in k[0]}
    case.expect("self.data = %s" % cells, [v for k, v in cells.items() if k[1] in (3, 4)],
                [(20_000_660, 20)])
    paths, _ = case.why(program, "Frame")
    case.expect("why Frame %s" % paths[:3], sum(n for n, _ in paths), 20)
    names = r"'(Out|_oh|_\d*)'|Out|_oh|\._+\d*(?!\w)"
    case.expect("through Out %s" % paths[:3], count_of(paths, names), 20)


@pytest.mark.parametrize("layer", ["jobs", pytest.param("spawner", marks=pytest.mark.long)])
def test_42_short_lived(case, layer):
    if layer == "jobs":
        run = case.attach("--format", "json", "--", "sh", case.path("jobs.sh"), 200, attached=False)
        assert run.wait() == 0, run.stderr
        case.expect("ran", run.stdout, lambda text: "ran 200" in text)
        case.expect("children: %s" % run.stderr[-400:], accounted(case, run), 200)
        return
    # Its own file: probes are placed in files that only traced processes map, and the runner of
    # these tests maps the distribution's Python.
    own = shutil.copy(os.path.realpath(pythons.DISTRIBUTION), str(case.tmp / "python3"))
    program = case.start("spawner.py", python=own)
    report = case.trace(program)
    _, blocks = case.line(report, "spawner.py", 17)
    case.expect("spawner.py:17, forked", blocks, lambda n: n >= 15_000)
    run = case._started[-1]
    children = accounted(case, run) - 1
    case.expect("children: %s" % run.stderr[-400:], children, lambda n: n >= 150)


def accounted(case, run):
    """Processes that were traced, or are told as ended before they were examined, or as refused:
    what is about to end is no interpreter any more."""
    missed = sum(map(int, re.findall(r"(\d+) of the programs [^\n]* ended before", run.stderr)))
    missed += len(re.findall(r"^tracer: PID \d+ is not traced: ", run.stderr, re.M))
    if not os.path.exists(run.snapshot):
        return missed
    return missed + len(case.ask("report", run.snapshot, "--by", "process")["statistics"])
