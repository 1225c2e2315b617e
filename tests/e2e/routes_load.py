# SPDX-License-Identifier: Apache-2.0
"""Requests to a service of programs/leaks/routes.py, and what its routes keep."""
import http.client
import threading

import pytest

ROUTES = "cart export help home items login orders prices reports search upload users".split()
LEAKS = ["/export", "/reports", "/upload"]  # the one that keeps most first
SYSTEM = "/usr/bin/python3"


@pytest.fixture
def load():
    """Begins requests of all routes in turn, over two connections, until the end of the test."""
    ended, threads = threading.Event(), []

    def ask(port):
        while not ended.is_set():
            for name in ROUTES:
                connection = http.client.HTTPConnection("127.0.0.1", port)
                connection.request("GET", "/" + name)
                answer = connection.getresponse()
                assert answer.status == 200 and answer.read(), name
                connection.close()
                ended.wait(0.003)

    def begin(port):
        for _ in range(2):
            threads.append(threading.Thread(target=ask, args=(port,)))
            threads[-1].start()

    yield begin
    ended.set()
    for thread in threads:
        thread.join()
