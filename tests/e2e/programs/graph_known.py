# SPDX-License-Identifier: Apache-2.0
"""Structures whose parts nothing else holds. It prints the sum of sys.getsizeof() of each and the
number of its objects, as JSON, then waits."""
import json
import sys


class Tree:
    def __init__(self, depth):
        self.text = "a tree of depth %d at %r" % (depth, object())
        self.children = [Tree(depth - 1), Tree(depth - 1)] if depth else []


class Ring:
    pass


def parts(top):
    """Every object below top that belongs to the structure, once."""
    found, stack = {}, [top]
    while stack:
        value = stack.pop()
        if id(value) in found or value is None or isinstance(value, type):
            continue
        found[id(value)] = value
        if isinstance(value, (list, tuple, set)):
            stack.extend(value)
        elif isinstance(value, dict):
            stack.extend(value)
            stack.extend(value.values())
        elif isinstance(value, (Tree, Ring)):
            stack.extend(vars(value).values())
    return found.values()


class Holder:
    """Nothing but its instance holds what it is given."""

    __slots__ = ("value",)


def hold(value):
    holder = Holder()
    holder.value = value
    return holder


numbers = hold([1000003 * i for i in range(2000)])
mapping = hold({"key %d of it" % i: ("%d" % (i * 7919), i * 1000003) for i in range(1000)})
big = hold("x" * 3000000)
tuples = hold(tuple((i * 999983,) for i in range(1, 3000)))
ring = hold(Ring())
ring.value.other = Ring()
ring.value.other.other = ring.value
tree = hold(Tree(5))

KNOWN = {
    name: {
        "address": id(globals()[name].value),
        "size": sum(map(sys.getsizeof, parts(globals()[name].value))),
        "count": len(parts(globals()[name].value)),
    }
    for name in ("numbers", "mapping", "big", "tuples")
}
KNOWN["ring"] = {"address": id(ring.value), "rings": 2}
KNOWN["tree"] = {"address": id(tree.value), "trees": 63}
print(json.dumps(KNOWN), flush=True)
print("ready", flush=True)
sys.stdin.readline()
