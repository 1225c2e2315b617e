# SPDX-License-Identifier: Apache-2.0
"""tracer agent: its configuration, the evidence that it keeps, and what it does when a part of it
ends."""
import glob
import os
import shutil
import signal
import socket
import subprocess
import tarfile
import time

import pytest

import harness
from certificates import certificate
from harness import environment, error_line, memory_cgroup, wait_until

PROGRAM = "leaks/fills_memory.py"
LIMIT = 120 << 20


def config(folder, *more, trace="no", cgroup=None):
    """cgroup: of the processes that are watched; None: of no process that a test starts."""
    target = "cgroup = %s" % cgroup if cgroup else "comm = tracer-test-none"
    lines = ["[targets]", target, "[trace]", "enabled = " + trace]
    return "\n".join([*lines, "[http]", "listen = no", "[evidence]", "folder = %s" % folder, *more])


@pytest.fixture
def cgroup():
    """With a limit of memory, without swap. Tests that run at the same time have others."""
    with memory_cgroup(LIMIT) as path:
        for name, limit in (("memory.memsw.limit_in_bytes", LIMIT), ("memory.swap.max", 0)):
            if os.path.exists(os.path.join(path, name)):
                harness.write_text(os.path.join(path, name), limit)
        yield path


def filling(cgroup, python, rate=40):
    """A program below that limit, which is killed once it has been told to go on."""
    enter = ("sh", "-c", 'echo $$ > %s/cgroup.procs; exec "$@"' % cgroup, "sh")
    return harness.Target(python, PROGRAM, rate, prefix=enter)


def bundles(folder):
    return sorted(glob.glob(os.path.join(folder, "*.evidence")))


@pytest.mark.unprivileged
@pytest.mark.parametrize(
    "text, said",
    (
        ("[trace]\nenabeled = yes\n", "line 2, column 1: no key enabeled; [trace] has enabled"),
        ("x = 1\n", "line 1, column 1: a key belongs into a section"),
        ("[trace]\noverhead = 200%\n", "line 2, column 12: overhead is 0.1% to 100%"),
        ("[trace]\nbudget = lots\n", "line 2, column 10: budget is bytes"),
        ("[trace]\nenabled\n", "line 2, column 1: it is no section and no KEY = VALUE"),
        ("[trace]\nenabled = maybe\n", "line 2, column 11: enabled is yes or no"),
        ("[trace\n", "line 1, column 1: a section is [NAME]"),
        ("# x\n\n[nothing]\n", "line 3, column 2: no section nothing; there are targets"),
        ("[evidence]\nfolder = here\n", "line 2, column 10: folder is an absolute path"),
        ("[evidence]\non-memory = 300%\n", "line 2, column 13: on-memory is 90% of the limit"),
        ("[evidence]\nkeep = 0\n", "line 2, column 8: keep is a number from 1"),
        ("[evidence]\nkeep = 1\nkeep = 2\n", "line 3, column 1: the key is set for the second"),
        ("[http]\nlisten = there\n", "line 2, column 10: listen is ADDRESS:PORT"),
        ("[http]\nlisten = 127.0.0.1:70000\n", "line 2, column 10: listen is ADDRESS:PORT"),
        ("[http]\ncertificate = /c\n", "http.certificate and http.key belong together"),
        ("[targets]\ncomm =\n", "line 2, column 7: comm is names of processes"),
        ("[targets]\nlabel = a =x\n", "line 2, column 9: label is words, each KEY or KEY=VALUE"),
        ("[targets]\npod =\n", "line 2, column 6: pod is names of pods, with * and ?"),
        ("[push]\notlp = here\n", "line 2, column 8: otlp is http://HOST[:PORT][/PATH] or https"),
        ("[push]\npyroscope = http://u@h\n", "line 2, column 13: pyroscope is http://HOST"),
        ("[push]\npyroscope-api = v2\n", "line 2, column 17: pyroscope-api is push or ingest"),
        ("[push]\ninterval = 0\n", "line 2, column 12: interval is seconds, from 1 to 86400"),
        ("[push]\ntimeout = 61\n", "line 2, column 11: timeout is seconds, from 1 to 60"),
        ("[push]\nspool = x\n", "line 2, column 9: spool is an absolute path"),
        ("[push]\notlp = http://h\nspool =\n", "push.otlp and push.pyroscope need push.spool"),
        ("[push]\notlp = http://h\n[trace]\nenabled = no\n", "what is pushed comes from the"),
        ("\0", "it has a NUL byte"),
        ("#" * 70000, "it is larger than 64 KiB"),
    ),
    ids=range(28),
)
def test_mistakes(run_tracer, tmp_path, text, said):
    """One line: where, what, and what is allowed."""
    path = tmp_path / "agent.conf"
    path.write_text(text)
    line = error_line(run_tracer("agent", "--check", "--config", path), 1)
    assert line.startswith("tracer: %s: %s" % (path, said))


