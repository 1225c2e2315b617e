# SPDX-License-Identifier: Apache-2.0
"""Debug files from a server that speaks debuginfod's protocol (debuginfod(8), "WEBAPI"): only with
--debuginfod."""
import contextlib
import http.server
import os
import re
import shutil
import socket
import subprocess
import threading
import urllib.error
import urllib.request

import pytest

from harness import ROOT, compiled, environment, marked_line, program, read_report, wait_until
from truth import tool

SOURCE = "inlined.c"


@pytest.fixture
def server():
    """.files: {path of a request: bytes}, .asked: the paths that were asked for, .url; .endless: an
    answer tells no length and has no end. It is a proxy, too: .behind is the URL of the server
    behind it, which has the names of all hosts; .tunnels: the hosts to which one was asked for."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def send_endless(self):
            self.send_response(200)
            self.end_headers()
            try:
                while True:
                    self.wfile.write(b"\0" * 65536)
            except OSError:
                server.cut += 1

        def do_CONNECT(self):
            server.tunnels.append(self.path)
            self.send_error(403)

        def do_GET(self):
            server.asked.append(self.path)
            if server.endless:
                self.send_endless()
                return
            data = server.files.get(self.path)
            if server.behind:
                data = get(server.behind + re.sub("^http://[^/]+", "", self.path))
            self.send_response(200 if data else 404)
            self.send_header("Content-Length", str(len(data or b"")))
            self.end_headers()
            self.wfile.write(data or b"")

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.files, server.asked = {}, []
    server.endless, server.cut = False, 0
    server.behind, server.tunnels = None, []
    server.url = "http://127.0.0.1:%d" % server.server_port
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def get(url):
    """What a server has; None if it does not have it, or is not there."""
    try:
        with urllib.request.urlopen(url) as answer:
            return answer.read()
    except urllib.error.URLError:
        return None


@contextlib.contextmanager
def debuginfod(folder):
    """The URL of a real debuginfod that has the files of a folder, which were written before."""
    if not shutil.which("debuginfod"):
        pytest.skip("no debuginfod")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = ("debuginfod", "--database=:memory:", "--port=%d" % port, "-F", folder)
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(command, env=environment(DEBUGINFOD_URLS=""), **quiet) as process:
        try:
            yield "http://127.0.0.1:%d" % port
        finally:
            process.kill()


def build_id(path):
    notes = subprocess.run(
        [tool("readelf"), "-n", path], stdout=subprocess.PIPE, text=True, check=True
    ).stdout
    return re.search(r"Build ID: (\w+)", notes)[1]


def serve(server, path):
    with open(path, "rb") as file:
        server.files["/buildid/%s/debuginfo" % build_id(path)] = file.read()


@pytest.fixture
def stripped(server, tmp_path):
    """A program whose debug file, and its common part (dwz), only the server has."""
    path = compiled(tmp_path / "program", SOURCE, "-g", "-O2", "-Wl,--build-id=sha1")
    other = compiled(tmp_path / "other", SOURCE, "-g", "-O1", "-Wl,--build-id=sha1")
    debugs = [str(tmp_path / name) for name in ("program.debug", "other.debug")]
    for source, debug in zip((path, other), debugs):
        subprocess.run([tool("objcopy"), "--only-keep-debug", source, debug], check=True)
    common = str(tmp_path / "common")
    subprocess.run([tool("dwz"), "-m", common, "-M", "common", *debugs], check=True)
    subprocess.run([tool("strip"), path], check=True)
    serve(server, debugs[0])
    serve(server, common)
    # Nothing of it is found here.
    for name in (*debugs, common, other):
        os.unlink(name)
    return path


def trace(tracer, folder, command, *options, **env):
    """Writes folder/snapshot.pb.gz, and returns what the tracer said of debuginfod."""
    variables = {
        k: v
        for k, v in environment().items()
        if not k.startswith("DEBUGINFOD") and not k.endswith("_proxy")
    }
    variables.update(DEBUGINFOD_CACHE_PATH=str(folder / "cache"), **env)
    output = str(folder / "snapshot.pb.gz")
    done = subprocess.run(
        [tracer, "--layer", "native", *options, "-o", output, "--", command],
        env=variables,
        check=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    return re.findall(r"^tracer: (--debuginfod: .*)$", done.stderr, re.M)


def tracebacks(tracer, folder, command, *options, **env):
    """The tracebacks of the program's blocks, as lists of (file name, line)."""
    path = str(folder / "snapshot.pb.gz")
    trace(tracer, folder, command, *options, **env)
    report = read_report(tracer, path, "--group-by", "traceback", "--no-skip")
    blocks = [s["traceback"] for s in report.statistics if s["count"] == 100]
    return [[(frame["filename"], frame["lineno"]) for frame in frames] for frames in blocks]


