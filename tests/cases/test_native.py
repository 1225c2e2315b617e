# SPDX-License-Identifier: Apache-2.0
"""Memory that C, C++ and the kernel hold: native layer, mappings, what RSS consists of."""
import importlib.util
import os
import re
import shutil
import subprocess

import pytest

import pythons
from test_traces import nodes

MIB = 1 << 20


def needs(tool):
    return shutil.which(tool) or pytest.skip("this machine has no " + tool)


def copied(case, *names):
    """The files of the situation in a folder of the test, for what is compiled there."""
    for name in names:
        shutil.copy(case.path(name), str(case.tmp))
    return str(case.tmp)


def compile_in(folder, *command):
    done = subprocess.run(command, cwd=folder, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 0, done.stderr


def native(case, run, pattern):
    """(bytes, blocks) of the native tracebacks that match, and those tracebacks."""
    rows = [
        row for row in case.tracebacks(run, "--layer", "native") if re.search(pattern, row[1], re.M)
    ]
    return (sum(pair[0] for pair, _ in rows), sum(pair[1] for pair, _ in rows)), rows


def has_line(rows, name, number):
    return all(re.search(r"/%s:%d\b" % (name, number), text) for _, text in rows)


def traced(case, program):
    """T --layer all -p PID -n 20, until the program is done."""
    case.trace(program, "--layer", "all", "-n", 20, report=("--layer", "native"))
    return case._started[-1]


def named(tree, *parts):
    return [n for n in nodes(tree) if all(part in n["name"] for part in parts)]


@pytest.mark.parametrize("flags", [["-g"], [], ["-s"]])
def test_21_cpp_vector(case, flags):
    needs("g++")
    folder = copied(case, "cloud.cpp", "clouds.py")
    compile_in(folder, "g++", "-O2", *flags, "-shared", "-fPIC", "-o", "libcloud.so", "cloud.cpp")
    program = case.start(pythons.DISTRIBUTION, folder + "/clouds.py", python=None)
    came, rows = native(case, traced(case, program), r"\bcloud_new\b")
    case.expect("cloud_new", came, (16_004_800, 400))
    case.expect("clouds.py:18 below", has_line(rows, "clouds.py", 18), True)
    tree = case.ask("memory", "-p", program.pid)
    blocks = sum(n["size"] for n in named(tree, "other blocks"))
    case.expect("memory, other blocks", blocks, lambda n: 15 * MIB <= n <= 20 * MIB)


def test_38_cython_module(case):
    needs("cython3")
    folder = copied(case, "build.sh", "keeper.pyx", "use.py")
    compile_in(folder, "sh", "build.sh")
    program = case.start(pythons.DISTRIBUTION, folder + "/use.py", python=None)
    run = traced(case, program)
    use, report = folder + "/use.py", run.report("--layer", "python")
    # As tracemalloc has it: with the items of the list, of which Cython code has no line.
    case.expect("use.py:12", case.line(report, use, 12), (1_520_660, 501))
    case.expect("use.py:13", case.line(report, use, 13)[1], lambda n: n <= 1)
    came, rows = native(case, run, r"__pyx_tp_new_6keeper_Buffer|__cinit__")
    case.expect("Buffer", came, (5_000_000, 500))
    case.expect("use.py:13 below", has_line(rows, "use.py", 13), True)
    paths, _ = case.why(program, "bytes")
    held = sum(n for n, text in paths if "sys.modules['keeper'].KEEP[" in text)
    case.expect("why bytes %s" % paths[:2], held, 500)


@pytest.mark.parametrize("mode", ["new", "same"])
def test_39_lxml_names(case, mode):
    if not importlib.util.find_spec("lxml"):
        pytest.skip("no lxml (python3-lxml)")
    program = case.start("feeds.py", mode)
    came, rows = native(case, traced(case, program), r"\bxmlDict")
    if mode == "same":
        case.expect("xmlDict…", came[0], lambda n: n < 64 << 10)
        return
    case.expect("xmlDict…", came[0], lambda n: 2_000_000 <= n <= 4_000_000)
    case.expect("feeds.py:19 below", has_line(rows, "feeds.py", 19), True)


@pytest.mark.long  # each allocation of 40 parsers of certificates, with its native stack
@pytest.mark.parametrize("mode", ["keep", "drop"])
def test_47_ssl_contexts(case, mode):
    if not os.path.exists("/etc/ssl/certs/ca-certificates.crt"):
        pytest.skip("no ca-certificates")
    program = case.start("contexts.py", *([] if mode == "keep" else ["drop"]))
    run = traced(case, program)
    (size, _), rows = native(case, run, r"/contexts.py:16\b")
    if mode == "drop":
        case.expect("contexts.py:16", size, lambda n: n <= 1_500_000)
        return
    case.expect("contexts.py:16", size, lambda n: 40 * 200_000 <= n <= 40 * 1_200_000)
    named_ones = [text for _, text in rows if re.search(r"\b(X509|PEM)_", text)]
    case.expect("tracebacks with names of libcrypto", len(named_ones), lambda n: n > 0)
    # ssl.py makes the object: the application's line is below it.
    python = run.report("--layer", "python", "--app")
    case.expect("contexts.py:15", case.line(python, "contexts.py", 15), lambda v: 40 <= v[1] <= 200)
    paths, _ = case.why(program, "SSLContext")
    held = sum(n for n, text in paths if re.search(r"CLIENTS\[|\.one\b", text))
    case.expect("why SSLContext %s" % paths[:2], held, 40)


LEAKS = {
    "foo": (500_000, 5000), "bar": (400_000, 1000), "baz": (4_096_000, 1000),
    "grow": (1_024_000, 1000), "text": (133_500, 2000), "make": (224_000, 2000),
}


@pytest.mark.parametrize("build", ["plain", "debug", "static", "stripped"])
def test_48_cpp_no_frame_pointers(case, build):
    needs("g++")
    folder = copied(case, "leaks.cpp")
    flags = {"debug": ["-g"], "static": ["-static"], "stripped": ["-s"]}.get(build, [])
    compile_in(folder, "g++", "-O2", "-fomit-frame-pointer", *flags, "-o", "leaks", "leaks.cpp")
    # A program without Python has no end of WAIT but time.
    program = case.start(folder + "/leaks", python=None, env={"WAIT": "12"})
    report = case.trace(program)
    rows = case.tracebacks(case._started[-1])
    case.expect("total", (report.total["size"], report.total["count"]), (6_377_500, 12_000))
    if build == "stripped":
        case.expect("figures", sorted(pair for pair, _ in rows), lambda came: all(
            LEAKS[name] in came for name in ("foo", "bar", "baz", "grow")))
        return
    came = {}
    for (size, count), text in rows:
        # foo and bar end in a jump to the allocator: there is no frame of theirs.
        name = (re.findall(r"\b(baz|grow|text|make)\b", text) or ["their caller"])[0]
        came[name] = (came.get(name, (0, 0))[0] + size, came.get(name, (0, 0))[1] + count)
        case.expect("below " + name, text, lambda t: re.search(r"\bmain\b", t))
    framed = {name: LEAKS[name] for name in ("baz", "grow", "text", "make")}
    case.expect("functions", came, {**framed, "their caller": (900_000, 6000)})


def test_17_pandas_subset(case):
    if not importlib.util.find_spec("pandas"):
        pytest.skip("no pandas (python3-pandas)")
    program = case.start("subset.py")
    report = case.trace(program)
    case.expect("subset.py:15", case.line(report, "subset.py", 15), (195_000, 3000))
    tree = case.ask("memory", "-p", program.pid)
    free = sum(n["size"] for n in named(tree, "free blocks in pools in use"))
    case.expect("free blocks in pools in use", free, lambda n: 16_000_000 <= n <= 26_000_000)
    kept = [t["type_name"] for t in tree.get("sparse", {}).get("types", [])]
    case.expect("sparse arenas are kept by", kept[:2], lambda names: "str" in str(names))


@pytest.mark.parametrize("arenas", [None, 1])
def test_18_malloc_arenas(case, arenas):
    program = case.start("arenas.py", env={"MALLOC_ARENA_MAX": str(arenas)} if arenas else {})
    report = case.trace(program)
    case.expect("arenas.py:18", case.line(report, "arenas.py", 18), (1_941_120, 640))
    tree = case.ask("memory", "-p", program.pid)
    used = [a for a in tree["arenas"] if a["system"] > MIB]
    bins = sum(a["bins"] for a in tree["arenas"])
    if arenas:
        case.expect("arenas", len(used), 1)
        return
    wanted = 8 * os.cpu_count()
    case.expect("arenas", len(used), lambda n: wanted - 1 <= n <= wanted)
    case.expect("bins", bins, lambda n: 80_000_000 <= n <= 110_000_000)
    trimmable = max(n.get("trimmable", 0) for n in nodes(tree))
    case.expect("malloc_trim would return", trimmable, lambda n: n >= 0.8 * bins)


def test_19_pymalloc_scattered(case):
    program = case.start("scattered.py")
    report = case.trace(program)
    case.expect("scattered.py:20", case.line(report, "scattered.py", 20), (224_000, 4000))
    tree = case.ask("memory", "-p", program.pid)
    free = sum(n["size"] for n in named(tree, "free blocks in pools in use"))
    case.expect("free blocks in pools in use", free, lambda n: 21_000_000 <= n <= 27_000_000)
    sparse = tree.get("sparse", {})
    case.expect("sparse arenas", sparse.get("arenas"), lambda n: n and 22 <= n <= 27)
    counts = {t["type_name"]: t["count"] for t in sparse.get("types", [])}
    case.expect("kept by", counts.get("__main__.Session"), lambda n: n and 3800 <= n <= 4000)


MAPPED = {"file": ("files", 64, 28, 1), "shared": ("shared memory", 32, 34, 32),
          "anonymous": ("shared memory", 32, 41, 1)}


@pytest.mark.parametrize("mode", list(MAPPED))
def test_25_mapped_memory(case, mode):
    node, mib, line, count = MAPPED[mode]
    shutil.copy(case.path("mapped.py"), str(case.tmp))  # it writes beside itself
    path = str(case.tmp / "mapped.py")
    program = case.start(pythons.DISTRIBUTION, path, mode, python=None)
    report = case.trace(program, "--layer", "mmap", report=("--app",))
    case.expect("mapped.py:%d" % line, case.line(report, path, line), (mib * MIB, count))
    tree = case.ask("memory", "-p", program.pid)
    if mode == "file":
        mapped = [n["size"] for n in named(tree, "(deleted)")]
        case.expect("files: …(deleted)", mapped, lambda sizes: 64 * MIB in sizes)
        return
    (shared,) = named(tree, node)[:1] or [{"size": 0}]
    case.expect(node, shared["size"], 32 * MIB)
