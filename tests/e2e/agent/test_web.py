# SPDX-License-Identifier: Apache-2.0
"""The agent's web server: figures for a real Prometheus, profiles for golang's pprof, pages; and
requests that are wrong, slow, too many or not allowed."""
import concurrent.futures
import contextlib
import gzip
import html
import json
import os
import re
import resource
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request

import pytest

import harness
from harness import TIMEOUT, marked_line, memory_cgroup, pprof, program, wait_until, write_text

sys.path.append(os.path.join(harness.ROOT, "tests", "oracle"))
from browser import Browser  # noqa: E402
from certificates import certificate  # noqa: E402

PROGRAM = "keeps_lines.py"
MANY = "keeps_many_lines.py"
NO_TRACE = "[trace]\nenabled = no\n"


@pytest.fixture
def traced(server, start_named):
    """A server, and the process that it has traced."""
    target = start_named("keeps-lines")
    running = server("keeps-lines")
    running.wait_traced(target.pid)
    return running, target


def promtool(*args, stdin=None):
    done = subprocess.run(
        ["promtool", *map(str, args)],
        input=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=TIMEOUT,
    )
    assert done.returncode == 0, done.stdout.decode()
    return done.stdout.decode()


def test_metrics(traced, tmp_path):
    running, target = traced
    labels = 'pid="%d",name="keeps-lines"' % target.pid

    def lines_of(found):
        return {text: v for (name, text), v in found.items() if name == "tracer_line_live_bytes"}

    def settled():
        """The process's figure and those of its lines may be of different moments."""
        found = running.metrics()
        live = [
            v for (n, t), v in found.items() if n == "tracer_process_live_bytes" and labels in t
        ]
        return found if sum(lines_of(found).values()) == pytest.approx(sum(live), rel=0.5) else None

    found = wait_until(settled, "the figures of the lines add up to the process's")
    (kinds,) = [
        {name[1].split('"')[-2]: value for name, value in found.items() if name[0] == family}
        for family in ("tracer_process_memory_bytes",)
    ]
    assert set(kinds) == {"anon", "file", "shmem", "swap"}
    # All that it keeps is anonymous memory; a session that windows see estimates it.
    (live,) = [
        value
        for (name, text), value in found.items()
        if name == "tracer_process_live_bytes" and text.startswith(labels)
    ]
    assert 0 < live
    assert all(
        v == int(v) for (name, _), v in found.items() if not re.search("seconds|ratio", name)
    )
    assert 'line="%s:%d"' % (program(PROGRAM), marked_line(PROGRAM, "OWN")) in lines_of(found)
    assert found["tracer_session_up", None] == 1
    assert found["tracer_evidence_bundles", None] == 0
    assert found["tracer_agent_cpu_seconds_total", 'process="session"'] > 0
    assert promtool("check", "metrics", stdin=running.ask("/metrics")[2]) == ""


def test_collector(traced, run_tracer):
    """Its figures are those that are read without a session."""
    running, target = traced
    labels = 'pid="%d",name="keeps-lines"' % target.pid

    def figures(name):
        found = running.metrics()
        keys = [("tracer_process_gc_" + name, '%s,generation="%d"' % (labels, i)) for i in range(3)]
        return [found.get(key) for key in keys]

    wait_until(lambda: None not in figures("collections_total"), "the collector is found")

    def read():
        """It is not found in a copy that was made while it changed its lists."""
        done = run_tracer("heap", "gc", "-p", target.pid, "--format", "json")
        return json.loads(done.stdout)["collectors"]

    (collector,) = wait_until(read, "the collector is found in a copy")
    for name, key in (
        ("collections_total", "collections"),
        ("freed_objects_total", "collected"),
        ("uncollectable_objects_total", "uncollectable"),
    ):
        said = [each[key] for each in collector["generations"]]
        wait_until(lambda: figures(name) == said, name + " is what the process has")
    assert running.metrics()["tracer_process_gc_enabled", labels] == collector["runs"]


def test_openmetrics(server):
    """Both formats have the same samples; parsed by Prometheus's own library for Python if it is
    there, and by a real Prometheus in test_prometheus()."""
    running = server(more=NO_TRACE)
    _, headers, text = running.ask("/metrics", Accept="application/openmetrics-text;version=1.0.0")
    assert headers["Content-Type"].startswith("application/openmetrics-text; version=1.0.0")
    assert text.endswith(b"# EOF\n") and text.count(b"# EOF") == 1
    status, headers, plain = running.ask("/metrics", Accept="text/plain")
    assert status == 200 and headers["Content-Type"].startswith("text/plain; version=0.0.4")
    names = lambda body: re.findall(rb"^\w+", body, re.M)  # noqa: E731
    assert names(text) == names(plain)


