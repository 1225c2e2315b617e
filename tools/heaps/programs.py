# SPDX-License-Identifier: Apache-2.0
"""Programs of Debian's packages whose heap is read as they run. usage: programs.py NAME

It prints "ready" and the process id of the program once it has something to read. With a name that
ends in "load" it goes on working.
"""
import os
import subprocess
import sys
import tempfile
import threading
import time

REQUESTS, ROWS, TASKS, GREENLETS, CELLS = 300, 200000, 10000, 3000, 200


def ready(pid=None):
    print("ready", pid or os.getpid(), flush=True)


def wait():
    while True:
        time.sleep(3600)


def flask(load):
    import flask
    from werkzeug.serving import make_server

    app, cache = flask.Flask("shop"), {}

    @app.route("/user/<int:number>")
    def user(number):
        cache[number % 5000] = {"name": "user %d" % number, "items": list(range(number % 50))}
        return flask.jsonify(cache[number % 5000])

    server = make_server("127.0.0.1", 0, app, threaded=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    client = (
        "import itertools, sys, urllib.request\n"
        "for i in itertools.count():\n"
        "    urllib.request.urlopen(sys.argv[1] + str(i)).read()\n"
        "    if i == int(sys.argv[2]): print('served', flush=True)\n"
        "    if i == int(sys.argv[2]) and sys.argv[3] == 'False': break\n"
    )
    url = "http://127.0.0.1:%d/user/" % server.server_port
    command = [sys.executable, "-c", client, url, str(REQUESTS), str(load)]
    client = subprocess.Popen(command, stdout=subprocess.PIPE)
    client.stdout.readline()
    ready()
    client.wait()
    wait()


def django(load):
    import django
    from django.conf import settings

    base = "django.contrib."
    names = ("admin", "auth", "contenttypes", "sessions", "messages")
    settings.configure(
        SECRET_KEY="x",
        ALLOWED_HOSTS=["*"],
        ROOT_URLCONF="__main__",
        INSTALLED_APPS=[base + name for name in names],
        DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}},
        MIDDLEWARE=[
            base + "sessions.middleware.SessionMiddleware",
            base + "auth.middleware.AuthenticationMiddleware",
            base + "messages.middleware.MessageMiddleware",
        ],
        TEMPLATES=[
            {
                "BACKEND": "django.template.backends.django.DjangoTemplates",
                "APP_DIRS": True,
                "OPTIONS": {
                    "context_processors": [
                        "django.template.context_processors.request",
                        base + "auth.context_processors.auth",
                        base + "messages.context_processors.messages",
                    ]
                },
            }
        ],
    )
    django.setup()
    from django.contrib import admin
    from django.contrib.auth.models import User
    from django.core.management import call_command
    from django.test import Client
    from django.urls import path

    global urlpatterns
    urlpatterns = [path("admin/", admin.site.urls)]
    call_command("migrate", verbosity=0)
    client = Client()
    client.force_login(User.objects.create_superuser("root"))

    def request():
        for page in ("/admin/", "/admin/auth/user/", "/admin/auth/user/1/change/"):
            assert client.get(page).status_code == 200

    for _ in range(REQUESTS // 3):
        request()
    ready()
    while load:
        request()
    wait()


def pandas(load):
    import numpy
    import pandas

    values = numpy.arange(ROWS)
    kept = [
        pandas.DataFrame(
            {"number": values, "share": values / 7, "name": ["name %d" % (i % 1000) for i in values]}
        )
        for _ in range(2)
    ]
    kept.append(kept[0].groupby("name").mean())
    kept.append(pandas.concat(kept[:2]).sort_values("share"))
    ready()
    wait()


def gevent(load):
    import gevent
    import gevent.event

    event = gevent.event.Event()

    def work(number):
        local = {"number": number, "text": str(number)}
        event.wait()
        return local

    greenlets = [gevent.spawn(work, i) for i in range(GREENLETS)]
    gevent.sleep(0.5)
    ready()
    while greenlets:
        gevent.sleep(3600)


def asyncio(load):
    import asyncio

    async def work(number, event):
        local = [number, str(number)]
        await event.wait()
        return local

    async def main():
        event = asyncio.Event()
        tasks = [asyncio.create_task(work(i, event)) for i in range(TASKS)]
        await asyncio.sleep(0.5)
        ready()
        await asyncio.sleep(3600 if tasks else 0)

    asyncio.run(main())


def ipykernel(load):
    from jupyter_client.manager import start_new_kernel

    manager, client = start_new_kernel()
    try:
        for i in range(CELLS):
            client.execute_interactive(
                "import json, re\nx%d = [i for i in range(%d)]\nx%d" % (i, i, i),
                output_hook=lambda message: None,
                timeout=120,
            )
        client.execute_interactive("import os\nprint(os.getpid())", output_hook=kernel_pid)
        wait()
    finally:
        manager.shutdown_kernel(now=True)


def kernel_pid(message):
    if message["msg_type"] == "stream":
        ready(int(message["content"]["text"]))


PLAY = """
- hosts: all
  gather_facts: %s
  tasks:
    - set_fact: {numbers: "{{ range(2000) | list }}"}
    - pause: {seconds: 600}
"""


def ansible(load):
    with tempfile.TemporaryDirectory() as folder:
        play = os.path.join(folder, "play.yml")
        with open(play, "w") as file:
            file.write(PLAY % "false")
        hosts = ",".join("host%d" % i for i in range(200)) + ","
        command = ["ansible-playbook", "-i", hosts, "-c", "local", play]
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
        for line in process.stdout:
            if line.startswith(b"TASK [pause"):
                break
        time.sleep(2)
        ready(process.pid)
        process.wait()


PROGRAMS = {f.__name__: f for f in (flask, django, pandas, gevent, asyncio, ipykernel, ansible)}

if __name__ == "__main__":
    name, _, load = sys.argv[1].partition(" ")
    PROGRAMS[name](bool(load))
