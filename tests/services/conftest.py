# SPDX-License-Identifier: Apache-2.0
"""A test whose packages are missing is skipped, and the skip names them. The requests a second that
tests have seen are printed at the end."""
import os
import sys

import pytest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(os.path.dirname(HERE), "e2e")]

import harness  # noqa: E402
import services  # noqa: E402

told = []


def pytest_collection_modifyitems(items):
    if os.geteuid() != 0:
        for item in items:
            item.add_marker(pytest.mark.skip(reason="root is needed to read the heaps"))


@pytest.fixture(scope="session")
def tracer():
    return harness.tracer_path()


@pytest.fixture
def tell():
    return told.append


@pytest.fixture
def service(request, tmp_path):
    """The Service of the test's parameter."""
    missing = services.missing(services.KINDS[request.param].needs)
    if missing:
        pytest.skip("not installed: %s; make services installs them" % " ".join(missing))
    made = services.Service(request.param, tmp_path)
    try:
        yield made
    finally:
        made.end()
        print(made.log())  # shown with a test that failed


def pytest_terminal_summary(terminalreporter):
    for line in told:
        terminalreporter.write_line(line)
