# SPDX-License-Identifier: Apache-2.0
"""Debug files from a server that speaks debuginfod's protocol (debuginfod(8), "WEBAPI"): only with
--debuginfod."""
import http.server
import os
import re
import subprocess
import threading

import pytest

from harness import compiled, environment, marked_line, program, read_report
from truth import tool

SOURCE = "inlined.c"


@pytest.fixture
def server():
    """.files: {path of a request: bytes}, .asked: the paths that were asked for, .url; .endless: an
    answer tells no length and has no end."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def send_endless(self):
            self.send_response(200)
            self.end_headers()
            try:
                while True:
                    self.wfile.write(b"\0" * 65536)
            except OSError:
                server.cut += 1

        def do_GET(self):
            server.asked.append(self.path)
            if server.endless:
                self.send_endless()
                return
            data = server.files.get(self.path)
            self.send_response(200 if data else 404)
            self.send_header("Content-Length", str(len(data or b"")))
            self.end_headers()
            self.wfile.write(data or b"")

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.files, server.asked = {}, []
    server.endless, server.cut = False, 0
    server.url = "http://127.0.0.1:%d" % server.server_port
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


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


def tracebacks(tracer, folder, command, *options, **env):
    """The tracebacks of the program's blocks, as lists of (file name, line)."""
    path = str(folder / "snapshot.pb.gz")
    variables = {k: v for k, v in environment().items() if not k.startswith("DEBUGINFOD")}
    variables.update(DEBUGINFOD_CACHE_PATH=str(folder / "cache"), **env)
    subprocess.run(
        [tracer, "--layer", "native", *options, "-o", path, "--", command],
        env=variables,
        check=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
    )
    report = read_report(tracer, path, "--group-by", "traceback", "--no-skip")
    blocks = [s["traceback"] for s in report.statistics if s["count"] == 100]
    return [[(frame["filename"], frame["lineno"]) for frame in frames] for frames in blocks]


def test_fetched(tracer, server, stripped, tmp_path):
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
