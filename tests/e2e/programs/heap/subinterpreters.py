# SPDX-License-Identifier: Apache-2.0
"""The main interpreter keeps a list, and each of three others one of its own. It prints the ids of
these, oldest first, as JSON, then waits."""
import json
import sys

try:
    import _xxsubinterpreters as interpreters
except ImportError:
    import _interpreters as interpreters

run = getattr(interpreters, "run_string", None) or interpreters.exec
MAIN = [b"x" * 2000 + b"%d" % i for i in range(500)]
ALL = []
for number in range(3):
    ALL.append(interpreters.create())
    run(ALL[-1], "SUB%d = [b'y' * 2000 + b'%%d' %% i for i in range(300)]" % number)
print(json.dumps([int(each) for each in ALL]), flush=True)
print("ready", flush=True)
sys.stdin.readline()
