#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""An agent on a machine where much happens, for an hour; or one that is killed at random moments.

usage: soak_agent.py [--minutes N | --kills N] [--seed N]    (root; build/tracer, or TRACER)

Around it (agent_world.py): 20 brief processes a second, a service of gunicorn with requests, beside
the same one that is not traced, 50 containers an hour, half of which run out of memory, and a
receiver of profiles that is down half of the time and fails in other ways. Its disks are full from
time to time. SOAK_CLOCK=1 also sets the machine's clock an hour off for moments: not beside others.

Prints a line each minute, or for each kill, then a table of what was checked. Exit status 1 if
something was wrong.
"""
import argparse
import collections
import contextlib
import json
import os
import pathlib
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import textwrap
import time
import urllib.request

HERE = os.path.dirname(os.path.abspath(__file__))
TESTS = os.path.dirname(HERE)
sys.path[:0] = [HERE, TESTS, os.path.join(TESTS, "e2e"), os.path.join(TESTS, "services")]

import agent_world as world  # noqa: E402
import agents  # noqa: E402
import bpf_objects  # noqa: E402
import containers  # noqa: E402
import harness  # noqa: E402
import procfs  # noqa: E402

# Of a process's CPU time, but of so many CPUs at least (WINDOWS_RATE_MIN in overhead/windows.h).
BUDGET, RATE_MIN = 0.01, 0.2
KEEP, SPACE = 5, 96 << 20  # bundles, bytes of them
SAMPLE = 5  # seconds between two measurements of the agent's processes
FLAT, MEMORY_FLOOR, COUNT_FLOOR = 1.05, 512 << 10, 8  # growth, and what is none in any case
# Seconds from which on it is judged what services pay, and growth: tables fill up at first.
COST_JUDGED, GROWTH_JUDGED = 9 * 60, 29 * 60
LEAVE = 120  # seconds for the kernel to remove what a killed agent left
DRAIN = 700  # seconds for the spool to be sent: the longest pause of the sender

# Whom SIGKILL is for; "others": what makes profiles, copies heaps, reads symbols.
KILLED = 4 * ("all",) + ("agent", "session", "web", "push", "links", "others")

CONFIG = """[targets]
comm = {comm}
[trace]
overhead = {overhead}%
budget = 32M
[evidence]
folder = {evidence}
on-memory = 85%
pause = 10s
keep = {keep}
space = {space}
[http]
listen = 127.0.0.1:{http}
[push]
pyroscope = http://localhost:{receiver}/base
interval = {interval}
timeout = 2
spool = {spool}
spool-space = {spool_space}
"""


LINES = 6  # of a figure in the table


class Metrics(world.Part):
    """Asks for the figures each second; keeps the last ones."""

    def __init__(self, port):
        super().__init__()
        self.port, self.asked, self.failed, self.last = port, 0, 0, {}

    def ask(self):
        with urllib.request.urlopen("http://127.0.0.1:%d/metrics" % self.port, timeout=15) as got:
            self.last = agents.metrics_parsed(got.read().decode())
        return self.last

    def step(self):
        self.asked += 1
        try:
            self.ask()
        except OSError as error:
            self.failed += 1
            self.wrong = ["/metrics: %s" % error]
        self.stopping.wait(1)


def pushed(figures, name, reason=None):
    labels = 'receiver="pyroscope"' + (',reason="%s"' % reason if reason else "")
    return int(figures["tracer_push_" + name, labels])


def thirds(values):
    """The medians of the middle and of the last third."""
    third = len(values) // 3 or 1
    return statistics.median(values[third : 2 * third] or values), statistics.median(
        values[-third:]
    )


class Checks:
    """(what, the figure, whether it is right)"""

    def __init__(self):
        self.rows = []

    def add(self, what, figure, right):
        self.rows.append((what, str(figure), right))

    def print(self):
        print()
        for what, figure, right in self.rows:
            verdict = {True: "ok", False: "WRONG", None: "-"}[right]
            first, *more = textwrap.wrap(figure, 42)[:LINES] or [""]
            print("%-30s %-42s %s" % (what, first, verdict))
            for line in more:
                print(" " * 31 + line)
        wrong = sum(right is False for _, _, right in self.rows)
        print("soak-agent: %d checks, %d wrong" % (len(self.rows), wrong), flush=True)
        return 1 if wrong else 0


class Soak:
    def __init__(self, folder, options):
        self.folder, self.options = pathlib.Path(folder), options
        self.seconds = options.minutes * 60
        self.random, self.checks = random.Random(options.seed), Checks()
        self.tracer, self.family, self.number = harness.tracer_path(), world.Family(), 0
        self.http, self.parts = harness.free_port(), contextlib.ExitStack()
        self.samples = collections.defaultdict(list)  # {(role, what): values}
        self.clock, self.steps = os.environ.get("SOAK_CLOCK") == "1", 0

    # --- the world --------------------------------------------------------------------------------

    def part(self, made):
        self.parts.callback(made.end)
        return made

    def begin(self, rate, boxes, spool_disk):
        """Starts what is around the agent."""
        folder = str(self.folder)
        self.evidence = self.part(world.Disk(folder + "/evidence", "288m"))
        self.disk = self.part(world.Disk(folder + "/spool", spool_disk))
        self.spool = self.part(world.Spool(self.disk.folder))
        self.receiving = self.part(world.Receiving(self.folder, self.options.seed))
        self.service = self.part(world.Service(folder, world.NAME + "-web"))
        self.twin = self.part(world.Service(folder, "twin-web"))
        self.churn = self.part(world.Churn(folder, rate))
        self.boxes = None
        try:
            self.boxes = self.part(world.Boxes(folder + "/docker", boxes, self.seconds))
        except containers.Unavailable as error:
            print("no containers: %s" % error)

    def config(self, **more):
        values = {
            "comm": world.NAME + "-*",
            "overhead": 100 * BUDGET,
            "evidence": self.evidence.folder,
            "keep": KEEP,
            "space": SPACE,
            "http": self.http,
            "receiver": self.receiving.port,
            "spool": self.disk.folder,
        }
        return CONFIG.format(**{**values, **more})

    def agent(self, watches=True, **config):
        self.number += 1
        folder = self.folder / ("agent-%d" % self.number)
        folder.mkdir()
        text, env = self.config(**config), self.family.environment()
        # One that is killed after seconds traces at once, or there would be nothing to be lost.
        rests = not self.options.kills
        return agents.Agent(self.tracer, folder, text, env=env, watches=watches, rests=rests)

    # --- figures ----------------------------------------------------------------------------------

    def sample(self, agent):
        roles = self.family.roles(agent)
        sums = collections.defaultdict(collections.Counter)
        for pid, role in roles.items():
            with contextlib.suppress(OSError, TypeError):
                sums[role]["memory"] += world.memory_of(pid)
                sums[role]["descriptors"] += world.descriptors_of(pid)
        for role, figures in sums.items():
            for what, value in figures.items():
                self.samples[role, what].append(value)
        for kind, ids in self.family.objects.of(roles).items():
            self.samples["kernel", kind].append(len(ids))

    def hidden(self):
        """Folders of copies, and files that are half written."""
        return [n for n in os.listdir(self.evidence.folder) if n.startswith(".")]

    def bundles(self):
        return [n for n in os.listdir(self.evidence.folder) if n.endswith(".evidence")]

    def bundles_read(self, names):
        """What is wrong with those bundles."""
        wrong = []
        for name in names:
            command = [self.tracer, "report", os.path.join(self.evidence.folder, name)]
            done = subprocess.run(command, capture_output=True, text=True)
            # It may have made room for another one.
            if done.returncode and name in self.bundles():
                wrong.append("%s: %s" % (name, done.stderr.strip()))
        return wrong

    def ratio(self, before):
        """CPU time of a request, traced to untraced, since before; and the figures of now."""
        now = self.service.figures(), self.twin.figures()
        costs = [(b[1] - a[1]) / max(1, b[0] - a[0]) for a, b in zip(before, now)]
        return costs[0] / costs[1], now

    def ratios(self, seconds, parts=6):
        found, before = [], (self.service.figures(), self.twin.figures())
        for _ in range(parts):
            time.sleep(seconds / parts)
            ratio, before = self.ratio(before)
            found.append(ratio)
        return found

    def probes_shares(self):
        """Of each process of the service that is traced, as one that only waits is not: what the probes
        took, as a share of the budget."""
        found, server = {}, "http://127.0.0.1:%d" % self.http
        with urllib.request.urlopen(server + "/targets", timeout=harness.TIMEOUT) as got:
            traced = {p["pid"] for p in json.load(got)["processes"] if p["traced"]}
        for pid in traced.intersection(self.service.pids()):
            path = str(self.folder / ("profile-%d" % pid))
            url = "%s/debug/pprof/heap?pid=%d" % (server, pid)
            with urllib.request.urlopen(url, timeout=harness.TIMEOUT) as got:
                pathlib.Path(path).write_bytes(got.read())
            data = harness.read_report(self.tracer, path).data
            least_ns = RATE_MIN * 1e9 * (time.monotonic() - self.began)
            found[pid] = data["probes_ns"] / BUDGET / max(data["cpu_ns"], least_ns)
        return found

    # --- what is checked --------------------------------------------------------------------------

    def adds_up(self):
        """The agent's counters equal what happened in the spool: (figures, what differs)."""
        for _ in range(60):
            figures, made, gone = self.metrics.ask(), self.spool.made, self.spool.gone
            dropped = {r: pushed(figures, "dropped_total", r) for r in ("spool", "refused", "disk")}
            sent = pushed(figures, "sent_total")
            pairs = {
                "made": (pushed(figures, "profiles_total"), made + dropped["disk"]),
                "sent or dropped": (sent + dropped["spool"] + dropped["refused"], gone),
                "waiting": (pushed(figures, "spool_profiles"), made - gone),
            }
            wrong = [
                "%s %d, not %d" % (k, *pair) for k, pair in pairs.items() if len(set(pair)) > 1
            ]
            if not wrong:
                break
            time.sleep(0.5)
        return figures, dropped, sent, wrong

    def check_flat(self):
        judged = self.seconds >= GROWTH_JUDGED
        total = [
            sum(each) for each in zip(*(v for (_, w), v in self.samples.items() if w == "memory"))
        ]
        if total:
            self.samples["all", "memory"] = total
        for (role, what), values in sorted(self.samples.items()):
            if role == "others":
                continue
            middle, last = thirds(values)
            floor = MEMORY_FLOOR if what == "memory" else COUNT_FLOOR
            text = "%d then %d, at most %d" % (middle, last, max(values))
            if what == "memory":
                sizes = [size / (1 << 20) for size in (middle, last, max(values))]
                text = "%.1f MiB then %.1f, at most %.1f" % tuple(sizes)
            flat = last <= max(middle * FLAT, middle + floor)
            self.checks.add("%s of %s" % (what, role), text, flat if judged else None)

    def check_cost(self, base, during, shares):
        judged = self.seconds >= COST_JUDGED
        most = max(shares.values())
        text = "at most %.0f %% of the budget, %d processes" % (100 * most, len(shares))
        self.checks.add("probes of services", text, most <= 1 if judged else None)
        cost = statistics.median(during) / statistics.median(base) - 1
        error = sum(2 * statistics.stdev(x) / len(x) ** 0.5 for x in (base, during))
        most = BUDGET * max(1, RATE_MIN / self.service.rate())
        text = "%+.1f %% of CPU, +-%.1f; may be %.1f" % (100 * cost, 100 * error, 100 * most)
        right = cost - error <= most
        self.checks.add("cost, beside an untraced one", text, right if judged else None)

    def wait_left(self):
        """What an agent that has ended has left, after a while."""
        end = time.monotonic() + LEAVE
        while True:
            left = self.family.left() or [
                "code of PID %d" % pid for pid in self.service.pids() if procfs.text_differs(pid)
            ]
            if not left or time.monotonic() > end:
                return left
            time.sleep(0.3)

    def drain(self, **config):
        """All that waits is sent, by an agent that traces nothing."""
        self.receiving.accept()
        agent = self.agent(comm=world.NAME + "-no-such", **config)
        end = time.monotonic() + DRAIN
        while self.spool.names() and time.monotonic() < end:
            time.sleep(0.2)
        time.sleep(1)
        status = agent.end()
        self.checks.add("the rest was sent", "%d wait" % len(self.spool.names()), not status)

    def check_parts(self):
        parts = (self.churn, self.receiving, self.spool, self.boxes)
        wrong = [text for part in parts if part for text in part.wrong]
        self.checks.add("programs around it", "; ".join(wrong) or "none failed", not wrong)

    # --- an hour ----------------------------------------------------------------------------------

    def trouble(self, turn):
        """Disks that are full, and a clock that is wrong, for a moment."""
        self.disk.fill()
        self.evidence.fill()
        if self.clock:
            self.steps += world.clock_stepped(1 if turn % 2 else -1, 5)
        time.sleep(10)
        self.disk.free()
        self.evidence.free()

    def minute(self, began):
        figures = self.metrics.last
        last = lambda role, what: (self.samples[role, what] or [0])[-1]  # noqa: E731
        kinds = "/".join(str(last("kernel", kind)) for kind in bpf_objects.KINDS)
        memory = sum(last(role, w) for role, w in list(self.samples) if w == "memory") >> 20
        print(
            "%6.1f %7d %5d %7d %7d %7d %6d %6d %12s %5d"
            % (
                (time.monotonic() - began) / 60,
                self.churn.count,
                self.boxes.count if self.boxes else 0,
                self.spool.made,
                len(self.receiving.acked),
                pushed(figures, "dropped_total", "spool"),
                pushed(figures, "dropped_total", "disk"),
                memory,
                kinds,
                len(self.bundles()),
            ),
            flush=True,
        )

    def watch(self, agent):
        began = time.monotonic()
        end, minute, turn = began + self.seconds, began, 0
        trouble, every = began + self.seconds / 4, max(30, self.seconds / 6)
        during, before = [], (self.service.figures(), self.twin.figures())
        print("   min  brief   box    made   acked  d.room d.disk    MiB prog/map/link bundl")
        while time.monotonic() < end and agent.process.poll() is None:
            self.sample(agent)
            now = time.monotonic()
            if now >= minute + min(60, self.seconds / 6):
                minute = now
                ratio, before = self.ratio(before)
                during.append(ratio)
                self.minute(began)
            if now >= trouble:
                trouble, turn = now + every, turn + 1
                self.trouble(turn)
            time.sleep(SAMPLE if self.seconds > 300 else 1)
        return during

    def run(self):
        settings = {"interval": 5, "spool_space": "1M"}
        self.begin(20, max(2, round(50 * self.options.minutes / 60)), "4m")
        base = self.ratios(min(120, self.seconds / 4))
        agent = self.agent(**settings)
        self.began, self.metrics = time.monotonic(), Metrics(self.http)
        harness.wait_until(self.answers, "/metrics answers")
        self.part(self.metrics).start()
        during = self.watch(agent)
        self.checks.add("the agent", "runs", agent.process.poll() is None)
        figures, dropped, sent, wrong = self.adds_up()
        text = "%d made, %d sent" % (pushed(figures, "profiles_total"), sent)
        self.checks.add("made = sent + dropped + waiting", "; ".join(wrong) or text, not wrong)
        gone = self.spool.gone
        shares = self.probes_shares()
        names = self.bundles()
        used = sum(os.path.getsize(os.path.join(self.evidence.folder, n)) for n in names)
        self.metrics.end()
        status = agent.end()
        self.checks.add("exit status", status, status == 0)
        after = self.spool.gone - gone
        left = self.wait_left()
        self.checks.add("left in the kernel, in code", "; ".join(left) or "nothing", not left)
        hidden = self.hidden()
        self.checks.add("hidden folders of copies", "; ".join(hidden) or "none", not hidden)
        self.drain(**settings)
        self.check_delivery(dropped, sent, after)
        self.check_cost(base, during, shares)
        text = "%d of %d MiB" % (len(names), used >> 20)
        self.checks.add("bundles", text, len(names) <= KEEP + 1 and used <= SPACE + (64 << 20))
        wrong = self.bundles_read(self.bundles())
        self.checks.add("bundles are whole", "; ".join(wrong) or "yes", not wrong)
        text = "%d times, %d failed" % (self.metrics.asked, self.metrics.failed)
        self.checks.add("/metrics", "; ".join([text, *self.metrics.wrong]), not self.metrics.wrong)
        ended = agent.log.read_text().count(" has ended (")
        self.checks.add("processes of it that ended", ended, not ended)
        self.checks.add("steps of the clock", self.steps, self.steps > 0 if self.clock else None)
        self.check_flat()
        self.check_parts()
        return self.checks.print()

    def answers(self):
        try:
            return self.metrics.ask()
        except OSError:
            return None

    def check_delivery(self, dropped, sent, after):
        """Each profile that is gone was acknowledged or is counted as dropped, and nothing else is.
        after: how many went when the counters could not be read any more."""
        acked, waiting = self.receiving.acked, self.spool.ids()
        lost = self.spool.gone - len(acked.keys() - waiting)
        counted = dropped["spool"] + dropped["refused"]
        twice = sum(acked.values()) - len(acked)
        text = "%d, %d counted" % (lost, counted)
        # Of a profile whose acknowledgement did not arrive both is true.
        right = counted - self.receiving.changes <= lost <= counted + after
        self.checks.add("neither acknowledged nor there", text, right)
        self.checks.add("refused", dropped["refused"], not dropped["refused"])
        text = "%d profiles, %d again, %d by its counter"
        self.checks.add("acknowledged", text % (len(acked), twice, sent), sent <= len(acked))
        down = self.receiving.time["down"] / max(1, sum(self.receiving.time.values()))
        self.checks.add("the receiver was down", "%.0f %% of the time" % (100 * down), None)

    # --- kills ------------------------------------------------------------------------------------

    def kill(self, agent, which):
        """SIGKILL to all of them, or to one. Who it was."""
        roles = self.family.roles(agent)
        self.family.objects.of(roles)
        of = [pid for pid, role in roles.items() if which in ("all", role)] or [agent.process.pid]
        self.random.shuffle(of)
        for pid in of:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        return which if len(of) > 1 or roles.get(of[0]) == which else "agent"

    def kill_round(self, **settings):
        """An agent lives for a moment; what was wrong after its end."""
        agent, wrong = self.agent(watches=False, **settings), []
        try:
            if self.random.random() < 0.5:
                agent.said("the agent watches")
                harness.wait_until(self.answers, "/metrics answers", 90)
                if len(self.hidden()) > 1:
                    wrong.append("folders of copies: %s" % self.hidden())
            time.sleep(self.random.uniform(0, 8))
            which = self.kill(agent, self.random.choice(KILLED))
            if which not in ("all", "agent"):
                time.sleep(self.random.uniform(0, 4))
                if agent.process.poll() is not None:
                    wrong.append("it has ended with its process")
                self.kill(agent, "all")
        finally:
            agent.process.kill()
            agent.process.wait()
        if self.random.random() < 0.75:
            wrong += self.wait_left()
        return which, wrong

    def run_kills(self):
        settings = {"interval": 1, "spool_space": "128M"}
        kills = self.options.kills
        self.seconds = 12 * kills
        self.begin(5, max(2, kills // 2), "192m")
        self.metrics, faults, killed, seen = Metrics(self.http), 0, collections.Counter(), set()
        for number in range(1, kills + 1):
            which, wrong = self.kill_round(**settings)
            new = set(self.bundles()) - seen
            seen |= new
            wrong += self.bundles_read(sorted(new))
            faults += bool(wrong)
            killed[which] += 1
            print(
                "%4d  %-8s %5d made, %5d acknowledged, %5d wait, %3d bundles%s"
                % (
                    number,
                    which,
                    self.spool.made,
                    len(self.receiving.acked),
                    len(self.spool.names()),
                    len(seen),
                    "".join("\n      WRONG: " + text for text in wrong),
                ),
                flush=True,
            )
        left = self.wait_left()
        self.checks.add("kills", " ".join("%d %s" % (n, w) for w, n in killed.items()), not faults)
        self.checks.add("left in the kernel, in code", "; ".join(left) or "nothing", not left)
        self.drain(**settings)
        acked, hidden = self.receiving.acked, self.hidden()
        text = "%d made, %d acknowledged" % (self.spool.made, len(acked))
        self.checks.add("nothing is lost", text, self.spool.made == len(acked) > 0)
        self.checks.add("sent again", sum(acked.values()) - len(acked), None)
        half = [name for name in os.listdir(self.disk.folder) if name.startswith(".")]
        self.checks.add("half written in the spool", "; ".join(half) or "nothing", not half)
        self.check_parts()
        return self.checks.print()


def main():
    parser = argparse.ArgumentParser(description="an agent where much happens, or that is killed")
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--kills", type=int)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        soak = Soak(folder, options)
        with soak.parts:
            return soak.run_kills() if options.kills else soak.run()


if __name__ == "__main__":
    sys.exit(main())
