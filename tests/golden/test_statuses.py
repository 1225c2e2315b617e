# SPDX-License-Identifier: Apache-2.0
"""The exit statuses of commands that read files (docs/man/exit-status.md): the answer is printed
whatever the status is."""
import json
import os
import struct

import pytest
from test_golden import HERE, run

CAPTURE = os.path.join(HERE, "golden-3.13-n16.cap")


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Snapshots: whole; part: of one of its lines; lacking: with a record that nobody knows."""
    folder = tmp_path_factory.mktemp("statuses")
    with open(CAPTURE, "rb") as file:
        capture = file.read()
    broken = folder / "broken.cap"
    broken.write_bytes(capture + struct.pack("<IIQII", 0xFFFF, 24, 0, 0, 0))
    made = {name: folder / (name + ".pb.gz") for name in ("whole", "part", "lacking")}
    assert run("replay", CAPTURE, "-o", made["whole"]).returncode == 0
    assert run("replay", broken, "-o", made["lacking"]).returncode == 0
    line = entries(run("report", made["whole"], "--format", "json"))[0]["traceback"][0]
    what = "%s:%d" % (line["filename"], line["lineno"])
    assert run("filter", made["whole"], "--include", what, "-o", made["part"]).returncode == 0
    return {**made, "capture": CAPTURE, "broken": broken}


def entries(done):
    return json.loads(done.stdout)["statistics"]


def test_fail_above(files):
    grown = run("diff", files["part"], files["whole"], "--format", "json")
    assert grown.returncode == 0
    size = json.loads(grown.stdout)["total"]["size_diff"]
    assert size > 0
    for most, status in ((size, 0), (size - 1, 3), (0, 3), ("1G", 0)):
        done = run("diff", files["part"], files["whole"], "--fail-above", most, "--format", "json")
        assert (done.returncode, done.stdout, done.stderr) == (status, grown.stdout, ""), most
    assert run("diff", files["whole"], files["part"], "--fail-above", 0).returncode == 0
    assert run("diff", files["whole"], files["whole"], "--fail-above", 0).returncode == 0


def test_fail_above_counts_what_is_reported(files):
    """What filters leave out has not grown, however entries are grouped."""
    for more, status in ((["--exclude", "*"], 0), (["--by", "process"], 3), (["--app"], 3)):
        done = run("diff", files["part"], files["whole"], "--fail-above", "0", *more)
        assert (done.returncode, done.stderr) == (status, ""), more


@pytest.mark.parametrize("size", ("", "-1", "10X", "1.5M", "99999999G"))
def test_fail_above_wrong(files, size):
    done = run("diff", files["part"], files["whole"], "--fail-above=" + size)
    assert (done.returncode, done.stdout) == (2, "") and "--fail-above" in done.stderr


@pytest.mark.parametrize(
    "words",
    (["report", "whole"], ["replay", "capture"], ["diff", "part", "whole"]),
    ids=lambda words: words[0],
)
def test_complete(files, words):
    done = run(words[0], *(files[name] for name in words[1:]), "--require-complete")
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    "words",
    (
        ["report", "lacking"],
        ["report", "lacking", "whole"],
        ["replay", "broken"],
        ["diff", "whole", "lacking"],
        ["diff", "lacking", "whole"],
    ),
    ids=" ".join,
)
def test_incomplete(files, words):
    command = [words[0], *(files[name] for name in words[1:])]
    plain, done = run(*command), run(*command, "--require-complete")
    assert (plain.returncode, plain.stderr) == (0, "") and plain.stdout
    assert (done.returncode, done.stdout) == (4, plain.stdout), done.stderr
    assert (
        done.stderr.count("\n") == 1
        and "figures are incomplete: 1 record was malformed" in done.stderr
    )
    assert words[0] == "replay" or str(files["lacking"]) + ": " in done.stderr


def test_incomplete_comes_before_growth(files):
    command = ["diff", files["part"], files["lacking"], "--fail-above", 0]
    assert run(*command).returncode == 3
    assert run(*command, "--require-complete").returncode == 4


def test_failed_comes_first(files, tmp_path):
    assert (
        run("report", files["lacking"], tmp_path / "absent", "--require-complete").returncode == 1
    )
    assert run("diff", files["part"], tmp_path / "absent", "--fail-above", "0").returncode == 1
