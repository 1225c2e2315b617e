# SPDX-License-Identifier: Apache-2.0
"""Programs for bench_budget.py.    usage: budget.py NAME SECONDS [PORT]

w1, w2, w3, threads, gevent and service print twenty times a second: the seconds since the epoch, the
CPU time of their work, units of work, and the CPU time and number of calibrations. A calibration is
a loop that allocates nothing, every few milliseconds: it tells how fast the processor was. service
prints its port first; client asks it for pages, and prints the time and the seconds of each answer.
"""
import json
import os
import socket
import string
import sys
import threading
import time

import works

END = time.time() + float(sys.argv[2])
CALIBRATE_S, SAY_S = 0.01, 0.05
DATA = bytes(40000)
KEPT = []


class Meter:
    def __init__(self):
        self.units = self.due = self.calibrate_due = self.calibrated = self.calibrated_s = 0
        self.lock = threading.Lock()

    def calibrate(self):
        start = time.thread_time()
        for byte in DATA:
            pass
        self.calibrated_s += time.thread_time() - start
        self.calibrated += 1

    def unit(self):
        with self.lock:
            self.units += 1
            now = time.time()
            if now >= self.calibrate_due:
                self.calibrate_due = now + CALIBRATE_S
                self.calibrate()
            if now >= self.due:
                self.due = now + SAY_S
                work_s = time.process_time() - self.calibrated_s
                print(
                    "%.3f %.5f %d %.5f %d"
                    % (now, work_s, self.units, self.calibrated_s, self.calibrated),
                    flush=True,
                )


def keep(i):
    if i % 20 == 0:
        KEPT.append(bytes(100))


def request(i):
    """A request of a kind: it makes and drops objects, and keeps one now and then."""
    rows = [
        {"id": j, "name": "article %d of %d" % (j, i), "tags": ["a%d" % j, {"x": [i, j]}]}
        for j in range(10)
    ]
    keep(i)
    return len(json.loads(json.dumps(rows)))


def repeat(meter, work, pause=lambda: None):
    i = 0
    while time.time() < END:
        work(i)
        i += 1
        meter.unit()
        pause()


def rounds(work, count):
    def unit(i):
        for k in range(count):
            work(i)
        keep(i)

    repeat(Meter(), unit)


def w1():
    rounds(works.w1, 50)


def w2():
    rounds(works.w2, 50)


def w3():
    rounds(works.w3, 1)


def threads():
    meter = Meter()
    several = [threading.Thread(target=repeat, args=(meter, request)) for _ in range(4)]
    for thread in several:
        thread.start()
    for thread in several:
        thread.join()


def gevent():
    import gevent as library

    meter = Meter()
    pause = lambda: library.sleep(0)
    library.joinall([library.spawn(repeat, meter, request, pause) for _ in range(50)])


PAGE = "{% for row in rows %}<tr><td>{{ row.id }}</td><td>{{ row.name }}</td></tr>{% endfor %}"
ROW = string.Template("<tr><td>$id</td><td>$name</td></tr>")


def page_rows(count):
    request(count)
    return [{"id": j, "name": "<%d of %d>" % (j, count)} for j in range(20)]


def flask_server(meter):
    import flask
    import logging
    from werkzeug.serving import make_server

    logging.getLogger("werkzeug").disabled = True
    application = flask.Flask(__name__)

    @application.route("/orders")
    def orders():
        meter.unit()
        return flask.render_template_string(PAGE, rows=page_rows(meter.units))

    return make_server("127.0.0.1", 0, application, threaded=True)


def plain_server(meter):
    from wsgiref.simple_server import WSGIRequestHandler, make_server

    def application(environ, respond):
        meter.unit()
        text = "".join(ROW.substitute(row) for row in page_rows(meter.units)).encode()
        respond("200 OK", [("Content-Length", str(len(text)))])
        return [text]

    WSGIRequestHandler.log_message = lambda *args: None
    return make_server("127.0.0.1", 0, application)


def service():
    meter = Meter()
    try:
        server = flask_server(meter)
    except ImportError:
        server = plain_server(meter)
    print("port %d" % server.server_port, flush=True)
    threading.Timer(END - time.time(), server.shutdown).start()
    server.serve_forever()


def client():
    address = ("127.0.0.1", int(sys.argv[3]))

    def body():
        while time.time() < END:
            start = time.time()
            with socket.create_connection(address) as connection:
                connection.sendall(b"GET /orders HTTP/1.0\r\nHost: localhost\r\n\r\n")
                while connection.recv(65536):
                    pass
            # One write a line: threads that share a buffer mix what they print.
            os.write(1, b"%.3f %.6f\n" % (start, time.time() - start))

    several = [threading.Thread(target=body) for _ in range(2)]
    for thread in several:
        thread.start()
    for thread in several:
        thread.join()


globals()[sys.argv[1]]()
