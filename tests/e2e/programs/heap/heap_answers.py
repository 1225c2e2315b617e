# SPDX-License-Identifier: Apache-2.0
"""Objects that are held in ways that are easy to name wrongly. usage: heap_answers.py N

It prints "ready" and waits for a line.
"""
import collections
import ctypes
import queue
import sys
import threading
import time

N = int(sys.argv[1])
X = b"x"
forget = ctypes.pythonapi.Py_IncRef
forget.argtypes = [ctypes.py_object]
forget.restype = None


class Node:
    def __init__(self, next):
        self.next = next


class Branch:
    __slots__ = ("branches", "leaf")

    def __init__(self, depth):
        self.branches = [Branch(depth - 1)] if depth else []
        self.leaf = X * 10 + b"%d" % depth if depth else None


def item_of(module):
    return type("Item", (), {"__slots__": ("x",), "__module__": module})


class Server:
    def serve(self, ready):
        log = [X * (1000 + n) for n in range(100)]
        ready.wait()
        time.sleep(10000)
        return log


def generate():
    state = {1.25: X * 77}
    yield state


def lose(number):
    body = [X * (number % 300 + 50)]
    forget(body)


kept = [{"number": n, "text": "%0100d" % n} for n in range(N)]
grid = [[n * 1.5 for n in range(20)] for _ in range(50)]
deques = [collections.deque(range(10)) for _ in range(N // 20)]
ordered = [collections.OrderedDict(a=n) for n in range(N // 20)]
one, other = item_of("one"), item_of("other.inner")
items = [one() for _ in range(N // 10)] + [other() for _ in range(N // 5)]
head = None
for _ in range(1000):
    head = Node(head)
tree = Branch(50)
simple = queue.SimpleQueue()
for n in range(N // 10):
    simple.put((n, X * 1000))
started = threading.Barrier(5)
for _ in range(4):
    threading.Thread(target=Server().serve, args=(started,), daemon=True).start()
started.wait()
waiting = [generate() for _ in range(10)]
for generator in waiting:
    next(generator)
for n in range(N // 4):
    lose(n)
print("ready", flush=True)
sys.stdin.readline()