def test_hostile_names(server, start_named):
    """A file name of 10 kB and a process name of any bytes are bounded, and valid; so is the number
    of lines."""
    target = start_named('a"\\\n\udcff{}', "hostile")
    running = server('a"*', http="top = 50")
    running.wait_traced(target.pid)
    wait_until(
        lambda: b"script" in running.ask("/metrics")[2]
        and running.metrics()["tracer_other_lines", None] > 0,
        "more lines are there than are shown",
    )
    lines = [name for name in running.metrics() if name[0] == "tracer_line_live_bytes"]
    assert len(lines) == 51 and ("tracer_line_live_bytes", 'line="other"') in lines
    text = running.ask("/metrics")[2]
    text.decode("utf-8", "strict")
    assert promtool("check", "metrics", stdin=text) == ""
    values = re.findall(r'\w+="((?:[^"\\]|\\.)*)"', text.decode())
    assert max(len(re.sub(r"\\(.)", r"\1", value).encode()) for value in values) == 128
    page = running.ask("/")[2]
    assert b"<script" not in page and b"&lt;script&gt;.py" in page
    # A control character is written in one way everywhere.
    assert 'name="a\\"\\\\\\\\x0a\\\\xff{}"' in text.decode()
    assert b"<td>a&quot;\\\\x0a\\xff{}<td>" in page


def resident(pid):
    with open("/proc/%d/statm" % pid) as file:
        return int(file.read().split()[1]) * resource.getpagesize()


def test_many_lines(server, python):
    """A program of 100,000 lines: the largest are shown, the others are counted and summed up, and
    neither the page nor the server's memory grows with their number."""
    with harness.Target(python, MANY, "keeps-many") as target:
        running = server("keeps-many", more="[trace]\noverhead = 100%\n")
        running.wait_traced(target.pid)

        def many():
            found = running.metrics()
            return found if found["tracer_other_lines", None] > 1000 else None

        found = wait_until(many, "windows have seen a thousand lines")
        for family, of_process in (
            ("tracer_line_live_bytes", "tracer_process_live_bytes"),
            ("tracer_line_live_blocks", "tracer_process_live_blocks"),
        ):
            lines = {text: value for (name, text), value in found.items() if name == family}
            (whole,) = [value for (name, _), value in found.items() if name == of_process]
            # Each is rounded.
            assert len(lines) == 21 and sum(lines.values()) == pytest.approx(whole, abs=11)
        assert len(running.ask("/metrics")[2]) < 32768
        assert len(running.ask("/")[2]) < 32768
        assert resident(running.child("tracer-web")) < 256 << 20


def test_evidence_and_limit(server, tmp_path, any_python):
    """What the alert rules look at: bundles, and a cgroup's memory beside its limit."""
    with memory_cgroup(300 << 20) as path:
        with harness.Target(any_python, PROGRAM, "keeps-limit") as target:
            write_text(os.path.join(path, "cgroup.procs"), target.pid)
            running = server("keeps-limit", more=NO_TRACE)
            (running.folder / "python-1-1.evidence").write_bytes(b"")
            (running.folder / "other").write_bytes(b"")
            found = running.metrics()
            name = os.path.basename(path)
            limits = {
                text: value
                for (family, text), value in found.items()
                if family == "tracer_cgroup_memory_limit_bytes"
            }
            (label,) = [text for text in limits if name in text]
            assert limits[label] == 300 << 20
            assert 0 < found["tracer_cgroup_memory_used_bytes", label] <= 300 << 20
            assert found["tracer_evidence_bundles", None] == 1
            newest = found["tracer_evidence_newest_timestamp_seconds", None]
            assert newest == int((running.folder / "python-1-1.evidence").stat().st_mtime)


