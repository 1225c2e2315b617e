# SPDX-License-Identifier: Apache-2.0
"""Files of tracemalloc for the fuzzer to start from: every protocol, small, into the folder that is
named."""
import os
import pickle
import sys
import tracemalloc

tracemalloc.start(3)
kept = [bytearray(size) for size in (1, 300, 70000)]
snapshot = tracemalloc.take_snapshot().filter_traces([tracemalloc.Filter(True, __file__)])
other = tracemalloc.Snapshot([(1 << 20, 1 << 40, (("\udcff", 0), ("\u00e9", 2)), 9)] * 3, 2)
for protocol in range(2, 6):
    for name, what in ("traced", snapshot), ("made", other):
        with open(os.path.join(sys.argv[1], "%s-%d.pickle" % (name, protocol)), "wb") as file:
            pickle.dump(what, file, protocol)
