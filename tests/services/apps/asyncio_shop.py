# SPDX-License-Identifier: Apache-2.0
"""A service of aiohttp with three leaks. usage: asyncio_shop.py PORT"""
import asyncio
import itertools
import sys

from aiohttp import web

TASKS = set()
numbers = itertools.count()


async def notify(number):
    await asyncio.Event().wait()


def metrics():
    times = []

    @web.middleware
    async def measure(request, handler):
        answer = await handler(request)
        times.append((request.path, answer.status, next(numbers)))  # fills times
        return answer

    return measure


async def home(request):
    number = next(numbers)
    TASKS.add(asyncio.create_task(notify(number)))  # fills TASKS
    request.app["orders"]["order %d" % number] = [number]  # fills orders
    return web.Response(text="order %d" % number)


app = web.Application(middlewares=[metrics()])
app["orders"] = {}
app.router.add_get("/", home)

if __name__ == "__main__":
    with open("/proc/self/comm", "w") as file:
        file.write("asyncio-shop")
    web.run_app(app, host="127.0.0.1", port=int(sys.argv[1]), print=None)
