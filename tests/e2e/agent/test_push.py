# SPDX-License-Identifier: Apache-2.0
"""Profiles that the agent pushes, to a receiver that parses them with pprof's own library: what they
are, receivers that fail, and a spool that nothing makes lose what it holds."""
import os
import signal
import subprocess
import time

import pytest

import agents
import harness
from harness import TIMEOUT, wait_until

NAME = "push-%d" % os.getpid()  # of the process; other runs of the tests have others
DROPPED = ("spool", "refused", "disk")


@pytest.fixture(scope="session")
def receiver_program(tmp_path_factory):
    return agents.receiver_built(tmp_path_factory.mktemp("receiver"))


@pytest.fixture
def receiver(receiver_program):
    receivers = []

    def start(*args, port=None):
        receivers.append(agents.Receiver(receiver_program, port or harness.free_port(), *args))
        return receivers[-1]

    yield start
    for each in receivers:
        each.end()


def push(port, folder, *more, scheme="http"):
    """Its section; a profile a second."""
    url = "pyroscope = %s://localhost:%d/base" % (scheme, port)
    spool = "spool = %s" % folder
    return "\n".join(["[push]", url, "interval = 1", "timeout = 1", spool, *more])


def spooled(folder):
    return [name for name in os.listdir(folder) if name.endswith(".1")] if folder.exists() else []


def figure(running, name, *labels):
    labels = ",".join(['receiver="pyroscope"', *labels])
    return running.metrics()["tracer_push_" + name, labels]


def dropped(running, reason):
    return figure(running, "dropped_total", 'reason="%s"' % reason)


def add_up(running, before=0):
    """Each profile that was made was sent or dropped, or waits."""

    def sums():
        figures = running.metrics()
        of = lambda name, more="": figures["tracer_push_" + name, 'receiver="pyroscope"' + more]
        lost = sum(of("dropped_total", ',reason="%s"' % reason) for reason in DROPPED)
        made = of("profiles_total") + before
        return made == of("sent_total") + lost + of("spool_profiles") and made

    return wait_until(sums, "what was made is what was sent, dropped and kept")


@pytest.mark.parametrize("api", ("push", "ingest"))
def test_profiles(server, start_named, receiver, tmp_path, api, monkeypatch):
    """Labels say whose they are; samples and functions are those of the process."""
    monkeypatch.setenv("OTEL_SERVICE_NAME", "shop")
    target, receiving = start_named(NAME), receiver()
    more = push(receiving.port, tmp_path / "spool", "pyroscope-api = " + api)
    running = server(NAME, more=more)
    found = wait_until(lambda: [x for x in receiving.accepted() if x["sums"]["inuse_space"]], "one")
    first = found[0]
    assert first["api"] == api
    assert first["labels"]["pid"] == str(target.pid)
    assert first["labels"]["service_name"] == "shop"
    assert first["labels"]["host"] == os.uname().nodename
    assert "inuse_space bytes" in first["types"] and "inuse_objects count" in first["types"]
    wait_until(lambda: "<module>" in receiving.accepted()[-1]["functions"], "its function is there")
    wait_until(lambda: figure(running, "sent_total") > 1, "the agent counts them")
    assert figure(running, "last_success_timestamp_seconds") > time.time() - TIMEOUT
    assert add_up(running) and not any(dropped(running, reason) for reason in DROPPED)
    text = running.ask("/metrics")[2]
    subprocess.run(["promtool", "check", "metrics"], input=text, check=True)
    with open("/proc/%d/status" % running.child("tracer-push")) as file:
        status = dict(line.split(":\t", 1) for line in file if ":\t" in line)
    assert {int(status[name], 16) for name in ("CapPrm", "CapEff", "CapInh")} == {0}
    assert status["NoNewPrivs"].strip() == "1"


def test_nothing_known(server, start_named, receiver, tmp_path, any_python):
    """A process of which nothing is known yet has no profile, which a receiver would refuse."""
    start_named(NAME)
    receiving = receiver()
    with harness.Target(any_python, "named_idle.py", NAME) as quiet:
        running = server(NAME, more=push(receiving.port, tmp_path / "spool"))
        traced = lambda: quiet.pid in [x["pid"] for x in running.targets() if x["traced"]]
        wait_until(traced, "it is traced")
        receiving.wait("api", 4)
    assert str(quiet.pid) not in {each["labels"]["pid"] for each in receiving.accepted()}
    add_up(running)
    assert not any(dropped(running, reason) for reason in DROPPED)


