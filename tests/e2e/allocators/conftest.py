# SPDX-License-Identifier: Apache-2.0
import pytest

from harness import compiled


@pytest.fixture(scope="module")
def replaced(tmp_path_factory):
    return compiled(tmp_path_factory.mktemp("replaced") / "replaced", "replaced.c")
