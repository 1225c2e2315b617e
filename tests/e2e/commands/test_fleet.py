# SPDX-License-Identifier: Apache-2.0
"""tracer fleet: sums of many snapshots, those that differ, and how much memory that takes."""
import glob
import json
import os
import re
import resource
import shutil
import subprocess
import tarfile

import pytest

import harness

pytestmark = pytest.mark.unprivileged

GOLDEN = sorted(glob.glob(os.path.join(harness.ROOT, "tests", "golden", "golden-3.*-n16.cap")))
MANY = 10000
MEMORY_MAX = 64 << 20


@pytest.fixture(scope="module")
def snapshots(tracer, tmp_path_factory):
    """A file for each version's golden capture."""
    folder = tmp_path_factory.mktemp("fleet")
    for number, capture in enumerate(GOLDEN):
        path = folder / ("machine-%d.pb.gz" % number)
        subprocess.run(
            [tracer, "replay", capture, "-o", path],
            check=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
    return sorted(str(path) for path in folder.iterdir())


def fleet(run_tracer, *words, status=0):
    done = run_tracer("fleet", "--format", "json", "--top", 0, *words)
    assert done.returncode == status, done.stderr
    return json.loads(done.stdout)


def statistics(run_tracer, path):
    done = run_tracer("report", "--format", "json", "--top", 0, path)
    return json.loads(done.stdout)["statistics"]


def test_sums(run_tracer, snapshots):
    """By line, those of the reports."""
    expected, shares = {}, {}
    for path in snapshots:
        entries = statistics(run_tracer, path)
        total = sum(entry["size"] for entry in entries)
        for entry in entries:
            frame = entry["traceback"][-1]
            line = (frame["filename"], frame["lineno"])
            size, count, files = expected.get(line, (0, 0, 0))
            expected[line] = (size + entry["size"], count + entry["count"], files + 1)
            shares[line] = max(shares.get(line, 0), entry["size"] / total)
    told = fleet(run_tracer, *snapshots)
    assert (told["snapshots"], told["unread"]) == (len(GOLDEN), 0)
    found = {
        (each["filename"], each["lineno"]): (each["size"], each["count"], each["snapshots"])
        for each in told["statistics"]
    }
    assert found == expected
    assert told["size"] == sum(size for size, _, _ in expected.values())
    for each in told["statistics"]:
        assert each["share_highest"] == pytest.approx(
            shares[each["filename"], each["lineno"]], abs=1e-6
        )


def test_services(run_tracer, snapshots, tmp_path):
    again = shutil.copy(snapshots[0], str(tmp_path))
    told = fleet(run_tracer, "--by", "service", *snapshots, again)
    names = {each["service"]: each["snapshots"] for each in told["statistics"]}
    assert sorted(names.values()) == [1] * (len(GOLDEN) - 1) + [2]
    assert sum(each["size"] for each in told["statistics"]) == told["size"]


def test_outlier(run_tracer, snapshots, tmp_path):
    """A machine on which nearly all is of one line, which is an ordinary one elsewhere."""
    line = min(
        (each for each in fleet(run_tracer, *snapshots)["statistics"] if each["snapshots"] > 5),
        key=lambda each: each["share_highest"],
    )
    odd = tmp_path / "odd.pb.gz"
    only = "%s:%d" % (line["filename"], line["lineno"])
    done = run_tracer("filter", snapshots[0], "--include", only, "-o", odd)
    assert done.returncode == 0, done.stderr
    told = fleet(run_tracer, *snapshots, odd)
    outliers = [each for each in told["statistics"] if each["outlier"]]
    assert [(each["lineno"], each["highest"]) for each in outliers] == [(line["lineno"], str(odd))]
    text = run_tracer("fleet", *snapshots, odd).stdout
    assert "100.0 %% of %s, " % odd in text


def test_files_that_cannot_be_read(run_tracer, snapshots, tmp_path):
    """They are told one by one, and counted; the others are added up."""
    broken = tmp_path / "broken.pb.gz"
    with open(snapshots[0], "rb") as file:
        broken.write_bytes(file.read()[:-40])
    done = run_tracer("fleet", "--format", "json", snapshots[0], broken, tmp_path / "none")
    assert done.returncode == 1
    assert [line.split(": ")[1] for line in done.stderr.splitlines()] == [
        str(broken),
        str(tmp_path / "none"),
    ]
    told = json.loads(done.stdout)
    assert (told["snapshots"], told["unread"]) == (1, 2)
    assert harness.error_line(run_tracer("fleet"), 2)


def test_given_twice(run_tracer, snapshots, tmp_path):
    """A file counts once, whatever its name is, and that is said."""
    link = tmp_path / "link"
    link.symlink_to(snapshots[0])
    once, told = fleet(run_tracer, snapshots[0]), fleet(run_tracer, snapshots[0], link)
    assert (told.pop("repeated"), once.pop("repeated")) == (1, 0)
    assert told == once
    text = run_tracer("fleet", snapshots[0], link, snapshots[0]).stdout
    assert re.match(r"tracer: 1 snapshot, .* in [\d,]+ blocks\n", text)
    assert "\n2 files given more than once, counted once\n" in text
    assert "given more" not in run_tracer("fleet", *snapshots).stdout


def test_bundles(run_tracer, snapshots, tmp_path):
    """Of a bundle of evidence the snapshot is added up; one without is named."""
    bundles = [str(tmp_path / name) for name in ("with.evidence", "without.evidence")]
    facts = tmp_path / "evidence.json"
    facts.write_text("{}\n")
    for bundle, members in zip(bundles, ([facts, snapshots[0]], [facts])):
        with tarfile.open(bundle, "w", format=tarfile.USTAR_FORMAT) as archive:
            for member, name in zip(members, ("evidence.json", "snapshot.pb.gz")):
                archive.add(str(member), name)
    expected, told = fleet(run_tracer, snapshots[0]), fleet(run_tracer, bundles[0])
    for each in expected["statistics"] + told["statistics"]:
        del each["highest"]
    assert told == expected
    # Whatever reads a snapshot reads that one; all of the bundle is a page.
    for kind, begins in (("pprof", b"\x1f\x8b"), ("otlp", b""), ("folded", b""), ("html", b"<!")):
        sizes = []
        for file in (bundles[0], snapshots[0]):
            out = tmp_path / ("out." + kind)
            done = run_tracer("export", file, "--format", kind, "-o", out, "--force")
            assert done.returncode == 0, done.stderr
            assert out.read_bytes().startswith(begins)
            sizes.append(out.stat().st_size)
        assert (sizes[0] == sizes[1]) == (kind != "html")
    done = run_tracer("export", bundles[1], "--format", "pprof", "-o", tmp_path / "none")
    assert "snapshot.pb.gz" in harness.error_line(done, 1)
    done = run_tracer("fleet", *bundles)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert bundles[1] in line and "snapshot.pb.gz" in line
    assert "\nNot in it: 1 snapshot that could not be read\n" in done.stdout


def test_only_one(run_tracer, snapshots):
    done = run_tracer("fleet", "--by", "service", snapshots[0])
    assert "\nThe only service\n" in done.stdout
    assert "csv" not in run_tracer("fleet", "--help").stdout
    line = harness.error_line(run_tracer("fleet", "--format", "csv", snapshots[0]), 2)
    assert line.endswith("text or json\n")


def test_many(run_tracer, snapshots, tmp_path):
    """One snapshot is in memory at a time."""
    files = [str(tmp_path / ("%d.pb.gz" % number)) for number in range(MANY)]
    for number, path in enumerate(files):
        shutil.copyfile(snapshots[number % len(snapshots)], path)
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    told = fleet(run_tracer, *files)
    assert told["snapshots"] == MANY
    after = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    assert after == before or after << 10 <= MEMORY_MAX
