# SPDX-License-Identifier: Apache-2.0
"""A running agent.

    running = agent("[trace]\\nenabled = no\\n")     returns once it says that it watches
"""
import contextlib
import gzip
import http.server
import json
import ssl
import threading
import urllib.error
import urllib.request

import pytest

import agents
import harness
import otlp
import schemas
from harness import TIMEOUT, wait_until


@pytest.fixture
def agent(tracer, tmp_path):
    running = []

    def start(text, folder=tmp_path, **more):
        running.append(agents.Agent(tracer, folder, text, **more))
        return running[-1]

    yield start
    for each in running:
        if each.process.poll() is None:
            each.process.kill()
            each.process.wait()
        print(each.log.read_text())  # pytest shows it of a test that has failed


class Server:
    """The web server of an agent that watches the processes of a name."""

    def __init__(self, agent, folder, comm="tracer-no-such", more="", http=""):
        self.port = harness.free_port()
        self.folder = folder / "evidence"
        self.folder.mkdir(mode=0o700)
        self.agent = agent(
            "[targets]\ncomm = %s\n[evidence]\nfolder = %s\non-oom = no\n[http]\n"
            "listen = 127.0.0.1:%d\n%s\n%s" % (comm, self.folder, self.port, http, more)
        )
        self.scheme, self.context = "http", None
        if "certificate" in http:
            self.scheme, self.context = "https", ssl._create_unverified_context()
        wait_until(self.healthy, "the web server answers")

    def url(self, path):
        return "%s://127.0.0.1:%d%s" % (self.scheme, self.port, path)

    def ask(self, path, method="GET", **headers):
        """(status, headers, body)"""
        request = urllib.request.Request(self.url(path), headers=headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT, context=self.context) as answer:
                return answer.status, answer.headers, answer.read()
        except urllib.error.HTTPError as error:
            return error.code, error.headers, error.read()

    def status(self, path, **headers):
        return self.ask(path, **headers)[0]

    def healthy(self):
        try:
            return self.ask("/healthz")[2] == b"ok\n"
        except OSError:
            return False

    def targets(self):
        answer = json.loads(self.ask("/targets")[2])
        schemas.validate("agent-targets", answer)
        return answer["processes"]

    def wait_traced(self, pid):
        def traced():
            found = [each for each in self.targets() if each["pid"] == pid and each["traced"]]
            return found[0] if found and found[0].get("live", 0) > 0 else None

        return wait_until(traced, "PID %d is traced" % pid)

    def metrics(self):
        return agents.metrics_parsed(self.ask("/metrics")[2].decode())

    def child(self, name):
        """A process of the agent: tracer-web; tracer, the session; tracer-push."""

        def find():
            for pid in self.agent.children():
                with contextlib.suppress(OSError), open("/proc/%d/comm" % pid) as file:
                    if file.read() == name + "\n":
                        return pid

        return wait_until(find, "the agent has that process")


@pytest.fixture
def server(agent, tmp_path):
    return lambda *args, **more: Server(agent, tmp_path, *args, **more)


@pytest.fixture
def start_named(any_python):
    targets = []

    def start(name, *args):
        targets.append(harness.Target(any_python, "keeps_lines.py", name, *args))
        return targets[-1]

    yield start
    for target in targets:
        target.kill()


class Collector(http.server.ThreadingHTTPServer):
    """A receiver of OTLP profiles, which refuses what the strict reader of tests/otlp.py does."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), CollectorRequest)
        self.accepted, self.wrong, self.answer = [], [], b""
        threading.Thread(target=self.serve_forever, daemon=True).start()


class CollectorRequest(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        status = 200
        try:
            assert self.path == "/v1development/profiles"
            assert self.headers["Content-Type"] == "application/x-protobuf"
            assert self.headers["Content-Encoding"] == "gzip"
            self.server.accepted.append(otlp.decode(gzip.decompress(body)))
        except (AssertionError, otlp.Invalid) as error:
            self.server.wrong.append(error)
            status = 400
        self.send_response(status)
        self.send_header("Content-Length", str(len(self.server.answer)))
        self.end_headers()
        self.wfile.write(self.server.answer)

    def log_message(self, *args):
        pass


@pytest.fixture
def collector():
    with Collector() as it:
        yield it
        it.shutdown()
