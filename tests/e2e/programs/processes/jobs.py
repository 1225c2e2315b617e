# SPDX-License-Identifier: Apache-2.0
"""A worker of Celery or RQ, each with its children, and what gives it jobs. Jobs keep blocks that
are made on one line. usage: jobs.py celery|rq FOLDER

Prints "ready" and waits for a line; starts the worker, prints "working" and waits for another. Then
it orders jobs, prints {preset: {value: [bytes, blocks]}} of line L once they are done, and waits
for stdin's end. A job of RQ runs in a process of its own: it prints "job PID" and keeps its blocks
once there is a file FOLDER/PID.
"""
import collections
import ctypes
import gc
import json
import os
import subprocess
import sys
import threading
import time

gc.disable()
ONE = b"\0"
JOBS = (("export", 20), ("mail", 3), ("export", 30), ("mail", 0))
kept = []
folder = sys.argv[2]


def tell(line):
    os.write(1, (line + "\n").encode())  # Celery has sys.stdout in its log


def end_with_parent(**_):
    ctypes.CDLL(None).prctl(1, 9)  # PR_SET_PDEATHSIG, SIGKILL


def keep(name, key, number):
    """What is kept is told in a line of a file, which several processes write."""
    blocks = [None] * number
    for i in range(number):
        blocks[i] = ONE * 300  # line L: one block each, and no tuple of arguments, as a call has
    kept.append(blocks)
    line = json.dumps([name, key, sum(map(sys.getsizeof, blocks)), number]) + "\n"
    with open(os.path.join(folder, "done"), "a") as file:
        file.write(line)


def wait_for(path, lines=0):
    until = time.monotonic() + 100
    while not os.path.exists(path) or sum(1 for _ in open(path)) < lines:
        assert time.monotonic() < until, path
        time.sleep(0.02)


def drive(order, presets):
    """Orders the jobs and tells what they keep. presets: of a job's name, and of its key."""
    tell("working")
    sys.stdin.readline()
    for job in JOBS:
        order(*job)
    done = os.path.join(folder, "done")
    wait_for(done, len(JOBS))
    counts = {preset: collections.defaultdict(lambda: [0, 0]) for preset in presets}
    with open(done) as file:
        for words in map(json.loads, file):
            for preset, value in zip(presets, words):
                for i in range(2 * (words[3] > 0)):
                    counts[preset][value][i] += words[2 + i]
    tell(json.dumps(counts))
    sys.stdin.read()
    os._exit(0)


def driven(*arguments):
    threading.Thread(target=drive, args=arguments, daemon=True).start()


# --- Celery ---------------------------------------------------------------------------------------


def celery():
    # What --by asks for is there before the worker is, and the trace need not see it imported.
    import celery.apps.worker
    import celery.bin.celery
    from celery import Celery, signals

    app = Celery("shop", broker="filesystem://")
    transport = {"control_folder": os.path.join(folder, "control")}
    for way in ("data_folder_in", "data_folder_out"):
        transport[way] = os.path.join(folder, "queue")
    for path in set(transport.values()):
        os.makedirs(path, exist_ok=True)
    app.conf.update(broker_transport_options=transport, task_ignore_result=True)

    def task(name):
        @app.task(bind=True, name="shop." + name)
        def run(self, number):
            keep(self.name, self.request.id, number)

        return run

    tasks = {name: task(name) for name in ("export", "mail")}

    signals.worker_process_init.connect(end_with_parent)

    @signals.worker_ready.connect(weak=False)
    def begin(**_):
        driven(lambda name, number: tasks[name].delay(number), ("celery-task", "celery"))

    def work():
        app.worker_main(["worker", "-P", "prefork", "-c", "2", "-l", "ERROR"])

    return work


# --- RQ -------------------------------------------------------------------------------------------


def job(number):
    import rq

    end_with_parent()
    tell("job %d" % os.getpid())
    wait_for(os.path.join(folder, str(os.getpid())))
    running = rq.get_current_job()
    keep(running.func_name, running.id, number)


def export(number):
    job(number)


def mail(number):
    job(number)


def rq():
    import redis
    import rq as library

    path = os.path.join(folder, "socket")
    subprocess.Popen(
        ["redis-server", "--port", "0", "--unixsocket", path, "--save", "", "--dir", folder],
        stdout=subprocess.DEVNULL,
        preexec_fn=end_with_parent,
    )
    while not os.path.exists(path):
        time.sleep(0.01)
    connection = redis.Redis(unix_socket_path=path)
    queue = library.Queue("jobs", connection=connection)
    worker = library.Worker([queue], connection=connection)

    def work():
        functions = {"export": export, "mail": mail}
        driven(lambda name, number: queue.enqueue(functions[name], number), ("rq-function", "rq"))
        worker.work(logging_level="ERROR")

    return work


def main():
    work = {"celery": celery, "rq": rq}[sys.argv[1]]()
    tell("ready")
    sys.stdin.readline()
    work()


if __name__ == "__main__":
    import jobs  # libraries import functions by the module's name

    jobs.main()
