# SPDX-License-Identifier: Apache-2.0
"""What memray has recorded of Python's allocators. usage: memray_figures.py FILE

Prints JSON: "peak", "temporary" (as --temporary-allocations) and "allocated", each a list of [file, line, bytes, blocks]
by line; "threads": [name, bytes, blocks] of what was not freed (as --leaks --split-threads); "peak_size": its own figure.
"""
import collections
import json
import sys

import memray

PYTHON = {getattr(memray.AllocatorType, "PYMALLOC_" + name) for name in ("MALLOC", "CALLOC", "REALLOC")}
reader = memray.FileReader(sys.argv[1])


def of_python(records):
    return [record for record in records if memray.AllocatorType(record.allocator) in PYTHON]


def line_of(record):
    frames = record.stack_trace(1)
    return frames[0][1:] if frames else ("", 0)


def summed(records, key):
    sums = collections.defaultdict(lambda: [0, 0])
    for record in of_python(records):
        pair = sums[key(record)]
        pair[0] += record.size
        pair[1] += record.n_allocations
    return sums


def by_line(records):
    return [[file, line, *pair] for (file, line), pair in summed(records, line_of).items()]


leaked = reader.get_leaked_allocation_records(merge_threads=False)
figures = {
    "peak": by_line(reader.get_high_watermark_allocation_records()),
    "peak_size": reader.metadata.peak_memory,
    "temporary": by_line(reader.get_temporary_allocation_records(threshold=1)),
    "allocated": by_line(reader.get_allocation_records()),
    "threads": [[name, *pair] for name, pair in summed(leaked, lambda record: record.thread_name).items()],
}
print(json.dumps(figures))
