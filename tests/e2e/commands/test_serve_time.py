# SPDX-License-Identifier: Apache-2.0
"""tracer serve shows recordings over time: its figures are those of tracer timeline and tracer diff."""
import json
import os
import random
import signal
import struct
import sys
import threading

import pytest

from harness import ROOT, TIMEOUT, error_line, marked_line, memory_cgroup, program, wait_until
from test_serve import PYTHON, dump, serve  # noqa: F401

sys.path.insert(0, os.path.join(ROOT, "tests"))
import schemas  # noqa: E402

STEPS = 5


def snapshots(run_tracer, path):
    """How many are in the recording; 0: it is not there."""
    done = run_tracer("timeline", path, "--format", "json")
    return json.loads(done.stdout)["snapshots"] if done.returncode == 0 else 0


@pytest.fixture
def recorded(start, trace, run_tracer, tmp_path):
    """Records the program with these options of the trace, at least two snapshots for each step; the
    path."""

    def record(*options, steps=STEPS):
        path = str(tmp_path / ("%s.rec" % "".join(options).strip("-")))
        target = start(PYTHON, "recorded.py")
        target.wait_reading()
        run = trace("-p", target.pid, "--record", path, "--every", 0.1, *options, output=False)
        for _ in range(steps):
            have = snapshots(run_tracer, path)
            wait_until(lambda: snapshots(run_tracer, path) > have, "what is before it")
            target.step()
            target.read_until("done")
            have = snapshots(run_tracer, path)
            wait_until(lambda: snapshots(run_tracer, path) > have + 1, "what is after it")
        run.interrupt()
        assert run.wait() == 0, run.stderr
        assert target.finish() == 0
        return path

    return record


def get(served, path, **arguments):
    status, headers, body = served.get(path, **arguments)
    assert status == 200, body
    assert headers["Content-Type"] == "application/json; charset=utf-8"
    return json.loads(body)


def time_range(served, **arguments):
    answer = get(served, "/api/time/range", **arguments)
    schemas.validate("serve-range", answer)
    return answer


def end(served):
    """It says which snapshot the page of the report is of, and nothing else."""
    served.process.send_signal(signal.SIGINT)
    _, err = served.process.communicate(timeout=TIMEOUT)
    assert served.process.returncode == 0
    assert all("of the recording, of" in line for line in err.splitlines()), err


def moments(path, series, first, last):
    """As the command line names them: a thousandth later, since times are rounded."""
    return ["%s@%.3f" % (path, series["times"][number] + 0.001) for number in (first, last)]


def stacks(answer):
    """[([(file, function, line), …], figures)], most recent frame first."""
    strings, frames = answer["strings"], answer["frames"]
    ids = [
        (strings[frames[i]], strings[frames[i + 1]], frames[i + 2])
        for i in range(0, len(frames), 3)
    ]
    starts, figures = answer["starts"], answer["figures"]
    return [
        ([ids[one] for one in answer["stacks"][first:last]], figures[6 * i : 6 * i + 6])
        for i, (first, last) in enumerate(zip(starts, starts[1:]))
    ]


def line_sums(answer, part):
    """{(file, line): bytes} of what is alive, freed, or at the peak."""
    sums = {}
    for frames, figures in stacks(answer):
        key = (frames[0][0], frames[0][2])
        sums[key] = sums.get(key, 0) + figures[2 * ("alive", "freed", "peak").index(part)]
    return sums


