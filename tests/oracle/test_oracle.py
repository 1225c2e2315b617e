# SPDX-License-Identifier: Apache-2.0
"""Reports and differences equal those that Python's own tracemalloc computes from the same files,
including the order."""
import csv
import io
import itertools
import json
import os
import random

from conftest import GROUPS


def file_filter(inclusive, pattern, lineno=None):
    return {"inclusive": inclusive, "pattern": pattern, "lineno": lineno}


def domain_filter(inclusive, domain):
    return {"inclusive": inclusive, "domain": domain}


# Each with and without all_frames, if it names files.
FILTERS = [
    None,
    [file_filter(True, "*")],
    [file_filter(True, "*.py"), file_filter(True, "<*>")],
    [file_filter(False, "*/module?.py")],
    [file_filter(True, "*[!0-2].py"), file_filter(False, "a*")],
    [file_filter(True, "x.pyc")],
    [file_filter(True, "*.pyo"), file_filter(True, "*.py", 4)],
    [file_filter(False, "recursion.py", 2)],
    [file_filter(True, "*\udcff*"), file_filter(True, "[\xe9-\U0001ffff]*")],
    [domain_filter(True, 0)],
    [domain_filter(False, 0)],
    [domain_filter(True, 389047), file_filter(True, "*recursion*")],
    [domain_filter(False, 1), domain_filter(False, 4294967295), file_filter(False, "*take.py")],
    [
        file_filter(True, "[[]a].py"),
        file_filter(True, "a[!a-z].py"),
        file_filter(True, "*:*"),
        file_filter(True, "f.py:12", 3),
    ],
    [file_filter(True, "no such file")],
]
ALL_FRAMES = [
    [dict(f, all_frames=True) if "pattern" in f else f for f in FILTERS[i]]
    for i in (2, 3, 4, 7, 11)
]


def arguments(group_by, cumulative, filters):
    """tracer's arguments for a query to the oracle."""
    words = ["--format", "json", "--top", "0", "--group-by", group_by] + [
        "--cumulative"
    ] * cumulative
    for f in filters or ():
        if "domain" in f:
            words += ["--domain" if f["inclusive"] else "--not-domain", str(f["domain"])]
            continue
        # tracer would parse a colon and digits at the end as a line number.
        head, colon, tail = f["pattern"].rpartition(":")
        pattern = (
            head + "[:]" + tail
            if colon and tail.isdigit() and f["lineno"] is None
            else f["pattern"]
        )
        words += [
            "--include" if f["inclusive"] else "--exclude",
            pattern + (":%d" % f["lineno"] if f["lineno"] is not None else ""),
        ]
        if f.get("all_frames") and "--all-frames" not in words:
            words.append("--all-frames")
    return words


def entries(report, *fields):
    return [
        [[[f["filename"], f["lineno"]] for f in s["traceback"]], *(s[name] for name in fields)]
        for s in report["statistics"]
    ]


def test_statistics(snapshots, ask, tracer, each):
    assert len(snapshots) >= 30 or len(snapshots) % 12 == 0
    paths = list(snapshots.values())
    cases = [(g, c, f) for g, c in GROUPS for f in FILTERS + ALL_FRAMES]

    def reports(case):
        return list(
            map(json.loads, tracer("report", *paths, *arguments(*case)).stdout.splitlines())
        )

    found = each(reports, cases)
    for case, of_case in zip(
        cases, found
    ):  # a filter passes everything, or nothing, only if it is meant to
        totals = {
            tuple(r["total"].values()) == tuple(w["total"].values())
            for r, w in zip(of_case, found[0])
        }
        empty = not any(r["total"]["count"] for r in of_case)
        assert (totals == {True}) == (case[2] in (None, FILTERS[1])) and empty == (
            case[2] == FILTERS[-1]
        ), case
    versions = sorted({name.split("-")[0] for name in snapshots})
    for version in versions:  # each file by the version that wrote it
        mine = [
            (i, path)
            for i, (name, path) in enumerate(snapshots.items())
            if name.startswith(version + "-")
        ]
        jobs = [
            {"op": "statistics", "file": path, "group_by": g, "cumulative": c, "filters": f}
            for g, c, f in cases
            for _, path in mine
        ]
        expected = iter(ask(jobs, version))
        for case, report in zip(cases, found):
            for i, path in mine:
                assert entries(report[i], "size", "count") == next(expected), (path, case)
                assert report[i]["group_by"] == case[0] and report[i]["cumulative"] == case[1]


