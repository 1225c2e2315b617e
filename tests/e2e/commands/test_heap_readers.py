# SPDX-License-Identifier: Apache-2.0
"""Chrome's heap snapshots of tracer heap, in programs that others use to read them: retained sizes
of all containers are held against ours."""
import collections
import json
import os
import shutil
import subprocess
import sys

import pytest

from harness import ROOT, marked_line, program

sys.path.append(os.path.join(ROOT, "tests", "oracle"))
from browser import Browser  # noqa: E402

COUNT = 500
PIECE = 1 << 20  # characters sent to the browser at once
DEVTOOLS = "devtools://devtools/bundled/"
WORKER = DEVTOOLS + "entrypoints/heap_snapshot_worker/heap_snapshot_worker.js"
CONTAINERS = ("dict", "list", "tuple", "set", "frozenset")

# The Memory panel's own reader: what it does with a file that is loaded into it.
LOAD = """(async () => {
	const worker = await import('%s');
	const loader = new worker.HeapSnapshotLoader.HeapSnapshotLoader({sendEvent() {}});
	for (const piece of window.pieces) loader.write(piece);
	loader.close();
	await loader.parsingComplete;
	const channel = new MessageChannel();
	new worker.HeapSnapshot.SecondaryInitManager(channel.port2);
	const snapshot = await loader.buildSnapshot(channel.port1);
""" % WORKER
READ = LOAD + """
	const rows = [];
	for (let i = 0; i < snapshot.nodeCount; i++) {
		const node = snapshot.createNode(i * snapshot.nodeFieldCount);
		rows.push([node.id(), node.name(), node.selfSize(), node.retainedSize()]);
	}
	return JSON.stringify(rows);
})()"""
# What the panel shows as the "Allocation stack" of each object, and its "Allocation" view.
STACKS = LOAD + """
	const rows = [];
	for (let i = 0; i < snapshot.nodeCount; i++) {
		const node = snapshot.createNode(i * snapshot.nodeFieldCount);
		const stack = snapshot.allocationStack(node.nodeIndex);
		if (stack)
			rows.push([node.id(), node.name(), stack.map(
				frame => [frame.functionName, frame.scriptName, frame.line])]);
	}
	const tops = snapshot.allocationTracesTops().map(
		top => [top.name, top.scriptName, top.line, top.liveCount, top.liveSize]);
	return JSON.stringify({rows, tops});
})()"""

MEMLAB = """
require('@memlab/heap-analysis').getFullHeapFromFile(process.argv[2]).then(heap => {
	const rows = [];
	heap.nodes.forEach(node => rows.push([node.id, node.name, node.self_size, node.retainedSize]));
	require('fs').writeFileSync(process.argv[3], JSON.stringify(rows));
});
"""


@pytest.fixture
def dumped(start, run_tracer, any_python, tmp_path):
    """(path of a heap snapshot, what tracer says of each container)"""
    target = start(any_python, "graph_builtins.py", COUNT)
    target.wait_reading()
    dump, path = str(tmp_path / "heap.dump"), str(tmp_path / "heap.heapsnapshot")
    done = run_tracer("heap", "--by", "root", "-o", dump, "-p", target.pid)
    assert done.returncode == 0, done.stderr
    target.kill()
    with open(path, "w") as file:
        file.write(run_tracer("heap", "--format", "heapsnapshot", dump).stdout)
    done = run_tracer("heap", "--by", "container", "--top", 0, "--format", "json", dump)
    return path, json.loads(done.stdout)["statistics"]


def check(rows, containers):
    """rows: [id, name, size, retained size] of each node."""
    compared = 0
    for kind in CONTAINERS:
        ours = [c for c in containers if c["type"] == kind]
        theirs = collections.Counter(tuple(row[2:]) for row in rows if row[1] == kind)
        assert sum(c["count"] for c in ours) == sum(theirs.values()), kind
        assert sum(c["size"] for c in ours) == sum(
            size * count for (size, _), count in theirs.items()
        )
        # Those that no module leads to are a row for each kind of path.
        single = collections.Counter(
            (c["size"], c["retained_size"]) for c in ours if c["count"] == 1
        )
        assert not single - theirs, (kind, single - theirs)
        compared += sum(single.values())
    assert compared > 10000


