# SPDX-License-Identifier: Apache-2.0
"""A WSGI application whose memory is steady: each request makes some thousand objects, of which a
bounded number is kept."""
import collections
import json

RECENT = collections.deque(maxlen=200)


def application(environ, start_response):
    orders = [{"number": i, "name": "order %d" % i, "lines": [i, i + 1]} for i in range(600)]
    body = json.dumps(orders).encode()
    RECENT.append(orders[:5])
    start_response("200 OK", [("Content-Length", str(len(body)))])
    return [body]
