# SPDX-License-Identifier: Apache-2.0
"""What processes have in the kernel: programs, maps and links. Debian's bpftool does not say whose
they are; the descriptors of processes do."""
import collections
import glob
import json
import re
import subprocess

import procfs

KINDS = ("prog", "map", "link")


def shown(kind):
    done = subprocess.run(["bpftool", "--json", kind, "show"], stdout=subprocess.PIPE, check=True)
    return {each["id"]: each for each in json.loads(done.stdout or b"[]")}


def processes():
    return [int(path[6:]) for path in glob.glob("/proc/[0-9]*")]


class BpfObjects:
    """Those that are there now were there before."""

    def __init__(self):
        self.before = {kind: set(shown(kind)) for kind in KINDS}
        self.known = collections.defaultdict(set)  # of processes that were asked about

    @staticmethod
    def _held(pids, present):
        """By descriptors, and what is held by that: programs by links, maps by programs."""
        held = collections.defaultdict(set)
        for pid in pids:
            for path in glob.glob("/proc/%d/fdinfo/*" % pid):
                try:
                    with open(path) as file:
                        text = file.read()
                except OSError:
                    continue
                for kind, number in re.findall(r"^(prog|map|link)_id:\t(\d+)$", text, re.M):
                    held[kind].add(int(number))
        links, programs = present["link"], present["prog"]
        held["prog"] |= {links[i]["prog_id"] for i in held["link"] if i in links}
        for i in held["prog"]:
            held["map"].update(programs.get(i, {}).get("map_ids", ()))
        return held

    def of(self, pids):
        """{kind: ids} that these processes hold."""
        held = self._held(pids, {kind: shown(kind) for kind in KINDS})
        for kind in KINDS:
            self.known[kind] |= held[kind]
        return held

    def left(self, own=()):
        """What is new and held by no process but own ones. What was never seen with processes that
        of() was asked about may be another tracer's, if one runs."""
        present = {kind: shown(kind) for kind in KINDS}
        others = [pid for pid in processes() if pid not in own]
        held = self._held(others, present)
        tracers = any((procfs.comm(pid) or "").startswith("tracer") for pid in others)
        return [
            "%s %d %s" % (kind, number, each.get("name") or each.get("type", ""))
            for kind in KINDS
            for number, each in present[kind].items()
            if number not in self.before[kind] | held[kind]
            and (number in self.known[kind] or not tracers)
            and not str(each.get("type")).startswith("cgroup")
        ]