def test_prometheus(traced, tmp_path):
    """A real Prometheus scrapes, and answers a query of a figure."""
    running, target = traced
    port = harness.free_port()
    config = tmp_path / "prometheus.yaml"
    config.write_text(
        "scrape_configs: [{job_name: tracer, scrape_interval: 1s, static_configs: "
        "[{targets: ['127.0.0.1:%d']}]}]\n" % running.port
    )
    query = 'sum(tracer_process_memory_bytes{name="keeps-lines",kind!="swap"})'
    url = "http://127.0.0.1:%d/api/v1/query?%s" % (port, urllib.parse.urlencode({"query": query}))

    def result():
        with contextlib.suppress(OSError), urllib.request.urlopen(url, timeout=TIMEOUT) as answer:
            return json.load(answer)["data"]["result"]

    with open(tmp_path / "prometheus.log", "wb") as log:
        process = subprocess.Popen(
            [
                "prometheus",
                "--config.file=%s" % config,
                "--storage.tsdb.path=%s" % (tmp_path / "tsdb"),
                "--web.listen-address=127.0.0.1:%d" % port,
            ],
            stdout=log,
            stderr=log,
        )
        try:
            (found,) = wait_until(result, "Prometheus has the figure")
        finally:
            process.kill()
            process.wait()
    assert 0 < float(found["value"][1]) <= resident(target.pid) * 1.5


def test_pprof(traced, tracer, tmp_path):
    """golang's pprof takes the address as it is, and shows what the report of the same file does;
    the difference of two files, and one that the server makes."""
    running, target = traced
    url = running.url("/debug/pprof/heap?pid=%d" % target.pid)
    head = pprof("-top", url).splitlines()
    assert "Type: inuse_space" in head and any("<module>" in line for line in head)
    paths = []
    for name in ("old.pb.gz", "new.pb.gz"):
        status, headers, body = running.ask("/debug/pprof/heap?pid=%d" % target.pid)
        assert status == 200 and headers["Content-Type"] == "application/octet-stream"
        paths.append(tmp_path / name)
        paths[-1].write_bytes(body)
        time.sleep(1)
    report = harness.read_report(tracer, paths[1])
    _, rows = harness.pprof_top(str(paths[1]))
    assert sum(rows.values()) == report.total["size"] > 0
    pprof("-top", "-diff_base", paths[0], paths[1])
    status, _, body = running.ask("/debug/pprof/heap?seconds=1")
    (tmp_path / "delta.pb.gz").write_bytes(body)
    head, rows = harness.pprof_top(str(tmp_path / "delta.pb.gz"))
    assert status == 200 and "Duration: 1s" in "\n".join(head)
    # The program only grows: what it has more of is a part of what it has then.
    (tmp_path / "then.pb.gz").write_bytes(running.ask("/debug/pprof/heap?pid=%d" % target.pid)[2])
    total = sum(harness.pprof_top(str(tmp_path / "then.pb.gz"))[1].values())
    assert sum(abs(value) for value in rows.values()) < total


def test_pprof_of_several(traced, start_named, tracer, tmp_path):
    """Without an argument a profile is of all processes that are traced."""
    running, target = traced
    other = start_named("keeps-lines")
    running.wait_traced(other.pid)
    status, _, body = running.ask("/debug/pprof/heap")
    (tmp_path / "all.pb.gz").write_bytes(body)
    assert status == 200
    done = subprocess.run(
        [tracer, "report", tmp_path / "all.pb.gz", "--by", "process", "--format", "json"],
        stdout=subprocess.PIPE,
        check=True,
    )
    found = {each["pid"] for each in json.loads(done.stdout)["statistics"]}
    assert {target.pid, other.pid} <= found
    assert running.ask("/debug/pprof/heap?seconds=1")[0] == 200
    # One that has ended holds nothing any more.
    other.kill()
    wait_until(lambda: other.pid not in [x["pid"] for x in running.targets()], "it has ended")
    (tmp_path / "rest.pb.gz").write_bytes(running.ask("/debug/pprof/heap")[2])
    assert harness.read_report(tracer, tmp_path / "rest.pb.gz").data["pid"] == target.pid


def test_report(traced):
    """The page for people links to a report of each process, which a browser shows: it runs the
    page's own script and nothing else."""
    running, target = traced
    path = "/report?pid=%d" % target.pid
    assert 'href="%s"' % path[1:] in running.ask("/")[2].decode()
    status, headers, body = running.ask(path)
    assert status == 200 and headers["Content-Type"].startswith("text/html")
    policy = headers["Content-Security-Policy"]
    assert 'content="%s"' % policy in body.decode() and "unsafe" not in policy
    line = "%s:%d" % (program(PROGRAM), marked_line(PROGRAM, "OWN"))
    with Browser() as browser:
        browser.open(running.url(path))
        assert browser.errors == []
        browser.choose("view", "table")
        shown = browser.run("document.querySelector('#sheet').textContent")
        assert line in shown
        assert browser.run("document.title") != "tracer"
        # What is not the page's own does not run.
        browser.run(
            "document.body.append(Object.assign(document.createElement('script'),"
            " {text: 'document.title = 1'})); 0"
        )
        assert browser.run("document.title") != "1"
    for path in ("/report", "/report?pid=x", "/report?pid=%d&container=x" % target.pid):
        assert running.status(path) == 400
    assert running.status("/report?pid=1") == 404