FAILURES = (
    "500",
    "503",
    "429",
    "hang",
    "close",
    "reset",
    "half",
    "302 Location: file:///etc/passwd",
)


def test_failures(server, start_named, receiver, tmp_path):
    """Whatever a receiver does instead of taking a profile, it gets it once it takes profiles."""
    target, receiving = start_named(NAME), receiver()
    running = server(NAME, more=push(receiving.port, tmp_path / "spool"))
    receiving.wait("api")
    for how in FAILURES:
        receiving.answer(how)
        before = figure(running, "failed_attempts_total")
        wait_until(lambda: figure(running, "failed_attempts_total") > before, "it fails: " + how)
        receiving.answer("ok")
        receiving.wait("api", 2)
    # What is far too long is not read, and was an acknowledgement nevertheless.
    receiving.answer("huge")
    receiving.wait("api", 2)
    add_up(running)
    ids = [each["id"] for each in receiving.accepted()]
    assert len(ids) == len(set(ids))
    assert not any(dropped(running, reason) for reason in DROPPED)
    running.agent.said(
        "push: http://localhost:%d/base/push.v1.PusherService/Push: the profile of %s (PID %d): it is"
        " tried again: status 500: not now" % (receiving.port, NAME, target.pid)
    )
    running.agent.said("it takes profiles again")


def http_date(seconds):
    return time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime(time.time() + seconds))


@pytest.mark.parametrize("form", ("seconds", "a date"))
def test_retry_after(server, start_named, receiver, tmp_path, form):
    """Nothing is sent before the time that the receiver names."""
    start_named(NAME)
    receiving = receiver()
    server(NAME, more=push(receiving.port, tmp_path / "spool"))
    receiving.wait("api")
    # A date has whole seconds.
    asked, least = ("4", 4) if form == "seconds" else (http_date(6), 3)
    receiving.answer("429 Retry-After: " + asked)
    receiving.wait("attempt")
    receiving.answer("ok")
    receiving.wait("api")
    attempts = [line for line in receiving.lines if "attempt" in line]
    last = max(i for i, each in enumerate(attempts) if each["attempt"] != "ok")
    assert attempts[last + 1]["at"] - attempts[last]["at"] >= least * 10**9


def test_refused(server, start_named, receiver, tmp_path):
    """A profile that is refused is dropped, counted and told."""
    start_named(NAME)
    headers = tmp_path / "headers"
    headers.write_text("# of the receiver\nAuthorization: Bearer wrong\n")
    headers.chmod(0o600)
    receiving = receiver("-token", "right")
    more = push(receiving.port, tmp_path / "spool", "headers-file = %s" % headers)
    running = server(NAME, more=more)
    wait_until(lambda: dropped(running, "refused") > 1, "they are refused")
    running.agent.said("a profile is dropped: status 401: no token")
    headers.write_text("Authorization: Bearer right\n")
    running.agent.process.send_signal(signal.SIGHUP)
    receiving.wait("api")
    wait_until(lambda: figure(running, "sent_total") > 0, "they are sent")
    add_up(running)
    assert not dropped(running, "spool") and not dropped(running, "disk")


@pytest.mark.parametrize(
    "text, mode, said",
    (
        ("Authorization: x\n", 0o644, "it must be a file that root alone can read"),
        ("X: y\nno header\n", 0o600, "line 2 is no NAME: VALUE"),
        ("X: y\x07\n", 0o600, "line 1 is no NAME: VALUE"),
        ("X: y\n" * 33, 0o600, "it has more than 32 headers"),
        ("X" * 20000, 0o600, "it is larger than 16 KiB"),
    ),
    ids=range(5),
)
def test_headers_file(agent, tmp_path, text, mode, said):
    headers = tmp_path / "headers"
    headers.write_text(text)
    headers.chmod(mode)
    more = push(1, tmp_path / "spool", "headers-file = %s" % headers)
    watcher = agent("[targets]\ncomm = no-such\n[http]\nlisten = no\n" + more)
    watcher.said("tracer: %s: %s; push.headers-file names it" % (headers, said))
    assert watcher.process.poll() is None


