# SPDX-License-Identifier: Apache-2.0
"""Decimals in memory that held pointers before: their unused digits are old references. It prints
the addresses of the object that these are of, and of a Decimal that needs a buffer, as JSON, then
waits."""
import decimal
import json
import sys


class Target:
    pass


target = Target()
# Blocks of the same size class as a Decimal's, full of references to the target.
items = (sys.getsizeof(decimal.Decimal(1)) + 15) // 16 * 2
old = [[target] * items for i in range(4000)]
keep = old[::2]
del old, keep
decimals = [decimal.Decimal(i) for i in range(4000)]
large = decimal.Decimal("1" * 20000)
print(json.dumps({"target": id(target), "large": id(large)}), flush=True)
print("ready", flush=True)
sys.stdin.readline()
