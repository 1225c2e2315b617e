# SPDX-License-Identifier: Apache-2.0
"""many.py PROGRAM FOLDER COUNT: for each line on stdin COUNT copies of the program run, each a file of
its own that is removed again, eight at a time."""
import os
import shutil
import subprocess
import sys

path, folder, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
print("ready", flush=True)
for _ in sys.stdin:
    for _ in range(count // 8):
        names = [os.path.join(folder, "copy-%d" % i) for i in range(8)]
        for name in names:
            shutil.copy(path, name)
        for running in [subprocess.Popen([name]) for name in names]:
            running.wait()
        for name in names:
            os.unlink(name)
    print("done", flush=True)