@pytest.mark.parametrize(
    "wrong, said",
    (
        (lambda path: path.symlink_to("/tmp"), "it is no directory"),
        (lambda path: (path.mkdir(), path.chmod(0o777)), "other users can write to it"),
    ),
    ids=("a symlink", "open to all"),
)
def test_folder(agent, tmp_path, wrong, said):
    wrong(tmp_path / "spool")
    watcher = agent(
        "[targets]\ncomm = no-such\n[http]\nlisten = no\n" + push(1, tmp_path / "spool")
    )
    watcher.said("tracer: %s: %s; push.spool names it" % (tmp_path / "spool", said))
    assert watcher.process.poll() is None


def test_killed(server, agent, start_named, receiver, tmp_path):
    """The receiver is down and the agent is killed: the next one sends each profile that was kept,
    once, and removes what was half written."""
    start_named(NAME)
    folder, port = tmp_path / "spool", harness.free_port()
    running = server(NAME, more=push(port, folder))
    wait_until(lambda: len(spooled(folder)) >= 3, "profiles are kept")
    running.agent.said("it is tried again: ")
    sender = "/proc/%d" % running.child("tracer-push")
    running.agent.process.kill()
    running.agent.process.wait()
    wait_until(lambda: not os.path.exists(sender), "its processes have ended")
    kept = {name: (folder / name).read_bytes() for name in spooled(folder)}
    (folder / ".tracer-0123456789abcdef.tmp").write_bytes(b"half")
    (folder / "other").write_text("not ours\n")
    receiving = receiver(port=port)
    agent("[targets]\ncomm = no-such\n[http]\nlisten = no\n" + push(port, folder))
    wait_until(lambda: not spooled(folder), "what was kept is sent")
    ids = [each["id"] for each in receiving.accepted()]
    assert len(ids) == len(kept) == len(set(ids))
    assert all(any(each.encode() in body for body in kept.values()) for each in ids)
    assert os.listdir(folder) == ["other"]


def test_kills(server, start_named, receiver, tmp_path):
    """The sender is killed again and again, while the receiver takes some profiles: none is lost."""
    start_named(NAME)
    folder = tmp_path / "spool"
    receiving = receiver()
    receiving.answer("500")
    running = server(NAME, more=push(receiving.port, folder))
    seen = {}
    for round in range(3):
        wait_until(lambda: len(spooled(folder)) > 1, "profiles are kept")
        receiving.answer(("close", "ok", "hang")[round])
        receiving.wait("attempt")
        sender = running.child("tracer-push")
        os.kill(sender, signal.SIGKILL)
        wait_until(lambda: not os.path.exists("/proc/%d" % sender), "it has ended")
        seen.update({name: (folder / name).read_bytes() for name in spooled(folder)})
        receiving.answer("500")
    receiving.answer("ok")
    wait_until(lambda: not spooled(folder), "what was kept is sent")
    ids = {each["id"].encode() for each in receiving.accepted()}
    assert all(any(each in body for each in ids) for body in seen.values())
    assert not any(dropped(running, reason) for reason in DROPPED)


def test_bounded(server, start_named, receiver, tmp_path):
    """Without a receiver the oldest make room, and are counted."""
    start_named(NAME)
    folder, port = tmp_path / "spool", harness.free_port()
    running = server(NAME, more=push(port, folder, "spool-space = 12K"))
    wait_until(lambda: dropped(running, "spool") >= 2, "the oldest are dropped")
    assert sum((folder / name).stat().st_size for name in spooled(folder)) <= 12 << 10
    add_up(running)
    receiving = receiver(port=port)
    receiving.wait("api")
    wait_until(lambda: figure(running, "sent_total") >= 2, "the others are sent")
    add_up(running)
    assert not dropped(running, "refused") and not dropped(running, "disk")


def test_disk_full(server, start_named, receiver, tmp_path):
    """What cannot be kept is dropped, counted and told; what could be is sent."""
    start_named(NAME)
    folder, port = tmp_path / "spool", harness.free_port()
    folder.mkdir(mode=0o700)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k,mode=700", "tmpfs", folder], check=True)
    try:
        running = server(NAME, more=push(port, folder))
        wait_until(lambda: spooled(folder), "a profile is kept")
        with open(folder / "filler", "wb", buffering=0) as filler:
            with pytest.raises(OSError):
                while True:
                    filler.write(b"x" * 4096)
        wait_until(lambda: dropped(running, "disk") > 1, "they are dropped")
        running.agent.said("tracer: push: ")
        receiving = receiver(port=port)
        receiving.wait("api")
        os.unlink(folder / "filler")
        receiving.wait("api", 2)
        add_up(running)
        assert not dropped(running, "refused") and not dropped(running, "spool")
        running.agent.end()
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


