# SPDX-License-Identifier: Apache-2.0
"""The stacks of one run as two recorders saw them: tracer (a capture), and perf, which copied the
stack at the same functions (--call-graph dwarf) and unwinds the copies afterwards.

A frame is (file, offset in the file) of the last byte of the calling instruction."""
import bisect
import collections
import re
import struct

# As in include/abi.
EVENT_ALLOC, EVENT_REALLOC_DONE, EVENT_STACK = 1, 4, 6
FRAME_NATIVE = 1
JIT = re.compile(r"/perf-\d+\.map$")
STACK_CUT, STACK_REASON, STACK_TOTAL = 1 << 31, 24, 0xFFFFFF
CUT_BUSY = STACK_CUT >> STACK_REASON | 9  # ABI_UNWIND_CUT_BUSY
HEADER_BYTES, CAPTURE_HEADER_BYTES = 24, 16

# frames: innermost first. Tracer only: whole; more: there are more frames, which are not reported;
# busy: cut because the process's mappings were locked; python: it has Python's frames, and without
# the interpreter's. perf only, of a Python process: beside: what is left of its frames beside
# Python's; early: they end before a call of the evaluation loop.
Stack = collections.namedtuple(
    "Stack",
    "frames whole more busy python beside early",
    defaults=(None, False, False, False, None, False),
)
# bytes: as requested
Request = collections.namedtuple("Request", "tid bytes stack")
# The file of a Python interpreter, and where the code of its evaluation loop is in it.
Interpreter = collections.namedtuple("Interpreter", "file loop_start loop_end")


def file_of(path):
    """Code that is compiled at run time has several names."""
    return "" if path in ("//anon", "anon", "[unknown]") or JIT.search(path) else path


class Maps:
    """The files of a process's addresses, by perf's records of mappings. Later ones win."""

    def __init__(self):
        self.starts, self.entries = [], {}

    def add(self, start, size, offset, path):
        if start not in self.entries:
            bisect.insort(self.starts, start)
        self.entries[start] = (start + size, offset, path)

    def copy(self):
        other = Maps()
        other.starts, other.entries = list(self.starts), dict(self.entries)
        return other

    def place(self, address):
        for start in reversed(self.starts[: bisect.bisect_right(self.starts, address)][-8:]):
            end, offset, path = self.entries[start]
            if address < end:
                file = file_of(path)
                return file, address - start + offset if file else address
        return "", address


def read_capture(path, maps):
    """The native requests of a capture of which the stack is known, in their order. maps: {PID:
    Maps}."""
    with open(path, "rb") as file:
        data = file.read()
    stacks, requests, at = {}, [], CAPTURE_HEADER_BYTES
    while at + HEADER_BYTES <= len(data):
        kind, size, _, tgid, tid = struct.unpack_from("<IIQII", data, at)
        if kind == EVENT_STACK and tgid in maps:
            number, count, total = struct.unpack_from("<QII", data, at + 24)
            frames = struct.iter_unpack("<QiI", data[at + 40 : at + 40 + 16 * count])
            native = tuple(maps[tgid].place(f[0] - 1) for f in frames if f[2] == FRAME_NATIVE)
            stacks[tgid, number] = Stack(
                native,
                whole=not total & STACK_CUT,
                more=(total & STACK_TOTAL) > count,
                busy=total >> STACK_REASON == CUT_BUSY,
                python=len(native) < count,
            )
        elif kind in (EVENT_ALLOC, EVENT_REALLOC_DONE):
            requests.append((tgid, tid, *struct.unpack_from("<QQ", data, at + 32)))
        at += size
    return [
        Request(tid, size, stacks[tgid, number])
        for tgid, tid, size, number in requests
        if (tgid, number) in stacks
    ]


