# SPDX-License-Identifier: Apache-2.0
"""What a recording over time shows. At each line of stdin: blocks that stay, of a file whose name would
be markup, and a cache that is filled anew. At the third the cache is emptied, at the fourth a child is
forked, which ends with status 3. At the fifth two garbage collections free ten lists each, the only
ones."""
import gc
import os
import sys

NAME = "</script><script>document.title='hacked'</script><img src=x onerror=alert(1)>\u202e.py"

gc.disable()
kept, cache, hostile = [], [], {}
exec(compile("def stay(n):\n    return [bytearray(700) for _ in range(n)]\n", NAME, "exec"), hostile)


def fill():
    cache[:] = [bytearray(2000) for _ in range(100)]  # line C


def grow():
    kept.append([bytearray(1000) for _ in range(100)])  # line G
    kept.append(hostile["stay"](50))


def collect():
    for _ in range(10):
        ring = []
        ring.append(ring)
    del ring
    gc.collect()


gc.collect()
print("ready", flush=True)
for step, _ in enumerate(sys.stdin, 1):
    grow()
    if step == 3:
        cache.clear()
    else:
        fill()
    if step == 4:
        child = os.fork()
        if not child:
            grow()
            os._exit(3)
        os.waitpid(child, 0)
    if step == 5:
        collect()
        collect()
    print("done", flush=True)