def devtools_run(path, expression):
    """What the Memory panel's reader says of a file."""
    if not shutil.which("chromium"):
        pytest.skip("chromium is not installed")
    with open(path) as file:
        text = file.read()
    with Browser() as browser:
        browser.session = None
        page = browser.call("Target.createTarget", url=DEVTOOLS + "devtools_app.html")["targetId"]
        browser.session = browser.call("Target.attachToTarget", targetId=page, flatten=True)[
            "sessionId"
        ]
        browser.run("window.pieces = []; 0")
        for at in range(0, len(text), PIECE):
            browser.run("window.pieces.push(%s)" % json.dumps(text[at : at + PIECE]))
        answer = browser.call(
            "Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True
        )
    assert "exceptionDetails" not in answer, answer
    return json.loads(answer["result"]["value"])


def test_chromium(dumped):
    path, containers = dumped
    check(devtools_run(path, READ), containers)


def test_chromium_stacks(start, trace, run_tracer, any_python, tmp_path):
    """Objects of a traced process have the stack that allocated them."""
    target = start(any_python, "held_lines.py")
    run = trace("-p", target.pid, "--mode", "exact")
    target.step()
    target.read_line()
    target.wait_reading()
    blocks, dump = str(tmp_path / "blocks"), str(tmp_path / "heap.dump")
    by_line = ("heap", "--by", "line", "--trace", blocks)
    done = run_tracer("ctl", target.pid, "blocks", blocks)
    assert done.returncode == 0, done.stderr
    done = run_tracer(*by_line, "--top", 0, "--format", "json", "-o", dump, "-p", target.pid)
    lines = {s["line"]: s for s in json.loads(done.stdout)["statistics"] if s["line"]}
    path = str(tmp_path / "heap.heapsnapshot")
    with open(path, "w") as file:
        file.write(run_tracer(*by_line, "--format", "heapsnapshot", dump).stdout)
    run.finish()
    assert target.finish() == 0
    read = devtools_run(path, STACKS)
    counts = {}
    for _, _, stack in read["rows"]:
        line = "%s:%d" % tuple(stack[0][1:])
        counts[line] = counts.get(line, 0) + 1
    assert counts == {line: s["count"] for line, s in lines.items()}
    name = program("held_lines.py")
    big = [row for row in read["rows"] if row[2][0][1:] == [name, marked_line(name, "BIG")]]
    assert len(big) >= 1000
    # The whole stack, down to the module.
    functions = {tuple(frame[0] for frame in stack) for _, _, stack in big}
    assert functions == {("fill", "<module>", "(root)")}
    assert all(frame[1] == name for frame in big[0][2][:-1])
    tops = {"%s:%d" % (top[1], top[2]): top for top in read["tops"]}
    ours = lines["%s:%d" % (name, marked_line(name, "BIG"))]
    assert tuple(tops["%s:%d" % (name, marked_line(name, "BIG"))][3:]) == (
        ours["count"],
        ours["size"],
    )


def test_memlab(dumped, tmp_path):
    modules = os.environ.get("MEMLAB", os.path.join(ROOT, "build", "memlab", "node_modules"))
    if not os.path.exists(os.path.join(modules, "@memlab", "heap-analysis")):
        pytest.skip("MemLab is not installed (make heaps installs it)")
    path, containers = dumped
    script, out = tmp_path / "memlab.js", tmp_path / "rows.json"
    script.write_text(MEMLAB)
    subprocess.run(
        ["node", str(script), path, str(out)],
        env={**os.environ, "NODE_PATH": modules, "HOME": str(tmp_path)},
        stdout=subprocess.DEVNULL,
        check=True,
        timeout=300,
    )
    check(json.loads(out.read_text()), containers)
