# SPDX-License-Identifier: Apache-2.0
"""OTLP profiles of recorded and hostile snapshots, read by tests/otlp.py; and that this reader
rejects each mistake."""
import json
import os

import pytest

import otlp
from hostile import made
from protobuf import field, varint

GOLDEN = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "golden")
TYPES = {
    "inuse_space": ("bytes", "size"),
    "inuse_objects": ("count", "count"),
    "alloc_space": ("bytes", "allocated_size"),
    "alloc_objects": ("count", "allocated_count"),
}


# --- the reader -----------------------------------------------------------------------------------


def small():
    """A correct request with something in each table."""
    pb = otlp.messages()
    request = pb.Request()
    tables = request.dictionary
    tables.string_table.extend(
        ["", "space", "bytes", "f", "a.py", "kind", "key", "/lib/c.so", "thing"]
    )
    tables.mapping_table.add()
    tables.mapping_table.add(memory_start=16, memory_limit=32, filename_strindex=7)
    tables.function_table.add()
    tables.function_table.add(name_strindex=3, filename_strindex=4)
    tables.attribute_table.add()
    for key, text in ((5, "x"), (6, "y"), (5, "z")):
        tables.attribute_table.add(key_strindex=key).value.string_value = text
    tables.attribute_table.add(key_strindex=8, unit_strindex=2).value.string_value_strindex = 3
    tables.link_table.add(trace_id=bytes(16), span_id=bytes(8))
    tables.link_table.add(trace_id=b"t" * 16, span_id=b"s" * 8)
    tables.location_table.add()
    for number, index in ((1, 1), (2, 3)):
        location = tables.location_table.add(mapping_index=1, address=20)
        location.lines.add(function_index=1, line=number)
        location.attribute_indices.append(index)
    tables.stack_table.add()
    tables.stack_table.add(location_indices=[1, 2])
    tables.stack_table.add(location_indices=[2])
    resource_profiles = request.resource_profiles.add()
    resource_profiles.resource.attributes.add(key="service.name").value.string_value = "shop"
    scope = resource_profiles.scope_profiles.add()
    scope.scope.name = "scope"
    profile = scope.profiles.add(time_unix_nano=1000, duration_nano=10, attribute_indices=[4])
    profile.sample_type.type_strindex = 1
    profile.sample_type.unit_strindex = 2
    profile.samples.add(stack_index=1, attribute_indices=[1, 2], link_index=1, values=[5])
    profile.samples.add(stack_index=2, values=[7])
    return request


def test_correct():
    """What is correct is read, with all that it says."""
    (profile,) = otlp.decode(small().SerializeToString())
    frames = [otlp.Frame("a.py", line, "f", None, "/lib/c.so") for line in (1, 2)]
    assert profile.samples == [(tuple(frames), 5), (tuple(frames[1:]), 7)]
    assert (profile.type, profile.unit, profile.resource) == (
        "space",
        "bytes",
        {"service.name": "shop"},
    )
    assert profile.attributes == {"thing": "f"} and profile.scope["name"] == "scope"
    request = small()
    profile = request.resource_profiles[0].scope_profiles[0].profiles[0]
    for sample in profile.samples:  # another shape: a value for each time
        sample.values[:] = [1, 2]
        sample.timestamps_unix_nano[:] = [1000, 1009]
    assert otlp.decode(request.SerializeToString())[0].total() == 6


