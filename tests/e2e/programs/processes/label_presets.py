# SPDX-License-Identifier: Apache-2.0
"""A library that keeps in variables what it works for; blocks are made on one line. usage:
label_presets.py otel|django|flask|starlette|fastapi|structlog|celery|rq

Prints "ready", waits for a line, works, prints {preset: {value: [bytes, blocks]}} of line L ("":
none), waits for stdin's end. otel: if OpenTelemetry is not installed, classes of the same form.
"""
import asyncio
import contextvars
import gc
import importlib.util
import json
import sys
import uuid

gc.disable()
kept = []
counts = {}


def fill(number, values):
    """values: by preset."""
    blocks = [None] * number
    for i in range(number):
        blocks[i] = bytes(300)  # line L: one block each
    kept.append(blocks)
    for name, value in values.items():
        entry = counts.setdefault(name, {}).setdefault(value, [0, 0])
        entry[0] += sum(map(sys.getsizeof, blocks))
        entry[1] += number


# --- OpenTelemetry --------------------------------------------------------------------------------


class Context(dict):
    pass


class SpanContext(tuple):
    @property
    def trace_id(self):
        return self[0]

    @property
    def span_id(self):
        return self[1]


class Span:
    def __init__(self, name, context):
        self._name = name
        self._context = context

    def get_span_context(self):
        return self._context


class Tracer:
    """As long as this is all that OpenTelemetry's does for a variable's value."""

    def __init__(self):
        self.current = contextvars.ContextVar("current_context", default=Context())
        self.key = "current-span" + "-" + str(uuid.uuid4())

    def start_as_current_span(self, name):
        return Entered(self, name)


class Entered:
    def __init__(self, tracer, name):
        self.tracer, self.name = tracer, name

    def __enter__(self):
        now = self.tracer.current.get()
        parent = now.get(self.tracer.key)
        trace_id = parent.get_span_context()[0] if parent else uuid.uuid4().int
        span_id = uuid.uuid4().int >> 64
        span = Span(self.name, SpanContext((trace_id, span_id, False, 1, None, True)))
        self.token = self.tracer.current.set(Context({**now, self.tracer.key: span}))
        return span

    def __exit__(self, *_):
        self.tracer.current.reset(self.token)


def otel_tracer():
    if not importlib.util.find_spec("opentelemetry"):
        return Tracer()
    from opentelemetry.sdk.trace import TracerProvider

    return TracerProvider().get_tracer("test")


def otel():
    tracer = otel_tracer()

    def spanned(span, name, number):
        context = span.get_span_context()
        fill(
            number,
            {
                "otel-trace": "%032x" % context.trace_id,
                "otel-span": "%016x" % context.span_id,
                "otel-name": name,
            },
        )

    async def task(name):
        with tracer.start_as_current_span(name) as span:
            for _ in range(3):
                spanned(span, name, 2)
                await asyncio.sleep(0)

    async def tasks():
        await asyncio.gather(*(task("task %d" % i) for i in range(4)))

    def work():
        fill(2, {"otel-trace": "", "otel-span": "", "otel-name": ""})
        for i in range(3):
            with tracer.start_as_current_span("outer %d" % i) as outer:
                spanned(outer, "outer %d" % i, 3)
                with tracer.start_as_current_span("inner") as inner:
                    spanned(inner, "inner", 2)
                spanned(outer, "outer %d" % i, 1)
        asyncio.run(tasks())
        fill(1, {"otel-trace": "", "otel-span": "", "otel-name": ""})

    return work


# --- requests -------------------------------------------------------------------------------------

PATHS = ("/orders/7", "/orders/8", "/home", "/orders/7")


def django():
    from django.conf import settings

    settings.configure(ROOT_URLCONF=__name__, ALLOWED_HOSTS=["*"], SECRET_KEY="-")
    import django as library

    library.setup()
    from django.core.wsgi import get_wsgi_application
    from django.http import HttpResponse
    from django.test import RequestFactory
    from django.urls import path

    def order(request, number):
        fill(2, {"django": request.path, "django-view": "order"})
        return HttpResponse()

    def home(request):
        fill(3, {"django": request.path, "django-view": "shop-home"})
        return HttpResponse()

    globals()["urlpatterns"] = [
        path("orders/<int:number>", order, name="order"),
        path("home", home, name="shop-home"),
    ]
    application, requests = get_wsgi_application(), RequestFactory()

    def work():
        fill(1, {"django": "", "django-view": ""})
        for each in PATHS:
            assert application(requests.get(each).environ, lambda *_: None).status_code == 200

    return work


