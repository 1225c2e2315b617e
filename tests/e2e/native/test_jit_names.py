# SPDX-License-Identifier: Apache-2.0
"""Names of native frames whose code is compiled at run time."""
import re

from harness import program, wait_until
from perfmaps import clean  # noqa: F401
from truth import tool

OPTIONS = "--perf-basic-prof --interpreted-frames-native-stack"


def test_node(start, trace, tmp_path):
    """Node begins to write its perf map after the trace has begun."""
    command = 'cd "$1"; echo ready; read -r line; exec %s %s "$0"' % (tool("node"), OPTIONS)
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
