# SPDX-License-Identifier: Apache-2.0
"""A make-believe web application. With every request it keeps a copy of the last 400 page sizes and never forgets one: the
line marked LEAK is what a tracer has to find among lines that allocate far more often and give everything back. (A list
made of a deque, because that is an allocation that distributions' interpreters, too, make through a function that can be
probed; what else they allocate stands in the report as not seen.) Ends by itself after two minutes."""
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