def test_allocs(traced):
    """What was allocated is estimated from windows: with its error, in the profile and figures."""
    running, target = traced
    path = "/debug/pprof/allocs?pid=%d" % target.pid

    def made():
        status, _, body = running.ask(path)
        assert status in (200, 404)
        return body if status == 200 else None

    body = wait_until(made, "windows have shown what is allocated")
    profile = gzip.decompress(body)
    assert b"alloc_space" in profile and b"an estimate from windows" in profile
    assert b"standard_error" in profile

    def of(name):
        return [
            value
            for (family, labels), value in running.metrics().items()
            if family == "tracer_process_allocation_" + name and '"%d"' % target.pid in labels
        ]

    wait_until(lambda: of("window_ratio"), "the figures are of that time, too")
    (rate,), (low,) = of("bytes_per_second"), of("low_bytes_per_second")
    assert 0 <= low <= rate and rate > 0
    assert all(high >= rate for high in of("high_bytes_per_second"))
    assert 0 < of("window_ratio")[0] < 1


def test_command_line(traced):
    """As tracer list has it, as text and not without an end."""
    running, target = traced
    with open("/proc/%d/cmdline" % target.pid, "rb") as file:
        words = file.read().rstrip(b"\0").replace(b"\0", b" ")
    page = running.ask("/")[2]
    assert b"<td>" + html.escape(words[:40].decode()).encode() in page


ARGUMENTS = b"/debug/pprof/heap takes each once with a value: pid, container, service, seconds\n"


@pytest.mark.parametrize(
    "path, said",
    (
        ("/debug/pprof/heap?pids=1", ARGUMENTS),
        ("/debug/pprof/heap?pid=1&pid=2", ARGUMENTS),
        ("/debug/pprof/heap?pid", ARGUMENTS),
        ("/report?pid=1&seconds=1", b"/report takes each once with a value: pid\n"),
        ("/metrics?name=x", b"/metrics takes no arguments\n"),
        ("/?x=1", b"/ takes no arguments\n"),
    ),
    ids=range(6),
)
def test_arguments(server, path, said):
    """What would be ignored is refused, with what there is."""
    running = server(more=NO_TRACE)
    status, _, body = running.ask(path)
    assert (status, body) == (400, said)


def test_hosts(server, tmp_path):
    """A page of another site whose name leads to this address gets nothing; who asks for an address
    or for localhost does, and with a token who has it."""
    running = server(more=NO_TRACE)
    for host in ("localhost", "LOCALHOST:80", "127.0.0.1:%d" % running.port, "[::1]:1", "10.1.2.3"):
        assert running.status("/metrics", Host=host) == 200, host
    for host in (
        "evil.example",
        "evil.example:9464",
        "localhost.evil.example",
        "127.0.0.1.x",
        "[x]",
    ):
        for path in ("/metrics", "/", "/nope"):
            assert running.status(path, Host=host) == 421, host
    assert running.status("/healthz", Host="evil.example") == 200
    with socket.create_connection(("127.0.0.1", running.port)) as it:  # HTTP/1.0 names none
        it.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
        assert b" 200 " in it.recv(1000)
    token = tmp_path / "token"
    token.write_text("s3cret\n")
    running.agent.config.write_text(
        running.agent.config.read_text().replace("[http]", "[http]\ntoken-file = %s" % token)
    )
    running.agent.process.send_signal(signal.SIGHUP)
    running.agent.said("http.token-file: was not set, is %s" % token)
    given = {"Host": "shop.example", "Authorization": "Bearer s3cret"}

    def answered():
        with contextlib.suppress(OSError):
            return running.status("/metrics", **given) == 200

    wait_until(answered, "who has the token may come by a proxy")