def test_recursion_once(snapshots, ask, tracer, each):
    """The text counts a traceback once for each line in it. JSON has both counts, and its old
    fields equal tracemalloc's."""
    paths = [path for name, path in snapshots.items() if "-1-" not in name]
    assert paths

    def both(path):
        data = json.loads(tracer("report", path, *arguments("lineno", True, None)).stdout)
        return data, tracer("report", path, "--cumulative", "--top", "0").stdout.decode(
            errors="surrogateescape"
        )

    differ = 0
    for path, (data, text), (_, traces) in zip(
        paths, each(both, paths), ask([{"op": "traces", "file": p} for p in paths])
    ):
        once = {}
        for _, size, frames, _ in traces:
            for line in {tuple(frame) for frame in frames}:
                have = once.setdefault(line, [0, 0])
                have[0] += size
                have[1] += 1
        found = {
            (s["traceback"][0]["filename"], s["traceback"][0]["lineno"]): [
                s["once"]["size"],
                s["once"]["count"],
            ]
            for s in data["statistics"]
        }
        assert found == once
        shown = [
            int(line.split("count=")[1].split(",")[0])
            for line in text.splitlines()
            if line.startswith("  ") and ": size=" in line
        ]
        assert sorted(shown) == sorted(count for _, count in once.values())
        differ += sum(s["size"] != s["once"]["size"] for s in data["statistics"])
    assert differ  # the snapshots contain recursions


def test_differences(snapshots, ask, tracer, each):
    """All pairs by every key, including pairs of different versions and traceback limits."""
    pairs = list(itertools.permutations(snapshots.values(), 2))
    cases = [
        (old, new, *GROUPS[i], None)
        for i in range(5)
        for old, new in pairs[i % 2 :: 2 if i > 2 else 1]
    ]
    cases += [
        (old, new, *GROUPS[i % 5], FILTERS[i % len(FILTERS)]) for i, (old, new) in enumerate(pairs)
    ]

    def report(case):
        return json.loads(tracer("diff", case[0], case[1], *arguments(*case[2:])).stdout)

    jobs = [
        {"op": "compare", "old": o, "new": n, "group_by": g, "cumulative": c, "filters": f}
        for o, n, g, c, f in cases
    ]
    for case, found, expected in zip(cases, each(report, cases), ask(jobs)):
        assert entries(found, "size", "size_diff", "count", "count_diff") == expected, case


def pattern_random(rng):
    return "".join(
        rng.choice("aabA.py[]!-^\\*?*\xe9\udcff\U0001f40dcx&~|") for _ in range(rng.randint(0, 7))
    )


def filters_random(rng):
    if rng.random() < 0.2:
        return None
    made, all_frames = [], rng.random() < 0.4
    for _ in range(rng.randint(1, 4)):
        if rng.random() < 0.25:
            made.append(domain_filter(rng.random() < 0.5, rng.choice((0, 7, 1 << 20))))
        else:
            pattern = rng.choice(
                (
                    pattern_random(rng),
                    "*" + pattern_random(rng) + "*",
                    "*.py",
                    "[" + pattern_random(rng) + "]*",
                )
            )
            made.append(
                dict(
                    file_filter(rng.random() < 0.5, pattern, rng.choice((None, None, 0, 1, 300))),
                    all_frames=all_frames,
                )
            )
    return made


