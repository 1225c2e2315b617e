# SPDX-License-Identifier: Apache-2.0
"""Processes that come and go as fast as they can. usage: storm.py TOTAL AT_ONCE   prints "done" and waits for its stdin"""
import os
import sys

total, at_once = int(sys.argv[1]), int(sys.argv[2])
programs = (["/bin/true"], ["/bin/sh", "-c", ":"], ["/bin/sh", "-c", "exec /bin/true"], None)
null = os.open(os.devnull, os.O_RDWR)
running = begun = 0
while begun < total or running:
    while begun < total and running < at_once:
        command = programs[begun % len(programs)]
        if os.fork() == 0:
            os.dup2(null, 1)
            if command:
                os.execv(command[0], command)
            os._exit(0)
        begun += 1
        running += 1
    os.wait()
    running -= 1
os.write(1, b"done\n")
os.read(0, 100)
