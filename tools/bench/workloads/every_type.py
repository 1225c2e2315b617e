"""Objects of every builtin type, kept, and containers that grow and shrink.    usage: every_type.py NFRAME ROUNDS
With "types" instead of a number of rounds it prints the names of the builtin types that it makes nothing of."""
import builtins, collections, contextvars, io, os, pickle, sys, time, tracemalloc, types, warnings, weakref


class Slots:
    __slots__ = ("a", "b", "__weakref__")


class Plain:
    def __init__(self, i):
        self.name, self.next = str(i) + "!", [i]

    def method(self):
        return super()

    @property
    def value(self):
        return 1


class Sequence:
    def __getitem__(self, i):
        return i


class List(list):
    pass


class Meta(type):
    pass


Point = collections.namedtuple("Point", "x y")
variable = contextvars.ContextVar("variable")


def numbers(i):
    return [i * 1000003, -i << 70, 10 ** (i % 90 + 20), i + 0.5, complex(i, 1), i % 2 == 0, None, Ellipsis, NotImplemented, object()]


def strings(i):
    n = i % 40
    texts = ["%d ascii" % i, "é%d" % i, "€%d" % i, "\U0001f40d%d" % i, "a" * (600 + n), "\U0001f40d" * (200 + n)]
    texts += [t.upper() + t[1:] for t in texts]
    return texts + [b"%d" % i, bytes(i % 700), bytearray(i % 700), memoryview(bytearray(n + 1)), memoryview(bytes(16)).cast("i")]


def containers(i):
    n = i % 30
    d = {str(j): i + j for j in range(n)}
    made = [list(range(i, i + n)), [j for j in range(n)], [None] * n, tuple([i] * n), d, dict(d), {**d, "i": i}, {i: i}]
    made += [set(range(i, i + n)), frozenset(range(i, i + n)), {i, i + 1}, List([i]), Point(i, i), collections.OrderedDict(d), collections.deque([i])]
    made += [d.keys(), d.values(), d.items(), types.MappingProxyType(d), collections.defaultdict(list, d), collections.Counter(d)]
    return made + [slice(i, i + 1), range(i, i + n), types.SimpleNamespace(i=i), os.stat_result(range(i, i + 10)), time.struct_time(range(i, i + 9))]


def iterators(i):
    d, s = {i: i}, {i, i + 1}
    made = [iter([i]), iter((i, i)), iter("é%d" % i), iter("%d" % i), iter(b"%d" % i), iter(bytearray(4)), iter(d), iter(d.values()), iter(d.items()), iter(s)]
    made += [iter(range(i, i + 3)), iter(range(1 << 70, (1 << 70) + 3)), iter(Sequence()), iter(lambda: i, None), reversed([i]), reversed(Sequence_len())]
    made += [enumerate([i]), zip([i], [i]), map(str, [i]), filter(None, [i]), iter(memoryview(bytes(4)))]
    if sys.version_info >= (3, 8):
        made += [reversed(d), reversed(d.values()), reversed(d.items())]
    if sys.version_info >= (3, 10):
        made.append(make.__code__.co_lines())
    if sys.version_info >= (3, 11):
        made.append(make.__code__.co_positions())
    return made


class Sequence_len(Sequence):
    def __len__(self):
        return 3


def callables(i):
    def closure(a, b=[i], *, c=i):
        return i, a

    plain = Plain(i)
    made = [closure, closure.__closure__[0], lambda: closure, plain, plain.method, plain.method(), [].append, "".__str__, Slots(), Slots.a]
    made += [classmethod(closure), staticmethod(closure), property(closure), types.MethodType(closure, i), types.CellType(i), dict.fromkeys]
    made += [compile("x + %d" % i, "text%d" % i, "eval"), types.ModuleType("module%d" % i), str.join, int.__add__, type.__dict__["__name__"], dict.__dict__["fromkeys"]]
    if i % 10 == 0:
        made += [type("C%d" % i, (Plain,), {"x": i}), Meta("M%d" % i, (), {})]
    return made


def raised(i):
    made = []
    for kind in exceptions:
        try:
            made.append(kind(*arguments.get(kind.__name__, (str(i),))))
        except TypeError:
            made.append(kind("message", [ValueError(i) if issubclass(kind, Exception) else KeyboardInterrupt(i)]))  # a group
    try:
        try:
            [][i]
        except IndexError:
            raise KeyError(i)
    except KeyError as error:
        made += [error, error.__traceback__, error.__traceback__.tb_frame]
    return made


