# SPDX-License-Identifier: Apache-2.0
"""What /proc shows about a process: its name, its signals, its code, and the process that holds a
tracer's links."""
import glob
import re


def comm(pid):
    """The process's name, or None if there is no such process."""
    try:
        with open("/proc/%s/comm" % pid, errors="surrogateescape") as file:
            return file.read().rstrip("\n")
    except OSError:
        return None


def is_pending(pid, number):
    """Whether a signal that was sent to the process waits to be handled."""
    with open("/proc/%d/status" % pid) as status:
        masks = re.findall(r"^(?:Shd|Sig)Pnd:\t(\w+)$", status.read(), re.M)
    return any(int(mask, 16) >> (number - 1) & 1 for mask in masks)


def orphans(name):
    """The processes of this name that run and have lost their parent."""
    found = []
    for path in glob.glob("/proc/[0-9]*/stat"):
        try:
            with open(path) as file:
                pid, rest = file.read().split(" (", 1)
        except OSError:
            continue
        its_name, rest = rest.rsplit(") ", 1)
        state, parent = rest.split()[:2]
        if its_name == name and state != "Z" and parent == "1":
            found.append(int(pid))
    return found


def links_holder(tracer):
    """The process that holds a tracer's links, or None."""
    with open("/proc/%d/task/%d/children" % (tracer, tracer)) as file:
        found = [int(pid) for pid in file.read().split() if comm(pid) == "tracer-links"]
    return found[0] if found else None


def mapped_file(pid, end):
    """The path of a file that the process maps, by the end of it."""
    with open("/proc/%s/maps" % pid) as maps:
        return next(line.split()[-1] for line in maps if line.rstrip().endswith(end))


def code_of(pid, path=None):
    """(file, address, the mapped code bytes, the same bytes of the file) of each mapping (of one
    file)."""
    proc = "/proc/%d/" % pid
    with open(proc + "maps") as maps, open(proc + "mem", "rb", buffering=0) as memory:
        for line in maps:
            match = re.match(r"([0-9a-f]+)-([0-9a-f]+) ..x. ([0-9a-f]+) \S+ [1-9]\d* +(/.*)$", line)
            if not match or path not in (None, match[4]):
                continue
            low, high, offset = (int(match[i], 16) for i in (1, 2, 3))
            with open(match[4], "rb") as file:
                file.seek(offset)
                wanted = file.read(high - low)
            memory.seek(low)
            got = memory.read(len(wanted))
            assert len(got) == len(wanted), "the code of %s cannot be read" % match[4]
            yield match[4], low, got, wanted


def probed_offsets(pid):
    """(file, offset in it) of each byte of the mapped code that differs from the mapped file."""
    for path, _, got, wanted in code_of(pid):
        offset = open(path, "rb").read().find(wanted[:4096])
        for at in range(0, len(got), 4096):
            if got[at : at + 4096] != wanted[at : at + 4096]:
                for k in range(at, min(at + 4096, len(got))):
                    if got[k] != wanted[k]:
                        yield path, offset + k


def text_differs(pid, path=None):
    """How many bytes of the mapped code (of one file) differ from the mapped files. Differences are
    probes."""
    differs = 0
    for _, _, got, wanted in code_of(pid, path):
        for at in range(0, len(got), 4096):
            if got[at : at + 4096] != wanted[at : at + 4096]:
                differs += sum(a != b for a, b in zip(got[at : at + 4096], wanted[at : at + 4096]))
    return differs


def private_code(pid):
    """The executable mappings of a process, each with its Private_Dirty."""
    with open("/proc/%d/smaps" % pid) as maps:
        return re.findall(r"^(\S+ r-xp .*)\n(?:\S+:.*\n)*?Private_Dirty:(.*)", maps.read(), re.M)


# tracer's words for figures of smaps_rollup.
SHARES = {
    "rss": ("Rss",),
    "pss": ("Pss",),
    "private": ("Private_Clean", "Private_Dirty"),
    "shared": ("Shared_Clean", "Shared_Dirty"),
    "swap": ("Swap",),
}


def shares(pid):
    """The memory that the process has alone, and in common with others, as the kernel counts it;
    pss_anon and private_dirty are what others do not change by mapping the same files."""
    with open("/proc/%s/smaps_rollup" % pid) as file:
        found = dict(re.findall(r"^(\w+): +(\d+) kB", file.read(), re.M))
    keys = {**SHARES, "pss_anon": ("Pss_Anon",), "private_dirty": ("Private_Dirty",)}
    return {key: sum(int(found[name]) for name in names) * 1024 for key, names in keys.items()}


def is_between(value, before, after, key):
    """Whether a figure that was read between two others of shares() is one of a time between: the
    kernel takes pages of files back, and a page is private once others that had it have ended. Of
    the PSS the reader has a part, too, as long as it maps the same libraries."""
    low, high = sorted((before[key], after[key]))
    slack = (100 << 10) * (key == "pss")
    return low - slack <= value <= high + slack
