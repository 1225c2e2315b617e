# SPDX-License-Identifier: Apache-2.0
"""Work whose live blocks a tracer from outside and the interpreter's own tracemalloc are to find at the same lines.
usage: by_line.py WORK [tracemalloc [BYTES]]    without blocks of that size

Says "ready", waits for a line, works, says "done", and waits again. Then it says what tracemalloc has since the first line as
JSON, [[file, line, bytes, blocks]…], and waits a third time. The lines of this file itself count for nothing. Beside every kind of thing that is kept things of many kinds
are made and dropped (by_line_work.py), so that what CPython takes again from its free lists belongs to another line than the one
that asked for its block. What was on these lists before tracemalloc does not know: they are emptied first.
"""
import _tracemalloc
import collections
import gc
import json
import os
import sys

import by_line_work

gc.collect()
gc.disable()
emptied = [tuple([None] * n) for n in range(1, 21) for _ in range(2100)]
emptied += [([], {}, i / 3, slice(i, i)) for i in range(3000)]
work = getattr(by_line_work, sys.argv[1])
left_out = int("".join(sys.argv[3:]) or 0)
os.write(1, b"ready\n")
os.read(0, 100)
if sys.argv[2:]:
    _tracemalloc.start(1)
kept = work()
traced = len(sys.argv[2:])  # from the free list, as is the list of traces
os.write(1, b"done\n")
os.read(0, 100)
if traced:
    # Not tracemalloc itself, which some builds lack the modules for.
    traces = _tracemalloc._get_traces()
    _tracemalloc.stop()
    lines = collections.defaultdict(lambda: [0, 0])
    for trace in traces:
        if trace[1] == left_out:
            continue
        (line,) = trace[2]
        lines[line][0] += trace[1]
        lines[line][1] += 1
    said = json.dumps([[*line, *sums] for line, sums in lines.items() if line[0] != __file__])
    os.write(1, said.encode() + b"\n")
    os.read(0, 100)
