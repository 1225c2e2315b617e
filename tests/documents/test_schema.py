# SPDX-License-Identifier: Apache-2.0
"""docs/schema/ has a schema for each command that prints JSON, of keys that docs/json.md explains.
Other tests validate what commands print, wherever they run one with --format json."""
import json
import os
import re
import sys

import jsonschema
import pytest
from test_man import ROOT, subcommands, tracer

sys.path.insert(0, os.path.join(ROOT, "tests"))

import schemas  # noqa: E402

GOLDEN = os.path.join(ROOT, "tests", "golden")
SHARED = "common"  # of the others


def has_json(command):
    """Does its --help name the format?"""
    text = re.sub(r"\s+", " ", tracer(command, "--help"))
    return re.search(r" --format=\w+ [^-]*\bjson\b", text) is not None


def questions(command):
    """Those that are words of its own, as the help of heap lists them."""
    return re.findall(r"^  (\w+) {2,}\w", tracer(command, "--help").partition("\n\n")[2], re.M)


def wanted():
    """Their names, and those of what the agent and serve answer. The other requests of ctl are not part of the
    contract."""
    found = {"agent-targets", "serve-range"}
    for command in filter(has_json, subcommands()):
        found.add(schemas.SHARED.get(command, command))
        found |= {"%s-%s" % (command, word) for word in questions(command)}
    for others in schemas.OTHERS.values():
        found |= set(others.values())
    return found - {"ctl"} | {"ctl-" + word for word in schemas.QUESTIONS["ctl"]}


def documented_keys():
    with open(os.path.join(ROOT, "docs", "json.md")) as file:
        return set(re.findall(r"`(\w+)`", file.read()))


def keys(schema):
    if isinstance(schema, list):
        return set().union(*map(keys, schema))
    if not isinstance(schema, dict):
        return set()
    own = schema.get("properties")
    return set(own if isinstance(own, dict) else ()).union(*map(keys, schema.values()))


def test_every_command_has_one():
    there = set(schemas.load()) - {SHARED}
    assert there == wanted(), "no schema, or one of no command"
    assert {"report", "diff", "timeline", "leaks", "list", "memory", "heap-why"} <= there


@pytest.mark.parametrize(
    "command, name",
    (
        ("-p 1 --format json", "report"),
        ("trace -p 1", "report"),
        ("--format json -- heap why", "report"),
        ("replay x.cap", "report"),
        ("heap -p 1 why list", "heap-why"),
        ("heap a.dump", "heap"),
        ("ctl 1 --format json status", "ctl-status"),
        ("ctl 1 clear", None),
    ),
)
def test_names(command, name):
    assert schemas.name_of(command.split()) == name


@pytest.mark.parametrize("name", schemas.load())
def test_schema(name):
    schema = schemas.load()[name]
    jsonschema.Draft202012Validator.check_schema(schema)
    assert schema["$id"] == name + ".json" and schema["title"] and schema["version"] == 1
    unknown = keys(schema) - documented_keys()
    assert not unknown, "docs/json.md does not have %s" % sorted(unknown)
    schemas.validator(name)
    with open(os.path.join(ROOT, "docs", "json.md")) as file:
        assert "schema/%s.json" % name in file.read()


@pytest.mark.parametrize(
    "name", sorted(name for name in os.listdir(GOLDEN) if name.endswith(".json"))
)
def test_golden(name):
    with open(os.path.join(GOLDEN, name)) as file:
        schemas.validate("report", json.load(file))


def changed(report, path, value):
    """A copy with that value; None: without it."""
    report = json.loads(json.dumps(report))
    at = report
    for key in path[:-1]:
        at = at[key]
    if value is None:
        del at[path[-1]]
    else:
        at[path[-1]] = value
    return report


def test_what_is_refused():
    """In tests keys are closed, at each depth; for users they are open."""
    with open(os.path.join(GOLDEN, "golden-3.13-n16.json")) as file:
        report = json.load(file)
    for path, value in (
        (["new"], 1),
        (["total", "new"], 1),
        (["statistics", 0, "new"], 1),
        (["statistics", -1, "traceback", 0, "new"], 1),
        (["coverage", "new"], 1),
        (["not_seen", "new"], 1),
        (["total", "size"], None),
        (["statistics", 0, "count"], None),
        (["statistics", 0, "traceback"], None),
        (["lost_events"], None),
        (["total", "size"], -1),
        (["total", "size"], "1"),
        (["mode"], 1),
    ):
        with pytest.raises(AssertionError):
            schemas.validate("report", changed(report, path, value))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of the resolver, from 4.18 on
def test_files_are_open():
    """As a user validates: with the files alone, which refer to each other by their names."""
    files = schemas.load()
    store = {name + ".json": schema for name, schema in files.items()}
    with open(os.path.join(GOLDEN, "golden-3.13-n16.json")) as file:
        report = json.load(file)
    resolver = jsonschema.RefResolver.from_schema(files["report"], store=store)
    check = jsonschema.Draft202012Validator(files["report"], resolver=resolver)
    assert check.is_valid(changed(report, ["statistics", 0, "new"], 1))
    assert not check.is_valid(changed(report, ["total", "size"], None))