def check_fetched(tracer, server, stripped, tmp_path):
    """A server that is not there is no obstacle."""
    urls = "http://127.0.0.1:1 " + server.url
    (frames,) = tracebacks(tracer, tmp_path, stripped, "--debuginfod=" + urls)
    lines = [marked_line(SOURCE, mark) for mark in ("inner", "middle", "outer", "main")]
    assert frames[:4] == [(program(SOURCE), line) for line in lines]
    assert set(server.files) <= set(server.asked)
    assert len(set(server.asked)) == len(server.asked)  # one question for each file
    # What was fetched is in the cache.
    server.files.clear()
    assert tracebacks(tracer, tmp_path, stripped) == [frames]


def test_fetched(tracer, server, stripped, tmp_path):
    check_fetched(tracer, server, stripped, tmp_path)


@pytest.fixture
def static():
    """The static tracer loads no library: it runs debuginfod-find."""
    path = os.path.join(ROOT, "build", "static", "tracer")
    if not os.path.exists(path) or not shutil.which("debuginfod-find"):
        pytest.skip("no build/static/tracer (make static), or no debuginfod-find")
    return path


def test_fetched_by_a_program(static, server, stripped, tmp_path):
    check_fetched(static, server, stripped, tmp_path)


@pytest.fixture(params=("tracer", "static"))
def any_tracer(request):
    return request.getfixturevalue(request.param)


def check_unreachable(told, why):
    """One line, however many files there are."""
    (line,) = told
    assert why in line and "check the server's URL and https_proxy" in line


def test_unreachable(any_tracer, stripped, tmp_path):
    told = trace(any_tracer, tmp_path, stripped, "--debuginfod=http://127.0.0.1:1")
    check_unreachable(told, "Connection refused")


def test_silent_server(any_tracer, stripped, tmp_path):
    """It takes the connection, and answers nothing."""
    brief = {"DEBUGINFOD_TIMEOUT": "1", "DEBUGINFOD_RETRY_LIMIT": "0"}
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = "--debuginfod=http://127.0.0.1:%d" % silent.getsockname()[1]
        told = trace(any_tracer, tmp_path, stripped, url, **brief)
    check_unreachable(told, "Timer expired")


def test_proxy(any_tracer, server, tmp_path):
    """The server has a name that only the proxy knows."""
    path = compiled(tmp_path / "program", SOURCE, "-g", "-O2", "-Wl,--build-id=sha1")
    files = tmp_path / "files"
    files.mkdir()
    debug = files / "program.debug"
    subprocess.run([tool("objcopy"), "--only-keep-debug", path, debug], check=True)
    subprocess.run([tool("strip"), path], check=True)
    with debuginfod(files) as server.behind:
        asked = "/buildid/%s/debuginfo" % build_id(path)
        wait_until(lambda: get(server.behind + asked), "debuginfod has read its files")
        urls, proxy = "--debuginfod=http://debug.example", {"http_proxy": server.url}
        (frames,) = tracebacks(any_tracer, tmp_path, path, urls, **proxy)
    assert frames[0] == (program(SOURCE), marked_line(SOURCE, "inner"))
    assert "http://debug.example" + asked in server.asked


def test_https_proxy(any_tracer, server, stripped, tmp_path):
    """It is asked for a tunnel, which it refuses."""
    proxy = {"https_proxy": server.url}
    trace(any_tracer, tmp_path, stripped, "--debuginfod=https://debug.example", **proxy)
    assert "debug.example:443" in server.tunnels


@pytest.mark.long
def test_only_if_wanted(tracer, server, stripped, tmp_path):
    (frames,) = tracebacks(tracer, tmp_path, stripped, DEBUGINFOD_URLS=server.url)
    assert frames[0] == (stripped, 0)
    assert not server.asked


@pytest.mark.long
def test_endless(tracer, server, stripped, tmp_path):
    """The largest file is bounded whether or not the server tells its length."""
    server.endless = True
    urls = "--debuginfod=" + server.url
    (frames,) = tracebacks(tracer, tmp_path, stripped, urls, DEBUGINFOD_MAXSIZE=str(1 << 20))
    assert frames[0] == (stripped, 0) and server.cut
    sizes = [
        os.path.getsize(os.path.join(folder, name))
        for folder, _, names in os.walk(tmp_path / "cache")
        for name in names
    ]
    assert max(sizes, default=0) < 1 << 16  # what was written is removed


def test_no_server(run_tracer):
    done = run_tracer("--debuginfod", "-p", "1", env=environment(DEBUGINFOD_URLS=""))
    assert done.returncode == 2
    assert "set DEBUGINFOD_URLS" in done.stderr
