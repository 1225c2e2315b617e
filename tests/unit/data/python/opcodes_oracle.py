# SPDX-License-Identifier: Apache-2.0
"""What code does to a container C, and where its instructions are. "code HEX OFFSET,OFFSET,…": the
instructions of a function of the standard library without prefixes and caches, as dis tells them.
"scan HEX NAME,NAME,… EVENT,EVENT,…": one of the functions below, its co_names, and what it does.
The code is that which the interpreter runs: specialised, where it does that."""
import dis
import heapq
import json
import re
import textwrap
import types


class Kept(list):
    """Also a dictionary of lists, so that every function below runs."""

    def get(self, key, default=None):
        return Kept()

    setdefault = __or__ = __ior__ = __iadd__ = get

    def __getitem__(self, key):
        return Kept()

    def __setitem__(self, key, value):
        pass

    def keys(self):
        return ()


C, D, members = Kept(), {}, Kept()


def added(x):  # add C
    C.append(x)


def stored(x):  # item C
    C[x] = x


def counted(x):  # read C,inplace C[],item C
    C[x] += x


def extended(x):  # inplace C,global C
    global C
    C += x


def merged(x):  # inplace C,global C
    global C
    C |= x


def pushed(x):  # push C
    heapq.heappush(C, x)


def got(x):  # add C[]
    C.get(x).append(x)


def made(x):  # add C,add C[]
    C.setdefault(x, []).append(x)


def inner(x):  # read C,add C[]
    C[x].append(x)


def chosen(x):  # item C
    C[x] = [x] if x else {x: [x]}


def chosen_inside(x):  # add C,add C[]
    C.setdefault([x] if x else {x: x}, [] if x else {}).append(x)


def each(x):  # add C[]
    for one in C:
        one.append(x)


def alias(x):  # add C
    c = C
    c.append(x)
    c.append([x])


def bound(x):  # add C
    add = C.append
    add(x)


def attribute(x):  # add .members,item .members,read .members
    here.members.append(x)
    here.members[x] = x
    return here.members[x]


def replaced(x):  # global C
    global C
    C = Kept([*C, x])


def guarded(x):  # add C
    try:
        C.append(x)
    except (ValueError, TypeError):
        C.append(x)
    finally:
        D.clear()


def within(x):  # add C
    with here:
        for number in range(2):
            if number and not x:
                continue
            C.append(number)


def keywords(x):  # add C
    C.append(dict(a=x, b=str(x, *(), **{}), c=f"{x!r:>9}{x}"))


def reads(x):  # read C
    D[x] = len(C), C.keys(), C[0], C is x, [one for one in C], C.get(x), x in C
    D[len(C)] = 1 if x is C else C
    return C if not x else D


class Here:
    members = members

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass


here = Here()
heapq.heappush = lambda to, what: None
SOURCE = open(__file__, encoding="utf-8").read()


def running(code):
    return getattr(code, "_co_code_adaptive", code.co_code)


def offsets(code):
    hidden = ("EXTENDED_ARG", "CACHE")
    return [i.offset for i in dis.get_instructions(code) if i.opname not in hidden]


def dump(code, seen=set()):
    if id(code) in seen:
        return
    seen.add(id(code))
    print("code", running(code).hex(), ",".join(map(str, offsets(code))))
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            dump(constant)


def scan(function, expected):
    global C
    kept = C
    for number in range(100):
        C = kept
        try:
            function("x")
        except TypeError:
            pass
    code = function.__code__
    print("scan", running(code).hex(), ",".join(code.co_names), expected)


for name, expected in re.findall(r"^def (\w+)\(x\):  # (.*)$", SOURCE, re.M):
    scan(globals()[name], expected)
# Names beyond the 255th have a prefix.
far = {"C": C}
LINES = "".join(" g%d.h%d\n" % (number, number) for number in range(300))
exec("def far(x):\n if x: return C.append(x)\n" + LINES + " C.append(x)", far)
C = far["C"]
scan(far["far"], "add C")
for number in range(50):
    json.loads(json.dumps({"a": [number, 1.5, None, "b"]}, indent=1))
    re.compile("a%d[bc]+(?P<d>e|f)*$" % number)
    textwrap.fill("some words " * 20, 30)
for module in (json.encoder, json.decoder, json.scanner, textwrap, dis, re, heapq):
    for value in list(vars(module).values()):
        methods = vars(value).values() if isinstance(value, type) else [value]
        for method in methods:
            if isinstance(method, types.FunctionType):
                dump(method.__code__)
