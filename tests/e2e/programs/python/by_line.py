# SPDX-License-Identifier: Apache-2.0
"""Work whose live blocks a tracer from outside and the interpreter's own tracemalloc are to find at the same lines.
usage: by_line.py WORK [tracemalloc]

Says "ready", waits for a line, works, says "done" or what tracemalloc has since the line as JSON, [[file, line, bytes, blocks]…],
and waits again. The lines of this file itself count for nothing. Beside every kind of thing that is kept things of many kinds
are made and dropped (by_line_work.py), so that what CPython takes again from its free lists belongs to another line than the one
that asked for its block. What was on these lists before tracemalloc does not know: they are emptied first.
"""
import gc
import json
import os
import sys
import tracemalloc

import by_line_work

gc.collect()
gc.disable()
emptied = [tuple([None] * n) for n in range(1, 21) for _ in range(2100)]
emptied += [([], {}, i / 3, slice(i, i)) for i in range(3000)]
work = getattr(by_line_work, sys.argv[1])
os.write(1, b"ready\n")
os.read(0, 100)
if sys.argv[2:]:
    tracemalloc.start(1)
kept = work()
said = "done"
if sys.argv[2:]:
    rows = [(s.traceback[0], s) for s in tracemalloc.take_snapshot().statistics("lineno")]
    own = (__file__, tracemalloc.__file__)
    said = json.dumps([[f.filename, f.lineno, s.size, s.count] for f, s in rows if f.filename not in own])
os.write(1, said.encode() + b"\n")
os.read(0, 100)