def certificate(folder, name, days):
    """(certificate, key) for localhost, in PEM."""
    key, request, pem = (str(folder / (name + end)) for end in (".key", ".csr", ".pem"))
    names = folder / "names"
    names.write_text("subjectAltName = DNS:localhost\n")
    for command in (
        ["req", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=localhost"]
        + ["-keyout", key, "-out", request],
        ["x509", "-req", "-in", request, "-signkey", key, "-days", str(days), "-out", pem]
        + ["-extfile", str(names)],
    ):
        subprocess.run(["openssl", *command], check=True, stderr=subprocess.DEVNULL)
    return pem, key


@pytest.mark.parametrize("case", ("right", "wrong", "expired", "none"))
def test_tls(server, start_named, receiver, tmp_path, case):
    """A certificate that is not valid is refused, in one line."""
    start_named(NAME)
    pem, key = certificate(tmp_path, "own", -1 if case == "expired" else 2)
    ca = certificate(tmp_path, "other", 2)[0] if case == "wrong" else pem
    if case == "none":
        ca = str(tmp_path / "none")
    receiving = receiver("-cert", pem, "-key", key)
    more = push(receiving.port, tmp_path / "spool", "ca = " + ca, scheme="https")
    running = server(NAME, more=more)
    if case == "right":
        receiving.wait("api")
        return
    wait_until(lambda: figure(running, "failed_attempts_total") > 1, "it fails")
    running.agent.said("push: https://localhost:%d/base/" % receiving.port)
    running.agent.said(
        "%s is no file of certificates in PEM" % ca
        if case == "none"
        else "its certificate is not valid: it has expired, is for another name, or of an authority"
        " that %s does not have" % ca
    )
    assert running.agent.log.read_text().count("it is tried again") == 1
    assert not receiving.accepted()
    add_up(running)


def test_one_snapshot(server, start_named, receiver, collector, tmp_path):
    """Two receivers get the same snapshot of a process."""
    start_named(NAME)
    receiving = receiver()
    url = "otlp = http://localhost:%d" % collector.server_port
    running = server(NAME, more=push(receiving.port, tmp_path / "spool", url))
    of_otlp = lambda: {
        profile.time_ns
        for profiles in collector.accepted
        for profile in profiles
        if profile.time_ns
    }
    wait_until(lambda: len(of_otlp()) > 1 and len(receiving.accepted()) > 1, "both have some")
    times = {x["time"] for x in receiving.accepted()}
    both = of_otlp() & times
    assert both, (of_otlp(), times)


def test_otlp(server, start_named, receiver, collector, tmp_path, monkeypatch):
    """OTLP beside Pyroscope, which is down: neither keeps the other waiting. What a collector
    refuses of a request is counted and told."""
    monkeypatch.setenv("OTEL_SERVICE_NAME", "shop")
    target = start_named(NAME)
    url = "otlp = http://localhost:%d" % collector.server_port
    running = server(NAME, more=push(harness.free_port(), tmp_path / "spool", url))
    found = wait_until(
        lambda: [p for profiles in collector.accepted for p in profiles if p.total()], "profiles"
    )
    assert found[0].type == "inuse_space"
    assert found[0].resource["process.pid"] == target.pid
    assert found[0].resource["host.name"] == os.uname().nodename
    assert found[0].resource["service.name"] == "shop"
    program = harness.program("keeps_lines.py")
    assert (program, harness.marked_line("keeps_lines.py", "OWN")) in found[0].lines()
    wait_until(lambda: figure(running, "failed_attempts_total") > 1, "Pyroscope is tried")
    of_otlp = lambda name, more="": running.metrics()[
        "tracer_push_" + name, 'receiver="otlp"' + more
    ]
    wait_until(lambda: of_otlp("sent_total") > 1, "the agent counts them")
    assert of_otlp("failed_attempts_total") == 0 == figure(running, "sent_total")
    # partial_success: rejected_profiles = 3, error_message = "too old"
    collector.answer = b"\x0a\x0b\x08\x03\x12\x07too old"
    wait_until(lambda: of_otlp("dropped_total", ',reason="refused"') > 0, "they are refused")
    running.agent.said("a profile is dropped: 3 of its profiles are refused: too old")
    assert not collector.wrong
