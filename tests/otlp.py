# SPDX-License-Identifier: Apache-2.0
"""A strict reader of OTLP profiles: tests/otlp.proto, compiled by protoc, and every rule of the
specification. It shares nothing with the writer.

    for profile in otlp.decode(data):
        profile.type, profile.lines()
"""
import functools
import importlib.util
import os
import subprocess
import tempfile
from collections import Counter, namedtuple

from google.protobuf.message import DecodeError, Message
from google.protobuf.unknown_fields import UnknownFieldSet

HERE = os.path.dirname(os.path.abspath(__file__))
TABLES = {
    "mapping": "mapping_table",
    "location": "location_table",
    "function": "function_table",
    "link": "link_table",
    "str": "string_table",
    "attribute": "attribute_table",
    "stack": "stack_table",
}
TIME_END = 1 << 63  # times are nanoseconds that a signed reader holds, too

# kind: profile.frame.type; mapping: the binary's file name, or ""
Frame = namedtuple("Frame", "file line function kind mapping")


class Invalid(Exception):
    """What the specification does not allow."""


class Profile(
    namedtuple("Profile", "resource scope type unit time_ns duration_ns period attributes samples")
):
    """Attributes are {key: value}; those of the scope have its name as "name", and its version.
    period: None, or (type, unit, number). samples: [((frame, …), value)], most recent first."""

    def lines(self):
        """{(file, line): sum} by the most recent frame."""
        found = Counter()
        for stack, value in self.samples:
            found[stack[0].file, stack[0].line] += value
        return dict(found)

    def total(self):
        return sum(value for _, value in self.samples)


@functools.lru_cache(maxsize=None)
def messages():
    """The generated classes."""
    with tempfile.TemporaryDirectory() as out:
        subprocess.run(["protoc", "-I", HERE, "--python_out", out, "otlp.proto"], check=True)
        spec = importlib.util.spec_from_file_location("otlp_pb2", os.path.join(out, "otlp_pb2.py"))
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    return module


def need(condition, text, *values):
    if not condition:
        raise Invalid(text % values)


def parts(message):
    """The messages directly in a message."""
    for field, value in message.ListFields():
        if field.message_type:
            yield from [value] if isinstance(value, Message) else value


def unknown_find(message):
    """The first message with unknown fields is named."""
    unknown = [field.field_number for field in UnknownFieldSet(message)]
    need(not unknown, "%s has unknown fields %s", message.DESCRIPTOR.name, unknown)
    for part in parts(message):
        unknown_find(part)


def known_check(message):
    """Only fields of the definition, at any depth."""
    known = type(message)()
    known.CopyFrom(message)
    known.DiscardUnknownFields()
    if known.ByteSize() != message.ByteSize():
        unknown_find(message)
        raise Invalid("unknown fields")


