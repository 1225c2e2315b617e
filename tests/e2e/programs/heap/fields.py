# SPDX-License-Identifier: Apache-2.0
"""Objects that fields of C types hold, each of a class of its own and held by nothing else. It
prints the last steps of the path to it for each class, as JSON, then waits."""
import asyncio
import collections
import contextvars
import functools
import itertools
import json
import queue
import sys
import weakref

MARKS = {}
FRAME = "attribute cr_frame, " if sys.version_info < (3, 11) else ""


def mark(field):
    """An object of a new class."""
    name = "Mark%d" % len(MARKS)
    MARKS[name] = field
    cls = type(name, (), {"__call__": lambda self, *args: 0, "__iter__": lambda self: self})
    cls.__next__ = lambda self: None
    return cls()


def fail(value):
    local = mark("attribute __traceback__, attribute tb_next, attribute tb_frame, local local")
    raise ValueError(value)


def caught():
    try:
        fail(mark("attribute args, index 0"))
    except ValueError as error:
        return error


async def wait(value):
    await asyncio.sleep(3600)
    return value


class Error(Exception):
    pass


@functools.lru_cache(maxsize=None)
def unbounded(value):
    return mark("field cache of unbounded, key 1")


@functools.lru_cache(maxsize=4)
def bounded(value):
    return mark("field result")


KEEP = [
    caught(),
    functools.partial(mark("attribute func")),
    itertools.chain([], mark("field active iterator")),
    itertools.cycle(mark("field iterator")),
    itertools.repeat(mark("field element")),
    itertools.starmap(mark("field function"), []),
    itertools.takewhile(mark("field function"), []),
    itertools.accumulate([], mark("field function")),
    itertools.groupby([], mark("field key function")),
    itertools.islice(mark("field iterator"), 5),
    itertools.zip_longest([], fillvalue=mark("field fill value")),
    map(mark("field function"), []),
    filter(mark("field function"), []),
    iter(mark("field callable"), 1),
    enumerate(mark("field iterator")),
    collections.deque([mark("index 0")]),
    weakref.ref(mark, mark("attribute __callback__")),
    contextvars.ContextVar("var", default=mark("field default")),
]
next(KEEP[2])
error = Error()
error.__cause__ = ValueError(mark("attribute __cause__, attribute args, index 0"))
error.__context__ = KeyError(mark("attribute __context__, attribute args, index 0"))
error.__suppress_context__ = True
KEEP.append(error)
unbounded(1)
bounded(1)
simple = queue.SimpleQueue()
simple.put(mark("field items, index 0" if sys.version_info < (3, 13) else "buffer "))
context = contextvars.copy_context()
variable = contextvars.ContextVar("held")
context.run(variable.set, mark("field entry"))


async def main():
    loop = asyncio.get_running_loop()
    future = loop.create_future()
    future.set_result(mark("attribute _result"))
    other = loop.create_future()
    other.add_done_callback(mark("field callback"))
    task = asyncio.ensure_future(wait(mark("attribute _coro, " + FRAME + "local value")))
    await asyncio.sleep(0)
    KEEP.extend((future, other, task))
    print(json.dumps(MARKS), flush=True)
    print("ready", flush=True)
    sys.stdin.readline()


asyncio.run(main())