@pytest.mark.whole
@pytest.mark.parametrize(
    "path, status",
    [
        ("/nope", 404),
        ("/metrics/", 404),
        ("/debug/pprof/heap?pid=1", 404),
        ("/debug/pprof/heap?pid=x", 400),
        ("/debug/pprof/heap?pid=99999999999999999999", 400),
        ("/debug/pprof/heap?seconds=301", 400),
        ("/debug/pprof/heap?seconds=-1", 400),
        ("/debug/pprof/heap?container=" + "x" * 3000, 404),
    ],
)
def test_wrong_requests(server, path, status):
    running = server(more=NO_TRACE)
    answer, headers, body = running.ask(path)
    assert answer == status and body.endswith(b"\n") and body.count(b"\n") == 1
    assert "default-src 'none'" in headers["Content-Security-Policy"]
    for method in ("POST", "DELETE"):
        assert running.ask(path, method=method)[0] == 405
    assert running.ask("/metrics", method="HEAD")[0] == 200
    assert running.healthy()


def test_token_and_tls(server, tmp_path):
    """Without the token there is no more than whether the server lives."""
    token = tmp_path / "token"
    token.write_text("s3cret\nnot this line\n")
    made, key = certificate(tmp_path)
    running = server(
        more=NO_TRACE, http="token-file = %s\ncertificate = %s\nkey = %s" % (token, made, key)
    )
    assert "http:" not in running.agent.log.read_text().replace("http: 127", "")
    for given in ({}, *({"Authorization": text} for text in ("Bearer s3cre", "Basic s3cret", ""))):
        for path in ("/metrics", "/targets", "/", "/debug/pprof/heap", "/nope"):
            assert running.status(path, **given) == 401
    assert running.status("/metrics", Authorization="Bearer s3cret") == 200
    assert running.status("/readyz") == 200
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", running.port)) as it:
        it.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
        assert b"200" not in it.recv(1000)