def test_random(ask, tracer, each, tmp_path):
    """Snapshots that no program made, in every protocol, with filters that no user would write."""
    rng = random.Random(454)
    paths = [str(tmp_path / ("%d.pickle" % i)) for i in range(120)]
    ask(
        [
            {"op": "random", "file": path, "seed": i, "protocol": 2 + i % 4}
            for i, path in enumerate(paths)
        ]
    )
    cases = [(path, *rng.choice(GROUPS), filters_random(rng)) for path in paths for _ in range(8)]

    def report(case):
        return json.loads(tracer("report", case[0], *arguments(*case[1:])).stdout)

    jobs = [
        {"op": "statistics", "file": p, "group_by": g, "cumulative": c, "filters": f}
        for p, g, c, f in cases
    ]
    for case, found, expected in zip(cases, each(report, cases), ask(jobs)):
        assert entries(found, "size", "count") == expected, case
    cases = [
        (old, new, *rng.choice(GROUPS), filters_random(rng)) for old, new in zip(paths, paths[1:])
    ]
    jobs = [
        {"op": "compare", "old": o, "new": n, "group_by": g, "cumulative": c, "filters": f}
        for o, n, g, c, f in cases
    ]
    for case, expected in zip(cases, ask(jobs)):
        found = json.loads(tracer("diff", case[0], case[1], *arguments(*case[2:])).stdout)
        assert entries(found, "size", "size_diff", "count", "count_diff") == expected, case


def test_text(ask, tracer, tmp_path):
    """Lines of the text equal those of Statistic and StatisticDiff, including units and signs."""
    sizes = [
        0,
        1,
        99,
        100,
        10239,
        10240,
        102348,
        102400,
        10485759,
        10485760,
        1 << 40,
        (1 << 40) * 99,
        1 << 50,
    ]
    old, new = str(tmp_path / "old.pickle"), str(tmp_path / "new.pickle")
    ask(
        [
            {"op": "random", "file": old, "seed": 5, "protocol": 4},
            {"op": "random", "file": new, "seed": 6, "protocol": 4},
        ]
    )
    unsigned = ask([{"op": "format", "sizes": sizes}])[0][::2]
    assert "10.0 KiB" in unsigned and "100 KiB" in unsigned
    stats = ask(
        [
            {
                "op": "statistics",
                "file": new,
                "group_by": "lineno",
                "cumulative": False,
                "filters": None,
            },
            {
                "op": "compare",
                "old": old,
                "new": new,
                "group_by": "lineno",
                "cumulative": False,
                "filters": None,
            },
        ]
    )
    averages = [s / c for _, s, c in stats[0]] + [s / c for _, s, _, c, _ in stats[1] if c]
    wanted = (
        [s for _, s, _ in stats[0]] + [n for _, s, d, _, _ in stats[1] for n in (s, d)] + averages
    )
    texts = ask([{"op": "format", "sizes": wanted}])[0]
    plain, signed = dict(zip(wanted, texts[::2])), dict(zip(wanted, texts[1::2]))
    text = tracer("report", new, "--top", "0").stdout.decode(errors="surrogateescape")
    for f, size, count in stats[0]:
        assert (
            ":%d: size=%s, count=%d, average=%s\n"
            % (f[0][1], plain[size], count, plain[size / count])
            in text
        )
    text = tracer("diff", old, new, "--top", "0").stdout.decode(errors="surrogateescape")
    for f, size, size_diff, count, count_diff in stats[1]:
        average = ", average=" + plain[size / count] if count else ""
        line = ":%d: size=%s (%s), count=%d (%+d)%s\n" % (
            f[0][1],
            plain[size],
            signed[size_diff],
            count,
            count_diff,
            average,
        )
        assert line in text


def test_csv(snapshots, tracer):
    """CSV has the same figures under the same names as JSON."""
    paths = [path for name, path in snapshots.items() if name.endswith(("-names", "-plain"))]
    for command in (["report", paths[0]], ["report", paths[-1]], ["diff", paths[0], paths[-1]]):
        for group_by in ("filename", "lineno", "traceback"):
            words = [*command, "--group-by", group_by, "--top", "0", "--format"]
            report = json.loads(tracer(*words, "json").stdout)
            text = tracer(*words, "csv").stdout.decode("utf-8", "surrogateescape")
            rows = list(csv.DictReader(io.StringIO(text, newline="")))
            assert len(rows) == len(report["statistics"])
            for row, entry in zip(rows, report["statistics"]):
                recent = entry["traceback"][0]
                assert int(row["lineno"]) == recent["lineno"]
                if recent["filename"] != "\ud83d.py":  # no file on disk can have that name
                    name = os.fsencode(recent["filename"])
                    assert row["filename"] == name.decode(errors="backslashreplace")
                for field in set(entry) - {"traceback"}:
                    assert int(row[field]) == entry[field]
                if group_by == "traceback":
                    assert json.loads(row["traceback"]) == entry["traceback"]
