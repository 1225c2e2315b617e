# SPDX-License-Identifier: Apache-2.0
"""What shells complete (completions/): every command, every option that --help has, and words for
their arguments."""
import os
import re
import shutil
import subprocess

import pytest
from test_man import ROOT, TRACER, options_of_help, subcommands, tracer

COMPLETIONS = os.path.join(ROOT, "completions")

BASH = """
source "$1"; shift
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1))
_tracer
printf '%s\\n' "${COMPREPLY[@]}"
"""
# In an interactive zsh, what TAB lists is on the terminal only: completers that print stand for
# those that list.
ZSH = """
_describe() { local name=$argv[-1]; print -l -- ${(P)name} }
compadd() { print -l -- "${@:#--}" }
_files() { print -l -- $words[CURRENT]*(N) }
file=$1; shift
words=("$@"); CURRENT=$#
source $file
"""
FISH = 'source $argv[1]; complete -C "$argv[2]"'


def run(*command, cwd=None):
    path = os.path.dirname(TRACER) + ":" + os.environ["PATH"]
    done = subprocess.run(
        command,
        cwd=cwd,
        env=dict(os.environ, PATH=path, LC_ALL="C.UTF-8"),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        timeout=60,
        text=True,
    )
    assert not done.stderr, done.stderr
    return done.stdout.split("\n")[:-1]


def by_bash(*words, cwd=None):
    script = os.path.join(COMPLETIONS, "tracer.bash")
    return set(run("bash", "--norc", "-c", BASH, "bash", script, "tracer", *words, cwd=cwd)) - {""}


def by_zsh(*words, cwd=None):
    script = os.path.join(COMPLETIONS, "_tracer")
    said = run("zsh", "-f", "-c", ZSH, "zsh", script, "tracer", *words, cwd=cwd)
    word = words[-1]
    return {line.partition(":")[0] for line in said if line.startswith(word)}


def by_fish(*words, cwd=None):
    script = os.path.join(COMPLETIONS, "tracer.fish")
    said = run("fish", "--no-config", "-c", FISH, script, " ".join(("tracer", *words)), cwd=cwd)
    return {line.partition("\t")[0] for line in said}


@pytest.fixture(params=("bash", "zsh", "fish"))
def complete(request):
    if not shutil.which(request.param):
        pytest.skip(request.param + " is missing")
    return {"bash": by_bash, "zsh": by_zsh, "fish": by_fish}[request.param]


def long_options(name):
    specs = options_of_help(tracer(name, "--help"))
    return {long for spec in specs for long in re.findall(r"--[-\w]+", spec)}


def test_commands(complete):
    assert complete("") == set(subcommands())
    assert complete("re") == {name for name in subcommands() if name.startswith("re")}


def test_options(complete):
    for name in ("report", "timeline", "heap"):
        assert complete(name, "--") - {"--help"} == long_options(name), name
    # Without a command, those of trace.
    assert complete("--") - {"--help"} == long_options("trace")
    assert "--record" in complete("-p", "1", "--rec")


def test_every_option_is_printed():
    for name in subcommands():
        printed = {line.split("\t")[0] for line in tracer(name, "--print-options").split("\n")}
        assert printed - {""} == long_options(name), name


def test_arguments(complete, tmp_path):
    for name in ("snap.pb.gz", "shop.rec"):
        (tmp_path / name).write_text("")
    assert complete("report", "s", cwd=tmp_path) == {"snap.pb.gz", "shop.rec"}
    assert complete("-o", "sn", cwd=tmp_path) == {"snap.pb.gz"}


@pytest.mark.skipif(os.geteuid() != 0, reason="root is needed to see every process")
def test_pids(complete):
    """This test's Python can be traced."""
    assert str(os.getpid()) in complete("-p", str(os.getpid())[:-1])