@pytest.mark.unprivileged
def test_all_mistakes(run_tracer, tmp_path):
    """Each in a line; of a section that there is not, only the section."""
    path = tmp_path / "agent.conf"
    path.write_text("[trace]\noverhead = x\nnone = 1\n[nothing]\na = 1\n[http]\ntop = 0\n")
    done = run_tracer("agent", "--check", "--config", path)
    places = [line.split(": ")[2] for line in done.stderr.splitlines()]
    assert (done.returncode, places) == (
        1,
        ["line %d, column %d" % place for place in ((2, 12), (3, 1), (4, 2), (7, 7))],
    )
    path.write_text("x\n" * 1000)
    assert len(run_tracer("agent", "--check", "--config", path).stderr.splitlines()) == 20


def test_what_is_named(run_tracer, tmp_path):
    """--check looks at each file and folder that the configuration names."""
    path, folder, hook, token = (tmp_path / name for name in ("conf", "folder", "hook", "token"))
    (one, _), (_, other) = (certificate(tmp_path, name) for name in ("one", "other"))
    lines = (
        "[evidence]\nfolder = %s\nhook = %s\n[http]\ntoken-file = %s\ncertificate = %s\nkey = %s"
    )
    path.write_text(lines % (folder, hook, token, one, one.with_suffix(".key")))
    hook.write_text("#!/bin/sh\n")
    hook.chmod(0o755)
    token.write_text("token\n")
    done = run_tracer("agent", "--check", "--config", path)
    assert (done.returncode, done.stderr) == (0, "") and not folder.exists()
    assert done.stdout == (
        "%s: no mistake; every Python at 1%%, evidence in %s, figures at 127.0.0.1:9464,"
        " nothing is sent\n" % (path, folder)
    )
    folder.mkdir(mode=0o777)
    folder.chmod(0o777)
    hook.chmod(0o644)
    token.unlink()
    path.write_text(lines % (folder, hook, token, one, other))
    done = run_tracer("agent", "--check", "--config", path)
    assert (done.returncode, done.stdout) == (1, "") and done.stderr.splitlines() == [
        "tracer: %s: other users can write to it; evidence.folder names it" % folder,
        "tracer: %s: it is no program; evidence.hook names it" % hook,
        "tracer: %s: No such file or directory; http.token-file names it" % token,
        "tracer: http: %s and %s are no certificate and its key in PEM" % (one, other),
    ]


def test_what_is_named_elsewhere(run_tracer, tmp_path):
    """The same of cgroups, the address, and what the sender needs."""
    path, headers, spool = (tmp_path / name for name in ("conf", "headers", "spool"))
    made, _ = certificate(tmp_path)
    lines = (
        "[targets]\ncgroup = %s\ncomm = web*\n[http]\nlisten = %s:9464\n[evidence]\nenabled = no\n"
        "[push]\notlp = http://h:4318\nheaders-file = %s\nspool = %s\nca = %s"
    )
    headers.write_text("X: y\n")
    headers.chmod(0o600)
    with memory_cgroup(LIMIT) as group:
        path.write_text(lines % (group, "[::1]", headers, spool, made))
        done = run_tracer("agent", "--check", "--config", path)
        assert (done.returncode, done.stderr) == (0, "") and not spool.exists()
        assert done.stdout == (
            "%s: no mistake; Pythons of cgroup %s and comm web* at 1%%, no evidence, figures at"
            " [::1]:9464, profiles to http://h:4318\n" % (path, group)
        )
    headers.chmod(0o644)
    spool.write_text("")
    path.write_text(lines % (group, "192.0.2.1", headers, spool, headers))
    done = run_tracer("agent", "--check", "--config", path)
    told = done.stderr.splitlines()
    assert (done.returncode, done.stdout) == (1, "")
    assert told[0].startswith("tracer: %s: " % group) and told[0].endswith(
        "targets.cgroup names it"
    )
    assert told[1:] == [
        "tracer: http: 192.0.2.1 port 9464: Cannot assign requested address; http.listen names it",
        "tracer: %s: it is no directory; push.spool names it" % spool,
        "tracer: %s: it must be a file that root alone can read; push.headers-file names it"
        % headers,
        "tracer: %s: it is no file of certificates in PEM; push.ca names it" % headers,
    ]


