# SPDX-License-Identifier: Apache-2.0
"""tracer serve: who gets what from its web server, and that its answers are those of tracer heap."""
import http.client
import json
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import tarfile
import tempfile
import threading
import urllib.parse

import pytest

from harness import TIMEOUT, environment, error_line, memory_cgroup, wait_until
from test_heap_graph import ask

N = 3000
PYTHON = "/usr/bin/python3"
LINK = re.compile(r"(for another browser: )?(http://127\.0\.0\.1:(\d+))(/\?token=[0-9a-f]{32})\n")


class Served:
    """A running tracer serve. The first link is taken when it is first asked for something."""

    def __init__(self, tracer, *args, prefix=()):
        self.process = subprocess.Popen(
            [*prefix, tracer, "serve", *map(str, args)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment(),
        )
        line = self.process.stdout.readline()
        assert LINK.fullmatch(line), line + self.process.stderr.read()
        _, self.base, port, self.path = LINK.fullmatch(line).groups()
        self.port, self.cookie = int(port), None

    def ask(self, path, method="GET", cookie=None, **headers):
        """(status, headers, body)"""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=TIMEOUT)
        if cookie:
            headers["Cookie"] = cookie
        connection.request(method, path, headers=headers)
        answer = connection.getresponse()
        body = answer.read()
        connection.close()
        return answer.status, dict(answer.getheaders()), body

    def login(self):
        """Takes the link: its cookie. Then the next one is printed."""
        status, headers, _ = self.ask(self.path)
        assert (status, headers["Location"]) == (303, "/")
        cookie, *rest = headers["Set-Cookie"].split("; ")
        assert sorted(rest) == ["HttpOnly", "Path=/", "SameSite=Strict"]
        self.link_read()
        return cookie

    def link_read(self):
        """The next link, which is printed when one was taken."""
        match = LINK.fullmatch(self.process.stdout.readline())
        assert match.group(1) and match.group(2) == self.base
        self.path = match.group(4)

    def get(self, path, **arguments):
        self.cookie = self.cookie or self.login()
        query = "?" + urllib.parse.urlencode(arguments) if arguments else ""
        return self.ask(path + query, cookie=self.cookie)

    def heap(self, question, **arguments):
        status, headers, body = self.get("/api/heap/" + question, **arguments)
        assert status == 200, body
        assert headers["Content-Type"] == "application/json; charset=utf-8"
        return json.loads(body)

    def end(self, how=signal.SIGINT):
        self.process.send_signal(how)
        _, err = self.process.communicate(timeout=TIMEOUT)
        assert (self.process.returncode, err) == (0, "")


@pytest.fixture
def serve(tracer):
    running = []

    def run(*args, program=tracer, **options):
        running.append(Served(program, *args, **options))
        return running[-1]

    yield run
    for each in running:
        each.process.kill()
        each.process.wait()
        each.process.stdout.close()
        each.process.stderr.close()


@pytest.fixture
def dump(start, run_tracer, tmp_path):
    target, path = start(PYTHON, "served.py", N), str(tmp_path / "heap.dump")
    target.wait_reading()
    ask(run_tracer, "--by", "root", "-o", path, "-p", target.pid)
    assert target.finish() == 0
    return path


def test_answers(serve, run_tracer, dump):
    """What the server says is what the command line prints, to the digit."""
    served = serve(dump)
    for key in ("type", "module", "path", "root", "container", "size"):
        words = ["--retained"] if key == "type" else ["--by", key]
        assert served.heap("by", key=key, top=50) == ask(run_tracer, *words, "--top", 50, dump)
    for question in ("waste", "cycles"):
        assert served.heap(question, top=30) == ask(run_tracer, question, "--top", 30, dump)
    query = "type = Node and retained > 50"
    found = served.heap("query", q=query, top=7)
    assert found == ask(run_tracer, "query", query, "--top", 7, dump)
    # Only what is shown is sorted: the same as the beginning of all.
    whole = ask(run_tracer, "query", query, "--top", 0, dump)["objects"]
    assert found["objects"] == whole[:7] and len(whole) == found["total"]["count"]
    address = hex(found["objects"][0]["address"])
    (kind,) = {
        r["type_address"]
        for r in ask(run_tracer, "--top", 0, dump)["statistics"]
        if r["type"] == "Node"
    }
    for place in (address, hex(kind)):
        for question, name in (("show", "address"), ("why", "what"), ("holders", "what")):
            answer = served.heap(question, top=20, **{name: place})
            assert answer == ask(run_tracer, question, place, "--top", 20, dump)
    # Of types the server has read all at the beginning; the command looks for one.
    for row in served.heap("by", key="type", top=40)["statistics"]:
        answer = served.heap("holders", what=row["type_name"], top=10000)
        assert answer == ask(run_tracer, "holders", row["type_name"], "--top", 10000, dump), row
    # By the cache, its variable, itself, and a reference that does not count.
    held = {row["type"]: row["count"] for row in served.heap("holders", what="Node")["holders"]}
    assert held == {"dict": N + 1, "Node": 1, "weakref.ReferenceType": 1}
    # The instances that are not shown of a class are counted all the same.
    assert served.heap("show", address=hex(kind), top=5)["references_in_total"] == len(
        ask(run_tracer, "show", hex(kind), "--top", 0, dump)["references_in"]
    )
    served.end()


