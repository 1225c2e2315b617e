# SPDX-License-Identifier: Apache-2.0
"""Makes objects of many sizes, frees two thirds of them, prints pymalloc's own figures on stderr,
and waits in pause()."""
import signal
import sys

rows = [[str(number) * (number % 9 + 1), {number: object()}] for number in range(60000)]
large = [bytes(600 + number) for number in range(2000)]
mapped = bytes(3000000)
rows = [row for number, row in enumerate(rows) if number // 64 % 3 == 0]
print("ready", flush=True)
sys._debugmallocstats()
signal.pause()