def flask():
    from flask import Flask, request

    app = Flask(__name__)

    @app.route("/orders/<number>")
    def order(number):
        fill(2, {"flask": request.path, "flask-endpoint": "order"})
        return ""

    @app.route("/home", endpoint="shop-home")
    def home():
        fill(3, {"flask": request.path, "flask-endpoint": "shop-home"})
        return ""

    def work():
        fill(1, {"flask": "", "flask-endpoint": ""})
        client = app.test_client()
        for each in PATHS:
            assert client.get(each).status_code == 200

    return work


def requested(app):
    """Requests as a server of ASGI makes them."""

    async def receive():
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message):
        assert message.get("status", 200) == 200

    async def request(path):
        scope = {"type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1"}
        scope |= {"method": "GET", "scheme": "http", "path": path, "raw_path": path.encode()}
        scope |= {"query_string": b"", "root_path": "", "headers": []}
        scope |= {"client": ("127.0.0.1", 1), "server": ("127.0.0.1", 80)}
        await app(scope, receive, send)

    async def requests():
        await asyncio.gather(*map(request, PATHS))

    asyncio.run(requests())


def starlette():
    from starlette.applications import Starlette
    from starlette.responses import Response
    from starlette.routing import Route

    async def order(request):
        await asyncio.sleep(0)
        fill(2, {"starlette": request.url.path})
        return Response()

    app = Starlette(routes=[Route("/orders/{number}", order), Route("/home", order)])

    def work():
        fill(1, {"starlette": ""})
        requested(app)

    return work


def fastapi():
    from fastapi import FastAPI, Request

    app = FastAPI()

    @app.get("/orders/{number}")
    @app.get("/home")
    async def order(request: Request):
        await asyncio.sleep(0)
        fill(2, {"fastapi": request.url.path})

    def work():
        fill(1, {"fastapi": ""})
        requested(app)

    return work


def structlog():
    from structlog.contextvars import bind_contextvars, clear_contextvars, unbind_contextvars

    bind_contextvars(request_id="first")
    clear_contextvars()

    def work():
        for value in ("request 1", "request 2", "request 1"):
            bind_contextvars(request_id=value, other=7)
            fill(2, {"structlog:request_id": value})
        unbind_contextvars("request_id")
        fill(1, {"structlog:request_id": "Ellipsis"})

    return work


# --- jobs -----------------------------------------------------------------------------------------


def celery():
    from celery import Celery
    from celery.app import trace

    app = Celery("shop", set_as_current=True)

    @app.task(bind=True, name="shop.export")
    def export(self):
        fill(2, {"celery": self.request.id, "celery-task": "shop.export"})

    @app.task(bind=True, name="shop.mail")
    def mail(self):
        fill(3, {"celery": self.request.id, "celery-task": "shop.mail"})

    app.finalize()
    # What a worker's process does when it begins, and with each message.
    trace.setup_worker_optimizations(app)
    for name in ("shop.export", "shop.mail"):
        app.tasks[name].__trace__ = trace.build_tracer(name, app.tasks[name], app=app)

    def work():
        fill(1, {"celery": "", "celery-task": ""})
        for task in (export, mail, export):
            key = str(uuid.uuid4())
            request = {"id": key, "delivery_info": {}}
            body = b"[[], {}, null]"
            done = trace.fast_trace_task(task.name, key, request, body, "application/json", "utf-8")
            assert done[0] == 0, done

    return work


def job_of_rq(number):
    from rq import get_current_job

    fill(number, {"rq": get_current_job().id, "rq-function": __name__ + ".job_of_rq"})


def rq():
    import os
    import subprocess
    import tempfile
    import time

    import redis
    from rq import Queue, SimpleWorker

    folder = tempfile.mkdtemp()
    path = os.path.join(folder, "socket")
    server = subprocess.Popen(
        ["redis-server", "--port", "0", "--unixsocket", path, "--save", "", "--dir", folder],
        stdout=subprocess.DEVNULL,
    )
    while not os.path.exists(path):
        time.sleep(0.01)
    connection = redis.Redis(unix_socket_path=path)
    queue = Queue("jobs", connection=connection)
    worker = SimpleWorker([queue], connection=connection)

    def work():
        fill(1, {"rq": "", "rq-function": ""})
        for number in (2, 3, 2):
            queue.enqueue(job_of_rq, number)
        worker.work(burst=True, logging_level="ERROR")
        server.terminate()
        server.wait()

    return work


def main():
    libraries = (otel, django, flask, starlette, fastapi, structlog, celery, rq)
    work = {each.__name__: each for each in libraries}[sys.argv[1]]()
    print("ready", flush=True)
    sys.stdin.readline()
    work()
    print(json.dumps(counts), flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    import label_presets  # libraries import functions by the module's name

    label_presets.main()
