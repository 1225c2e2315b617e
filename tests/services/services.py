# SPDX-License-Identifier: Apache-2.0
"""Services of Debian's packages with leaks of their own (apps/), each with what drives it.

    service = Service(name, folder)    starts it, with its workers, and waits until it answers
    client = service.client()          requests at an even rate
    client.rates()                     requests a second, of some intervals
"""
import contextlib
import os
import re
import signal
import socket
import subprocess
import threading
import time

APPS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "apps")
PYTHON = "/usr/bin/python3"
INTERVALS, SECONDS = 5, 2.0
WAIT = 60


class Kind:
    """command: {folder} and {port} are filled in; leaks: marks in the application's file,
    with what the path of each has; rate: requests a second of the client."""

    def __init__(self, needs, file, comm, workers, rate, leaks, command, http=True):
        self.needs = needs + " wrk" * http
        self.file, self.comm, self.workers = file, comm, workers
        self.rate, self.leaks, self.command, self.http = rate, leaks, command, http


KINDS = {
    "django": Kind(
        "gunicorn python3-django",
        "django_shop.py",
        "gunicorn",
        3,
        80,
        {"RECENT": ".RECENT", "order_paid.receivers": ".receivers", "Prices.quote": "Prices.quote"},
        "/usr/bin/gunicorn -w 3 -b 127.0.0.1:{port} --log-level error django_shop:application",
    ),
    "flask": Kind(
        "python3-flask uwsgi-core uwsgi-plugin-python3",
        "flask_shop.py",
        "uwsgi",
        2,
        80,
        {"AUDIT": ".AUDIT", "BY_USER": ".BY_USER", "Sessions.known": ".known"},
        "/usr/bin/uwsgi --plugin python3 --master --processes 2 --http-socket 127.0.0.1:{port} "
        "--disable-logging --module flask_shop:app",
    ),
    "celery": Kind(
        "celery python3-celery python3-redis redis-server",
        "celery_jobs.py",
        "celery-shop",
        3,
        40,
        {"history": "remember.__defaults__", "seen": ".seen", "DONE": ".DONE"},
        "{folder}/celery-shop /usr/bin/celery -A celery_jobs worker --concurrency 3 --loglevel ERROR",
        http=False,
    ),
    "asyncio": Kind(
        "python3-aiohttp",
        "asyncio_shop.py",
        "asyncio-shop",
        1,
        80,
        {"times": "app._middlewares, ", "TASKS": ".TASKS", "orders": "'orders'"},
        PYTHON + " " + APPS + "/asyncio_shop.py {port}",
    ),
}


def missing(packages):
    """Those that are not installed."""
    shown = subprocess.run(
        ["dpkg-query", "-W", "-f", "${Package} ${db:Status-Status}\n", *packages.split()],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ).stdout
    return [name for name in packages.split() if name + " installed" not in shown.splitlines()]


def free_port():
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        return server.getsockname()[1]


def answers(port):
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
        return True
    except OSError:
        return False


def wait_for(what, condition):
    until = time.monotonic() + WAIT
    while not condition():
        assert time.monotonic() < until, "not within %d s: %s" % (WAIT, what)
        time.sleep(0.05)


class Client:
    def __init__(self, command, env):
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env
        )
        assert self.process.stdout.readline() == "ready\n", "the service does not answer"

    def kill(self):
        self.process.kill()
        self.process.communicate()

    def counted(self):
        """(requests, seconds)"""
        self.process.stdin.write("?")
        self.process.stdin.flush()
        count, seconds = self.process.stdout.readline().split()
        return int(count), float(seconds)

    def rates(self):
        counts = [self.counted()]
        for _ in range(INTERVALS):
            time.sleep(SECONDS)
            counts.append(self.counted())
        return [rate(a, b) for a, b in zip(counts, counts[1:])]

    def end(self):
        self.process.stdin.close()
        self.process.wait(WAIT)
        self.process.stdout.close()


def rate(before, after):
    return (after[0] - before[0]) / (after[1] - before[1])


class Service:
    def __init__(self, name, folder):
        self.kind, self.folder = KINDS[name], str(folder)
        self.port, self.started = free_port(), []
        self.env = dict(
            os.environ,
            PATH="/usr/bin:/bin",
            PYTHONPATH=APPS,
            PYTHONDONTWRITEBYTECODE="1",
            BROKER="redis://127.0.0.1:%d/0" % self.port,
            LC_ALL="C.UTF-8",
        )
        if name == "celery":
            os.symlink(PYTHON, os.path.join(self.folder, self.kind.comm))  # its name
            self.run("/usr/bin/redis-server --port {port} --bind 127.0.0.1 --save ''")
            wait_for("redis answers", lambda: answers(self.port))
        self.pid = self.run(self.kind.command).pid
        if name != "celery":
            wait_for(name + " answers", lambda: answers(self.port))
        wait_for(name + " has its workers", lambda: len(self.workers()) >= self.kind.workers)

    def run(self, command):
        words = [
            word.format(port=self.port, folder=self.folder) if word != "''" else ""
            for word in command.split()
        ]
        with open(os.path.join(self.folder, "log"), "ab") as log:
            process = subprocess.Popen(
                words,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                env=self.env,
                start_new_session=True,
            )
        self.started.append(process)
        return process

    def log(self):
        with open(os.path.join(self.folder, "log"), errors="replace") as file:
            return file.read()

    def workers(self):
        """The PIDs of what serves."""
        with open("/proc/%d/task/%d/children" % (self.pid, self.pid)) as file:
            return file.read().split() or [str(self.pid)]

    def cpu_seconds(self):
        ticks = 0
        for pid in self.workers():
            with open("/proc/%s/stat" % pid) as file:
                ticks += sum(map(int, file.read().rsplit(")", 1)[1].split()[11:13]))
        return ticks / os.sysconf("SC_CLK_TCK")

    def marked_line(self, mark):
        with open(os.path.join(APPS, self.kind.file)) as file:
            for number, line in enumerate(file, 1):
                if re.search(r"# fills %s$" % re.escape(mark), line.rstrip()):
                    return number
        raise KeyError(mark)

    def client(self, rate=None):
        """It makes that many requests a second, by default as many as the service has time for."""
        url = "http://127.0.0.1:%d/" % self.port if self.kind.http else "celery"
        words = [PYTHON, os.path.join(APPS, "client.py"), str(rate or self.kind.rate), url]
        return Client(words, self.env)

    @contextlib.contextmanager
    def hurried(self):
        """Beside a client that asks as fast as it gets answers."""
        command = "/usr/bin/wrk -t 1 -c 4 -d 200 http://127.0.0.1:{port}/"
        idle = self.cpu_seconds()
        client = self.run(command) if self.kind.http else self.client(10000)
        wait_for("it is served: " + self.log(), lambda: self.cpu_seconds() > idle + 0.5)
        yield
        assert not self.kind.http or client.poll() is None, self.log()
        client.kill()

    @contextlib.contextmanager
    def later(self):
        """A client begins after three seconds."""
        timer = threading.Timer(3, lambda: clients.append(self.client()))
        clients = []
        timer.start()
        yield
        timer.join()
        clients[0].end()

    def end(self):
        for process in reversed(self.started):
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            process.wait(WAIT)
