# SPDX-License-Identifier: Apache-2.0
"""Values of all kinds in context variables, with which blocks are made on one line. usage:
label_values.py

Prints "ready", waits for a line, works, prints {kind: {value: [bytes, blocks]}} of line L ("": none),
waits for stdin's end. A kind is a context variable "label.KIND" and what is read of it.
"""
import collections
import contextvars
import enum
import gc
import json
import sys
import uuid

gc.disable()
KINDS = ("value", "slot", "item", "key", "hex")
VARIABLES = {kind: contextvars.ContextVar("label." + kind) for kind in KINDS}
NOT_READ = "(a type that is not read)"
kept = []
counts = {kind: {} for kind in (*KINDS, "local")}


def fill(kind, expected, number, local=""):
    blocks = [None] * number
    for i in range(number):
        blocks[i] = bytes(300)  # line L: one block each
    kept.append(blocks)
    for each, rows in counts.items():
        text = local if each == "local" else expected if each == kind else ""
        entry = rows.setdefault(text, [0, 0])
        entry[0] += sum(map(sys.getsizeof, blocks))
        entry[1] += number


def with_value(kind, value, expected, number=2):
    def run():
        VARIABLES[kind].set(value)
        fill(kind, expected, number)

    contextvars.copy_context().run(run)


class ChoicesMeta(enum.EnumMeta):
    pass


class Plan(enum.Enum):
    FREE = 1
    PAID = "paid"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 10
    BELOW = -5
    FAR = -(2**40)


class Status(str, enum.Enum, metaclass=ChoicesMeta):
    OPEN = "open"


class Text(str):
    pass


class SlottedText(str):
    __slots__ = ()


class Number(int):
    pass


class Raw(bytes):
    pass


class Impostor:
    __slots__ = ("int", "is_safe")

    def __init__(self, value):
        self.int = value


Impostor.__name__ = "UUID"


class Slotted:
    __slots__ = ("first", "part")

    def __init__(self, part):
        self.first = "first"
        self.part = part


class Derived(Slotted):
    """Has a dict, too, where the name is not looked for."""

    def __init__(self, part):
        super().__init__(part)
        self.__dict__["part"] = "hidden"


class Empty:
    __slots__ = ()


class Mixed(Empty, Slotted):
    pass


class Plain:
    def __init__(self, part):
        self.part = part


class Pair(tuple):
    pass


Point = collections.namedtuple("Point", "x y")


class Holder:
    def __init__(self, inner):
        self.inner = inner


def handle(job):
    fill("local", "", 2, job.part)


def values():
    one = uuid.UUID(int=0x0123456789ABCDEF0123456789ABCDEF)
    for value in (one, uuid.UUID(int=0), uuid.UUID(int=2**128 - 1), uuid.uuid4()):
        with_value("value", value, str(value))
    for value in (Plan.FREE, Plan.PAID, Level.HIGH, Level.BELOW, Level.FAR, Status.OPEN):
        with_value("value", value, value.name)
    for value in ("text", "名" * 5, ""):
        with_value("value", Text(value), value or '""')
    with_value("value", SlottedText("slotted"), "slotted")
    with_value("value", Number(77), "77")
    with_value("value", Raw(b"raw"), "b'raw'")
    for bits in (29, 30, 59, 60, 62, 63, 64, 89, 90, 119, 120, 127):
        for value in (2**bits, -(2**bits), 2**bits + 12345, 1 - 2**bits):
            with_value("value", value, str(value))
    with_value("value", 2**128 - 1, str(2**128 - 1))
    for value in (2**128, -(2**150), 10**60):
        with_value("value", value, "<unknown>")
    with_value("value", ..., "Ellipsis")
    for value in ((1, 2), object(), Impostor("text"), Impostor(-1), Slotted(1), type, 1.5):
        with_value("value", value, NOT_READ)


def others():
    for part in ("slot", 5, Plan.FREE):
        text = getattr(part, "name", str(part))
        with_value("slot", Slotted(part), text)
        with_value("slot", Derived(part), text)
        with_value("slot", Plain(part), text)
    with_value("slot", Mixed("mixed"), "mixed")
    changing = Slotted("before")
    with_value("slot", changing, "before")
    changing.part = "after"
    with_value("slot", changing, "after")
    del changing.part
    with_value("slot", changing, "")
    for row in ((0, "second"), [0, "second"], Pair((0, "second", 2)), Point(0, "second")):
        with_value("item", row, "second")
    for row in ((0,), [], (), "text", {1: 2}, None):
        with_value("item", row, "")
    growing = [0]
    for i in range(40):
        growing.append("grown")
        with_value("item", growing, "grown", 1)
    for number in (2**127 + 5, 7, 2**64):
        with_value("key", {"other": 1, KEY: Holder((number, 3))}, "%032x" % number)
    with_value("key", {"other": 1}, "")
    for number in (255, -255, 2**70, True):
        with_value("hex", number, str(number) if number is True else "%08x" % number)
    for part in ("argument", 3):
        handle(Slotted(part))


KEY = "key-" + str(uuid.uuid4())  # made at run time: it is not interned
print("ready", flush=True)
sys.stdin.readline()
fill("value", "", 3)
values()
others()
print(json.dumps(counts), flush=True)
sys.stdin.read()
