# SPDX-License-Identifier: Apache-2.0
"""Probe placement for malloc and related functions in real programs with real allocators: --dry-run
on processes without Python."""
import glob
import re
import shutil
import subprocess

import pytest

from harness import Target, Traced, environment, error_line, program

C = """
#include <stdlib.h>
#include <stdio.h>
#include <malloc.h>
void *pool_get(void *pool, unsigned long bytes) { (void)pool; return malloc(bytes); }
int main(void)
{
	void *volatile blocks[4] = {malloc(10), calloc(3, 4), memalign(64, 100), realloc(malloc(1), 8)};
	void *aligned = NULL;

	if (posix_memalign(&aligned, 64, 100))
		return 1;
	free(aligned);
	puts("ready");
	fflush(stdout);
	getchar();
	for (int i = 0; i < 4; i++)
		free(blocks[i]);
	return 0;
}
"""
CXX = """
#include <cstdio>
#include <new>
struct alignas(64) wide { char bytes[64]; };
int main()
{
	int *volatile a = new int[10], *volatile b = new (std::nothrow) int;
	wide *volatile c = new wide;

	puts("ready");
	fflush(stdout);
	getchar();
	delete[] a;
	delete b;
	delete c;
	return 0;
}
"""
RUST = """
fn main() {
    let kept: Vec<u64> = (0..1000).collect();
    println!("ready");
    std::io::stdin().read_line(&mut String::new()).unwrap();
    drop(kept);
}
"""
MALLOCS = {"malloc", "calloc", "realloc", "free", "posix_memalign"}
NEWS = {"_Znwm", "_ZnwmSt11align_val_t"}


def lacking(what):
    pytest.skip("this machine has no " + what)


def tool(name):
    return shutil.which(name) or lacking(name)


def library(name):
    found = sorted(glob.glob("/usr/lib/*/" + name))
    return found[0] if found else lacking(name)


@pytest.fixture
def build(tmp_path):
    def run(compiler, text, suffix, *options):
        source = tmp_path / ("program" + suffix)
        source.write_text(text)
        subprocess.run([tool(compiler), *options, "-o", tmp_path / "program", source], check=True)
        return str(tmp_path / "program")

    return run


@pytest.fixture
def plan(run_tracer):
    """Starts a program and plans its trace: {file: {symbol: [line, ...]}}."""
    processes = []

    def run(*command, options=(), preload=None, said=b"ready"):
        env = environment(**({"LD_PRELOAD": preload} if preload else {}))
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env)
        processes.append(process)
        while said not in (line := process.stdout.readline()):
            assert line, "it ended"
        done = run_tracer("--dry-run", *options, "-p", process.pid)
        assert done.returncode == 0 and done.stderr == "", done.stderr
        files, lines = {}, done.stdout.splitlines()
        (head,) = [
            i
            for i, line in enumerate(lines)
            if re.match(r"PID %d: allocators in \d+ files?$" % process.pid, line)
        ]
        for line in lines[head + 1 :]:
            if line.startswith("  "):
                symbols.setdefault(line.split()[0], []).append(line)
            else:
                symbols = files.setdefault(re.sub(r" \(build id .*", "", line), {})
        return files

    yield run
    for process in processes:
        process.kill()
        process.wait()
        process.stdin.close()
        process.stdout.close()


def named(files, part):
    (symbols,) = [symbols for path, symbols in files.items() if part in path]
    return symbols


def expect_emulated(symbols, wanted):
    """Each function is probed at an instruction that costs one trap. Functions that may throw have
    no return probe."""
    assert wanted <= set(symbols)
    for symbol in wanted:
        assert " is emulated" in symbols[symbol][0], symbols[symbol]
        assert all("it may throw" in line for line in symbols[symbol][1:])


def test_glibc(build, plan):
    files = plan(build("gcc", C, ".c"))
    expect_emulated(named(files, "/libc.so.6"), MALLOCS | {"aligned_alloc"})


def test_libstdcxx(build, plan):
    """operator delete only jumps to free, so it has no probe. operator new may throw, so it has no
    return probe."""
    symbols = named(plan(build("g++", CXX, ".cc", "-std=c++17")), "/libstdc++.so")
    expect_emulated(symbols, NEWS)
    assert not [symbol for symbol in symbols if symbol.startswith("_Zd")]
    assert all("no return" in symbols[symbol][0] for symbol in NEWS)


def test_static_glibc(build, plan):
    path = build("gcc", C, ".c", "-static")
    files = plan(path)
    assert list(files) == [path]
    expect_emulated(files[path], MALLOCS)


def test_static_musl(build, plan):
    """free and realloc jump to the functions that the library itself calls."""
    path = build("musl-gcc", C, ".c", "-static")
    expect_emulated(
        plan(path)[path], {"malloc", "calloc", "posix_memalign", "__libc_free", "__libc_realloc"}
    )


