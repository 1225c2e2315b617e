# SPDX-License-Identifier: Apache-2.0
"""Objects of every builtin type, and of types of the standard library. usage: graph_builtins.py N

It prints "ready", then evaluates the expressions that it reads, a line each, and prints the id() of
each value.
"""
import abc, array, asyncio, collections, dataclasses, datetime, decimal, enum, fractions, functools  # noqa: E401
import io, itertools, logging, re, sys, threading, types, weakref  # noqa: E401

N = int(sys.argv[1]) if len(sys.argv) > 1 else 2000
class A:
    def __init__(self, i): self.i, self.name, self.peer = i * 1000003, str(i), None
    def m(self): pass
class S: __slots__ = ("a", "b", "__weakref__")
class SD(S): __slots__ = ("c", "__dict__")
class Sub(dict): pass
class SubL(list): __slots__ = ("extra",)
class SubT(tuple): pass
class SubI(int): pass
class SubS(str): pass
class P:
    @property
    def x(self): return 1
    @classmethod
    def c(cls): pass
    @staticmethod
    def s(): pass
@dataclasses.dataclass
class D:
    x: int; y: str; z: list
class E(enum.Enum):
    A = 1; B = 2
cache = {}
for i in range(N):
    a = A(i); cache[a.name] = a
    if i % 3 == 0: a.peer = S(); a.peer.a = [i * 1000.5, (i, str(i + 1))]; a.peer.b = {i * 7919, str(i)}
    if i % 5 == 0: a.extra = D(i, str(-i), [a])
    if i % 7 == 0: a.__dict__
