# SPDX-License-Identifier: Apache-2.0
"""Makes many rows with a session after every 60 of them, then drops the rows: the sessions keep the
arenas."""
import signal


class Row:
    pass


class Session:
    pass


objects = [Row() if number % 60 else Session() for number in range(400000)]
objects = [thing for thing in objects if type(thing) is Session]
print("ready", flush=True)
signal.pause()