def test_stripped_static_musl(build, run_tracer):
    path = build("musl-gcc", C, ".c", "-static", "-s")
    process = subprocess.Popen([path], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    process.stdout.readline()
    done = run_tracer("--dry-run", "-p", process.pid)
    process.communicate(b"\n")
    assert "linked statically and stripped" in error_line(done, 1)


@pytest.mark.parametrize(
    "name, mallocs, others",
    [
        (
            "libjemalloc.so.2",
            MALLOCS,
            NEWS | {"mallocx", "rallocx", "xallocx", "dallocx", "sdallocx", "_ZdlPvm"},
        ),
        ("libtcmalloc_minimal.so.4", MALLOCS, NEWS | {"_ZdlPvm"}),
        (
            "libmimalloc.so.2*",
            {"malloc", "calloc", "free"},
            NEWS | {"mi_heap_realloc", "mi_posix_memalign"},
        ),
    ],
)
def test_preloaded(build, plan, name, mallocs, others):
    preload = library(name)
    files = plan(build("g++", CXX, ".cc", "-std=c++17"), preload=preload)
    expect_emulated(named(files, name.split(".so")[0]), mallocs | others)
    named(files, "/libc.so.6")


def test_rust(build, plan):
    files = plan(build("rustc", RUST, ".rs", "-O"))
    expect_emulated(named(files, "/libc.so.6"), MALLOCS)


def test_node(plan):
    files = plan(tool("node"), "-e", "console.log('ready'); setInterval(() => {}, 1000)")
    expect_emulated(named(files, "/libc.so.6"), MALLOCS)


def test_redis(plan, tmp_path):
    files = plan(
        tool("redis-server"),
        "--port",
        "0",
        "--unixsocket",
        str(tmp_path / "socket"),
        "--save",
        "",
        "--dir",
        str(tmp_path),
        said=b"ready to accept",
    )
    expect_emulated(named(files, "jemalloc"), MALLOCS)


def test_deleted(build, plan, tmp_path):
    """The plan refers to the mapped file, which has been deleted."""
    path = tmp_path / "gone.so"
    shutil.copy(library("libjemalloc.so.2"), path)
    program = build(
        "gcc",
        C.replace('puts("ready")', 'unlink("%s"), puts("ready")' % path).replace(
            "#include <stdio.h>", "#include <stdio.h>\n#include <unistd.h>"
        ),
        ".c",
    )
    files = plan(program, preload=str(path))
    assert not path.exists()
    expect_emulated(named(files, "gone.so (deleted)"), MALLOCS)


def test_users_function(build, plan):
    path = build("gcc", C, ".c", "-rdynamic", "-O2", "-fno-optimize-sibling-calls")
    files = plan(
        path,
        options=(
            "--alloc",
            "program:pool_get:malloc:size=2",
            "--alloc",
            "libc.so*:strdup:malloc:return-probe",
        ),
    )
    assert "pool_get" in files[path] and "strdup" in named(files, "/libc.so.6")


@pytest.mark.parametrize(
    "option, why",
    [
        ("program:pool_none:malloc", "the targets' program has no function pool_none"),
        (
            "libnone.so:pool_get:malloc",
            "no target has mapped a file libnone.so with a function pool_get",
        ),
        (
            "libc.so*:swapcontext:malloc",
            "swapcontext of libc.so* is not probed: it leaves its stack (swapcontext)",
        ),
    ],
)
@pytest.mark.parametrize("words", [["--dry-run"], ["-d", "1", "-q"]])
def test_users_function_is_not_there(build, run_tracer, option, why, words):
    process = subprocess.Popen(
        [build("gcc", C, ".c")], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    process.stdout.readline()
    done = run_tracer(*words, "--alloc", option, "-p", process.pid)
    process.communicate(b"\n")
    assert why in error_line(done, 1)


@pytest.mark.parametrize(
    "name, backend",
    [
        (None, "session"),
        ("libjemalloc.so.2", "session"),
        ("libjemalloc.so.2", "multi"),
        ("libjemalloc.so.2", "perf"),
        ("libtcmalloc_minimal.so.4", "session"),
        ("libmimalloc.so.2*", "session"),
    ],
)
def test_live_bytes(tracer, build, tmp_path, name, backend):
    """Every function is called at least once, including those that throw. The live bytes are
    exact."""
    with open(program("allocators.cc")) as source:
        path = build("g++", source.read(), ".cc", "-std=c++17", "-O2")
    env = environment(**({"LD_PRELOAD": library(name)} if name else {}))
    expect_kept(
        tracer,
        tmp_path,
        backend,
        path,
        "nofail" if name and "mimalloc" in name else "fail",
        env=env,
    )


@pytest.mark.parametrize(
    "compiler, options", [("gcc", ["-static"]), ("musl-gcc", ["-static"]), ("musl-gcc", [])]
)
def test_live_bytes_of_a_c_library(tracer, build, tmp_path, compiler, options):
    with open(program("allocators.c")) as source:
        path = build(compiler, source.read(), ".c", "-O2", *options)
    expect_kept(tracer, tmp_path, "session", path, "")


def expect_kept(tracer, tmp_path, backend, path, argument, env=None):
    with Target(path, argument, env=env) as target:
        with Traced(tracer, tmp_path, "-p", target.pid, "--backend", backend) as run:
            target.step()
            kept = target.expect()["kept"]
            report = run.finish()
        assert (report.total["size"], report.total["count"]) == kept
        assert report.lost_events == 0
        target.step()
        assert target.process.wait() == 0


@pytest.mark.unprivileged
def test_option_needs_its_layer(run_tracer):
    done = run_tracer("--layer", "python", "--alloc", "file:symbol:malloc", "-p", "1")
    assert "native layer" in error_line(done, 2)


@pytest.mark.unprivileged
@pytest.mark.parametrize(
    "option", ["", "file", "file:symbol", "file:symbol:new", "file:symbol:free:size=1"]
)
def test_option_is_wrong(run_tracer, option):
    assert "FILE:SYMBOL:KIND" in error_line(
        run_tracer("--dry-run", "--alloc", option, "-p", "1"), 2
    )
