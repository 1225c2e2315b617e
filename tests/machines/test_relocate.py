# SPDX-License-Identifier: Apache-2.0
"""relocate.py, on a program that is built here."""
import re
import shutil
import subprocess

import pytest

import relocate

# Prints its own maps, and is linked to a library besides libc.
SOURCE = """#include <math.h>
#include <stdio.h>
int main(int argc, char **argv) {
    char line[4096];
    FILE *maps = fopen("/proc/self/maps", "r");
    while (maps && fgets(line, sizeof(line), maps)) fputs(line, stdout);
    return pow(argc, 2) != 1;
}"""


@pytest.fixture(params=("-pie", "-no-pie"))
def program(request, tmp_path):
    path = str(tmp_path / "program")
    command = [
        "cc",
        "-x",
        "c",
        "-",
        request.param,
        "-fno-builtin",
        "-o",
        path,
        "-Wl,--no-as-needed",
        "-lm",
    ]
    subprocess.run(command, input=SOURCE.encode(), check=True)
    return path


def mapped(path):
    """The files that the program has mapped, other than itself."""
    said = subprocess.run([path], stdout=subprocess.PIPE, check=True, env={}).stdout.decode()
    return set(re.findall(r" (/\S+)$", said, re.M)) - {path}


def test_libraries_and_loader(program, tmp_path):
    before = mapped(program)
    folder = tmp_path / "other"
    folder.mkdir()
    copies = {name.rpartition("/")[2]: shutil.copy(name, str(folder)) for name in before}
    (loader,) = (path for name, path in copies.items() if name.startswith("ld-"))
    relocate.relocate(program, loader, str(folder))
    assert mapped(program) == set(copies.values())
    assert len(copies) >= 3


def test_no_room(program):
    with open(program, "rb") as file:
        content = file.read()
    with pytest.raises(RuntimeError, match="no page with 8195 unused bytes"):
        relocate.relocate(program, "/" + 4095 * "l", "/" + 4096 * "d")
    with open(program, "rb") as file:
        assert file.read() == content