def compare_levels(served, nodes, of, depth):
    level = served.heap("tree", of=of, top=20)["tree"]
    assert level["children_total"] == nodes["children_total"]
    assert len(level["children"]) == len(nodes["children"])
    for one, other in zip(level["children"], nodes["children"]):
        below = {key: other[key] for key in ("children_total", "children")}
        assert one == {key: value for key, value in other.items() if key not in below}
        if depth > 1:
            assert (one["retained_count"] > one["count"]) == (below["children_total"] > 0)
            if below["children"]:
                compare_levels(served, below, hex(one["address"]), depth - 1)


def test_tree(serve, run_tracer, dump):
    """Level by level it is the tree that --depth prints."""
    served = serve(dump)

    whole = ask(run_tracer, "--retained", "--depth", 4, "--top", 20, dump)["tree"]
    compare_levels(served, whole, "root", 4)
    served.end()


def test_token(serve, dump):
    """Without the token there is nothing, whatever is asked; it is good for one browser."""
    served = serve(dump)
    paths = ("/", "/report", "/api/sources", "/api/heap/by", "/nothing", "/../etc/passwd")
    right = served.path[-32:]
    guesses = ["", "/?token=", "/?token=" + right[:-1], "/?token=" + right + "0"]
    guesses += ["/?token=" + "%032x" % random.getrandbits(128) for _ in range(200)]
    guesses += [
        "/?token=" + right[:31] + digit for digit in "0123456789abcdef" if digit != right[31]
    ]
    for path in (*paths, *guesses):
        status, headers, body = served.ask(path or "/")
        assert status == 401 and "Set-Cookie" not in headers, path
        assert body.startswith(b"open the link"), path
    name = "tracer-%d" % served.port
    for cookie in (name + "=", name + "=" + right, name + "=" + 32 * "0", "tracer=" + right):
        assert served.ask("/", cookie=cookie)[0] == 401
    # To look whether it is there does not use it up.
    assert served.ask(served.path, method="HEAD")[0] == 401
    used = served.path
    first = served.login()
    assert served.ask(used)[0] == 401
    second = served.login()
    for cookie in (first, second, "other=1; " + first):
        assert served.ask("/", cookie=cookie)[0] == 200
        assert json.loads(served.ask("/api/sources", cookie=cookie)[2])["sources"]
    # A page of another site that leads here: a redirect would lose a cookie that is strict.
    status, headers, body = served.ask(served.path, **{"Sec-Fetch-Site": "cross-site"})
    assert status == 200 and "Set-Cookie" in headers and "Location" not in headers
    assert b'http-equiv="refresh"' in body
    served.end()


