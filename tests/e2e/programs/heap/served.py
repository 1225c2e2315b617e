# SPDX-License-Identifier: Apache-2.0
"""Objects for tracer serve: many of one class (argv 1), names that would be markup, a text that is
a secret, duplicates, and a cycle with a weak reference."""
import sys
import weakref

NAME = "</script><script>document.title='hacked'</script><img src=x onerror=alert(1)>\u202e"


class Node:
    def __init__(self, number):
        self.number = number
        self.payload = bytes(40)
        self.next = None


Hostile = type(NAME, (), {})
cache = {number: Node(number) for number in range(int(sys.argv[1]))}
kept = {NAME: [Hostile() for _ in range(10)]}
secret = "the secret of %s" % sys.argv[1]
twice = ["a text that is there %d times" % len(sys.argv) for _ in range(50)]
ring = Node(-1)
ring.next = ring
weak = weakref.ref(ring)
print("ready", flush=True)
sys.stdin.readline()