@pytest.mark.unprivileged
def test_no_file(run_tracer, tmp_path):
    done = run_tracer("agent", "--config", tmp_path / "none")
    assert "No such file" in error_line(done, 1)


@pytest.mark.unprivileged
def test_what_is_shipped(run_tracer):
    """The configuration of the package, and the one of the DaemonSet."""
    for name in ("deploy/systemd/agent.conf", "deploy/agent.conf"):
        path = os.path.join(harness.ROOT, name)
        done = run_tracer("agent", "--check", "--config", path)
        assert (done.returncode, done.stderr, done.stdout.count("\n")) == (0, "", 1)


def test_evidence(agent, run_tracer, cgroup, python, tmp_path):
    """The bundle names the line, the type and the holder; the hook gets its path."""
    folder, hook, ran = tmp_path / "evidence", tmp_path / "hook", tmp_path / "ran"
    hook.write_text('#!/bin/sh\nenv > %s.new; echo "$@" >> %s.new; mv %s.new %s\n' % ((ran,) * 4))
    hook.chmod(0o755)
    watcher = agent(config(folder, "hook = %s" % hook, cgroup=cgroup))
    with filling(cgroup, python, 15) as target:
        time.sleep(3)  # it lists processes every 2 s, in which the target would be full
        target.step()
        wait_until(lambda: bundles(folder), "the bundle is written")
        assert target.process.wait(harness.TIMEOUT) == -signal.SIGKILL
    (bundle,) = bundles(folder)
    report = run_tracer("report", bundle).stdout
    line = harness.marked_line(PROGRAM, "rows")
    assert "sys.modules['__main__'].ROWS" in report
    assert "%s:%d in keep" % (harness.program(PROGRAM), line) in report
    assert "__main__.Row" in report
    wait_until(ran.exists, "the hook has run")
    words = ran.read_text().splitlines()
    assert words[-1] == bundle and not any(word.startswith("NO_COLOR") for word in words)
    assert watcher.end() == 0
    assert os.listdir(folder) == [os.path.basename(bundle)]
    assert os.stat(folder).st_mode & 0o777 == 0o700 and os.stat(bundle).st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    "script, said", (("exit 3", "status 3"), ("kill -11 $$", "signal 11")), ids=("status", "signal")
)
def test_hook_fails(agent, cgroup, any_python, tmp_path, script, said):
    folder, hook = tmp_path / "evidence", tmp_path / "hook"
    hook.write_text("#!/bin/sh\n%s\n" % script)
    hook.chmod(0o755)
    watcher = agent(config(folder, "hook = %s" % hook, cgroup=cgroup))
    with filling(cgroup, any_python) as target:
        target.step()
        wait_until(lambda: bundles(folder), "the bundle is written")
    watcher.said("%s: it has failed (%s) for %s" % (hook, said, bundles(folder)[0]))


@pytest.mark.long
def test_hook_is_late(agent, cgroup, any_python, tmp_path):
    """It is ended, with the agent going on, and so is what it started."""
    folder, hook, ran = tmp_path / "evidence", tmp_path / "hook", tmp_path / "ran"
    hook.write_text("#!/bin/sh\necho $$ > %s.new; mv %s.new %s; exec sleep 1000\n" % ((ran,) * 3))
    hook.chmod(0o755)
    watcher = agent(config(folder, "hook = %s" % hook, cgroup=cgroup))
    with filling(cgroup, any_python) as target:
        time.sleep(3)
        target.step()
        wait_until(lambda: bundles(folder), "the bundle is written")
    wait_until(ran.exists, "the hook has begun")
    watcher.said("%s: it took longer than 60 s for %s: it is ended" % (hook, bundles(folder)[0]))
    wait_until(lambda: not os.path.exists("/proc/%s" % ran.read_text().strip()), "it is gone")
    assert watcher.end() == 0


