# SPDX-License-Identifier: Apache-2.0
"""The first sleep of a situation's program lasts until the test has closed its stdin: until the
tracer has attached. All later ones are its own."""
import os
import time


def _attached(_seconds, sleep=time.sleep):
    time.sleep = sleep
    while os.read(0, 1):
        pass


time.sleep = _attached
