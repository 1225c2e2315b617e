# SPDX-License-Identifier: Apache-2.0
"""Exit statuses of traces (docs/man/exit-status.md). tests/golden/test_statuses.py has those of
commands that read files."""
import pytest

from harness import error_line, program

# Growth mode does not trace large blocks one by one: something is always missing.
INCOMPLETE = ("-m", "growth", "--layer", "python")


def test_require_complete(start, trace, any_python):
    """The report and the snapshot are there all the same."""
    target = start(any_python, "golden.py")
    for options, status in (
        (["-m", "exact"], 0),
        (["-m", "exact", "--require-complete"], 0),
        (INCOMPLETE, 0),
        ([*INCOMPLETE, "--require-complete"], 4),
    ):
        run = trace("-p", target.pid, *options)
        run.interrupt()
        assert run.wait() == status, run.stderr
        assert "Total: " in run.stdout and run.report().total
        assert ("figures are incomplete: blocks of more than 512 bytes" in run.stderr) == (
            status == 4
        )


def test_reports_meanwhile(start, trace, any_python):
    """Only the report at the end counts."""
    target = start(any_python, "golden.py")
    run = trace("-p", target.pid, *INCOMPLETE, "--require-complete", "-i", "0.2", "-d", "1")
    assert run.wait() == 4
    assert run.stdout.count("Total: ") > 2 and run.stderr.count("figures are incomplete") == 1


def test_of_a_command(trace, any_python):
    """Its status is the tracer's, unless figures are incomplete."""
    command = ("--", any_python.path, program("short.py"), 5)
    assert trace(*INCOMPLETE, *command).wait() == 5
    assert trace(*INCOMPLETE, "--require-complete", *command).wait() == 4


@pytest.mark.parametrize("words", ([], ["perfmap"], ["--dry-run"]), ids=" ".join)
def test_command_that_cannot_run(run_tracer, tmp_path, words):
    not_executable = tmp_path / "file"
    not_executable.write_text("x")
    for command, status in (("/nonexistent", 127), (not_executable, 126), (tmp_path, 126)):
        error_line(run_tracer(*words, "--", command), status)


def test_wrong_options(run_tracer):
    for words in (
        ["-p", "1", "--require-complete=x"],
        ["timeline", "x.rec", "--require-complete"],
        ["leaks", "-p", "1", "--fail-on", "unclear"],
    ):
        assert run_tracer(*words).returncode == 2