def test_port_in_use(agent, tmp_path):
    """The agent says it once, tries again, and says when it serves."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        text = "[targets]\ncomm = none\n[evidence]\nenabled = no\n[http]\nlisten = %d\n" % port
        running = agent(text)
        running.said("tracer: http: 127.0.0.1 port %d: Address already in use\n" % port)
        time.sleep(1.5)  # by then it has tried again
    running.said("http: 127.0.0.1 port %d is served from now on" % port)
    assert running.log.read_text().count("Address already in use") == 1

    def session_answers():
        with contextlib.suppress(OSError):
            with urllib.request.urlopen("http://127.0.0.1:%d/metrics" % port) as answer:
                return b"\ntracer_session_up 1\n" in answer.read()

    wait_until(session_answers, "the session that runs by then is asked")


@pytest.mark.parametrize(
    "begin, end, said",
    (
        ("20200101000000Z", "20210203040506Z", "has expired on 2021-02-03 04:05:06 UTC"),
        ("20980203040506Z", "20990101000000Z", "is not valid before 2098-02-03 04:05:06 UTC"),
    ),
)
def test_certificate_out_of_time(server, run_tracer, tmp_path, begin, end, said):
    """The agent says it and goes on: a client may not look at it."""
    made, key = certificate(tmp_path, begin=begin, end=end)
    running = server(more=NO_TRACE, http="certificate = %s\nkey = %s" % (made, key))
    line = "tracer: http: %s: the certificate %s: clients will refuse it\n" % (made, said)
    running.agent.said(line)
    assert running.status("/metrics") == 200
    done = run_tracer("agent", "--check", "--config", running.agent.config)
    assert (done.returncode, done.stderr) == (0, line)


def test_privileges(server):
    """The process that serves has no capabilities, and few calls."""
    running = server(more=NO_TRACE)
    running.status("/metrics")
    with open("/proc/%d/status" % running.child("tracer-web")) as file:
        status = dict(line.split(":\t", 1) for line in file if ":\t" in line)
    assert {int(status[name], 16) for name in ("CapPrm", "CapEff", "CapInh")} == {0}
    assert status["NoNewPrivs"].strip() == "1" and status["Seccomp"].strip() == "2"
    assert status["Threads"].strip() == "1"


def test_session_hangs(traced):
    """A session that does not answer, or is another one by then, keeps nobody waiting."""
    running, target = traced
    session = running.child("tracer")
    os.kill(session, signal.SIGSTOP)
    try:
        wait_until(lambda: running.status("/readyz") == 503, "what was known is old")
        time.sleep(1.1)  # so long an answer stays
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            asked = [pool.submit(running.status, "/readyz") for _ in range(3)]
            assert running.healthy()
            assert [each.result(TIMEOUT) for each in asked] == [503] * 3
        assert running.metrics()["tracer_session_up", None] == 0
        assert running.status("/debug/pprof/heap") == 503
    finally:
        os.kill(session, signal.SIGCONT)
    wait_until(lambda: running.status("/readyz") == 200, "the session answers again")
    os.kill(session, signal.SIGKILL)

    def again():
        with contextlib.suppress(OSError):
            return running.wait_traced(target.pid)

    wait_until(lambda: running.child("tracer") != session, "there is another session")
    wait_until(again, "the other session traces")


def test_one_profile(traced):
    """A second profile is refused while one is made, and other pages are not kept waiting. One
    whose client goes is given up."""
    running, _ = traced
    with socket.create_connection(("127.0.0.1", running.port)) as slow:
        slow.sendall(b"GET /debug/pprof/heap?seconds=300 HTTP/1.1\r\nHost: localhost\r\n\r\n")

        def refused():
            status, headers, _ = running.ask("/debug/pprof/heap")
            return status == 503 and headers["Retry-After"]

        wait_until(refused, "one profile is being made")
        assert running.status("/metrics") == running.status("/healthz") == 200
    wait_until(lambda: running.status("/debug/pprof/heap") == 200, "it is given up")


GARBAGE = [
    b"",
    b"\0" * 5000,
    b"\xff\xfe" * 3000,
    b"GET\r\n\r\n",
    b"GET / HTTP/9.9\r\n\r\n",
    b"GET " + b"/x" * 20000 + b" HTTP/1.1\r\n\r\n",
    b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 5000 + b"\r\n",
    b"GET /%00%ff%2e%2e/etc/passwd HTTP/1.1\r\nHost: a\r\n\r\n",
    b"POST /metrics HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999999\r\n\r\n" + b"x" * 70000,
    b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nFFFFFFFFFFFFFFFFF\r\n",
    b"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"r" * 400,
    b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n" * 200,
    b"GET /metrics HTTP/1.1\r\nHost",
]


def test_garbage(server):
    running = server(more=NO_TRACE)
    process = running.child("tracer-web")

    def send(text):
        with contextlib.suppress(OSError):
            with socket.create_connection(("127.0.0.1", running.port), TIMEOUT) as connection:
                connection.sendall(text)
                connection.shutdown(socket.SHUT_WR)
                while connection.recv(65536):
                    pass

    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        list(pool.map(send, GARBAGE))
    assert running.healthy()
    assert running.child("tracer-web") == process
    assert running.metrics()["tracer_agent_errors_total", 'kind="request"'] == 0


def descriptors(pid):
    return len(os.listdir("/proc/%d/fd" % pid))


def test_many_connections(server):
    """200 connections at once, and some that send a byte now and then, or read nothing: they are
    bounded, and ended."""
    running = server(more=NO_TRACE)
    process = running.child("tracer-web")
    running.status("/metrics")
    before = descriptors(process)
    with contextlib.ExitStack() as stack:
        opened = []
        for i in range(200):
            connection = stack.enter_context(socket.socket())
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
            connection.connect(("127.0.0.1", running.port))
            opened.append(connection)
            with contextlib.suppress(OSError):
                connection.sendall(
                    b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n" if i % 2 else b"GET /"
                )
        assert descriptors(process) <= before + 32
        # A byte now and then keeps no connection open: all others are free again.
        wait_until(lambda: all_ended(opened), "the slow connections are ended")
        assert running.healthy()
    wait_until(lambda: descriptors(process) <= before + 1, "all descriptors are closed")
    assert running.child("tracer-web") == process and running.healthy()


def all_ended(connections):
    """Sends each a byte of a header. True once the server has ended all of them."""
    time.sleep(0.2)
    alive = 0
    for connection in connections:
        try:
            connection.setblocking(False)
            connection.send(b"x")
            while connection.recv(65536):
                pass
        except BlockingIOError:
            alive += 1
        except OSError:
            pass
    return not alive


def test_parallel_scrapes(server):
    """They are answered from the same figures."""
    running = server(more=NO_TRACE)
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        texts = [each.result()[2] for each in [pool.submit(running.ask, "/metrics")] * 4]
    assert len(set(texts)) == 1


def test_alert_rules():
    """The rules that are shipped: they are right, and fire for what they are about."""
    folder = os.path.join(harness.ROOT, "deploy")
    promtool("check", "rules", os.path.join(folder, "alerts.yaml"))
    promtool("test", "rules", os.path.join(folder, "alerts-test.yaml"))
