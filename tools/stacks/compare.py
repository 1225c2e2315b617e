# SPDX-License-Identifier: Apache-2.0
"""Compares the stacks that two recorders saw of the same requests."""
import collections

Difference = collections.namedtuple("Difference", "kind ours theirs requests bytes")


def add(pair, count, size):
    return pair[0] + count, pair[1] + count * size


class Comparison:
    """Pairs (requests, bytes). ours: all of ours; whole: of these, with a whole stack; busy: of
    these, with a stack that was cut because the process's mappings were locked; cut: of the
    requests that both saw, those that perf could not unwind to the end: what it has is as ours;
    both: the others; equal: of these, those with the same frames."""

    def __init__(self):
        self.ours = self.whole = self.busy = self.cut = self.both = self.equal = (0, 0)
        self.frames = 0
        self.differences = []

    def pair(self, ours, theirs, count, size):
        """Requests that have these stacks."""
        kind = kind_of(ours, theirs)
        if kind == CUT:
            self.cut = add(self.cut, count, size)
            return
        self.both = add(self.both, count, size)
        if kind == EQUAL:
            self.equal = add(self.equal, count, size)
        else:
            self.differences.append(Difference(kind, ours, theirs, count, count * size))


EQUAL, CUT, DISAGREE = "equal", "perf's ends early", "they disagree"


def is_same(one, other):
    """Of a system call that a signal has interrupted perf has the instruction after it."""
    return one[0] == other[0] and other[1] - one[1] in (0, 1)


def common_frames(one, other):
    """How many frames are the same, from the innermost on."""
    differ = (i for i, pair in enumerate(zip(one, other)) if not is_same(*pair))
    return next(differ, min(len(one), len(other)))


def comparable(ours, theirs):
    """perf's frames of which ours are to be the same."""
    return theirs.beside if ours.python else theirs.frames


def kind_of(ours, theirs):
    """How the stacks of one request differ."""
    one, other = ours.frames, comparable(ours, theirs)
    may_end = theirs.early or not ours.python  # perf's stack
    common = common_frames(one, other)
    if common == len(one) == len(other):
        return CUT if ours.python and theirs.early else EQUAL
    if common == len(one):
        if ours.more:
            return EQUAL
        return "ours ends where perf's goes on" if ours.whole else "ours ends early"
    return CUT if common == len(other) and may_end else DISAGREE


def pairs_of(left, right):
    """Pairs of stacks that have no equal on the other side: those that differ least first, the
    rest in their order."""
    pairs, rest = [], list(right)
    for kind in (EQUAL, CUT):
        unmatched = []
        for stack in left:
            found = next((i for i, one in enumerate(rest) if kind_of(stack, one) == kind), None)
            if found is None:
                unmatched.append(stack)
            else:
                pairs.append((stack, rest.pop(found)))
        left = unmatched
    return pairs + list(zip(left, rest))


def compare(ours, theirs):
    """ours, theirs: lists of records.Request. Requests of one thread and size are matched by their
    stacks."""
    result = Comparison()
    groups = collections.defaultdict(lambda: ([], []))
    for side, requests in enumerate((ours, theirs)):
        for request in requests:
            groups[request.tid, request.bytes][side].append(request.stack)
    for (_, size), (left, right) in groups.items():
        result.ours = add(result.ours, len(left), size)
        result.whole = add(result.whole, sum(stack.whole for stack in left), size)
        result.busy = add(result.busy, sum(stack.busy for stack in left), size)
        result.frames += sum(len(stack.frames) for stack in left)
        same = {stack.frames: stack for stack in right}
        counts = collections.Counter(stack.frames for stack in right)
        unmatched = []
        for stack in left:
            if counts[stack.frames]:
                counts[stack.frames] -= 1
                result.pair(stack, same[stack.frames], 1, size)
            else:
                unmatched.append(stack)
        rest = [same[frames] for frames in counts.elements()]
        for (one, other), count in collections.Counter(pairs_of(unmatched, rest)).items():
            result.pair(one, other, count, size)
    return result