def test_the_newest_are_kept(agent, cgroup, python, tmp_path):
    folder = tmp_path / "evidence"
    folder.mkdir(mode=0o700)
    for number in range(3):
        old = folder / ("old-%d-20200101T000000Z.evidence" % number)
        old.write_bytes(b"x" * 100)
        os.utime(old, (1000 + number, 1000 + number))
    (folder / "other").write_text("not ours\n")
    agent(config(folder, "keep = 2", cgroup=cgroup))
    with filling(cgroup, python) as target:
        target.step()
        wait_until(lambda: len(bundles(folder)) == 2, "old bundles are removed")
    assert os.path.basename(bundles(folder)[0]) == "old-2-20200101T000000Z.evidence"
    assert (folder / "other").exists()


def test_killed_again_and_again(agent, cgroup, any_python, tmp_path):
    """One that is started and killed all the time does not take the place of others' bundles: it
    has one, and the others are skipped and told."""
    folder = tmp_path / "evidence"
    watcher = agent(config(folder, "pause = 10m", cgroup=cgroup))
    for number in range(2):
        with filling(cgroup, any_python) as target:
            target.step()
            assert target.process.wait(harness.TIMEOUT) == -signal.SIGKILL
        watcher.said("no evidence: one of that name was" if number else "evidence of PID")
    assert len(bundles(folder)) == 1
    watcher.config.write_text(config(folder, "pause = 0", cgroup=cgroup))
    watcher.process.send_signal(signal.SIGHUP)
    watcher.said("evidence.pause: was 10m, is 0")
    with filling(cgroup, any_python) as target:
        target.step()
        wait_until(lambda: len(bundles(folder)) == 2, "the second bundle is written")


def test_lines_of_the_session(agent, tracer, cgroup, python, tmp_path):
    """The bundle has a snapshot of the session that traced the process."""
    folder = tmp_path / "evidence"
    agent(config(folder, trace="yes", cgroup=cgroup))
    with filling(cgroup, python, rate=15) as target:
        wait_until(
            lambda: not subprocess.run(
                [tracer, "ctl", str(target.pid), "status"],
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            ).returncode,
            "the session traces it",
        )
        target.step()
        wait_until(lambda: bundles(folder), "the bundle is written")
    with tarfile.open(bundles(folder)[0]) as archive:
        assert "snapshot.pb.gz" in archive.getnames()


def test_reload(agent, tmp_path):
    """SIGHUP tells what has changed; a mistake leaves what is in force."""
    watcher = agent(config(tmp_path / "one"))
    watcher.config.write_text(config(tmp_path / "two", "keep = 5"))
    watcher.process.send_signal(signal.SIGHUP)
    watcher.said("evidence.folder: was %s, is %s" % (tmp_path / "one", tmp_path / "two"))
    watcher.said("evidence.keep: was 20, is 5")
    wait_until((tmp_path / "two").exists, "the new folder is there")
    watcher.config.write_text("[evidence]\nkeep = none\n")
    watcher.process.send_signal(signal.SIGHUP)
    watcher.said("line 2, column 8: keep is a number")
    watcher.said("the configuration before stays in force")
    assert watcher.process.poll() is None and os.listdir(tmp_path / "two")
    assert watcher.end() == 0


def test_reload_in_part(agent, tmp_path):
    """The session goes on if neither its targets nor its costs have changed; a new share for it
    starts it again."""
    text = config(tmp_path / "evidence", trace="yes")
    watcher = agent(text, rests=True)
    first = watcher.session()
    watcher.config.write_text(text + "\nkeep = 7\n")
    watcher.process.send_signal(signal.SIGHUP)
    watcher.said("evidence.keep: was 20, is 7")
    assert watcher.session() == first
    watcher.config.write_text(text.replace("[trace]", "[trace]\noverhead = 2%"))
    watcher.process.send_signal(signal.SIGHUP)
    watcher.said("trace.overhead: was 1%, is 2%")
    wait_until(lambda: watcher.session() != first, "another session")
    assert watcher.end() == 0