def test_requests(serve, dump):
    served = serve(dump)
    cookie = served.login()
    for method in ("POST", "PUT", "DELETE", "OPTIONS", "TRACE"):
        status, headers, _ = served.ask("/", method=method, cookie=cookie)
        assert (status, headers["Allow"]) == (405, "GET, HEAD")
    for host in ("localhost", "127.0.0.1:80", "[::1]:9"):
        assert served.ask("/", cookie=cookie, Host=host)[0] == 200
    for host in ("example.org", "localhost.example.org", "tracer", ""):
        assert served.ask("/", cookie=cookie, Host=host)[0] == 421, host
    for path in ("/x", "/report/../api", "/api", "/api/heap/differ", "//", "/%2e%2e/etc/passwd"):
        assert served.ask(path, cookie=cookie)[0] == 404, path
    wrong = {
        "/api/heap/by?key=line": 400,
        "/api/heap/by?key=type&key=size": 400,
        "/api/heap/by?top=0": 400,
        "/api/heap/by?top=10001": 400,
        "/api/heap/by?top=-1": 400,
        "/api/heap/by?file=/etc/passwd": 400,
        "/api/heap/by?source=1": 404,
        "/api/heap/by?source=x": 404,
        "/api/heap/show": 400,
        "/api/heap/show?address=12": 404,
        "/api/heap/show?address=Node": 404,
        "/api/heap/tree?of=Node": 404,
        "/api/heap/why?what=Nod": 404,
        "/api/heap/query?q=": 400,
        "/api/heap/query?q=type": 400,
        "/api/heap/query?q=value+%3D+x": 400,
        "/api/heap/query?q=" + "(" * 3000: 400,
        "/report": 404,
    }
    for path, status in wrong.items():
        answer = served.ask(path, cookie=cookie)
        assert answer[0] == status, (path, answer)
        assert answer[2].count(b"\n") == 1, answer
    assert b"did you mean" in served.ask("/api/heap/why?what=Nod", cookie=cookie)[2]
    status, headers, body = served.ask("/", cookie=cookie)
    assert headers["X-Frame-Options"] == "DENY" and headers["Cache-Control"] == "no-store"
    assert headers["X-Content-Type-Options"] == "nosniff"
    policy = headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy and "unsafe" not in policy
    assert policy in body.decode()
    assert served.ask("/", method="HEAD", cookie=cookie)[2] == b""
    served.end(signal.SIGTERM)


def test_garbage(serve, dump):
    """What is no HTTP, pieces of it, and clients that do not go on or do not read."""
    served = serve(dump)
    cookie = served.login()
    good = ("GET /api/heap/by HTTP/1.1\r\nHost: localhost\r\nCookie: %s\r\n\r\n" % cookie).encode()
    chance = random.Random(1)
    waiting = []
    for turn in range(300):
        data = bytearray(good)
        for _ in range(chance.randrange(1, 8)):
            data[chance.randrange(len(data))] = chance.randrange(256)
        data = bytes(data) if turn % 3 else chance.randbytes(chance.randrange(1, 20000))
        with socket.create_connection(("127.0.0.1", served.port)) as client:
            client.settimeout(0.5)
            try:
                client.sendall(data)
                client.shutdown(socket.SHUT_WR)
                answer = client.recv(100)
            except OSError:  # it has ended the connection, or waits for more until its deadline
                continue
        assert not answer or answer.startswith(b"HTTP/1."), answer
    for _ in range(3):  # it asks for much, and takes nothing
        client = socket.create_connection(("127.0.0.1", served.port))
        client.sendall(good.replace(b"/by", b"/by?top=10000&key=container"))
        waiting.append(client)

    def answer():
        try:
            return served.heap("by", key="root")
        except (OSError, http.client.HTTPException):  # as many as are served of one address
            return None

    assert wait_until(answer, "it answers")["total"]["count"] > N
    for client in waiting:
        client.close()
    served.end()


