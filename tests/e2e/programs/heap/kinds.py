# SPDX-License-Identifier: Apache-2.0
"""Objects of many kinds. After a line on stdin prints {"line mark": [id, …]} as JSON and waits again. usage: kinds.py COUNT

Some have the collector's head before them, some the pointers of a managed dict and that, some neither; some are large.
"""
import array
import collections
import gc
import os
import sys
import weakref

gc.disable()


class Plain:
    pass


class Slots:
    __slots__ = ("name", "__weakref__")


class Text(str):
    pass


class Named(dict):
    pass


target = Slots()
makers = (
    ("bytes", lambda i: bytes(i % 400 + 1)),  # line bytes
    ("large", lambda i: bytes(100000 + i)),  # line large
    ("bytearray", lambda i: bytearray(i)),  # line bytearray
    ("int", lambda i: (i + 2) ** 30),  # line int
    ("float", lambda i: i / 3),  # line float
    ("complex", lambda i: complex(i, 1)),  # line complex
    ("str", lambda i: "%d é" % i),  # line str
    ("object", lambda i: object()),  # line object
    ("list", lambda i: [i]),  # line list
    ("tuple", lambda i: (i, None)),  # line tuple
    ("dict", lambda i: {"key": i}),  # line dict
    ("set", lambda i: {i}),  # line set
    ("function", lambda i: lambda: i),  # line function
    ("generator", lambda i: (x for x in ())),  # line generator
    ("plain", lambda i: Plain()),  # line plain
    ("slots", lambda i: Slots()),  # line slots
    ("text", lambda i: Text(i)),  # line text
    ("named", lambda i: Named()),  # line named
    ("array", lambda i: array.array("d", (i,))),  # line array
    ("deque", lambda i: collections.deque()),  # line deque
    ("reference", lambda i: weakref.ref(target, print)),  # line reference
)
count = int(sys.argv[1])
kept = {mark: [None] * (count // len(makers) + 1) for mark, _ in makers}
os.write(1, b"ready\n")
os.read(0, 100)
for mark, make in makers:
    objects = kept[mark]
    for i in range(len(objects)):
        objects[i] = make(i)
ids = {mark: [id(item) for item in objects] for mark, objects in kept.items()}
os.write(1, ("%s\n" % ids).replace("'", '"').encode())
os.read(0, 100)