@types.coroutine
def pause():
    yield 1


async def coroutine(i):
    await pause()
    return i


async def agenerator(i):
    await pause()
    yield i


def generator(i):
    with_locals = [i] * 3
    yield with_locals
    yield i


def running(i):
    g, c, a = generator(i), coroutine(i), agenerator(i)
    next(g)
    c.send(None)
    send = a.asend(None)
    send.send(None)
    waiting = coroutine(i).__await__()
    next(waiting)
    made = [g, g.gi_frame, c, a, send, waiting, a.aclose(), a.athrow(ValueError), (j for j in [i])]
    if sys.version_info >= (3, 13):
        made.append(g.gi_frame.f_locals)
    return made


def others(i):
    target = Slots()
    function = lambda: i
    context = contextvars.copy_context()
    made = [target, function, weakref.ref(target), weakref.ref(target, print), weakref.proxy(target), weakref.proxy(function), weakref.WeakMethod(Plain(i).method)]
    made += [contextvars.ContextVar("v%d" % i), variable.set(i), context, iter(context), context.keys(), io.BytesIO(b"%d" % i), io.StringIO("%d" % i)]
    made += [pickle.PickleBuffer(b"%d" % i), str.maketrans("ab", "cd"), sys.exc_info()]
    made += [getattr(builtins, name)(*args) for name, args in (("frozendict", ({"i": i},)), ("sentinel", ("name%d" % i,))) if hasattr(builtins, name)]
    if sys.version_info >= (3, 9):
        made += [list[int], dict[str, i], iter(list[int]) if sys.version_info >= (3, 11) else None]
    if sys.version_info >= (3, 10):
        made += [int | str, list[int] | None]
    if sys.version_info >= (3, 12) and i % 10 == 0:
        names = {}
        exec("type Alias%d[T, *Ts, **P] = dict[T, int]\ndef f[T: int](x: T) -> T: return x" % i, names)
        made.append(names)
    return made


def grow(i, store):
    """Each container gains, and now and then loses what it gained."""
    store["list"].append(i + 0.25)
    store["dict"][str(i)] = i
    store["set"].add(i + 0.75)
    store["bytearray"].extend(b"%d," % i)
    store["str"] += "%d," % i
    store["tuple"] += (i,)
    store["int"] = store["int"] * 3 + i
    if i % 300 == 299:
        store.update(str="", tuple=(), int=1)
        del store["list"][100:], store["bytearray"][1000:]
        store["dict"].clear()
        store["set"].clear()


MAKERS = (numbers, strings, containers, iterators, callables, raised, running, others)
# Those that take nothing but a text are not in it.
arguments = {"UnicodeDecodeError": ("utf-8", b"\xff", 0, 1, "no"), "UnicodeEncodeError": ("ascii", "é", 0, 1, "no"), "UnicodeTranslateError": ("é", 0, 1, "no"),
             "SyntaxError": ("text", ("file", 1, 1, "line")), "StopIteration": (1,), "SystemExit": (1,)}
exceptions = [kind for kind in vars(builtins).values() if isinstance(kind, type) and issubclass(kind, BaseException)]


def make(i):
    return [maker(i) for maker in MAKERS]


def names_missing():
    """Builtin types, as builtins and types name them, of which make() makes nothing."""
    made = {type(thing) for i in (1, 10) for things in make(i) for thing in things}
    named = {kind for module in (builtins, types) for kind in vars(module).values() if isinstance(kind, type)}
    return sorted(kind.__name__ for kind in named - made)


warnings.simplefilter("ignore")  # coroutines that nobody awaits
nframe, rounds = int(sys.argv[1]), sys.argv[2]
if rounds == "types":
    print(*names_missing())
    os._exit(0)
if nframe:
    tracemalloc.start(nframe)
start = time.perf_counter()
kept, store = [], {"list": [], "dict": {}, "set": set(), "bytearray": bytearray(), "str": "", "tuple": (), "int": 1}
for i in range(int(rounds)):
    kept.append(make(i))
    grow(i, store)
print(f"{time.perf_counter() - start:.3f}")
