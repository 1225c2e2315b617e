# SPDX-License-Identifier: Apache-2.0
"""Builds by other distributors, one for each cause of wrong lines that was found, compared with
their own tracemalloc. All builds and all programs: make pythons."""
import os

import pytest

import harness
import interpreters
import parity
import pythons
import pythons_table
from markdown import Notes

@pytest.mark.parametrize(
    "name, work",
    (
        ("pbs313:python_pgo_sd", "par_leak"),
        # It checks through a pointer whether objects are traced.
        ("conda312:python_sa", "par_leak"),
        # Its heap is at another place than in later releases.
        ("jit314:python3.14", "par_peak"),
        # Its object allocator frees large blocks itself.
        ("conda312:python_sym", "par_big"),
    ),
)
def test_lines(tracer, tmp_path, packed, name, work):
    """Blocks are charged to the lines to which tracemalloc charges them."""
    together = name.startswith("jit")
    measured = parity.Parity(tracer, tmp_path, packed(name), work, together=together)
    assert measured.blocks_off <= pythons_table.BLOCKS, measured.worst
    assert measured.bytes_off <= pythons_table.BYTES, measured.worst
    assert measured.run.coverage() >= pythons_table.COVERAGE
    assert measured.run.report.contradictions() == []


@pytest.mark.parametrize("mode", ("exact", "census"))
@pytest.mark.parametrize("name", ("jit314:python3.14", "pbs314:python_pgo_sa"))
def test_threads_in_one_run(tracer, tmp_path, packed, name, mode):
    """Whether the JIT's machine code or the interpreter runs a loop depends on when threads take
    turns, and the former has not stored the line. In one run tracer and tracemalloc say the same."""
    measured = parity.Parity(
        tracer, tmp_path, packed(name), "par_threads", options=("-m", mode), together=True
    )
    assert measured.blocks > 20000
    assert measured.blocks_off <= pythons_table.BLOCKS, measured.worst
    assert measured.bytes_off <= pythons_table.BYTES, measured.worst


def test_free_threaded(tracer, tmp_path, packed):
    """Eight threads that run at once, in a build without the GIL. Its heap is not read as it ends, so
    that the mode is exact; walks from outside tell how much of it the trace has seen."""
    measured = parity.Parity(
        tracer, tmp_path, packed("nogil314:python3.14t_stripped"), "par_threads"
    )
    assert measured.blocks_off <= pythons_table.BLOCKS, measured.worst
    assert measured.bytes_off <= pythons_table.BYTES, measured.worst
    assert measured.run.report.data["mode"] == "exact"
    assert measured.run.coverage() >= pythons_table.COVERAGE
    assert measured.run.report.contradictions() == []
    assert "mimalloc" in measured.run.stderr


@pytest.mark.parametrize("name", ("nogil314:python3.14t_stripped", "pbs314:python_pgo_sa"))
def test_shrunk(tracer, tmp_path, packed, name):
    """Blocks that a realloc leaves where they are, in a larger size class, live on for heap walks."""
    measured = parity.Parity(tracer, tmp_path, packed(name), "par_compile", together=True)
    assert measured.blocks > 2000
    assert measured.blocks_off <= pythons_table.BLOCKS, measured.worst
    assert measured.bytes_off <= pythons_table.BYTES, measured.worst
    assert measured.run.coverage() >= pythons_table.COVERAGE


def test_gil_is_switched_on(tracer, tmp_path, packed):
    """An extension module that needs the GIL is imported while the process is traced."""
    python = packed("nogil314:python3.14t")
    harness.compiled(os.path.join(python.host_folder, "gil_on.so"), "gil_on.c", "-shared", "-fPIC")
    measured = parity.Parity(tracer, tmp_path, python, "par_gil")
    assert measured.blocks > 2400
    assert measured.blocks_off <= pythons_table.BLOCKS, measured.worst


def test_with_and_without_gil(tracer, tmp_path, packed, any_python):
    """A process of each kind in one session: each has its own structures and its own mode."""
    pythons_of = (
        packed("nogil314:python3.14t"),
        interpreters.Python(any_python.path, str(tmp_path)),
    )
    wanted = [parity.by_tracemalloc(python, "par_big") for python in pythons_of]
    targets = [parity.target_of(python, parity.PROGRAM, "par_big") for python in pythons_of]
    with targets[0], targets[1]:
        pids = [target.pid for target in targets]
        with harness.Traced(
            tracer, tmp_path, "-p", "%d,%d" % tuple(pids), "-n", 1, attached=2
        ) as run:
            for target in targets:
                target.step()
                target.read_until("done")
                target.wait_reading()
            lines = run.finish().lines()
    for python, theirs in zip(pythons_of, wanted):
        work = os.path.join(python.folder, parity.WORK)
        ours = {key: pair for key, pair in lines.items() if key[0] == work}
        theirs = {key: pair for key, pair in theirs.items() if key[0] == work}
        assert ours == theirs


def test_refused_without_gil(packed, run_tracer):
    """Growth mode is refused, with the reason."""
    with parity.target_of(packed("nogil314:python3.14t"), "idle.py") as target:
        done = run_tracer("-m", "growth", "-p", target.pid)
    assert done.returncode == 1
    assert "without the GIL it is mimalloc's, which is read from outside only" in done.stderr


@pytest.mark.unprivileged
def test_row():
    """A figure above its bound fails. A refusal by the tracer does not fail."""
    row = pythons_table.Row("a build")
    row.put("par", *pythons_table.pair(0.001, 0.005), ())
    row.put("par_big", *pythons_table.pair(0.0011, 0), ["why"])
    row.refuse("growth", "refused")
    cells = dict(zip(pythons_table.HEADER, row.row(Notes())))
    assert (cells["par"], cells["par_big"], cells["growth"], cells["heap"]) == (
        "0.10 / 0.50",
        "**0.11 / 0.00** (1)",
        "– (2)",
        "–",
    )
    assert row.failed() == ["a build: par_big: 0.11 / 0.00"] and row.passed() == 2


@pytest.mark.unprivileged
def test_absent(monkeypatch, tmp_path):
    """The error names an archive that is missing."""
    monkeypatch.setenv("PYTHONS", str(tmp_path))
    nowhere = pythons.Packed("nowhere", "bin/python", "lib", "")
    with pytest.raises(LookupError, match="no nowhere.tar.xz in %s" % tmp_path):
        pythons.unpacked(nowhere)
