# SPDX-License-Identifier: Apache-2.0
"""Requests at an even rate, from four threads. usage: client.py RATE URL, or client.py RATE celery

Prints "ready" after the first answers, and for each byte of stdin a line: the answers since its
start, and the seconds. Ends with its stdin.
"""
import http.client
import itertools
import os
import sys
import threading
import time
import urllib.parse

THREADS = 4
answers = itertools.count()


def http_request(url):
    place = urllib.parse.urlsplit(url)
    connection = http.client.HTTPConnection(place.hostname, place.port, timeout=60)

    def request():
        connection.request("GET", "/")
        answer = connection.getresponse()
        answer.read()
        connection.close()  # uWSGI closes it and does not say so
        if answer.status != 200:
            raise RuntimeError("status %d" % answer.status)

    return request


def celery_request(_):
    import celery_jobs

    def request():
        celery_jobs.work.delay(7).get(timeout=60)

    return request


def ask(request, rate, begun):
    due = time.monotonic()
    while True:
        request()
        next(answers)
        begun.set()
        due += 1 / rate
        time.sleep(max(0, due - time.monotonic()))


def main():
    rate, url = float(sys.argv[1]), sys.argv[2]
    make = celery_request if url == "celery" else http_request
    begun = [threading.Event() for _ in range(THREADS)]
    for event in begun:
        arguments = (make(url), rate / THREADS, event)
        threading.Thread(target=ask, args=arguments, daemon=True).start()
    for event in begun:
        event.wait(60)
    print("ready", flush=True)
    counted = 0
    while os.read(0, 1):
        counted += 1  # each reading takes a number of the counter itself
        print(next(answers) - counted + 1, time.monotonic(), flush=True)
    os._exit(0)


main()
