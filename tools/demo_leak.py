# SPDX-License-Identifier: Apache-2.0
"""A simulated web application. Each request keeps a copy of the last 400 page sizes forever, a list
made of a deque: a tracer has to find the line marked LEAK among lines that allocate far more often
and free all. Ends with the program that started it."""
import collections
import os
import time

sizes = collections.deque(maxlen=400)
history = {}


def render(user):
    rows = ["<td>%s: %d</td>" % (user, n) for n in range(200)]
    return "<tr>" + "".join(rows) + "</tr>"


def remember(request, page):
    sizes.append(len(page))
    history[request] = list(sizes)  # LEAK: nobody ever removes one


def handle(request):
    page = render("user%d" % (request % 100))
    remember(request, page)
    return len(page)


parent = os.getppid()
request = 0
while os.getppid() == parent:
    for _ in range(5):
        handle(request)
        request += 1
    time.sleep(0.01)
