# SPDX-License-Identifier: Apache-2.0
import pytest

from harness import compiled, environment
from truth import MIMALLOC, mimalloc_library


@pytest.fixture(scope="module")
def replaced(tmp_path_factory):
    return compiled(tmp_path_factory.mktemp("replaced") / "replaced", "replaced.c")


@pytest.fixture(scope="module", params=MIMALLOC)
def mimalloc_environment(request):
    """mimalloc replaces malloc."""
    return environment(LD_PRELOAD=mimalloc_library(request.param))
