# SPDX-License-Identifier: Apache-2.0
"""What `make install` installs is whole, and `make uninstall` removes exactly that."""
import os
import subprocess

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
OTHER = "usr/share/doc/tracer/docs/of-somebody-else.md"


def make(target, folder):
    command = ("make", "--no-print-directory", target, "DESTDIR=%s" % folder, "PREFIX=/usr")
    subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)


def files(folder):
    return {
        os.path.relpath(os.path.join(path, name), folder)
        for path, _, names in os.walk(folder)
        for name in names
    }


def test_install(tmp_path):
    make("install", tmp_path)
    installed = files(tmp_path)
    pages = {name for name in os.listdir(os.path.join(ROOT, "docs/man")) if name.endswith(".1.md")}
    assert {"usr/share/man/man1/" + page[: -len(".md")] for page in pages} <= installed
    assert {
        "usr/bin/tracer",
        "usr/share/doc/tracer/README.md",
        "usr/share/doc/tracer/docs/reports.md",
        "usr/share/bash-completion/completions/tracer",
        "usr/share/fish/vendor_completions.d/tracer.fish",
        "usr/share/zsh/site-functions/_tracer",
    } <= installed
    said = subprocess.check_output((tmp_path / "usr/bin/tracer", "--version"), text=True)
    assert said.startswith("tracer ")


def test_uninstall(tmp_path):
    make("install", tmp_path)
    make("uninstall", tmp_path)
    assert not files(tmp_path)
    assert not [path for path, _, _ in os.walk(tmp_path) if "/doc/tracer" in path]
    make("uninstall", tmp_path)  # of what is not there: no error


def test_uninstall_leaves_other_files(tmp_path):
    make("install", tmp_path)
    (tmp_path / OTHER).write_text("kept\n")
    make("uninstall", tmp_path)
    assert files(tmp_path) == {OTHER}