def compare(served, run_tracer, path, first, last):
    """A range with what the command line prints of it; the range."""
    series = get(served, "/api/time/series")
    answer = time_range(served, first=first, last=last)
    old, new = moments(path, series, first, last)
    words = ["diff", old, new, "--group-by", "traceback", "--format", "json", "--top", 0]
    whole, own = (
        json.loads(run_tracer(*words, *options).stdout) for options in ((), ["--no-inherited"])
    )
    total = whole["total"]
    assert answer["to"]["size"] == total["size"] == series["total"]["size"][last]
    assert answer["from"]["size"] == total["size"] - total["size_diff"]
    assert answer["from"]["size"] == series["total"]["size"][first]
    assert answer["to"]["count"] - answer["from"]["count"] == total["count_diff"]
    assert answer["snapshots"] == last - first + 1
    # What a child has of its parent's was not allocated.
    total, rows = own["total"], own["statistics"]
    if answer["allocated"]:
        # What was allocated and is not there more.
        assert answer["allocated"]["size"] == total["allocated_size_diff"]
        assert answer["allocated"]["count"] == total["allocated_count_diff"]
        assert answer["freed"]["size"] == total["allocated_size_diff"] - total["size_diff"]
        assert answer["freed"]["count"] == total["allocated_count_diff"] - total["count_diff"]
    else:
        assert answer["freed"]["size"] == sum(max(-row["size_diff"], 0) for row in rows)
    if answer["alive"]["least"]:
        assert answer["alive"]["size"] == sum(max(row["size_diff"], 0) for row in rows)
        assert answer["alive"]["count"] == sum(max(row["count_diff"], 0) for row in rows)
    elif first < last:
        length = "%.3fs" % (series["times"][last] - series["times"][first])
        words = ["report", new, "--younger-than", length, "--no-inherited", "--format", "json"]
        young = json.loads(run_tracer(*words).stdout)["total"]
        assert (answer["alive"]["size"], answer["alive"]["count"]) == (
            young["size"],
            young["count"],
        )
    else:
        assert answer["alive"]["size"] == 0
    # The range of the command line begins at its first time or after it.
    ends = "%.3f..%.3f" % (max(series["times"][first] - 0.001, 0), series["times"][last] + 0.001)
    done = run_tracer("report", path, "--peak-of", ends, "--format", "json", "--layer", "python")
    peak = json.loads(done.stdout)["total"]
    assert (answer["peak"]["size"], answer["peak"]["count"]) == (peak["size"], peak["count"])
    for part, place in (("alive", 0), ("freed", 2), ("peak", 4)):
        for i, figure in enumerate(("size", "count")):
            of_stacks = sum(figures[place + i] for _, figures in stacks(answer))
            # Each estimate is rounded, and what was freed of a stack is not below 0.
            wrong = len(stacks(answer)) if answer["estimated"] else 0
            assert of_stacks >= answer[part][figure] - wrong, part
            if part != "freed" or not answer["estimated"]:
                assert of_stacks <= answer[part][figure] + wrong, part
    return answer