TABLES = ("mapping", "location", "function", "link", "string", "attribute", "stack")
INDICES = {
    "sample.stack": lambda d, p: setattr(p.samples[0], "stack_index", 3),
    "sample.negative": lambda d, p: setattr(p.samples[0], "stack_index", -1),
    "sample.attribute": lambda d, p: p.samples[0].attribute_indices.append(9),
    "sample.link": lambda d, p: setattr(p.samples[0], "link_index", 2),
    "profile.attribute": lambda d, p: p.attribute_indices.append(9),
    "profile.type": lambda d, p: setattr(p.sample_type, "type_strindex", 99),
    "profile.unit": lambda d, p: setattr(p.sample_type, "unit_strindex", 99),
    "profile.period": lambda d, p: setattr(p.period_type, "type_strindex", 99),
    "stack.location": lambda d, p: d.stack_table[1].location_indices.append(9),
    "location.mapping": lambda d, p: setattr(d.location_table[1], "mapping_index", 9),
    "location.attribute": lambda d, p: d.location_table[1].attribute_indices.append(9),
    "location.function": lambda d, p: setattr(d.location_table[1].lines[0], "function_index", 9),
    "mapping.file": lambda d, p: setattr(d.mapping_table[1], "filename_strindex", 99),
    "mapping.attribute": lambda d, p: d.mapping_table[1].attribute_indices.append(9),
    "function.name": lambda d, p: setattr(d.function_table[1], "name_strindex", 99),
    "function.system": lambda d, p: setattr(d.function_table[1], "system_name_strindex", 99),
    "function.file": lambda d, p: setattr(d.function_table[1], "filename_strindex", 99),
    "attribute.key": lambda d, p: setattr(d.attribute_table[1], "key_strindex", 99),
    "attribute.unit": lambda d, p: setattr(d.attribute_table[1], "unit_strindex", 99),
    "attribute.value": lambda d, p: setattr(
        d.attribute_table[1].value, "string_value_strindex", 99
    ),
}
OTHERS = {
    "same attribute of a sample": (
        "twice",
        lambda r, d, p: p.samples[0].attribute_indices.append(3),
    ),
    "same attribute of a profile": ("twice", lambda r, d, p: p.attribute_indices.append(4)),
    "same attribute of a location": (
        "twice",
        lambda r, d, p: d.location_table[1].attribute_indices.append(3),
    ),
    "same attribute of a mapping": (
        "twice",
        lambda r, d, p: d.mapping_table[1].attribute_indices.extend([1, 3]),
    ),
    "same attribute of a resource": (
        "twice",
        lambda r, d, p: r.resource_profiles[0].resource.attributes.add(key="service.name"),
    ),
    "same attribute of a scope": (
        "twice",
        lambda r, d, p: [
            r.resource_profiles[0].scope_profiles[0].scope.attributes.add(key="a") for _ in "12"
        ],
    ),
    "no key": ("no key", lambda r, d, p: r.resource_profiles[0].resource.attributes.add()),
    "two keys": (
        "two keys",
        lambda r, d, p: setattr(r.resource_profiles[0].resource.attributes[0], "key_strindex", 5),
    ),
    "attribute 0": ("attribute 0", lambda r, d, p: p.attribute_indices.append(0)),
    "location 0": ("location 0", lambda r, d, p: d.stack_table[1].location_indices.append(0)),
    "no value": ("neither", lambda r, d, p: p.samples[0].ClearField("values")),
    "two values": ("2 values", lambda r, d, p: p.samples[0].values.append(1)),
    "more times than values": (
        "2 timestamps",
        lambda r, d, p: p.samples[0].timestamps_unix_nano.extend([1000, 1001]),
    ),
    "two shapes": (
        "several shapes",
        lambda r, d, p: p.samples[0].timestamps_unix_nano.append(1000),
    ),
    "same sample": (
        "are the same",
        lambda r, d, p: p.samples.add(
            stack_index=1, attribute_indices=[2, 1], link_index=1, values=[1]
        ),
    ),
    "too early": ("outside", lambda r, d, p: p.samples[0].timestamps_unix_nano.append(999)),
    "too late": ("outside", lambda r, d, p: p.samples[0].timestamps_unix_nano.append(1010)),
    "end of time": ("ends at", lambda r, d, p: setattr(p, "time_unix_nano", (1 << 63) - 10)),
    "long": ("ends at", lambda r, d, p: setattr(p, "duration_nano", (1 << 64) - 1)),
    "no type": ("sample_type", lambda r, d, p: p.ClearField("sample_type")),
    "no unit": ("no unit", lambda r, d, p: setattr(p.sample_type, "unit_strindex", 0)),
    "period": ("period", lambda r, d, p: setattr(p, "period", 4)),
    "short id": ("profile_id", lambda r, d, p: setattr(p, "profile_id", b"1")),
    "zero id": ("profile_id", lambda r, d, p: setattr(p, "profile_id", bytes(16))),
    "payload": ("original_payload", lambda r, d, p: setattr(p, "original_payload", b"1")),
    "function without a name": (
        "no name",
        lambda r, d, p: d.function_table[1].CopyFrom(otlp.messages().Function(start_line=1)),
    ),
    "address": ("its mapping", lambda r, d, p: setattr(d.location_table[1], "address", 33)),
    "mapping": ("before it begins", lambda r, d, p: setattr(d.mapping_table[1], "memory_limit", 1)),
    "line": ("negative", lambda r, d, p: setattr(d.location_table[1].lines[0], "line", -1)),
    "link": ("no trace", lambda r, d, p: setattr(d.link_table[1], "span_id", b"1")),
    "entity": (
        "its resource lacks",
        lambda r, d, p: r.resource_profiles[0].resource.entity_refs.add(type="a", id_keys=["b"]),
    ),
}


def rejected(request, reason):
    data = request if isinstance(request, bytes) else request.SerializeToString()
    with pytest.raises(otlp.Invalid, match=reason):
        otlp.decode(data)


