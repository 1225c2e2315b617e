# SPDX-License-Identifier: Apache-2.0
"""Ends slowly: blocks are allocated at the start, others a second later, and then the interpreter takes
as long again to shut down."""
import atexit
import time

atexit.register(time.sleep, 1)
early = [bytearray(1000) for _ in range(300)]  # line E
time.sleep(1)
late = [bytearray(1000) for _ in range(200)]  # line L
time.sleep(0.3)
