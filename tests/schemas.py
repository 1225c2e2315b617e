# SPDX-License-Identifier: Apache-2.0
"""JSON that tracer has printed against docs/schema/. The files are open: a program that reads JSON
is to accept keys that are added later. Here they are closed: a key that no schema has is an error.

    check(["heap", "why", "list", "-p", 1, "--format", "json"], done.stdout)
"""
import functools
import glob
import itertools
import json
import os

import jsonschema

FOLDER = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "docs", "schema")

# Commands that share a schema, and those that have one for each of their questions.
SHARED = {"trace": "report", "replay": "report"}
QUESTIONS = {
    "heap": ("", "why", "holders", "show", "lines", "query", "waste", "cycles", "gc", "diff"),
    "ctl": ("status", "lookup"),
}


# By a key: a report may be of a bundle of evidence, memory of several processes.
OTHERS = {
    "report": {"copies": "evidence"},
    "memory": {"processes": "memory-service", "unshared": "memory-unshared"},
}


def load():
    """{name: schema}, as they are in the files."""
    found = {}
    for path in sorted(glob.glob(os.path.join(FOLDER, "*.json"))):
        with open(path, encoding="utf-8") as file:
            found[os.path.basename(path)[: -len(".json")]] = json.load(file)
    return found


def _bundled(value, name):
    """The schema with references into one bundle of all files, instead of from file to file."""
    if isinstance(value, list):
        return [_bundled(item, name) for item in value]
    if not isinstance(value, dict):
        return value
    out = {key: _bundled(item, name) for key, item in value.items() if key != "$id"}
    if "$ref" in value:
        file, _, path = value["$ref"].partition("#")
        out["$ref"] = "#/$defs/%s%s" % (file[: -len(".json")] or name, path)
    return out


def _at(bundle, reference):
    for key in reference[2:].split("/"):
        bundle = bundle[key]
    return bundle


def _with_parts(schema, bundle):
    """The object with what it has from others by allOf, so that all its keys are in one place."""
    out = dict(schema)
    parts, others = out.pop("allOf", []), []
    for part in parts:
        part = _with_parts(_at(bundle, part["$ref"]), bundle)
        out["required"] = [*out.get("required", ()), *part.get("required", ())]
        for key in ("properties", "patternProperties"):
            if key in part:
                out[key] = {**part[key], **out.get(key, {})}
        others += [{"anyOf": part["anyOf"]}] if "anyOf" in part else []
        others += part.get("allOf", [])
    if others:
        out["allOf"] = others
    return out


def _closed(value, bundle):
    if isinstance(value, list):
        return [_closed(item, bundle) for item in value]
    if not isinstance(value, dict):
        return value
    if isinstance(value.get("properties"), dict):
        value = {"additionalProperties": False, **_with_parts(value, bundle)}
    return {key: _closed(item, bundle) for key, item in value.items()}


@functools.lru_cache(maxsize=None)
def _bundle():
    bundle = {"$defs": {name: _bundled(schema, name) for name, schema in load().items()}}
    return _closed(bundle, bundle)


@functools.lru_cache(maxsize=None)
def validator(name):
    bundle = _bundle()
    assert name in bundle["$defs"], "docs/schema/ has no %s.json" % name
    return jsonschema.Draft202012Validator({**bundle, "$ref": "#/$defs/" + name})


def _words(args):
    """Those of tracer's own command line, without a command that it starts."""
    return [str(word) for word in itertools.takewhile(lambda word: word != "--", args)]


def name_of(args):
    """The schema of such a command line; None: its JSON is not described."""
    words = _words(args)
    command = words[0] if words and words[0][:1].isalpha() else "trace"
    if command not in QUESTIONS:
        return SHARED.get(command, command)
    asked = next((word for word in words[1:] if word in QUESTIONS[command]), "")
    if asked not in QUESTIONS[command]:
        return None
    return command + "-" * bool(asked) + asked


WORDS = ("kind", "verdict", "how", "mode", "lifetime", "state")  # keys whose values are few words


def _shape(value):
    """What keys it has, and of which types."""
    if isinstance(value, dict):
        return frozenset(
            (key, item if key in WORDS and isinstance(item, str) else _shape(item))
            for key, item in value.items()
        )
    return frozenset(map(_shape, value)) if isinstance(value, list) else type(value)


def _sampled(value):
    """The value with one item of each shape in its arrays: a report may have 100,000 entries."""
    if isinstance(value, dict):
        return {key: _sampled(item) for key, item in value.items()}
    if not isinstance(value, list):
        return value
    return [_sampled(item) for item in {_shape(item): item for item in value}.values()]


def validate(name, value):
    errors = list(validator(name).iter_errors(_sampled(value)))
    if errors:
        error = jsonschema.exceptions.best_match(errors)
        raise AssertionError(
            "docs/schema/%s.json: at %s: %s" % (name, list(error.absolute_path), error.message)
        )


def is_json(args):
    """Does the command line ask for JSON?"""
    words = _words(args)
    return "--format=json" in words or ("--format", "json") in zip(words, words[1:])


def check(args, text):
    """Validates each object that the command has printed, if it was asked for JSON."""
    name = name_of(args) if is_json(args) else None
    for line in text.splitlines() if name else ():
        # A command that is traced may print JSON of its own.
        if line.startswith("{" if "--" not in args else '{"traceback_limit"'):
            value = json.loads(line)
            others = [other for key, other in OTHERS.get(name, {}).items() if key in value]
            validate(others[0] if others else name, value)
