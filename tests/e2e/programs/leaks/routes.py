# SPDX-License-Identifier: Apache-2.0
"""A service with twelve routes. All of them make what they answer on the same
lines; three keep some of it. usage: routes.py
flask|django|fastapi|aiohttp

Prints "ready", then its port; serves until the end of stdin.
"""
import asyncio
import gc
import os
import socket
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


async def fastapi_serve(listening):
    import fastapi
    import uvicorn

    async def view(request: fastapi.Request):
        await asyncio.sleep(0)
        return answer(request.url.path)

    application = fastapi.FastAPI()
    for name in ROUTES:
        application.get("/" + name)(view)
    server = uvicorn.Server(uvicorn.Config(application, log_level="error"))
    await server.serve(sockets=[listening])


async def aiohttp_serve(listening):
    from aiohttp import web

    async def view(request):
        await asyncio.sleep(0)
        return web.Response(text=answer(request.path))

    application = web.Application()
    application.add_routes([web.get("/" + name, view) for name in ROUTES])
    runner = web.AppRunner(application)
    await runner.setup()
    await web.SockSite(runner, listening).start()
    await asyncio.Event().wait()


class Server(socketserver.ThreadingMixIn, wsgiref.simple_server.WSGIServer):
    daemon_threads = True


class Handler(wsgiref.simple_server.WSGIRequestHandler):
    def log_message(self, *_):
        pass


def threaded(application):
    server = wsgiref.simple_server.make_server("127.0.0.1", 0, application, Server, Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server.server_port


def looped(serve):
    """In an event loop of a thread of its own."""
    listening = socket.create_server(("127.0.0.1", 0))
    threading.Thread(target=asyncio.run, args=(serve(listening),), daemon=True).start()
    return listening.getsockname()[1]


applications = {"flask": flask_application, "django": django_application}
services = {"fastapi": fastapi_serve, "aiohttp": aiohttp_serve}
kind = sys.argv[1]
port = looped(services[kind]) if kind in services else threaded(applications[kind]())
# What imports have left would go meanwhile; beside few objects, cycles are collected soon.
gc.collect()
gc.freeze()
print("ready", flush=True)
print(port, flush=True)
sys.stdin.read()
os._exit(0)
