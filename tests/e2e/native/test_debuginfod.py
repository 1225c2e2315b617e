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
    """.files: {path of a request: bytes}, .asked: the paths that were asked for, .url."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            server.asked.append(self.path)
            data = server.files.get(self.path)
            self.send_response(200 if data else 404)
            self.send_header("Content-Length", str(len(data or b"")))
            self.end_headers()
            self.wfile.write(data or b"")

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.files, server.asked = {}, []
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


def test_only_if_wanted(tracer, server, stripped, tmp_path):
    (frames,) = tracebacks(tracer, tmp_path, stripped, DEBUGINFOD_URLS=server.url)
    assert frames[0] == (stripped, 0)
    assert not server.asked


def test_no_server(run_tracer):
    done = run_tracer("--debuginfod", "-p", "1", env=environment(DEBUGINFOD_URLS=""))
    assert done.returncode == 2
    assert "set DEBUGINFOD_URLS" in done.stderr