@pytest.mark.parametrize("name", INDICES)
def test_dangling_index(name):
    request = small()
    INDICES[name](request.dictionary, request.resource_profiles[0].scope_profiles[0].profiles[0])
    rejected(request, "index -?[0-9]+ is not in")


@pytest.mark.parametrize("name", OTHERS)
def test_mistake(name):
    reason, change = OTHERS[name]
    request = small()
    change(request, request.dictionary, request.resource_profiles[0].scope_profiles[0].profiles[0])
    rejected(request, reason)


@pytest.mark.parametrize("name", TABLES)
def test_tables(name):
    """Entry 0 is there and zero; no entry is a duplicate or an orphan."""
    table = name + "_table"
    for count, reason in ((0, "is empty"), (1, "not the zero value")):
        request = small()
        entries = list(getattr(request.dictionary, table))
        del getattr(request.dictionary, table)[:]
        getattr(request.dictionary, table).extend(entries[1:] * count)
        rejected(request, table + ".* " + reason)
    request = small()
    entries = getattr(request.dictionary, table)
    entries.append(entries[-1])
    rejected(request, r"%s\[\d+\] is a duplicate" % table)
    orphans = {
        "mapping": {"file_offset": 9},
        "location": {"address": 9},
        "function": {"start_line": 9, "name_strindex": 3},
        "link": {"trace_id": b"o" * 16, "span_id": b"o" * 8},
        "attribute": {"key_strindex": 1},
        "stack": {"location_indices": [1]},
    }
    request = small()
    if name == "string":
        request.dictionary.string_table.append("orphan")
    else:
        getattr(request.dictionary, table).add(**orphans[name])
    rejected(request, table + " has orphans")


def test_duplicate_by_set():
    """Attributes are a set: their order makes no other mapping."""
    request = small()
    for indices in ([1, 2], [2, 1]):
        request.dictionary.mapping_table.add(memory_limit=1).attribute_indices.extend(indices)
    rejected(request, "mapping_table.3. is a duplicate")


def test_unknown_fields():
    """At any depth, and by any type on the wire; a field of another type is unknown, too."""
    data = small().SerializeToString()
    rejected(data + field(3, 1), r"Request has unknown fields \[3\]")
    rejected(data + field(2, field(8, b"")), r"Dictionary has unknown fields \[8\]")
    rejected(data + field(2, field(6, field(2, field(9, 1)))), "AnyValue has unknown fields")
    rejected(data + field(2, field(2, field(3, field(4, 1)))), "Line has unknown fields")
    sample = field(2, field(2, field(6, b"")))
    rejected(data + field(1, field(2, field(2, sample[2:]))), "unknown fields")
    rejected(data + varint(9 << 3 | 5) + bytes(4), r"unknown fields \[9\]")
    rejected(data + field(1, 1), r"unknown fields \[1\]")


def test_no_message():
    data = small().SerializeToString()
    for bad in (data[:-1], b"\xff", data + field(2, field(5, b"caf\xe9"))):
        rejected(bad, "not a message")
    surrogate = field(2, field(5, b"\xed\xa0\x80"))
    rejected(data + surrogate, "not a message")


# --- what tracer writes ---------------------------------------------------------------------------


def exported(tracer, tmp_path, snapshot, *options):
    out = tmp_path / "out.otlp"
    tracer("export", snapshot, "--format", "otlp", "-o", out, "--force", *options)
    return otlp.read(out)


def reported(tracer, snapshot, key, *options):
    """The sums of a report by line, without what has none."""
    report = json.loads(
        tracer("report", snapshot, "--format", "json", "--top", "0", *options).stdout
    )
    found = {}
    for entry in report["statistics"]:
        (frame,) = entry["traceback"]
        found[frame["filename"], frame["lineno"]] = entry[key]
    return {line: value for line, value in found.items() if value}


@pytest.mark.parametrize("name", [n for n in sorted(os.listdir(GOLDEN)) if n.endswith(".cap")])
def test_golden(name, tracer, tmp_path):
    """The sums by line of each type are those of the report."""
    snapshot = tmp_path / "snapshot.pb.gz"
    tracer("replay", os.path.join(GOLDEN, name), "-o", snapshot)
    profiles = exported(tracer, tmp_path, snapshot)
    assert [profile.type for profile in profiles] == list(TYPES)
    for profile in profiles:
        unit, key = TYPES[profile.type]
        sort = ("--sort", "allocated") if key.startswith("allocated") else ()
        assert profile.unit == unit
        assert profile.lines() == reported(tracer, snapshot, key, *sort), profile.type
        assert all(value > 0 for _, value in profile.samples)
        assert {frame.kind for stack, _ in profile.samples for frame in stack} == {"cpython"}
        resource = profile.resource
        assert resource["process.runtime.name"] == "cpython"
        assert name.split("-")[1] == ".".join(resource["process.runtime.version"].split(".")[:2])
        program = resource["process.executable.name"]
        assert resource["service.name"] == "unknown_service:" + program
        assert resource["process.pid"] > 0
        assert (profile.scope["name"], profile.scope["tracer.layer"]) == ("tracer", "python")


