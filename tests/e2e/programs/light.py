# SPDX-License-Identifier: Apache-2.0
"""Takes two or three percent of a CPU, all of it to allocate."""
import time

print("ready", flush=True)
while True:
    kept = [(i, str(i)) for i in range(2000)]
    time.sleep(0.02)