def test_the_session_is_started_again(agent, tmp_path):
    watcher = agent(config(tmp_path / "evidence", trace="yes"))
    session = watcher.session()
    os.kill(session, signal.SIGKILL)
    watcher.said("the session has ended (signal 9); it is started again in 1 s")
    assert watcher.session() != session
    assert watcher.end() == 0


def test_ended_before_anything_matched(agent, tmp_path):
    """Nobody waited for a process of that name: that there was none is no mistake."""
    watcher = agent(config(tmp_path / "evidence", trace="yes"))
    watcher.session()
    assert watcher.end() == 0
    assert len(watcher.log.read_text().splitlines()) == 1


def test_two_agents(agent, tmp_path):
    """A second agent does not use the evidence folder of the first one, and says so, until that has
    ended."""
    (tmp_path / "second").mkdir()
    folder = tmp_path / "evidence"
    first = agent(config(folder))
    left = os.listdir(folder)
    (folder / "old-1-20200101T000000Z.evidence").write_bytes(b"")
    second = agent(config(folder, "keep = 1"), folder=tmp_path / "second")
    second.said("tracer: %s: another agent uses it; evidence.folder names it" % folder)
    second.said("evidence: none")
    assert set(left) < set(os.listdir(folder))
    assert first.end() == 0
    second.said("%s: evidence is kept from now on" % folder)
    assert second.log.read_text().count("another agent uses it") == 1
    assert second.end() == 0


def test_killed(agent, tmp_path):
    """Nothing of a killed agent runs on, and the next one removes what it has left."""
    folder = tmp_path / "evidence"
    first = agent(config(folder, trace="yes"))
    children = wait_until(first.children, "it has a session")
    wait_until(lambda: os.path.exists(folder) and os.listdir(folder), "it has a folder of copies")
    left = set(os.listdir(folder))
    first.process.kill()
    first.process.wait()
    for pid in children:
        wait_until(lambda: not os.path.exists("/proc/%d" % pid), "its session has ended")
    (folder / ".tracer-0123456789abcdef.tmp").write_bytes(b"a bundle that is half written")
    left.add(".tracer-0123456789abcdef.tmp")
    second = agent(config(folder))
    wait_until(lambda: not left & set(os.listdir(folder)), "what was left is removed")
    assert second.end() == 0


@pytest.mark.parametrize(
    "obstacle, said",
    (
        (lambda path: path.symlink_to("/tmp"), "it is no directory"),
        (lambda path: path.write_text(""), "it is no directory"),
        (lambda path: (path.mkdir(), path.chmod(0o777)), "other users can write to it"),
        (lambda path: (path.mkdir(0o700), os.chown(path, 1000, 1000)), "other users"),
    ),
    ids=("a symlink", "a file", "open to all", "of another user"),
)
def test_folder(agent, tmp_path, obstacle, said):
    """The agent says that there is no evidence, and goes on."""
    folder = tmp_path / "evidence"
    obstacle(folder)
    watcher = agent(config(folder))
    watcher.said("tracer: %s: %s" % (folder, said))
    watcher.said("evidence: none")
    # Once it can be used, it is.
    shutil.rmtree(folder) if folder.is_dir() and not folder.is_symlink() else folder.unlink()
    watcher.said("%s: evidence is kept from now on" % folder)
    assert watcher.log.read_text().count(said) == 1
    assert watcher.end() == 0


def test_service_manager(agent, tmp_path):
    """It hears when the agent is ready, that it lives, that it reloads, and that it ends."""
    path = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(path)
        manager.settimeout(harness.TIMEOUT)
        env = environment(NOTIFY_SOCKET=path, WATCHDOG_USEC="200000")
        watcher = agent(config(tmp_path / "evidence"), env=env)
        told = [manager.recv(256).decode() for _ in range(3)]
        assert told[0] == "READY=1" and told[1:] == ["WATCHDOG=1"] * 2
        watcher.process.send_signal(signal.SIGHUP)
        while not told[-1].startswith("RELOADING=1\nMONOTONIC_USEC="):
            told.append(manager.recv(256).decode())
        assert watcher.end() == 0
        while told[-1] != "STOPPING=1":
            told.append(manager.recv(256).decode())
        assert told.count("READY=1") == 2
