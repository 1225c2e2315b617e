# SPDX-License-Identifier: Apache-2.0
"""A service of Flask or Django with twelve routes. All of them make what they answer on the same
lines; three keep some of it. usage: routes.py flask|django

Prints "ready", then its port; serves until the end of stdin.
"""
import gc
import socketserver
import sys
import threading
import wsgiref.simple_server

ROUTES = "cart export help home items login orders prices reports search upload users".split()
LEAKS = {"export": 40, "reports": 20, "upload": 10}  # of the rows of a request
ROWS = 40
KEPT = []
# Requests of Flask leave cycles, which a short test would take for growth until they are collected.
gc.set_threshold(200, 2, 2)


def row(i):
    return [i * 1000003, str(i) * 8]


def answer(path):
    rows = [row(i) for i in range(ROWS)]
    KEPT.extend(rows[: LEAKS.get(path.strip("/"), 0)])
    return ",".join(each[1] for each in rows)


def flask_application():
    import flask

    application = flask.Flask("routes")
    for name in ROUTES:
        application.add_url_rule("/" + name, name, lambda: answer(flask.request.path))
    return application


def django_application():
    import django
    from django.conf import settings
    from django.core.wsgi import get_wsgi_application
    from django.http import HttpResponse
    from django.urls import path

    def view(request):
        return HttpResponse(answer(request.path))

    urls = tuple(path(name, view) for name in ROUTES)
    settings.configure(SECRET_KEY="x", ALLOWED_HOSTS=["*"], ROOT_URLCONF=urls, DATABASES={})
    django.setup()
    return get_wsgi_application()


class Server(socketserver.ThreadingMixIn, wsgiref.simple_server.WSGIServer):
    daemon_threads = True


class Handler(wsgiref.simple_server.WSGIRequestHandler):
    def log_message(self, *_):
        pass


application = {"flask": flask_application, "django": django_application}[sys.argv[1]]()
server = wsgiref.simple_server.make_server("127.0.0.1", 0, application, Server, Handler)
threading.Thread(target=server.serve_forever, daemon=True).start()
print("ready", flush=True)
print(server.server_port, flush=True)
sys.stdin.read()
