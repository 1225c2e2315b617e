# SPDX-License-Identifier: Apache-2.0
"""Under -X perf: commands on stdin, a line each. "new N" makes functions of round N and calls them, "spin FILE"
calls all of them until the file is there."""
import os
import sys

functions = []


def new(number):
    for i in range(20):
        name = "round%s_%d" % (number, i)
        scope = {}
        exec(compile("def %s(): pass" % name, "/app.py", "exec"), scope)
        scope[name]()
        functions.append(scope[name])


def spin(path):
    while not os.path.exists(path):
        for function in functions * 100:
            function()


new(0)
print("ready", flush=True)
for line in sys.stdin:
    words = line.split()
    print({"new": new, "spin": spin}[words[0]](*words[1:]), flush=True)
