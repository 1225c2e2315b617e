# SPDX-License-Identifier: Apache-2.0
"""Says who it is, then spins in one line with the GIL held: C.spin of "snow☃.py", line 6 or 7."""
import threading

SOURCE = """
class C:
    def spin(self, ident):
        import os
        os.write(1, b"%d\\n" % ident)
        while True:
            pass


C().spin(threading.get_ident())
"""
exec(compile(SOURCE, "snow\u2603.py", "exec"))
