# SPDX-License-Identifier: Apache-2.0
"""A process whose context variable is not what it seems: its own memory is overwritten. usage:
label_hostile.py

Prints "ready", waits for a line, works, prints {value: [bytes, blocks]} of line L ("": none), waits
for stdin's end. No value has an attribute "absent". While the memory is wrong, blocks are made and nothing else. CPython with the GIL.
"""
import contextvars
import ctypes
import gc
import json
import sys

gc.disable()
variable = contextvars.ContextVar("label.hostile")
kept, counts = [], {}
WORD = ctypes.sizeof(ctypes.c_void_p)
VARS, ROOT, NODE_SIZE, NODE_BITMAP, NODE_ITEMS = 24, 16, 16, 24, 32
NAME = 24  # of a type
STATE = 32  # of a str
ENTRIES = 24 if sys.version_info >= (3, 11) else 32  # of a dict's keys
KEYS = 32  # of a dict


def get(address):
    return ctypes.c_uint64.from_address(address).value


def put(address, value):
    ctypes.c_uint64.from_address(address).value = value


def count(expected, blocks):
    entry = counts.setdefault(expected, [0, 0])
    entry[0] += sum(map(sys.getsizeof, blocks))
    entry[1] += len(blocks)


def fill(blocks, wrong):
    """wrong: {address: value}, for as long as the blocks are made."""
    right = {address: get(address) for address in wrong}
    for address, value in wrong.items():
        put(address, value)
    for i in range(len(blocks)):
        blocks[i] = bytes(300)  # line L: one block each
    for address, value in right.items():
        put(address, value)


def made(size, *words):
    """Memory that begins with words; its address."""
    memory = (ctypes.c_uint64 * (size // WORD))(*words)
    kept.append(memory)
    return ctypes.addressof(memory)


def named_type(name):
    text = ctypes.create_string_buffer(name)
    kept.append(text)
    fake = made(4096)
    put(fake + NAME, ctypes.addressof(text))
    return fake


def with_wrong(expected, wrong, value=None):
    """wrong(): what is wrong, in a context that has a value. It gets where a tree has its root: of
    one of its own, since a tree that stays is not looked at again."""
    context = contextvars.copy_context()

    def run():
        variable.set(value)
        blocks = [None] * 3
        real = get(id(context) + VARS)
        tree = made(64, *(get(real + WORD * i) for i in range(5)))
        changes = wrong(tree + ROOT)
        put(tree + ROOT, changes.pop(tree + ROOT, get(tree + ROOT)))
        fill(blocks, {id(context) + VARS: tree, **changes})
        kept.append(blocks)
        count(expected, blocks)

    context.run(run)


def node(type_, size, bitmap=0xFFFFFFFF):
    return made(NODE_ITEMS + 64 * WORD, 1, type_, size, bitmap)


def cyclic(root):
    """A tree whose nodes are all the same one."""
    fake = node(get(get(root) + WORD), 64)
    for i in range(32):
        put(fake + NODE_ITEMS + 2 * WORD * i + WORD, fake)
    return {root: fake}


def endless(root):
    """A list of variables that says that it has 2^31 entries, and does not have this one."""
    return {root: node(named_type(b"hamt_collision_node"), 2**31)}


def listed(value):
    """A list that has the variable, with that value."""

    def wrong(root):
        fake = node(named_type(b"hamt_collision_node"), 2)
        # a bitmap's items begin where a list's do
        put(fake + NODE_ITEMS, id(variable))
        put(fake + NODE_ITEMS + WORD, value)
        return {root: fake}

    return wrong


def long_keys(root):
    return {get(id(TABLE) + KEYS) + ENTRIES: 2**31}


TABLE = {"other": 1}
ABSENT = sys.intern("absent")  # a step of the path, in no dict
TEXT = "a text of some length"
NOT_READ = "(a type that is not read)"


def text_of(length):
    """A str that says that it has this length; its address."""
    return made(256, 1, id(str), length, 0, get(id(TEXT) + STATE))


def work():
    with_wrong("", cyclic)
    with_wrong("", endless)
    with_wrong("", lambda root: {root: 0})
    with_wrong("", lambda root: {root: 8})
    with_wrong("", lambda root: {root: 2**64 - 1})
    with_wrong("", lambda root: {root: named_type(b"hamt_bitmap_node")})
    with_wrong("", listed(0))
    with_wrong("<unknown>", listed(8))
    with_wrong("<unknown>", listed(made(64, 1, 2**64 - 1)))
    with_wrong(NOT_READ, listed(made(64, 1, 8)))
    itself = made(4096)
    put(itself + WORD, itself)
    with_wrong(NOT_READ, listed(itself))
    with_wrong("<unknown>", listed(text_of(2**62)))
    with_wrong("<unknown>", listed(made(64, 1, id(int), 2**60)))
    with_wrong(TEXT, lambda root: {}, TEXT)
    with_wrong(NOT_READ, long_keys, TABLE)


print("ready", flush=True)
sys.stdin.readline()
work()
print(json.dumps(counts), flush=True)
sys.stdin.read()
