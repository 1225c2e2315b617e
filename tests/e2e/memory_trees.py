# SPDX-License-Identifier: Apache-2.0
"""The tree of `tracer memory --format json`, and what it says of an allocator."""
import json
import re


def read(run_tracer, pid, *arguments):
    """The tree, with the Rss that the kernel counts before and after the reading: a read maps pages
    of files that the process had not mapped yet, or that the kernel has since taken back."""
    before = rollup(pid)
    done = run_tracer("memory", "-p", pid, "--format", "json", *arguments)
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout), counted=sorted((before, rollup(pid))))


def rollup(pid):
    with open("/proc/%d/smaps_rollup" % pid) as file:
        return int(re.search(r"^Rss: +(\d+) kB", file.read(), re.M)[1]) * 1024


def check_sums(node):
    """Every node's children add up to it."""
    if node["children"]:
        assert sum(child["size"] for child in node["children"]) == node["size"], node["name"]
    for child in node["children"]:
        check_sums(child)


def find(tree, *path):
    """The node at a path of names below the root; figures of 0 if there is none."""
    for name in path:
        tree = next((c for c in tree["children"] if c["name"] == name), None)
        if tree is None:
            return {"size": 0, "virtual": 0, "count": 0, "children": []}
    return dict({"virtual": 0, "count": 0}, **tree)


def allocator(tree, name):
    """What the report says of an allocator that replaces malloc."""
    found = [item for item in tree.get("allocators", []) if item["name"] == name]
    assert len(found) == 1, (tree.get("allocators_refused"), [c["name"] for c in tree["children"]])
    return found[0]


def check_allocator(tree, heap, elsewhere=0):
    """Its part of the tree, and its sizes, are what its totals say. elsewhere: so many bytes at most
    are in another part of the tree: files' data that it took for blocks."""
    kinds = {
        ("in use",): "used",
        ("free", "in caches"): "cached",
        ("free", "in pages with blocks in use"): "free",
        ("free", "free pages"): "dirty",
        ("free", "pages returned to the kernel"): "retained",
        ("its structures",): "metadata",
        ("could not be read",): "unread",
    }
    check_sums(tree)
    for path, key in kinds.items():
        part = find(tree, heap["name"], *path)["virtual"]
        assert part <= heap[key] <= part + elsewhere, (path, key)
    for size in heap["sizes"]:
        blocks = size["used"] + size["cached"] + size["free"]
        assert blocks * size["size"] <= size["slab_bytes"], size


# --- programs that live on an allocator, and print what that counts itself -----------------------


def ask(target, command="tell"):
    target.process.stdin.write(command.encode() + b"\n")
    target.process.stdin.flush()
    return json.loads(target.read_line())


def readings_under_load(target, run_tracer, name):
    """(whether it was stopped, what is read of an allocator, the program's own figures) of a program
    whose threads allocate, free and purge all the time."""
    ask(target, "load")
    for freeze in ((), ("--freeze",), ()):
        for _ in range(4):
            target.process.stdin.write(b"purge\n")
        target.process.stdin.flush()
        tree = read(run_tracer, target.pid, *freeze)
        own = [json.loads(target.read_line()) for _ in range(4)]
        heap = allocator(tree, name)
        check_allocator(tree, heap)
        yield bool(freeze), heap, own[-1]
    assert target.process.poll() is None


def python_reading(target, run_tracer, name):
    """(the program's own figures, what is read of an allocator); its large blocks of Python's objects
    are found."""
    own = ask(target)
    target.wait_reading()
    tree = read(run_tracer, target.pid)
    heap = allocator(tree, name)
    check_allocator(tree, heap)
    objects = find(tree, name, "in use", "large blocks of Python objects")
    assert objects["count"] >= 1500 and objects["size"] > 0.5 * 1500 * 11000
    return own, heap