def beside_python(frames, interpreter):
    """What tracer has of these native frames beside Python's: the innermost one, and those that the
    outermost call of the evaluation loop has called, but for the interpreter's own. And whether
    such a call was not found: then the rest of them may be missing."""
    file, start, end = interpreter
    loops = [i for i, (path, at) in enumerate(frames) if path == file and start <= at < end]
    called = frames[1 : loops[-1] if loops else None]
    return (*frames[:1], *(frame for frame in called if frame[0] != file)), not loops


# "sqlite3 21870/21871 stacks:a3: (7f10) bytes=0x30 count=0x1", then a line for each frame
SAMPLE = re.compile(r"^\D.*?(\d+)/(\d+) +stacks:\w+: \([0-9a-f]+\)(.*)$")
FRAME = re.compile(r"^\t *([0-9a-f]+)(?: \((.*)\))?$")
# "PERF_RECORD_MMAP2 1/1: [0x7f10(0x26000) @ 0x1000 fd:00 123 456]: r-xp /usr/lib/libc.so.6"
MAPPING = re.compile(
    r"PERF_RECORD_MMAP2? (-?\d+)/\d+: \[(0x[0-9a-f]+)\((0x[0-9a-f]+)\) @ (0x[0-9a-f]+|0)[^\]]*\]: "
    r"\S+ (.*)$"
)
# "PERF_RECORD_FORK(31:31):(30:30)": the new process or thread, and its parent
FORK = re.compile(r"PERF_RECORD_FORK\((\d+):\d+\):\((\d+):\d+\)")

# perf ends so where the copy of the stack does.
END_OF_COPY = ("", (1 << 64) - 1)


class PerfReader:
    """Reads what perf script prints. Of calls that an allocator's function passes on to another
    one, which are sampled in both, only the outermost one is a request. at_calls: the probes are
    not in the allocators' functions, but at the calls of these, whose instructions have 5 bytes.
    interpreter: of a Python process."""

    def __init__(self, at_calls=False, interpreter=None):
        self.at_calls, self.interpreter = at_calls, interpreter
        self.maps = collections.defaultdict(Maps)  # {PID: Maps}
        self.requests = []
        self._seen = {}  # {TID: frames of its last sample and of its last request}
        self._head = None
        self._frames = []

    def _take(self):
        if not self._head or not self._frames:
            return
        tid, size = self._head
        if self._frames[-1] == END_OF_COPY:
            self._frames.pop()
        callers, (last, outer) = tuple(self._frames[1:]), self._seen.get(tid, (None, None))
        if self.at_calls:
            path, call = self._frames[0]
            callers = ((path, call + 4), *callers)
        nested = bool(callers) and callers[1:] in (last, outer)
        # A return probe of tracer, which only outer functions get, hides the caller.
        hidden = any(path == "[uprobes]" for path, _ in callers)
        if not nested and not hidden:
            stack = Stack(callers)
            if self.interpreter:
                beside, early = beside_python(callers, self.interpreter)
                stack = stack._replace(beside=beside, early=early)
            self.requests.append(Request(tid, size, stack))
            outer = callers
        self._seen[tid] = callers, outer

    def read(self, lines):
        for line in lines:
            frame = FRAME.match(line)
            if frame:
                self._frames.append((file_of(frame[2] or ""), int(frame[1], 16)))
                continue
            mapping = MAPPING.search(line)
            if mapping:
                self.maps[int(mapping[1])].add(
                    *(int(mapping[i], 16) for i in (2, 3, 4)), mapping[5]
                )
                continue
            fork = FORK.search(line)
            if fork and fork[1] != fork[2]:
                self.maps[int(fork[1])] = self.maps[int(fork[2])].copy()
            head = SAMPLE.match(line)
            if head:
                self._take()
                words = dict(re.findall(r"(\w+)=0x([0-9a-f]+)", head[3]))
                size = int(words["bytes"], 16) * int(words.get("count", "1"), 16)
                self._head, self._frames = (int(head[2]), size), []
        self._take()
        self._head = None
        return self
