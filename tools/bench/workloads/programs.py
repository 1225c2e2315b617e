# SPDX-License-Identifier: Apache-2.0
"""One of twelve programs that work with a library of Debian's, by name. Prints "ready", and for
each line "SECONDS" of stdin "COUNT LOOPS WORK LOOP": how often its work was done in that time, and
a loop that allocates nothing, once for each 10 ms of work; and the CPU seconds of each. A line
"tracemalloc N" starts tracemalloc with N frames, "stop" stops it."""
import io
import json
import os
import pickle
import sys
import time

TEXT = open(json.decoder.__file__, encoding="utf-8").read()
ROWS = [{"id": i, "name": "user %d" % i, "tags": ["a", "b", str(i)]} for i in range(200)]


PIECE = 0.01  # CPU seconds of work between two loops
LOOP = [None] * 100000  # a loop over it allocates nothing: it tells how fast the processor is


def templates():
    import jinja2

    page = jinja2.Template(
        "<ul>{% for r in rows %}<li>{{ r.id }}: {{ r.name|upper|e }}{% if r.tags %} "
        "{{ r.tags|join(', ') }}{% endif %}</li>{% endfor %}</ul>"
    )
    return lambda: page.render(rows=ROWS)


def orm():
    import sqlalchemy
    from sqlalchemy.orm import Session, declarative_base

    base = declarative_base()

    class User(base):
        __tablename__ = "users"
        id = sqlalchemy.Column(sqlalchemy.Integer, primary_key=True)
        name = sqlalchemy.Column(sqlalchemy.String)

    engine = sqlalchemy.create_engine("sqlite://")
    base.metadata.create_all(engine)
    with Session(engine) as session:
        session.add_all(User(id=r["id"], name=r["name"]) for r in ROWS)
        session.commit()

    def work():
        with Session(engine) as session:
            for user in session.query(User).filter(User.id < 50):
                user.name = user.name[::-1]
            session.flush()

    return work


def parser():
    import pyparsing

    number = pyparsing.pyparsing_common.number()
    rule = pyparsing.infix_notation(
        number, [("*", 2, pyparsing.OpAssoc.LEFT), ("+", 2, pyparsing.OpAssoc.LEFT)]
    )
    return lambda: rule.parse_string("1 + 2 * 3 + 4 * 5 * 6 + 7")


def formatter():
    import black

    source, mode = TEXT[:4000], black.Mode()
    source = source[: source.rindex("\ndef ")]
    return lambda: black.format_str(source + "\nx = {  'a':1 }\n", mode=mode)


def algebra():
    import sympy

    x, y = sympy.symbols("x y")

    def work():
        sympy.core.cache.clear_cache()
        sympy.expand((x + y + 1) ** 6).diff(x)

    return work


def graphs():
    import networkx

    graph = networkx.gnm_random_graph(150, 600, seed=1)
    return lambda: [
        list(networkx.connected_components(graph)),
        networkx.single_source_dijkstra_path_length(graph, 0),
    ]


def json_text():
    text = json.dumps(ROWS)
    return lambda: json.dumps(json.loads(text))


def pickles():
    return lambda: pickle.loads(pickle.dumps(ROWS))


def html():
    import html5lib

    page = "<ul>" + "".join("<li><a href='%d'>%s</a>" % (r["id"], r["name"]) for r in ROWS[:60])
    return lambda: html5lib.parse(page)


def docs():
    import docutils.core

    page = "Title\n=====\n\n" + "\n\n".join("* *item* ``%d``: a `link`_" % i for i in range(20))
    page += "\n\n.. _link: http://localhost/\n"
    settings = {"report_level": 5}
    return lambda: docutils.core.publish_string(
        page, writer_name="html", settings_overrides=settings
    )


def colours():
    import pygments
    from pygments.formatters import HtmlFormatter
    from pygments.lexers import PythonLexer

    return lambda: pygments.highlight(TEXT[:4000], PythonLexer(), HtmlFormatter())


def markup():
    import markdown

    page = "\n\n".join("# Head %d\n\n- a *b* `c`\n- [d](e)" % i for i in range(20))
    return lambda: markdown.markdown(page)


# modules: the packages are python3-jinja2 and so on, and black
PACKAGES = (
    "jinja2", "sqlalchemy", "pyparsing", "black", "sympy", "networkx", "html5lib", "docutils",
    "pygments", "markdown",
)  # fmt: skip
NAMES = (
    "templates", "orm", "parser", "formatter", "algebra", "graphs", "json_text", "pickles", "html",
    "docs", "colours", "markup",
)  # fmt: skip


def main():
    work = globals()[sys.argv[1]]()
    work()
    print("ready", flush=True)
    for line in io.TextIOWrapper(io.FileIO(0)):
        word = line.split()
        if word[0] in ("tracemalloc", "stop"):
            import tracemalloc

            tracemalloc.stop() if word[0] == "stop" else tracemalloc.start(int(word[1]))
            print("done", flush=True)
            continue
        count, loops, work_s, loop_s = 0, 0, 0.0, 0.0
        end = time.monotonic() + float(word[0])
        while time.monotonic() < end:
            began = time.process_time()
            while time.process_time() - began < PIECE:
                work()
                count += 1
            done = time.process_time()
            for _ in LOOP:
                pass
            work_s += done - began
            loop_s += time.process_time() - done
            loops += 1
        print(count, loops, work_s, loop_s, flush=True)
    os._exit(0)


if __name__ == "__main__":
    main()
