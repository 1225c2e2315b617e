"""A web service: a WSGI application on the standard library's server, with a query, JSON in and out and templates.
usage: web.py NFRAME ROUNDS    NFRAME 0 = untraced, else tracemalloc with that many frames. Prints the CPU seconds that the server
takes for so many requests; a forked child asks for them, one after the other."""
import html
import json
import os
import socket
import string
import sys
import time
import tracemalloc
import urllib.parse
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

ROW = string.Template("<tr><td>$id</td><td>$name</td><td class=\"$kind\">$price</td><td>$note</td></tr>")
PAGE = string.Template("<html><head><title>$title</title></head><body><h1>$title</h1><table>$rows</table><script>var data = $data</script></body></html>")
RECENT = {}


def order(i, query):
    return {"id": i, "name": "article %d of %s" % (i, query["user"]), "price": round(i * 1.17, 2), "kind": "odd" if i % 2 else "even",
            "tags": ["a%d" % i, "b", {"x": i, "y": [i, i + 1]}], "note": "<%s & co>" % query["user"]}


def render(orders, title):
    rows = [ROW.substitute({key: html.escape(str(value)) for key, value in row.items()}) for row in orders]
    return PAGE.substitute(title=html.escape(title), rows="\n".join(rows), data=json.dumps(orders, sort_keys=True))


def application(environ, respond):
    query = dict(urllib.parse.parse_qsl(environ["QUERY_STRING"]))
    body = json.loads(environ["wsgi.input"].read(int(environ["CONTENT_LENGTH"] or 0)) or b"{}")
    orders = [order(i, query) for i in range(20)] + body.get("orders", [])
    RECENT[query["user"]] = {"orders": orders[:2], "at": time.time()}
    while len(RECENT) > 1000:
        del RECENT[next(iter(RECENT))]
    text = render(orders, "orders of " + query["user"]).encode()
    respond("200 OK", [("Content-Type", "text/html; charset=utf-8"), ("Content-Length", str(len(text)))])
    return [text]


class Handler(WSGIRequestHandler):
    def log_message(self, *args):
        pass


def ask(address, rounds):
    """The client: one request after the other."""
    body = json.dumps({"orders": [order(i, {"user": "client"}) for i in range(5)]}).encode()
    for i in range(rounds):
        with socket.create_connection(address) as connection:
            connection.sendall(b"POST /orders?user=u%d&q=a%%20b HTTP/1.0\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s" % (i, len(body), body))
            connection.shutdown(socket.SHUT_WR)
            while connection.recv(65536):
                pass


def main():
    nframe, rounds = int(sys.argv[1]), int(sys.argv[2])
    server = WSGIServer(("127.0.0.1", 0), Handler)
    server.set_app(application)
    address = server.server_address
    if not os.fork():
        server.socket.close()
        try:
            ask(address, rounds)
        finally:
            os._exit(0)
    if nframe:
        tracemalloc.start(nframe)
    start = time.process_time()
    for _ in range(rounds):
        server.handle_request()
    print("%.3f" % (time.process_time() - start), flush=True)
    os.wait()


main()