def test_browsers(serve, dump):
    """Two at a time, while answers are made ahead."""
    served = serve(dump)
    cookies = [served.login(), served.login()]
    expected = {}
    wrong = []

    def browse(cookie, seed):
        paths = ["by?key=" + key for key in ("type", "module", "container", "path")]
        paths += ["waste", "cycles", "tree", "query?q=type+%3D+Node"]
        random.Random(seed).shuffle(paths)
        for path in 3 * paths:
            status, _, body = served.ask("/api/heap/" + path, cookie=cookie)
            if status != 200 or expected.setdefault(path, body) != body:
                wrong.append((path, status))

    threads = [threading.Thread(target=browse, args=each) for each in zip(2 * cookies, range(4))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    served.end()


def test_slow_reader(serve, dump):
    """Who asks for much and takes little holds up nobody, and gets all of it in the end."""
    served = serve(dump)
    cookie = served.login()
    path = "/api/heap/query?top=10000&q=size+%3E+0"
    whole = served.get(path)[2]
    assert len(whole) > 1 << 20
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.settimeout(TIMEOUT)
        client.connect(("127.0.0.1", served.port))
        line = "GET %s HTTP/1.1\r\nHost: localhost\r\nCookie: %s\r\nConnection: close\r\n\r\n"
        client.sendall((line % (path, cookie)).encode())
        got = client.recv(100)
        for key in ("type", "root", "module", "path"):
            assert served.heap("by", key=key)["total"]["count"] > N
            got += client.recv(1000)
        while piece := client.recv(1 << 16):
            got += piece
    head, _, body = got.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200") and body == whole
    served.end()


def test_too_large(serve, run_tracer, tracer, dump):
    """A dump that does not fit is refused before it is read; and if memory runs out all the same, the
    server is the process that the kernel ends."""
    with memory_cgroup(16 << 20) as folder:
        inside = 'echo $$ > "$0"/cgroup.procs; exec "$@"'
        for words in (["serve", dump], ["export", dump, "--format", "html", "-o", dump + ".html"]):
            done = subprocess.run(
                ["sh", "-c", inside, folder, tracer, *words],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                timeout=TIMEOUT,
            )
            assert done.returncode == 1 and done.stdout == ""
            assert re.fullmatch(
                r"tracer: .*: its memory of \d+ MiB is more than the \d+ MiB that may be used\n",
                done.stderr,
            )
    assert not os.path.exists(dump + ".html")
    served = serve(dump)
    with open("/proc/%d/oom_score_adj" % served.process.pid) as file:
        assert file.read() == "1000\n"
    served.end()


def test_values(serve, run_tracer, dump):
    """Contents of texts are shown with --values only, whatever was asked before."""
    secret = "the secret of %d" % N
    for options in ([], ["--values"]):
        served = serve(*options, dump)
        rows = ask(run_tracer, "query", 'type = str and path ~ "secret"', dump)["objects"]
        address = hex(rows[0]["address"])
        for _ in range(2):
            answer = served.heap("show", address=address)
            assert (secret in (answer["value"] or "")) == bool(options)
            assert answer == ask(run_tracer, "show", *options, address, "--top", 100, dump)
            text = json.dumps(served.heap("waste"))
            assert ("is there" in text) == bool(options)
        status = served.get("/api/heap/query", q='value ~ "the secret"')[0]
        assert status == (200 if options else 400)
        served.end()


def test_other_user(serve, dump, tracer, tmp_path):
    """A second user of the machine gets nothing: not by the network, and not from /proc."""
    served = serve(dump)
    code = (
        "import sys, urllib.request, urllib.error\n"
        "for path in ('/', '/api/sources', '/api/heap/by'):\n"
        "    try:\n"
        "        print(urllib.request.urlopen(sys.argv[1] + path).read())\n"
        "    except urllib.error.HTTPError as error:\n"
        "        print(error.code, error.read())\n"
        "print(open('/proc/%s/cmdline' % sys.argv[2]).read())\n"
        "for name in ('environ', 'maps', 'fd/1', 'mem'):\n"
        "    try:\n"
        "        open('/proc/%s/%s' % (sys.argv[2], name), 'rb').read(1)\n"
        "        print('read', name)\n"
        "    except OSError:\n"
        "        pass\n"
    )
    nobody = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
    done = subprocess.run(
        [*nobody, PYTHON, "-c", code, served.base, str(served.process.pid)],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=TIMEOUT,
    )
    assert done.stdout.count("401 ") == 3, done.stdout
    for word in ("read", "Node", "pid", served.path[-32:]):
        assert word not in done.stdout, done.stdout
    served.end()


@pytest.fixture
def open_folder():
    """One that every user can read."""
    folder = tempfile.mkdtemp()
    os.chmod(folder, 0o755)
    yield folder
    shutil.rmtree(folder)


def test_files(serve, tracer, dump, open_folder):
    """A user without any right serves a file of theirs; the server then opens nothing."""
    mine, program = shutil.copy(dump, open_folder), shutil.copy(tracer, open_folder)
    os.chown(mine, 65534, 65534)
    nobody = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--inh-caps=-all")
    served = serve(mine, program=program, prefix=nobody)
    assert served.heap("by")["total"]["count"] > N
    with open("/proc/%d/status" % served.process.pid) as file:
        status = file.read()
    assert "CapEff:\t0000000000000000" in status and "NoNewPrivs:\t1" in status
    assert "Seccomp:\t2" in status
    opened = [
        os.readlink("/proc/%d/fd/%s" % (served.process.pid, fd))
        for fd in os.listdir("/proc/%d/fd" % served.process.pid)
    ]
    assert not [path for path in opened if path.startswith("/") and "dev/null" not in path], opened
    served.end()


def test_process(serve, start, run_tracer):
    target = start(PYTHON, "served.py", N)
    target.wait_reading()
    served = serve("-p", target.pid)
    (source,) = json.loads(served.get("/api/sources")[2])["sources"]
    assert (source["kind"], source["pid"]) == ("heap", target.pid)
    assert served.heap("query", q="type = Node")["total"]["count"] == N + 1
    served.end()
    assert target.finish() == 0


def test_reports(serve, start, trace, run_tracer, dump, tmp_path):
    """A snapshot beside a heap: the page of export --format html."""
    snapshot, page = str(tmp_path / "s.pb.gz"), str(tmp_path / "page.html")
    target = start(PYTHON, "served.py", 10)
    target.wait_reading()
    with trace("-p", target.pid, "-o", snapshot, "--layer", "python") as running:
        running.wait_attached()
        target.step()
        running.interrupt()
        running.wait()
    served = serve(snapshot, dump)
    report, heap = json.loads(served.get("/api/sources")[2])["sources"]
    assert (report["kind"], report["file"]) == ("report", snapshot)
    assert (heap["kind"], heap["source"]) == ("heap", 1)
    assert served.heap("by", source=1)["total"]["count"] > N
    assert served.get("/api/heap/by")[0] == 404
    assert served.get("/report", source=1)[0] == 404
    status, headers, body = served.get("/report", source=0)
    assert run_tracer("export", snapshot, "--format", "html", "-o", page).returncode == 0
    with open(page, "rb") as file:
        assert status == 200 and body == file.read()
    assert headers["Content-Security-Policy"] in body.decode()
    served.end()


def test_bundle(serve, run_tracer, dump, tmp_path):
    """Of a bundle of evidence the copy of the heap, and its page; without a copy the page alone."""
    bundle, page = str(tmp_path / "a.evidence"), str(tmp_path / "page.html")
    facts = tmp_path / "evidence.json"
    facts.write_text("{}\n")
    for members in ((facts, dump), (facts,)):
        with tarfile.open(bundle, "w", format=tarfile.USTAR_FORMAT) as archive:
            for member, name in zip(members, ("evidence.json", "heap.dump")):
                archive.add(str(member), name)
        served = serve(bundle)
        sources = json.loads(served.get("/api/sources")[2])["sources"]
        assert [each["kind"] for each in sources] == ["heap", "report"][2 - len(members) :]
        if len(members) == 2:
            assert served.heap("by", top=5) == ask(run_tracer, "--retained", "--top", 5, dump)
        status, headers, body = served.get("/report", source=len(members) - 1)
        done = run_tracer("export", bundle, "--format", "html", "-o", page, "--force")
        assert done.returncode == 0, done.stderr
        with open(page, "rb") as file:
            assert status == 200 and body == file.read()
        assert headers["Content-Security-Policy"] in body.decode()
        served.end()


def test_bad_input(run_tracer, dump, tmp_path):
    with open(dump, "rb") as file:
        data = file.read()
    for bytes_left in (0, 7, 8, 100, 5000, len(data) // 2, len(data) - 1):
        cut = tmp_path / "cut.dump"
        cut.write_bytes(data[:bytes_left])
        error_line(run_tracer("serve", cut), 1)
    error_line(run_tracer("serve", tmp_path / "none.dump"), 1)
    error_line(run_tracer("serve", "-p", 1 << 21), 1)
    with socket.socket() as used:
        used.bind(("127.0.0.1", 0))
        used.listen()
        line = error_line(run_tracer("serve", "--port", used.getsockname()[1], dump), 1)
        assert "in use" in line
    for words in ([], ["--port", "0", dump], ["--port", "65536", dump], ["-p", "1,2"]):
        error_line(run_tracer("serve", *words), 2)


def test_open(tracer, serve, dump, tmp_path):
    """The link is given to the browser in a file of the user's, not in its arguments."""
    program, seen = tmp_path / "xdg-open", tmp_path / "seen"
    program.write_text(
        '#!/bin/sh\nstat -c %%a "$1" >%s\necho "$1" >>%s\ncat "$1" >>%s\n' % (seen, seen, seen)
    )
    program.chmod(0o755)
    served = serve("--open", dump, prefix=("env", "PATH=%s:%s" % (tmp_path, os.environ["PATH"])))
    wait_until(lambda: seen.exists() and "</a>" in seen.read_text(), "the browser has the link")
    mode, name, page = seen.read_text().split("\n", 2)
    assert mode == "600" and os.path.exists(name)
    assert served.base + served.path in page
    served.end()
    wait_until(lambda: not os.path.exists(name), "the file is removed")
