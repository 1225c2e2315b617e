# SPDX-License-Identifier: Apache-2.0
"""tracer fleet of URLs: agents' profiles, with a token and over TLS, and servers that fail."""
import http.server
import json
import subprocess
import threading

import pytest

import harness
from harness import wait_until

NAME = "fleet-urls"
HEAP = "/debug/pprof/heap"
LINE = (harness.program("keeps_lines.py"), harness.marked_line("keeps_lines.py", "OWN"))


def fleet(run_tracer, *words, status=0):
    done = run_tracer("fleet", "--format", "json", "--top", 0, *words)
    assert done.returncode == status, done.stderr
    return json.loads(done.stdout), done.stderr.splitlines()


def lines(told):
    return {(each["filename"], each["lineno"]): each["snapshots"] for each in told["statistics"]}


def test_agent(server, start_named, run_tracer, tmp_path):
    """What is fetched is added up, a file of the same process is older; a URL that fails is told, and the others are added up."""
    target = start_named(NAME)
    running = server(NAME)
    running.wait_traced(target.pid)
    url = "%s?pid=%d" % (running.url(HEAP), target.pid)
    wait_until(lambda: LINE in lines(fleet(run_tracer, url)[0]), "the line is in the profile")
    file = tmp_path / "saved.pb.gz"
    file.write_bytes(running.ask("%s?pid=%d" % (HEAP, target.pid))[2])
    none, wrong = running.url("/nope"), "http://127.0.0.1:%d/x" % harness.free_port()
    told, said = fleet(run_tracer, url, none, file, url, wrong, status=1)
    # The file is of the same process.
    assert (told["snapshots"], told["older"], told["unread"], told["repeated"]) == (1, 1, 2, 1)
    assert lines(told)[LINE] == 1 and told["statistics"][0]["highest"] == url
    assert [line.split(": ")[1] for line in said] == [none, wrong]
    assert "status 404" in said[0]
    assert "1 snapshot that could not be read" in run_tracer("fleet", file, none).stdout


def test_token_and_tls(server, start_named, run_tracer, tmp_path):
    token, certificate, key = (tmp_path / name for name in ("token", "crt", "key"))
    token.write_text("s3cret\nnot this line\n")
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
    command += ["-subj", "/CN=a", "-addext", "subjectAltName=IP:127.0.0.1"]
    command += ["-keyout", key, "-out", certificate]
    subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
    start_named(NAME)
    http = "token-file = %s\ncertificate = %s\nkey = %s" % (token, certificate, key)
    running = server(NAME, http=http)
    wait_until(
        lambda: running.status(HEAP, Authorization="Bearer s3cret") == 200, "a profile is there"
    )
    url, ca, given = running.url(HEAP), ("--ca", certificate), ("--token-file", token)
    assert fleet(run_tracer, url, *ca, *given)[0]["snapshots"] == 1
    for words, said in (
        (ca, "status 401"),
        (given, "certificate is not valid"),
        ((*ca, "--token-file", tmp_path / "none"), "No such file"),
        ((*given, "--ca", token), "authority that %s does not have" % token),
    ):
        done = run_tracer("fleet", url, *words)
        assert said in harness.error_line(done, 1)


class Hostile(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if self.path != "/text" else 500)
        self.end_headers()
        try:
            if self.path == "/text":
                self.wfile.write(b"\x1b[31m no\r\n" + b"x" * 100000)
            while self.path == "/endless":
                self.wfile.write(bytes(1 << 20))
        except OSError:
            pass  # it has hung up

    def log_message(self, *args):
        pass


@pytest.mark.unprivileged
@pytest.mark.parametrize(
    "path, said",
    (
        ("/endless", "it is larger than 256 MiB"),
        ("/empty", "its gzip data end too early"),
        ("/text", "status 500: \\x1b[31m no"),
        ("/#x", "it is no URL of http or https"),
    ),
)
def test_hostile(run_tracer, path, said):
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hostile) as it:
        threading.Thread(target=it.serve_forever, daemon=True).start()
        done = run_tracer("fleet", "http://127.0.0.1:%d%s" % (it.server_port, path))
        it.shutdown()
    assert said in harness.error_line(done, 1)
