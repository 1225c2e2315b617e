# SPDX-License-Identifier: Apache-2.0
"""A path whose value changes with no new block for it: attributes and items that move, between
blocks that are made on one line. usage: label_moves.py

Prints "ready", waits for a line, works, prints {value: [bytes, blocks]} of line L ("": none), waits
for stdin's end. The path is "label.moves.part".
"""
import contextvars
import gc
import json
import sys

gc.disable()
MOVES = contextvars.ContextVar("label.moves")
NOT_READ = "(a type that is not read)"
MANY = ["other_%d" % i for i in range(40)]
kept, counts = [], {}


def fill(expected, number=5):
    blocks = [None] * number
    for i in range(number):
        blocks[i] = bytes(300)  # line L: one block each
    kept.append(blocks)
    entry = counts.setdefault(expected, [0, 0])
    entry[0] += sum(map(sys.getsizeof, blocks))
    entry[1] += number


class Thing:
    def __init__(self, part):
        self.first = None
        self.part = part


class Other:
    def __init__(self):
        self.part = "of another class"
        self.second = None


class Slotted:
    __slots__ = ("first", "part")


def attributes():
    thing, another, replaced = Thing("one"), Other(), {"part": "three"}
    MOVES.set(thing)
    fill("one")
    thing.part = "two"
    fill("two")
    thing.__dict__ = replaced
    fill("three")
    replaced["part"] = "four"
    fill("four")
    del thing.part
    fill("")
    thing.part = "five"
    fill("five")
    thing.__class__ = Other
    fill("five")
    thing.part = "six"
    fill("six")
    MOVES.set(another)
    fill("of another class")


def dicts():
    """An instance's dict that takes its values over, as it grows."""
    thing = Thing("seven")
    MOVES.set(thing)
    fill("seven")
    attributes_of = vars(thing)
    fill("seven")
    for name in MANY:
        attributes_of[name] = None
    fill("seven")
    attributes_of["part"] = "eight"
    fill("eight")
    attributes_of.clear()
    fill("")
    attributes_of["part"] = "nine"
    fill("nine")


def classes():
    """The values that a class left behind the object are not those of the next class."""
    thing = Thing("ten")
    MOVES.set(thing)
    fill("ten")
    thing.__class__ = Other
    fill("ten")
    thing.part = "eleven"
    fill("eleven")


def itself():
    thing = Thing(None)
    thing.part = thing
    MOVES.set(thing)
    fill(NOT_READ)
    thing.part = "twelve"
    fill("twelve")
    thing.part = None


def items():
    item = {"first": None, "part": "thirteen"}
    MOVES.set(item)
    fill("thirteen")
    item["part"] = "fourteen"
    fill("fourteen")
    del item["part"]
    fill("")
    item["last"] = None
    item["part"] = "fifteen"
    fill("fifteen")


def slots():
    slotted = Slotted()
    MOVES.set(slotted)
    fill("")
    slotted.part = "sixteen"
    fill("sixteen")
    slotted.part = "seventeen"
    fill("seventeen")
    del slotted.part
    fill("")


print("ready", flush=True)
sys.stdin.readline()
for move in (attributes, dicts, classes, itself, items, slots):
    move()
print(json.dumps(counts), flush=True)
sys.stdin.read()
