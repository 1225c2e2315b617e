# SPDX-License-Identifier: Apache-2.0
"""A make-believe web application. It forgets nothing that it ever rendered: the line marked LEAK is what a tracer has
to find among lines that allocate far more often and give everything back. Ends by itself after two minutes."""
import time

history = {}


def render(user):
    rows = ["<td>%s: %d</td>" % (user, n) for n in range(200)]
    return "<tr>" + "".join(rows) + "</tr>"


def remember(request, page):
    history[request] = page.encode()  # LEAK: nobody ever removes a page


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