def test_of_tracemalloc(tracer, snapshots, tmp_path):
    """Snapshots that Python has taken; tracebacks are whole, most recent frame first."""
    name = next(name for name in sorted(snapshots) if "-25-" in name)
    profiles = exported(tracer, tmp_path, snapshots[name])
    assert [profile.type for profile in profiles] == ["inuse_space", "inuse_objects"]
    report = json.loads(
        tracer(
            *("report", snapshots[name], "--format", "json", "--top", "0"),
            *("--group-by", "traceback"),
        ).stdout
    )
    stacks = {}
    for entry in report["statistics"]:
        frames = tuple((frame["filename"], frame["lineno"]) for frame in entry["traceback"])
        stacks[frames] = stacks.get(frames, 0) + entry["size"]
    found = {tuple((f.file, f.line) for f in s): value for s, value in profiles[0].samples}
    assert found == {tuple(stack): size for stack, size in stacks.items() if size}


def test_hostile_names(tracer, tmp_path):
    """Names of any length and any bytes are valid UTF-8, and stay different."""
    names = ["a" * 10240, "\udcff" * 10240, "\ud800", "caf\udce9", "\\xe9", "caf\\xe9"]
    names += ["".join(map(chr, range(1, 32))), "\x7f\x80\x9b\u202e\ufeff", "\U0001f40d", ""]
    names += ["count", "bytes", "inuse_space", "tracer.mode", "profile.frame.type", "/lib/c.so"]
    snapshot = tmp_path / "hostile.pickle"
    traces = [(0, 8 << i, ((name, i), (name, 0)), 2) for i, name in enumerate(names)]
    snapshot.write_bytes(made(traces, 2))
    profile = exported(tracer, tmp_path, snapshot)[0]
    assert sorted(value for _, value in profile.samples) == [8 << i for i in range(len(names))]
    files = {stack[0].line: stack[0].file for stack, _ in profile.samples}
    assert files[0] == names[0] and len(set(files.values())) == len(names)
    assert files[3] == "caf\\xe9" and files[5] == "caf\\\\xe9"


def test_combined(tracer, tmp_path):
    """Blocks with the same stack are one sample: of other sizes and domains, and where only the depth
    of the whole stack differs. A sample without bytes is in the profile of objects alone."""
    snapshot = tmp_path / "same.pickle"
    stack = (("a.py", 1), ("b.py", 2))
    traces = [(0, 8, stack, 2), (0, 24, stack, 2), (5, 8, stack, 2), (0, 8, stack, 9)]
    snapshot.write_bytes(made([*traces, (0, 0, (("c.py", 3),), 1)], 2))
    space, objects = exported(tracer, tmp_path, snapshot)
    assert [value for _, value in space.samples] == [48]
    assert sorted(value for _, value in objects.samples) == [1, 4]


def test_large(tracer, tmp_path):
    """100,000 lines, each with a stack of its own."""
    count = 100_000
    snapshot, out = tmp_path / "large.pickle", tmp_path / "out.otlp"
    snapshot.write_bytes(
        made(
            [
                (0, 1 + i % 100, (("file%d.py" % (i % 1000), i), ("main.py", 1)), 2)
                for i in range(count)
            ],
            2,
        )
    )
    tracer("export", snapshot, "--format", "otlp", "-o", out)
    assert out.stat().st_size < 80 * count
    profile = otlp.read(out)[0]
    assert len(profile.samples) == count == len(profile.lines())
    assert profile.total() == sum(1 + i % 100 for i in range(count))


def test_files(tracer, tmp_path):
    """A file of this kind is replaced unasked; one that only begins as it does is not."""
    snapshot, out = tmp_path / "snapshot.pickle", tmp_path / "out"
    snapshot.write_bytes(made([(0, 1, (("a", 1),), 1)]))
    words = ("export", snapshot, "--format", "otlp", "-o", out)
    tracer(*words)
    tracer(*words)
    out.write_bytes(b"\nmy notes on tracer\n")
    assert tracer(*words, ok=False).returncode == 1
    data = tracer(*words[:-1], "-").stdout
    assert otlp.decode(data)[0].total() == 1
