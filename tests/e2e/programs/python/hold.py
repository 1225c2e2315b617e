# SPDX-License-Identifier: Apache-2.0
"""A workload of tools/bench/workloads whose end is not the end of its memory. usage: hold.py WORKLOAD NFRAME ROUNDS

Says "ready", waits for a line, does the work, says "done" and keeps what the work kept until its stdin ends.
"""
import os
import runpy
import sys

os.write(1, b"ready\n")
os.read(0, 100)
del sys.argv[0]
kept = runpy.run_path(sys.argv[0])
os.write(1, b"done\n")
os.read(0, 100)
