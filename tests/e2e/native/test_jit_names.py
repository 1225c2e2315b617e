# SPDX-License-Identifier: Apache-2.0
"""Names of native frames whose code is compiled at run time."""
import re

import pytest
from harness import compiled, program, wait_until
from perfmaps import clean  # noqa: F401
from truth import tool

OPTIONS = "--interpreted-frames-native-stack"


@pytest.mark.parametrize("kind", ["--perf-basic-prof", "--perf-prof"])
@pytest.mark.long
def test_node(start, trace, tmp_path, kind):
    """Node begins to write its perf map, or its jitdump, after the trace has begun."""
    command = 'cd "$1"; echo ready; read -r line; exec %s %s %s "$0"' % (
        tool("node"),
        kind,
        OPTIONS,
    )
    target = start("/bin/sh", None, "-c", command, program("jit_buffers.js"), tmp_path)
    run = trace("-p", target.pid, "--layer", "native", "-n", 100)
    target.step()
    target.read_until("ready")
    wait_until(lambda: "(node)" in run.stderr, "node is traced")
    target.step()
    target.read_until("done")
    report = run.finish("--group-by", "traceback")
    assert report.lost_events == 0
    buffers = [s for s in report.statistics if s["size"] == 100000 * s["count"]]
    assert sum(s["count"] for s in buffers) == 20
    for statistic in buffers:
        names = [frame.get("function", "") for frame in statistic["traceback"]]
        ours = [name for name in names if re.match(r"JS:\W?descend .*/jit_buffers\.js:5:", name)]
        assert len(ours) == 4, names


def test_frameless(start, trace, tmp_path):
    """Stacks that end in such code are counted, with the reason, and have its name."""
    target = start(compiled(tmp_path / "frameless", "jit_frameless.c"), None)
    run = trace("-p", target.pid, "--layer", "native")
    target.step()
    target.read_until("done")
    report = run.finish("--group-by", "traceback")
    [statistic] = [s for s in report.statistics if s["size"] == 3000 * s["count"]]
    assert statistic["count"] == 10
    assert [frame["function"] for frame in statistic["traceback"]] == ["frameless"]
    stacks = report.data["stacks"]
    assert stacks["cut_bytes"] == 30000 and stacks["cut"] == 1, stacks
    assert stacks["reasons"] == {"no frame pointer": 1}, stacks
    assert stacks["files"] == {"[anon]": 1}, stacks
