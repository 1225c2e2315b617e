# SPDX-License-Identifier: Apache-2.0
"""Says "ready", and ends after that many seconds. usage: brief_heap.py SECONDS"""
import os
import sys
import time

os.write(1, b"ready\n")
time.sleep(float(sys.argv[1]))
