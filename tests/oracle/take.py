# SPDX-License-Identifier: Apache-2.0
"""Takes snapshots with the tracemalloc of the Python that runs it. usage: take.py FOLDER FRAMES

Writes one file per scenario, FOLDER/SCENARIO.pickle, in the format of Snapshot.dump().
"""
import ctypes
import os
import sys
import threading
import tracemalloc

FOLDER, FRAMES = sys.argv[1], int(sys.argv[2])


def code(filename, lines, depth):
    """A function that allocates on each of its lines, `depth` frames deep, in a file of the given
    name."""
    source = "def work(kept, depth):\n    if depth: return work(kept, depth - 1)\n"
    source += "".join("    kept.append(bytearray(%d))\n" % (16 << (i % 5)) for i in range(lines))
    space = {}
    exec(compile(source, filename, "exec"), space)
    return space["work"]


def plain(kept):
    for i in range(12):
        code("plain/module%d.py" % (i % 4), 3 + i, i % 3)(kept, i % 3)
    kept.append([str(i) for i in range(100)])
    kept.append({i: (i, i) for i in range(50)})


def threads(kept):
    work = [code("threads/t%d.py" % i, 4, i) for i in range(6)]

    def body(i):
        for _ in range(5):
            work[i](kept, i)

    running = [threading.Thread(target=body, args=(i,)) for i in range(6)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()


def domains(kept):
    track = ctypes.pythonapi.PyTraceMalloc_Track
    track.argtypes = [ctypes.c_uint, ctypes.c_size_t, ctypes.c_size_t]
    for domain in (1, 2, 389047, 4294967295):
        for i in range(10):
            assert track(domain, 0x1000 + 64 * i, 100 * i) == 0
        assert track(domain, 0x90000, 1 << 40) == 0
    plain(kept)


def recursion(kept):
    for depth in (1, 5, 24, 25, 26, 60):
        code("recursion.py", 2, depth)(kept, depth)
        code("other/recursion.py", 2, depth)(kept, depth)


def names(kept):
    for name in (
        "caf\xe9.py",
        "\u6df1/\U0001f40d.py",
        "raw\udcff\udc80.py",
        "\ue000.py",
        "x.pyc",
        "x.py",
        "x.pyo",
        "X.PY",
        "<string>",
        'a b;c,d"e.py',
        "new\nline.py",
        "C:\\dir\\x.py",
        "f.py:12",
        "\U0001f40d.py",
        "\ud83d.py",
        "-",
        "[a].py",
        "a!.py",
    ):
        code(name, 2, 1)(kept, 1)


def ties(kept):
    """Many lines with the same size and count."""
    for name in ("b.py", "a.py", "ab.py", "a/b.py", "B.py"):
        for depth in (0, 1, 2):
            code(name, 1, depth)(kept, depth)
            code(name, 1, depth)(kept, depth)


for scenario in (plain, threads, domains, recursion, names, ties):
    held = []
    tracemalloc.start(FRAMES)
    scenario(held)
    snapshot = tracemalloc.take_snapshot()
    tracemalloc.stop()
    snapshot.dump(os.path.join(FOLDER, scenario.__name__ + ".pickle"))
