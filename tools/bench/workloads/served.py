"""An asyncio service: requests as lines of JSON on a Unix socket, a task for each connection and one for each request, queries,
templates and JSON out. usage: served.py NFRAME ROUNDS    NFRAME 0 = untraced, else tracemalloc with that many frames. Prints the CPU
seconds that the service takes for so many requests; a forked child asks for them over eight connections."""
import asyncio, html, json, os, string, sys, tempfile, time, tracemalloc

CONNECTIONS = 8
ROW = string.Template("<tr><td>$id</td><td>$name</td><td>$price</td></tr>")
RECENT = {}


def order(i, user):
    return {"id": i, "name": "article %d of %s" % (i, user), "price": round(i * 1.17, 2), "tags": ["a%d" % i, {"x": [i, i + 1]}]}


async def find(user, first):
    """What a database would be asked for."""
    await asyncio.sleep(0)
    return [order(i, user) for i in range(first, first + 10)]


async def answer(request):
    user = request["user"]
    first, second = await asyncio.gather(find(user, 0), find(user, 10))
    orders = first + second + request["orders"]
    RECENT[user] = orders[:2]
    while len(RECENT) > 1000:
        del RECENT[next(iter(RECENT))]
    rows = [ROW.substitute({key: html.escape(str(value)) for key, value in each.items()}) for each in orders]
    return {"user": user, "page": "\n".join(rows), "orders": orders}


async def serve(reader, writer):
    asyncio.current_task().set_name("connection")
    while line := await reader.readline():
        task = asyncio.create_task(answer(json.loads(line)), name="request")
        writer.write(json.dumps(await task).encode() + b"\n")
        await writer.drain()
    writer.close()


async def ask(path, rounds):
    reader, writer = await asyncio.open_unix_connection(path, limit=1 << 20)
    for i in range(rounds):
        writer.write(json.dumps({"user": "u%d" % i, "orders": [order(j, "client") for j in range(5)]}).encode() + b"\n")
        await reader.readline()
    writer.close()


async def ask_all(path, rounds):
    await asyncio.gather(*(ask(path, rounds // CONNECTIONS) for _ in range(CONNECTIONS)))


async def main(path, begin):
    open_now, all_closed = 0, asyncio.Event()

    async def connected(reader, writer):
        nonlocal open_now
        open_now += 1
        await serve(reader, writer)
        open_now -= 1
        if not open_now:
            all_closed.set()

    server = await asyncio.start_unix_server(connected, path, limit=1 << 20)
    os.write(begin, b"g")
    await all_closed.wait()
    server.close()


nframe, rounds = int(sys.argv[1]), int(sys.argv[2])
with tempfile.TemporaryDirectory() as folder:
    path, (waits, begin) = os.path.join(folder, "socket"), os.pipe()
    child = os.fork()
    if not child:
        try:
            os.read(waits, 1)
            asyncio.run(ask_all(path, rounds))
        finally:
            os._exit(0)
    if nframe:
        tracemalloc.start(nframe)
    start = time.process_time()
    asyncio.run(main(path, begin))
    print(f"{time.process_time() - start:.3f}", flush=True)
    os.waitpid(child, 0)
