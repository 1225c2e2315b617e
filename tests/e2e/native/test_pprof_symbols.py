# SPDX-License-Identifier: Apache-2.0
"""A profile of a stripped program has what a reader needs to find its functions: the binary's build
ID, and addresses that are the file's own."""
import os
import re
import shutil
import subprocess

import pytest

from harness import TIMEOUT, compiled, marked_line, native_snapshot, pprof, program, read_report
from truth import tool

NAME = "inlined.c"
LINES = ["inner", "middle", "outer", "main"]
# With it a pprof that knows build IDs, unlike the one of `go tool`.
DRIVER = """package main

import (
	"fmt"
	"os"

	"github.com/google/pprof/driver"
)

func main() {
	if err := driver.PProf(&driver.Options{}); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
}
"""


@pytest.fixture(scope="module")
def google_pprof(tmp_path_factory):
    """github.com/google/pprof, of the sources that come with Go."""
    if not shutil.which("go"):
        pytest.skip("go is not installed")
    folder = tmp_path_factory.mktemp("go")
    root = subprocess.run(["go", "env", "GOROOT"], stdout=subprocess.PIPE, text=True, check=True)
    source = folder / "src" / "pprof"
    source.mkdir(parents=True)
    (source / "vendor").symlink_to(os.path.join(root.stdout.strip(), "src/cmd/vendor"))
    (source / "main.go").write_text(DRIVER)
    env = dict(os.environ, GOPATH=str(folder), GO111MODULE="off", GOFLAGS="")
    env.setdefault("GOCACHE", str(folder / "cache"))
    built = str(folder / "pprof")
    done = subprocess.run(
        ["go", "build", "-o", built, "pprof"], env=env, stderr=subprocess.PIPE, text=True
    )
    assert done.returncode == 0, done.stderr
    return built


def build_id(path):
    notes = subprocess.run(
        [tool("readelf"), "-n", path], stdout=subprocess.PIPE, text=True, check=True
    ).stdout
    return re.search(r"Build ID: (\w+)", notes)[1]


# Where a file's own addresses are its offsets, and where they are not.
@pytest.fixture(scope="module", params=["-pie", "-no-pie"])
def traced(request, tracer, tmp_path_factory):
    """(snapshot, stripped program, the same with its symbols)."""
    folder = tmp_path_factory.mktemp("stripped")
    whole = compiled(folder / "whole", NAME, "-O2", "-g", "-Wl,--build-id=sha1", request.param)
    path = str(folder / "stripped")
    snapshot = str(folder / "snapshot.pb.gz")
    subprocess.run([tool("strip"), "-o", path, whole], check=True)
    native_snapshot(tracer, path, snapshot)
    return snapshot, path, whole


def mappings(snapshot):
    """{file: (build ID, flags)}, as golang's pprof reads them: it refuses an invalid profile."""
    raw = pprof("-raw", "-symbolize=none", snapshot).split("\nMappings\n")[1]
    rows = [line.split(" ") for line in raw.splitlines()]
    return {row[2]: (row[3], row[4]) for row in rows}


def frames_of(tracer, snapshot):
    report = read_report(tracer, snapshot, "--group-by", "traceback", "--no-skip")
    (entry,) = [e for e in report.statistics if (e["size"], e["count"]) == (10100, 100)]
    return [(f["filename"], f["lineno"], f.get("function")) for f in entry["traceback"]]


def test_mappings(traced):
    snapshot, path, whole = traced
    found = mappings(snapshot)
    assert found[path] == (build_id(whole), "")
    (libc,) = [name for name in found if re.search(r"/libc\.so\.6$", name)]
    assert found[libc][0] == build_id(libc)


def test_names(google_pprof, tracer, traced, tmp_path):
    """Names are found by the build ID alone, and survive in a file that the tracer reads."""
    snapshot, path, whole = traced
    binaries = tmp_path / "binaries" / build_id(whole)
    binaries.mkdir(parents=True)
    shutil.copy(whole, str(binaries / "any-name"))
    file, line, function = frames_of(tracer, snapshot)[0]
    assert (file, line) == (path, 0)
    assert re.fullmatch(r"\[stripped\+0x[0-9a-f]+\]", function)
    named = str(tmp_path / "named.pb.gz")
    subprocess.run(
        [google_pprof, "-proto", "-symbolize=local", "-output=" + named, snapshot],
        env=dict(os.environ, PPROF_BINARY_PATH=str(binaries.parent)),
        check=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        timeout=TIMEOUT,
    )
    found = [(file, line) for file, line, _ in frames_of(tracer, named)[: len(LINES)]]
    assert found == [(program(NAME), marked_line(NAME, mark)) for mark in LINES]
    assert mappings(named)[str(binaries / "any-name")][0] == build_id(whole)


def test_unnamed_again(tracer, traced, tmp_path):
    """A profile that pprof has written again, without names, has the same frames and binaries."""
    snapshot = traced[0]
    again, ours = str(tmp_path / "again.pb.gz"), str(tmp_path / "ours.pb.gz")
    pprof("-proto", "-symbolize=none", "-output=" + again, snapshot)
    assert frames_of(tracer, again) == frames_of(tracer, snapshot)
    subprocess.run([tracer, "export", again, "--format", "pprof", "-o", ours], check=True)
    assert mappings(ours) == mappings(snapshot)
