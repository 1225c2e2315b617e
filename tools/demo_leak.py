# SPDX-License-Identifier: Apache-2.0
"""A simulated web application. Each request keeps a copy of the last 400 page sizes forever: a
tracer has to find the line marked LEAK among lines that allocate far more often and free all. The
copy is a list made of a deque, since distributions' interpreters, too, allocate it in a function
that can be probed; their other allocations are reported as not seen. Ends after two minutes."""
import collections
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


end = time.monotonic() + 120
request = 0
while time.monotonic() < end:
    for _ in range(5):
        handle(request)
        request += 1
    time.sleep(0.01)
