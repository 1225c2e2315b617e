"""Holds many floats, and prints the ranges of pages that hold nothing but them."""
import collections
import json
import sys

PAGE = 4096
rows = [float(number) for number in range(300000)]
pages = collections.Counter(id(row) // PAGE for row in rows)
ranges = []
for page in sorted(page for page, count in pages.items() if count > 100):
    if ranges and ranges[-1][1] == page * PAGE:
        ranges[-1][1] += PAGE
    else:
        ranges.append([page * PAGE, page * PAGE + PAGE])
del pages
print(json.dumps(ranges), flush=True)
print("ready", flush=True)
sys.stdin.read()
