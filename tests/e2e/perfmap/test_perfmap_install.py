# SPDX-License-Identifier: Apache-2.0
"""tracer perfmap --install: the names that perf report shows, containers, and obstacles at the
map's path."""
import os
import re
import shutil
import signal
import stat
import struct
import subprocess
import time

import pytest

from harness import program, wait_until
from perfmaps import Api, clean, end, map_of, names, perfmap, resolve  # noqa: F401


def perf_record(pid, path, seconds=2):
    if not shutil.which("perf"):
        pytest.skip("no perf on this machine")
    done = subprocess.run(
        [
            "perf",
            "record",
            "-q",
            "-e",
            "cpu-clock",
            "-F",
            "15000",
            "-g",
            "-o",
            path,
            "-p",
            str(pid),
            "--",
            "sleep",
            str(seconds),
        ],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return path


def perf_names(path):
    """Every symbol that perf finds at a sampled address or in a callchain, with its number of
    samples."""
    done = subprocess.run(
        ["perf", "script", "-i", path, "-F", "ip,sym"], capture_output=True, text=True, timeout=120
    )
    found = {}
    for name in re.findall(r"^\s*[0-9a-f]+ (py::.*)$", done.stdout, re.M):
        found[name] = found.get(name, 0) + 1
    report = subprocess.run(
        ["perf", "report", "-i", path, "--stdio", "-g", "none", "--sort", "symbol"],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert not [name for name in found if name.split(" ")[0] not in report.stdout]
    return found


@pytest.mark.versions("3.12", "3.13")
@pytest.mark.parametrize(
    "late", (False, True), ids=("from the beginning", "late, its file deleted")
)
def test_perf_report_names_the_same(start, perfmap, python, tmp_path, late):
    command = (python.path, "-X", "perf", program("calls.py"), "60")  # it is killed earlier
    if late:
        target = start("/usr/bin/env", *command)
        pid = target.pid
        time.sleep(0.3)  # not required: some functions have run by then
        data = perf_record(pid, str(tmp_path / "perf.data"))
        shutil.copy(map_of(pid), tmp_path / "original")
        os.unlink(map_of(pid))
        end(perfmap("-p", pid, "--merge", "--install"))
        target.kill()
    else:
        run = perfmap("--install", "--", *command)
        (pid,) = map(int, re.findall(r"attached to PID (\d+)", run.stderr))
        data = perf_record(pid, str(tmp_path / "perf.data"))
        shutil.copy(map_of(pid), tmp_path / "original")
        os.unlink(map_of(pid))
        os.kill(pid, signal.SIGTERM)  # the tracer ends with its command
        assert run.wait() == 128 + signal.SIGTERM, run.stderr
    assert resolve(map_of(pid)) == resolve(tmp_path / "original")
    ours = perf_names(data)
    shutil.copy(tmp_path / "original", map_of(pid))
    assert ours == perf_names(data)
    assert "leaf" in {name.split(":")[2] for name in ours}


@pytest.mark.versions("3.13")
def test_unchanged_is_untouched(start, perfmap, python):
    api = Api(start, python)
    temporary = {
        name for name in os.listdir("/tmp") if name.startswith(".tracer-")
    }  # left by other tracers that were killed
    run = perfmap("-p", api.pid, "--install", "--follow")
    assert not os.path.exists(map_of(api.pid)), "nothing is known yet"
    assert api.call("write", "2000", "10", b"two".hex()) == 0  # CPython's own file is not sorted
    assert api.call("write", "1000", "10", b"one".hex()) == 0
    before = os.stat(map_of(api.pid))
    assert api.call("write", "1000", "10", b"one".hex()) == 0
    end(run)
    after = os.stat(map_of(api.pid))
    assert (before.st_ino, before.st_mode) == (after.st_ino, after.st_mode)
    with open(map_of(api.pid)) as file:
        assert file.read() == "2000 10 two\n1000 10 one\n1000 10 one\n"
    # A file that tracer makes belongs to root, which perf trusts, and the process may append to it.
    os.unlink(map_of(api.pid))
    end(perfmap("-p", api.pid, "--merge", "--install"))
    made = os.stat(map_of(api.pid))
    assert (made.st_uid, stat.S_IMODE(made.st_mode)) == (0, 0o644)
    assert names(map_of(api.pid)) == {"one", "two"}
    assert {name for name in os.listdir("/tmp") if name.startswith(".tracer-")} <= temporary


def as_nobody(start, python, name):
    return start(
        python,
        name,
        prefix=("/usr/bin/setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"),
    )


@pytest.fixture
def nobody_python():
    """An interpreter that an unprivileged user can run."""
    path = "/usr/bin/python3"
    if not shutil.which("setpriv") or not os.access(path, os.X_OK):
        pytest.skip("no setpriv or %s" % path)
    return path


@pytest.mark.parametrize(
    "planted", ("symlink", "fifo", "directory", "somebody else's", "hard link")
)
def test_planted(start, perfmap, nobody_python, tmp_path, planted):
    target = as_nobody(start, nobody_python, "golden.py")
    victim = tmp_path / "victim"
    victim.write_text("1000 10 precious\n")
    path = map_of(target.pid)
    if planted == "symlink":
        os.symlink(victim, path)
    elif planted == "fifo":
        os.mkfifo(path)
    elif planted == "directory":
        os.mkdir(path)
    elif planted == "hard link":
        os.link(victim, path)
    else:
        with open(path, "w") as file:
            file.write("1000 10 another's\n")
        os.chown(path, 1, 1)
    before = os.lstat(path)
    run = perfmap("-p", target.pid, "--merge", "--install", "--follow")
    assert "its map file is not read: 'perf-%d.map'" % target.pid in run.stderr
    end(run)
    after = os.lstat(path)
    assert (before.st_ino, before.st_mode, before.st_size) == (
        after.st_ino,
        after.st_mode,
        after.st_size,
    )
    assert victim.read_text() == "1000 10 precious\n"


@pytest.mark.versions("3.13")
@pytest.mark.parametrize("planted", ("symlink", "fifo", "directory", "somebody else's"))
def test_planted_over_a_map(start, perfmap, python, tmp_path, planted):
    """The same with entries to install: the tracer refuses with one line, and writes nothing."""
    api = Api(start, python)
    victim = tmp_path / "victim"
    victim.write_text("precious")
    path = map_of(api.pid)
    if planted == "symlink":
        os.symlink(victim, path)
    elif planted == "fifo":
        os.mkfifo(path)
    elif planted == "directory":
        os.mkdir(path)
    else:
        open(path, "w").close()
        os.chown(path, 1, 1)
    run = perfmap("-p", api.pid, "--install")
    api.say("write", "600000001000", "10", b"entry".hex())
    if planted == "fifo":
        time.sleep(0.2)  # CPython waits for a reader, and the tracer must not be that reader
    else:
        api.target.read_line()
    end(run, status=1)
    lines = [line for line in run.stderr.split("\n") if "the existing file is unchanged" in line]
    assert len(lines) == 1 and map_of(api.pid) in lines[0], run.stderr
    assert stat.S_IFMT(os.lstat(path).st_mode) == {
        "symlink": stat.S_IFLNK,
        "fifo": stat.S_IFIFO,
        "directory": stat.S_IFDIR,
    }.get(planted, stat.S_IFREG)
    if planted == "symlink":
        assert (
            victim.read_text().startswith("precious")
            and "entry" not in victim.read_text()[len("precious 600000001000 10 entry\n") :]
        )


def unshared(start, folder, script, *options):
    """A target in a new mount namespace, and in those of `options`. The shell script prepares the
    namespace and executes the program."""
    if not shutil.which("unshare"):
        pytest.skip("no unshare on this machine")
    path = folder / "prepare"
    path.write_text("set -e\nmount --make-rprivate /\n" + script)
    return start("/bin/sh", str(path), prefix=("unshare", "--mount", *options))


def api_of(target, pid):
    api = Api.__new__(Api)
    api.target, api.pid = target, pid
    return api


def child_of(pid):
    def child():
        with open("/proc/%d/task/%d/children" % (pid, pid)) as file:
            return int((file.read().split() or ["0"])[0])

    return wait_until(child, "unshare has forked")


@pytest.mark.versions("3.13")
def test_unshare(start, perfmap, python, tmp_path):
    # Open the program first: it may be in the /tmp that the mount hides.
    target = unshared(
        start,
        tmp_path,
        "exec 9<%s\nmount -t tmpfs none /tmp\nexec %s -X perf /proc/self/fd/9\n"
        % (program("perf_api.py"), python.path),
        "--pid",
        "--fork",
    )
    pid = child_of(target.pid)
    inside = "/proc/%d/root/tmp/perf-1.map" % pid
    theirs = names(inside)
    os.unlink(inside)
    end(perfmap("-p", pid, "--merge", "--install"))
    assert names(inside) == names(map_of(pid)) == theirs != set()


@pytest.fixture
def nobodys(start, python, tmp_path):
    """A CPython of user 65534 with -X perf. The interpreter's own folder may be root's alone."""
    prefix = os.path.dirname(os.path.dirname(python.path))
    target = unshared(
        start,
        tmp_path,
        "exec 9<%s\nmount -t tmpfs none /mnt\nmkdir /mnt/python\nmount --bind %s /mnt/python\n"
        "LD_LIBRARY_PATH=/mnt/python/lib exec setpriv --reuid=65534 --regid=65534 --clear-groups"
        " /mnt/python/bin/%s -X perf /proc/self/fd/9\n"
        % (program("perf_api.py"), prefix, os.path.basename(python.path)),
    )
    return api_of(target, target.pid)


def user_entry(path, uid):
    """What the access control list of a file allows a user: 4 read, 2 write; None: no entry."""
    try:
        entries = os.getxattr(path, "system.posix_acl_access")[4:]
    except OSError:
        return None
    found = {(tag, owner): allowed for tag, allowed, owner in struct.iter_unpack("<HHI", entries)}
    return found.get((2, uid))


@pytest.mark.versions("3.12", "3.13")
def test_file_of_another_user(nobodys, perfmap):
    """perf of root reads root's files only. The process can append as before: by the descriptor
    that it has, and when it opens the file once more."""
    path = map_of(nobodys.pid)
    before = os.stat(path)
    assert (before.st_uid, user_entry(path, 65534)) == (65534, None)
    run = perfmap("-p", nobodys.pid, "--merge", "--install", "--follow")
    wait_until(lambda: os.stat(path).st_uid == 0, "the file is root's")
    assert nobodys.call("write", "1000", "10", b"by descriptor".hex()) == 0
    assert nobodys.call("fini") == 0 and nobodys.call("init") == 0
    assert nobodys.call("write", "2000", "10", b"opened again".hex()) == 0
    end(run)
    after = os.stat(path)
    assert (after.st_uid, after.st_ino, after.st_nlink) == (0, before.st_ino, 1)
    assert stat.S_IMODE(after.st_mode) & 0o002 == 0 and user_entry(path, 65534) == 6
    assert nobodys.call("write", "3000", "10", b"afterwards".hex()) == 0
    assert {"by descriptor", "opened again", "afterwards"} <= names(path)
    assert "not read" not in run.stderr and "unchanged" not in run.stderr


@pytest.mark.versions("3.13")
def test_file_of_another_user_with_a_second_name(nobodys, perfmap, tmp_path):
    """The other name may be somebody's who would be given root's file: it stays as it is."""
    path = map_of(nobodys.pid)
    os.link(path, tmp_path / "second")
    before = os.stat(path)
    run = perfmap("-p", nobodys.pid, "--merge", "--install")
    assert nobodys.call("write", "1000", "10", b"by descriptor".hex()) == 0
    end(run, status=1)
    assert "'perf-%d.map' has more than one hard link" % nobodys.pid in run.stderr
    after = os.stat(path)
    assert (after.st_uid, after.st_gid, after.st_mode) == (65534, before.st_gid, before.st_mode)
    assert (after.st_ino, after.st_nlink, user_entry(path, 65534)) == (before.st_ino, 2, None)
    assert "by descriptor" in names(path)


@pytest.mark.versions("3.13")
def test_tmp_is_a_symlink(start, perfmap, python, tmp_path):
    """The target's /tmp is a symlink, which is not followed. (It leads to a directory of the host
    in which perf would never search.)"""
    (tmp_path / "host").mkdir()
    root = tmp_path / "root"
    root.mkdir()
    # Everything except /tmp, and the directories that lead to the program if it is in /tmp.
    script = "".join(
        "mkdir %s/%s\nmount --rbind /%s %s/%s\n" % (root, name, name, root, name)
        for name in sorted(os.listdir("/"))
        if os.path.isdir("/" + name) and not os.path.islink("/" + name) and name != "tmp"
    )
    script += "".join(
        "ln -s %s %s/%s\n" % (os.readlink("/" + name), root, name)
        for name in sorted(os.listdir("/"))
        if os.path.islink("/" + name)
    )
    script += "cp %s %s/api.py\nln -s %s %s/tmp\nexec chroot %s %s /api.py\n" % (
        program("perf_api.py"),
        root,
        tmp_path / "host",
        root,
        root,
        python.path,
    )
    target = unshared(start, tmp_path, "mount -t tmpfs none %s\n" % root + script)
    api = api_of(target, target.pid)
    run = perfmap("-p", target.pid, "--merge", "--install")
    assert api.call("write", "1000", "10", b"entry".hex()) in (0, -1)
    end(run, status=1)
    assert "its /tmp is a symbolic link, which is not followed" in run.stderr
    assert os.listdir(tmp_path / "host") == []
    assert names(map_of(target.pid)) == {
        "entry"
    }  # the host's own path does not depend on the target


@pytest.mark.versions("3.13")
def test_full_disk(start, perfmap, python, tmp_path):
    target = unshared(
        start,
        tmp_path,
        "exec 9<%s\nmount -t tmpfs -o size=16k none /tmp\nexec %s /proc/self/fd/9\n"
        % (program("perf_api.py"), python.path),
        "--pid",
        "--fork",
    )
    pid = child_of(target.pid)
    api = api_of(target, pid)
    run = perfmap("-p", pid, "--install")
    api.say("many", 1, 2000)
    assert api.target.read_line() == "2000"
    end(run, status=1)
    assert "entries are not added" in run.stderr or "No space left on device" in run.stderr
    assert not [
        name for name in os.listdir("/proc/%d/root/tmp" % pid) if name.startswith(".tracer-")
    ]
    assert len(names(map_of(pid))) == 2000  # the host's map is on another file system


@pytest.fixture
def docker(tmp_path_factory):
    """run(python, *arguments): a container with the machine's own /usr and /etc. docker imports the
    files that Python needs."""
    daemon = shutil.which("dockerd", path=os.environ.get("PATH", "") + ":/usr/sbin")
    if not daemon or not shutil.which("docker"):
        pytest.skip("no dockerd on this machine")
    folder = tmp_path_factory.mktemp("docker")
    host = "unix://%s/docker.sock" % folder
    with open(folder / "log", "wb") as log:
        process = subprocess.Popen(
            [
                daemon,
                "--iptables=false",
                "--bridge=none",
                "--storage-driver=vfs",
                "--data-root",
                folder / "data",
                "--exec-root",
                folder / "exec",
                "--pidfile",
                folder / "pid",
                "-H",
                host,
            ],
            stdout=log,
            stderr=log,
        )

    def run(*arguments, **options):
        return subprocess.run(
            ["docker", "-H", host, *map(str, arguments)],
            capture_output=True,
            text=True,
            timeout=300,
            **options
        )

    try:

        def up():
            assert process.poll() is None, (folder / "log").read_text()[-500:]
            return run("info").returncode == 0

        try:
            wait_until(up, "dockerd is up")
        except AssertionError as error:
            pytest.skip("dockerd does not start here: %s" % str(error)[-300:])
        yield run
    finally:
        ids = run("ps", "-q").stdout.split()
        if ids:
            run("kill", *ids)
        process.terminate()
        process.wait(60)
        subprocess.run(
            "grep -o '%s[^ ]*' /proc/self/mounts | sort -r | xargs -r -n1 umount -l" % folder,
            shell=True,
        )


@pytest.mark.versions("3.13")
def test_docker(docker, perfmap, python, tmp_path):
    """The image contains the interpreter and the libraries that it names, through `docker
    import`."""
    prefix = os.path.dirname(os.path.dirname(python.path))
    root = tmp_path / "image"
    libraries = re.findall(
        r"(?:=> )?(/\S+) \(0x",
        subprocess.run(["ldd", python.path], capture_output=True, text=True).stdout,
    )
    modules = subprocess.run(
        [
            "ldd",
            *[
                os.path.join(d, f)
                for d, _, fs in os.walk(os.path.join(prefix, "lib"))
                for f in fs
                if f.startswith("_ctypes.")
            ],
        ],
        capture_output=True,
        text=True,
    ).stdout
    for path in set(libraries + re.findall(r"=> (/\S+) \(0x", modules)) | {"/bin/sleep"}:
        os.makedirs(str(root) + os.path.dirname(path), exist_ok=True)
        shutil.copy(path, str(root) + path)
    shutil.copytree(
        prefix,
        str(root) + prefix,
        symlinks=True,
        dirs_exist_ok=True,
        ignore=shutil.ignore_patterns("test", "*.a", "__pycache__", "site-packages"),
    )
    os.makedirs(root / "tmp")
    shutil.copy(program("calls.py"), root / "calls.py")
    subprocess.run(["tar", "-C", root, "-cf", tmp_path / "image.tar", "."], check=True, timeout=120)
    assert docker("import", tmp_path / "image.tar", "perfmap-test").returncode == 0
    started = docker(
        "run", "-d", "--network=none", "perfmap-test", python.path, "-X", "perf", "/calls.py", "600"
    )
    assert started.returncode == 0, started.stderr
    pid = int(docker("inspect", "-f", "{{.State.Pid}}", started.stdout.strip()).stdout)
    inside = "/proc/%d/root/tmp/perf-1.map" % pid
    wait_until(lambda: any("leaf" in name for name in names(inside)), "it has run its functions")
    theirs = names(inside)
    os.unlink(inside)
    end(perfmap("-p", pid, "--merge", "--install"))
    assert names(inside) == names(map_of(pid)) == theirs