class Reader:
    """Resolves indices, and notes what is referenced."""

    def __init__(self, dictionary):
        self.dictionary = dictionary
        self.tables = {name: getattr(dictionary, table) for name, table in TABLES.items()}
        self.used = {name: set() for name in TABLES}
        self.firsts_check()

    def firsts_check(self):
        for name, table in self.tables.items():
            need(len(table), "%s is empty", TABLES[name])
            first = table[0]
            if name == "link":  # zeros of full length are allowed, too
                zero = not any(first.trace_id) and not any(first.span_id)
            else:
                zero = not first if name == "str" else not first.ByteSize()
            need(zero, "%s[0] is not the zero value", TABLES[name])

    def at(self, name, index):
        table = self.tables[name]
        need(0 <= index < len(table), "index %d is not in %s", index, TABLES[name])
        self.used[name].add(index)
        return table[index]

    def text(self, index):
        return self.at("str", index)

    # --- attributes

    def value(self, value):
        which = value.WhichOneof("value")
        if which == "string_value_strindex":
            return self.text(value.string_value_strindex)
        if which == "array_value":
            return [self.value(item) for item in value.array_value.values]
        if which == "kvlist_value":
            return self.pairs(value.kvlist_value.values, "a list of keys")
        return getattr(value, which) if which else None

    def pairs(self, pairs, where):
        found = {}
        for pair in pairs:
            need(not (pair.key and pair.key_strindex), "an attribute of %s has two keys", where)
            key = pair.key or self.text(pair.key_strindex)
            need(key, "an attribute of %s has no key", where)
            need(key not in found, "%s has the attribute %r twice", where, key)
            found[key] = self.value(pair.value)
        return found

    def attributes(self, item):
        where, found = item.DESCRIPTOR.name, {}
        for index in item.attribute_indices:
            need(index, "%s names attribute 0", where)
            entry = self.at("attribute", index)
            key = self.text(entry.key_strindex)
            self.text(entry.unit_strindex)
            need(key, "attribute %d has no key", index)
            need(key not in found, "%s has the attribute %r twice", where, key)
            found[key] = self.value(entry.value)
        return found

    # --- stacks

    def mapping(self, index):
        mapping = self.at("mapping", index)
        need(
            mapping.memory_start <= mapping.memory_limit, "mapping %d ends before it begins", index
        )
        self.attributes(mapping)
        return mapping

    def function(self, index):
        function = self.at("function", index)
        names = function.name_strindex, function.system_name_strindex, function.filename_strindex
        need(not index or any(names), "function %d has no name", index)
        need(function.start_line >= 0, "function %d begins at a negative line", index)
        name, system_name, file = map(self.text, names)
        return name or system_name, file

    def location(self, index):
        need(index, "a stack names location 0")
        location = self.at("location", index)
        mapping = self.mapping(location.mapping_index)
        if location.mapping_index and location.address:
            need(
                mapping.memory_start <= location.address <= mapping.memory_limit,
                "location %d is outside of its mapping",
                index,
            )
        kind = self.attributes(location).get("profile.frame.type")
        file = self.text(mapping.filename_strindex)
        frames = []
        # A function that is not known, as a report calls it.
        if not location.lines:
            need(location.mapping_index, "location %d has neither lines nor a mapping", index)
            offset = location.address - mapping.memory_start + mapping.file_offset
            name = "[%s+0x%x]" % (os.path.basename(file), offset)
            frames.append(Frame(file, 0, name, kind, file))
        for line in location.lines:
            need(line.line >= 0 and line.column >= 0, "location %d has a negative line", index)
            function, source = self.function(line.function_index)
            frames.append(Frame(source, line.line, function, kind, file))
        return frames

    @functools.lru_cache(maxsize=None)
    def stack(self, index):
        frames = []
        for location in self.at("stack", index).location_indices:
            frames += self.location(location)
        return tuple(frames)

    # --- profiles

    def link(self, index):
        link = self.at("link", index)
        if index:
            need(
                len(link.trace_id) == 16 and len(link.span_id) == 8,
                "link %d has no trace and span",
                index,
            )

    def sample(self, sample, begin, end):
        """Its identity, shape, stack and sum."""
        times, values = sample.timestamps_unix_nano, sample.values
        need(times or values, "a sample has neither values nor timestamps")
        need(
            not times or not values or len(times) == len(values),
            "a sample has %d values and %d timestamps",
            len(values),
            len(times),
        )
        need(times or len(values) == 1, "a sample without timestamps has %d values", len(values))
        need(
            all(begin <= time < end for time in times),
            "a sample's timestamp is outside of its profile",
        )
        self.link(sample.link_index)
        self.attributes(sample)
        identity = sample.stack_index, frozenset(sample.attribute_indices), sample.link_index
        shape = bool(values), bool(times)
        return (
            identity,
            shape,
            self.stack(sample.stack_index),
            sum(values) if values else len(times),
        )

    def samples(self, profile):
        begin, end = profile.time_unix_nano, profile.time_unix_nano + profile.duration_nano
        identities, shapes, found = set(), set(), []
        need(end < TIME_END, "a profile ends at %d", end)
        for sample in profile.samples:
            identity, shape, stack, value = self.sample(sample, begin, end)
            need(identity not in identities, "two samples are the same: %s", identity)
            identities.add(identity)
            shapes.add(shape)
            found.append((stack, value))
        need(len(shapes) <= 1, "samples of one profile have several shapes")
        return found

    def value_type(self, value_type):
        kind, unit = self.text(value_type.type_strindex), self.text(value_type.unit_strindex)
        need(kind and unit, "a type of values has no name or no unit")
        return kind, unit

    def profile(self, profile, resource, scope):
        need(profile.HasField("sample_type"), "a profile has no sample_type")
        kind, unit = self.value_type(profile.sample_type)
        period = None
        if profile.HasField("period_type"):
            period = (*self.value_type(profile.period_type), profile.period)
        need(period or not profile.period, "a period has no type")
        identifier = profile.profile_id
        need(
            not identifier or (len(identifier) == 16 and any(identifier)),
            "profile_id is not 16 bytes, or zero",
        )
        need(
            bool(profile.original_payload) == bool(profile.original_payload_format),
            "original_payload and its format belong together",
        )
        return Profile(
            resource,
            scope,
            kind,
            unit,
            profile.time_unix_nano,
            profile.duration_nano,
            period,
            self.attributes(profile),
            self.samples(profile),
        )

    def resource(self, resource):
        found = self.pairs(resource.attributes, "a resource")
        for entity in resource.entity_refs:
            keys = [*entity.id_keys, *entity.description_keys]
            need(entity.type and entity.id_keys, "an entity has no type or no key")
            need(all(key in found for key in keys), "an entity has a key that its resource lacks")
        return found

    # --- tables as a whole

    def duplicates_check(self):
        for name, table in self.tables.items():
            seen = set()
            for index, entry in enumerate(table):
                if name != "str":
                    copy = type(entry)()
                    copy.CopyFrom(entry)
                    if "attribute_indices" in copy.DESCRIPTOR.fields_by_name:  # a set
                        copy.attribute_indices[:] = sorted(entry.attribute_indices)
                    entry = copy.SerializeToString(deterministic=True)
                need(entry not in seen, "%s[%d] is a duplicate", TABLES[name], index)
                seen.add(entry)

    def orphans_check(self):
        for name, table in self.tables.items():
            orphans = set(range(1, len(table))) - self.used[name]
            need(not orphans, "%s has orphans: %s", TABLES[name], sorted(orphans)[:4])


def decode(data):
    """The profiles of a request, in their order. Raises Invalid."""
    request = messages().Request()
    try:
        request.ParseFromString(data)
    except DecodeError as error:  # also of text that is not UTF-8
        raise Invalid("not a message: %s" % error) from error
    known_check(request)
    reader = Reader(request.dictionary)
    found = []
    for resource_profiles in request.resource_profiles:
        resource = reader.resource(resource_profiles.resource)
        for scope_profiles in resource_profiles.scope_profiles:
            scope = reader.pairs(scope_profiles.scope.attributes, "a scope")
            scope.update(name=scope_profiles.scope.name, version=scope_profiles.scope.version)
            found += [reader.profile(item, resource, scope) for item in scope_profiles.profiles]
    reader.duplicates_check()
    reader.orphans_check()
    return found


def read(path):
    with open(path, "rb") as file:
        return decode(file.read())
