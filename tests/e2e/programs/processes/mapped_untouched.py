"""Maps a file privately, to read and to write, and as shared memory, and memory without a file, and
touches none of it."""
import mmap
import sys

kept = []
with open(sys.argv[1], "r+b") as file:
    for flags in (mmap.MAP_PRIVATE, mmap.MAP_SHARED):
        for protection in (mmap.PROT_READ, mmap.PROT_READ | mmap.PROT_WRITE):
            kept.append(mmap.mmap(file.fileno(), 0, flags=flags, prot=protection))
kept.append(mmap.mmap(-1, 8 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))
print("ready", flush=True)
sys.stdin.read()
