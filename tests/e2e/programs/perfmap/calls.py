# SPDX-License-Identifier: Apache-2.0
"""Calls small functions for argv[1] seconds: much of its time is spent in their trampolines under -X perf."""
import sys
import time


def leaf():
    pass


def caller():
    for _ in range(1000):
        leaf()


end = time.monotonic() + float(sys.argv[1])
print("ready", flush=True)
while time.monotonic() < end:
    caller()