@pytest.mark.parametrize("options", (("-m", "exact", "--ages"), ("-m", "exact"), ("-m", "census")))
def test_ranges(serve, recorded, run_tracer, options):  # noqa: F811
    path = recorded(*options)
    served = serve(path)
    (source,) = get(served, "/api/sources")["sources"]
    assert (source["kind"], source["file"]) == ("recording", path)
    words = ["timeline", path, "--points", 240, "--top", 20, "--format", "json"]
    series = get(served, "/api/time/series")
    assert series == json.loads(run_tracer(*words).stdout)
    schemas.validate("timeline", series)
    last = series["snapshots"] - 1
    assert last >= 2 * STEPS and series["numbers"] == list(range(last + 1))
    for first, end_ in ((0, last), (0, 1), (last // 3, 2 * last // 3), (last - 1, last), (2, 2)):
        compare(served, run_tracer, path, first, end_)
    whole = time_range(served)
    assert whole == time_range(served, first=0, last=last)
    assert whole["alive"]["least"] == ("--ages" not in options)
    # What stays is as the program says; the cache was filled anew, so that stacks gain nothing there.
    grown = (program("recorded.py"), marked_line("recorded.py", "G"))
    cache = (program("recorded.py"), marked_line("recorded.py", "C"))
    alive, freed, peak = (line_sums(whole, part) for part in ("alive", "freed", "peak"))
    assert alive[grown] >= STEPS * 100 * 1000
    assert freed[cache] >= 2 * 100 * 2000 and peak[grown] > 0
    assert any(name.startswith("</script>") for name, _ in alive)
    end(served)


def test_markers(serve, recorded, run_tracer):  # noqa: F811
    """The fork and the end of the child, at a time that is within the recording, and the collections
    that came after both."""
    path = recorded("-m", "exact")
    served = serve(path)
    series = get(served, "/api/time/series")
    (fork,) = [one for one in series["markers"] if one["kind"] == "fork"]
    (child,) = [
        one for one in series["markers"] if one["kind"] == "exit" and one["pid"] == fork["pid"]
    ]
    assert os.WEXITSTATUS(child["wait_status"]) == 3 and not child["oom_killed"]
    collections = [one for one in series["markers"] if one["kind"] == "collection"]
    assert [sum(one[key] for one in collections) for key in ("full", "collected")] == [2, 20]
    times = [one["time"] for one in (fork, child, *collections)]
    assert 0 < times[0] and sorted(times) == times and times[-1] <= series["times"][-1]
    # What is not seen is the report's, of each end.
    for last in (series["snapshots"] - 1, 1):
        lines = time_range(served, first=0, last=last)["not_seen"]
        at = "%s@%.3f" % (path, series["times"][last] + 0.001)
        report = run_tracer("report", at).stdout
        assert lines and all(line in report for line in lines), (lines, report)
    # Both processes are in the figures of the range.
    compare(served, run_tracer, path, 0, series["snapshots"] - 1)
    end(served)


def test_killed_for_memory(start, trace, serve, run_tracer, tmp_path):  # noqa: F811
    """The end of a process that the OOM killer has chosen is told from that by another kill -9."""
    path = str(tmp_path / "killed.rec")
    with memory_cgroup(100 << 20) as group:
        inside = ("sh", "-c", 'echo $$ > "$0"/cgroup.procs; exec "$@"', group)
        target = start(PYTHON, "runs_out.py", 50, prefix=inside)
        run = trace("-p", target.pid, "--record", path, "--every", 0.5)
        target.step()
        assert run.wait() == 0, run.stderr
        assert target.process.wait(TIMEOUT) == -signal.SIGKILL
    assert ", killed by signal 9 (OOM)\n" in run.stdout
    served = serve(path)
    (killed,) = get(served, "/api/time/series")["markers"]
    assert killed["kind"] == "exit" and killed["pid"] == target.pid
    assert killed["wait_status"] == 9 and killed["oom_killed"]
    end(served)


def test_ended(serve, run_tracer, tmp_path):  # noqa: F811
    """Blocks of a process that has ended are as old as they are at the end of the range, and not as
    they were when it ended."""
    path, words = str(tmp_path / "ended.rec"), ["-m", "exact", "--ages", "--every", 0.1]
    done = run_tracer(*words, "--record", path, "--", PYTHON, program("ending.py"))
    assert done.returncode == 0, done.stderr
    served = serve(path)
    early, late = ((program("ending.py"), marked_line("ending.py", mark)) for mark in "EL")
    at = (line_sums(time_range(served, first=i, last=i), "peak") for i in range(1000))
    first = 1 + next(i for i, sums in enumerate(at) if sums.get(early, 0) > 300 * 1040)
    alive = line_sums(time_range(served, first=first), "alive")
    assert early not in alive or alive[early] == 0
    assert 200 * 1000 < alive[late] < 250 * 1000
    end(served)


@pytest.mark.parametrize("options", (("-m", "exact", "--sample", "512"), ("-m", "growth")))
def test_lacking(serve, recorded, run_tracer, options):  # noqa: F811
    """A sample, whose figures are estimates; growth mode, which does not count what was allocated:
    what was freed is a lower bound."""
    path = recorded(*options)
    served = serve(path)
    series = get(served, "/api/time/series")
    answer = compare(served, run_tracer, path, 0, series["snapshots"] - 1)
    counted = "growth" not in options
    assert answer["estimated"] == series["estimated"] == counted
    assert answer["alive"]["least"] and answer["freed"]["least"] != counted
    assert (answer["allocated"] is not None) == counted
    end(served)


def test_file(serve, recorded, run_tracer, tmp_path, dump):  # noqa: F811
    """A recording that grows while it is served, one that is cut off, one with a single snapshot, and
    other sources beside it."""
    path = recorded("-m", "exact", steps=2)
    with open(path, "rb") as file:
        data = file.read()
    ends = [32]  # record_file.h: the header, then records with their own
    while ends[-1] < len(data):
        (packed,) = struct.unpack_from("<I", data, ends[-1] + 32)
        ends.append(ends[-1] + 48 + packed)
    assert ends.pop() == len(data)
    grows, cut, one = (str(tmp_path / name) for name in ("grows.rec", "cut.rec", "one.rec"))
    for name, size in ((grows, ends[3]), (cut, ends[3] + 60), (one, ends[1])):
        with open(name, "wb") as file:
            file.write(data[:size])
    served = serve(grows)
    series = get(served, "/api/time/series")
    with open(grows, "ab") as file:
        file.write(data[ends[3] :])
    assert get(served, "/api/time/series") == series and series["snapshots"] == 3
    assert time_range(served)["to"]["snapshot"] == 2
    os.truncate(grows, 10)
    assert time_range(served, first=1)["to"]["snapshot"] == 2
    assert served.get("/api/time/range", last=3)[0] == 404
    end(served)
    served = serve(cut)
    assert (
        "from byte %d on a snapshot is cut off" % ends[3]
        in get(served, "/api/time/series")["damage"]
    )
    assert time_range(served)["snapshots"] == 3
    end(served)
    served = serve(dump, one)
    assert [each["kind"] for each in get(served, "/api/sources")["sources"]] == [
        "heap",
        "recording",
    ]
    series = get(served, "/api/time/series", source=1)
    assert series["snapshots"] == 1
    answer = time_range(served, source=1)
    assert answer["from"] == answer["to"] == answer["peak"]
    assert answer["alive"]["size"] == answer["freed"]["size"] == 0
    for route in ("series", "range"):
        assert served.get("/api/time/" + route, source=0)[0] == 404
    assert served.get("/report", source=1)[0] == 200
    end(served)
    for size in (40, ends[1] - 1):
        with open(one, "wb") as file:
            file.write(data[:size])
        error_line(run_tracer("serve", one), 1)
    # A byte of the second snapshot is wrong: the first one is shown.
    with open(one, "wb") as file:
        file.write(data[: ends[1] + 60] + bytes([data[ends[1] + 60] ^ 1]) + data[ends[1] + 61 :])
    served = serve(one)
    assert "checksum" in get(served, "/api/time/series")["damage"]
    assert time_range(served)["snapshots"] == 1
    end(served)


def test_requests(serve, recorded):  # noqa: F811
    served = serve(recorded("-m", "exact", steps=1))
    for words, status in {
        "first=1&last=0": 400,
        "first=x": 400,
        "last=-1": 400,
        "first=0&first=1": 400,
        "last=99999": 404,
        "last=99999999999999999999999": 400,
        "from=1": 400,
        "source=1": 404,
    }.items():
        answer = served.get("/api/time/range?" + words)
        assert answer[0] == status and answer[2].count(b"\n") == 1, (words, answer)
    assert served.get("/api/time/series", first=1)[0] == 400
    assert served.get("/api/heap/by")[0] == 404
    assert served.ask("/api/time/range")[0] == 401
    end(served)


def test_browsers(serve, recorded, dump):  # noqa: F811
    """Several at a time ask for ranges, while answers about a heap are made ahead: each gets its own."""
    path = recorded("-m", "exact", steps=3)
    served = serve(path, dump)
    cookies = [served.login(), served.login()]
    last = json.loads(served.ask("/api/time/series", cookie=cookies[0])[2])["snapshots"] - 1
    pairs = [(first, end_) for first in range(0, last, 3) for end_ in range(first, last + 1, 3)]
    expected, wrong = {}, []

    def browse(cookie, seed):
        places = ["/api/time/range?first=%d&last=%d" % pair for pair in pairs]
        places += ["/api/time/range?first=%d&last=0" % (1 + seed)]  # there is no answer
        places += ["/api/heap/%s?source=1" % one for one in ("by?key=module", "waste", "cycles")]
        places = [place.replace("?key=module?", "?key=module&") for place in places]
        random.Random(seed).shuffle(places)
        for place in places:
            status, _, body = served.ask(place, cookie=cookie)
            right = 400 if place.endswith("&last=0") and "first=0" not in place else 200
            if status != right or expected.setdefault(place, body) != body:
                wrong.append((place, status, body))

    threads = [threading.Thread(target=browse, args=each) for each in zip(2 * cookies, range(4))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong and len(expected) == len(pairs) + 4 + 3
    for first, end_ in pairs:
        answer = json.loads(expected["/api/time/range?first=%d&last=%d" % (first, end_)])
        assert (answer["from"]["snapshot"], answer["to"]["snapshot"]) == (first, end_)
    end(served)
