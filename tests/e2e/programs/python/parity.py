# SPDX-License-Identifier: Apache-2.0
"""A mixed workload whose live blocks two tracers are to agree on. usage: parity.py THREADS OUT [OBJECTS]; OUT "-": standard output

What is live as the interpreter begins to shut down is the same in every run. When tracemalloc traces, what it holds then for
the program's own files goes to OUT as JSON: [{"filename", "lineno", "size", "count"}…].

What the two cannot agree on: CPython keeps dead floats, tuples, lists, dicts and frames on free lists and hands their
blocks out again without its allocator. tracemalloc then moves the trace to the new line (_PyTraceMalloc_NewReference),
a tracer of the allocator keeps the line that once asked for the block. Therefore the free lists that the start of the
interpreter left behind are emptied first, by code that belongs to no file, and no line here keeps an object of a kind
and size that another line makes and drops: kept tuples have sizes that no call drops, dead lists, dicts and
floats are not made at all. The cyclic collector, which would run at other moments under tracemalloc, is off.
"""
import gc
import sys
import threading
import tracemalloc

import parity_work

gc.disable()
DRAIN = """
kept = [tuple([None] * n) for n in range(1, 21) for _ in range(2100)]
kept += [float(i) for i in range(300)] + [[None] for _ in range(300)] + [{0: i} for i in range(300)]
kept += [slice(i, i) for i in range(3)]
"""
drained = {}
exec(compile(DRAIN, "<free lists>", "exec"), drained)


class Plain:
    def __init__(self, i):
        self.number = i * 1000003
        self.text = "plain %d" % i
        self.items = [i, i + 1]


def scalars(i, kept):
    kept.append(i * 1000003)
    kept.append(3 ** (i % 200 + 40))
    kept.append(i + 0.5)
    kept.append(1j * i)
    kept.append("text %d" % i)
    kept.append("\u20ac" * (i % 90 + 2))
    kept.append(b"%d" % i)
    kept.append(bytearray(i % 2000 + 1))


def containers(i, kept):
    kept.append([i, i])
    kept.append({i: str(i), "k": None})
    kept.append({i, i + 1, i + 2, i + 3, i + 4, i + 5})
    kept.append(frozenset("%d" % i))
    kept.append((i, i + 1, i + 2, i + 3, i + 4, i + 5, i + 6, i + 7, i + 8))
    kept.append(Plain(i))
    grown = []
    for j in range(i % 60):
        grown.append(j)
    kept.append(grown)
    text = bytearray()
    for j in range(i % 9):
        text += b"0123456789" * 10
    kept.append(text)


def churn(i, scratch):
    """Blocks that live a while and die, of kinds that have no free list."""
    for j in range(4):
        scratch.append(str(i * j + 1000) * 5)
        scratch.append(bytes(j * 200))
        scratch.append({i, j})
        scratch.append(parity_work.Slotted(j))
    if i % 50 == 0:
        scratch.clear()


def work(objects, kept):
    scratch = []
    for i in range(objects):
        scalars(i, kept)
        containers(i, kept)
        kept.append(parity_work.make(i))
        churn(i, scratch)
    kept.append(scratch)


threads, out = int(sys.argv[1]), sys.argv[2]
objects = int(sys.argv[3]) if len(sys.argv) > 3 else 8000
keeps = [[] for _ in range(threads)]
if threads == 1:
    work(objects, keeps[0])
else:
    running = [threading.Thread(target=work, args=(objects // threads, kept)) for kept in keeps]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()

if tracemalloc.is_tracing():
    snapshot = tracemalloc.take_snapshot()
    import json

    own = (__file__, parity_work.__file__)
    rows = []
    for entry in snapshot.statistics("lineno"):
        frame = entry.traceback[0]
        if frame.filename in own:
            rows.append({"filename": frame.filename, "lineno": frame.lineno, "size": entry.size, "count": entry.count})
    with open(1 if out == "-" else out, "w", closefd=out != "-") as file:
        json.dump(rows, file)