queue = collections.deque(A(i) for i in range(N // 10)); ordered = collections.OrderedDict((str(i), A(i)) for i in range(N // 10))
for _ in range(5): queue.popleft(); queue.append(A(9))
closures = [(lambda k: (lambda: k))(str(i)) for i in range(N // 10)]
def generate(k): 
    loc = [k]
    yield k
generators = [generate(str(i)) for i in range(N // 20)]; [next(g) for g in generators]
done = [generate(str(i)) for i in range(N // 20)]; [list(g) for g in done]
fresh = [generate(str(i)) for i in range(N // 20)]
async def coro(x):
    await asyncio.sleep(1)
coros = [coro(str(i)) for i in range(N // 50)]
weak = [weakref.ref(a) for a in list(cache.values())[:N // 10]]; partial = [functools.partial(print, str(i)) for i in range(N // 20)]
weakcb = [weakref.ref(a, lambda r: None) for a in list(cache.values())[:N // 20]]
wd = weakref.WeakValueDictionary((i, a) for i, a in enumerate(list(cache.values())[:N // 20]))
sub = [Sub(a=i) for i in range(N // 20)]
for i, s in enumerate(sub): s.attr = str(i)
subl = [SubL([str(i)]) for i in range(N // 20)]
for s in subl: s.extra = [1]
subt = [SubT((str(i), i)) for i in range(N // 20)]
for i, s in enumerate(subt): s.attr = str(i) + "x"
subi = [SubI(i * 10**20) for i in range(N // 20)]
for i, s in enumerate(subi): s.attr = str(i) + "y"
subs = [SubS("é%d" % i) for i in range(N // 20)]
for i, s in enumerate(subs): s.attr = str(i) + "z"
sd = []
for i in range(N // 20):
    s = SD(); s.a = str(i); s.c = [s]; s.zz = {"q": i}; sd.append(s)
methods = [a.m for a in list(cache.values())[:N // 20]]
bound = [[].append for i in range(N // 20)]
iters = [iter([str(i)]) for i in range(N // 20)] + [iter({str(i): 1}) for i in range(N//20)] + [iter((str(i),)) for i in range(N // 20)]
maps = [map(str, [i]) for i in range(N // 20)] + [zip([i], [str(i)]) for i in range(N // 20)] + [enumerate([str(i)]) for i in range(N//20)]
chains = [itertools.chain([str(i)], [i]) for i in range(N // 20)] + [itertools.islice([str(i)], 1) for i in range(N//20)]
slices = [slice(str(i), i, None) for i in range(N // 20)]
ranges = [range(i * 1000, i * 1001 + 10**6) for i in range(N // 20)]
frozen = [frozenset([str(i), i * 1000]) for i in range(N // 20)]
bigset = set(str(i) + "s" for i in range(N)); [bigset.discard(str(i) + "s") for i in range(0, N, 3)]
excs = []
for i in range(N // 20):
    try: raise ValueError(str(i))
    except ValueError as e: excs.append(e)
mods = [types.ModuleType("m%d" % i) for i in range(20)]
klasses = [type("K%d" % i, (A,), {"z": [i]}) for i in range(50)]
kinst = [k(i) for i, k in enumerate(klasses)]
arrays = [array.array("d", [i] * 10) for i in range(N // 20)]
ba = [bytearray(b"x" * i) for i in range(N // 20)] + [memoryview(b"abc%d" % i) for i in range(N // 20)]
dec = [decimal.Decimal(i) / 7 for i in range(N // 20)] + [fractions.Fraction(i, 7) for i in range(N // 20)]
dts = [datetime.datetime(2020, 1, 1 + i % 28) for i in range(N // 20)]
@functools.lru_cache(maxsize=1000)
def cached(x): return [x]
for i in range(N // 20): cached(str(i))
ns = [types.SimpleNamespace(a=str(i)) for i in range(N // 20)]; mp = [types.MappingProxyType({"a": str(i)}) for i in range(N // 20)]
nt = collections.namedtuple("NT", "x y"); nts = [nt(i, str(i)) for i in range(N // 20)]
dd = collections.defaultdict(list); [dd[i % 50].append(str(i)) for i in range(N // 10)]
ctr = collections.Counter(str(i) for i in range(N // 10)); cm = collections.ChainMap({}, {1: [2]})
big = [None] * 5000; bigt = tuple(str(i) for i in range(3000)); bigs = "x" * 100000; bigd = {i: str(i) for i in range(5000)}
deleted = {i: [i] for i in range(1000)}; [deleted.pop(i) for i in range(0, 1000, 2)]
class Outer:
    class Inner: pass
inner = [Outer.Inner() for i in range(3)]
comp = re.compile("a(b)c"); matches = [comp.match("abc") for _ in range(N // 20)]
log = logging.getLogger("x"); lock = threading.Lock(); ev = threading.Event()
sio = [io.StringIO(str(i)) for i in range(20)] + [io.BytesIO(b"x" * i) for i in range(20)]
th = threading.Thread(target=ev.wait, daemon=True); th.start()
cplx = [complex(i, i) for i in range(20)]
def fr():
    x = [1, 2]; return sys._getframe()
frames = [fr() for _ in range(N // 20)]
async def ag():
    yield 1
ags = [ag() for _ in range(20)]
class Ab(abc.ABC):
    @abc.abstractmethod
    def z(self): pass
class Meta(type): pass
class WithMeta(metaclass=Meta): pass
# What classes hold: as their attributes, and where such an expression would give something else.
class Held: __slots__ = ("__weakref__",)
class Shadow(type): hidden = property(lambda cls: None)
class Descriptor(list):
    def __get__(self, instance, owner): return None
class Keeps:
    plain, table, __mangled, ends, get = [Held()], {1: Held()}, [Held()], collections.deque([Held()]), Descriptor([Held()])
    def method(self, held=[Held()]): pass
class KeepsAbc(abc.ABC): registry = [Held()]
class Hides(metaclass=Shadow): hidden = [Held()]
cycle = []; cycle.append(cycle)
deep = None
for i in range(N): deep = [deep]


def main():
    local = ["held by a frame alone"]
    print("ready", flush=True)
    for line in sys.stdin:
        print(id(eval(line, {"sys": sys})), flush=True)
    return local


main()
