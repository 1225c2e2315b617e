# SPDX-License-Identifier: Apache-2.0
"""A Flask application with three leaks: flask_shop:app."""
import collections
import itertools
import os

from flask import Flask, g, request

app = Flask(__name__)
AUDIT = []
BY_USER = collections.defaultdict(list)
numbers = itertools.count()


class Sessions:
    """Knows who has come, as an extension of Flask does."""

    def __init__(self, application):
        self.known = {}
        application.extensions["sessions"] = self

    def open(self, number):
        self.known[number] = {"agent": request.headers.get("User-Agent")}  # fills Sessions.known


Sessions(app)


@app.before_request
def note():
    g.number = next(numbers)
    AUDIT.append((g.number, request.path, request.remote_addr))  # fills AUDIT


@app.route("/")
def home():
    app.extensions["sessions"].open(g.number)
    user = "user %d of %d" % (g.number % 10, os.getpid())
    BY_USER[user].append("order %d" % g.number)  # fills BY_USER
    return "order %d" % g.number
