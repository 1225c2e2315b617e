# SPDX-License-Identifier: Apache-2.0
"""Runs with an allocator that replaces malloc, and prints what that counts itself, as replaced.c
does: gperftools' tcmalloc, or mimalloc."""
import ctypes
import json
import sys

PROPERTIES = (
    "generic.current_allocated_bytes",
    "generic.heap_size",
    "tcmalloc.pageheap_free_bytes",
    "tcmalloc.pageheap_unmapped_bytes",
    "tcmalloc.current_total_thread_cache_bytes",
    "tcmalloc.central_cache_free_bytes",
    "tcmalloc.transfer_cache_free_bytes",
)
library = ctypes.CDLL(None)
kept = [{n: [str(n)] * (n % 300)} for n in range(60000)]
del kept[::3]
large = [bytes(1000 + n * 7) for n in range(3000)]
del large[::2]


def tcmalloc_value(name):
    number = ctypes.c_size_t()
    assert library.MallocExtension_GetNumericProperty(name.encode(), ctypes.byref(number))
    return number.value


class Area(ctypes.Structure):
    _fields_ = [("blocks", ctypes.c_void_p)] + [
        (name, ctypes.c_size_t) for name in ("reserved", "committed", "used", "block_size")
    ]


VISIT = ctypes.CFUNCTYPE(
    ctypes.c_bool, *[ctypes.c_void_p, ctypes.POINTER(Area)], *[ctypes.c_void_p] * 3
)
sums = [0, 0]


def area_add(heap, area, block, size, argument):
    sums[0] += area[0].used * area[0].block_size
    sums[1] += area[0].used
    return True


def statistics():
    if hasattr(library, "MallocExtension_GetNumericProperty"):
        return {name: tcmalloc_value(name) for name in PROPERTIES}
    find = library.mi_heap_main if hasattr(library, "mi_heap_main") else library.mi_heap_get_default
    find.restype = ctypes.c_void_p
    sums[:] = [0, 0]
    heap = ctypes.c_void_p(find())
    assert library.mi_heap_visit_blocks(heap, False, VISIT(area_add), None)
    return {"used": sums[0], "used_count": sums[1]}


print("ready", flush=True)
for line in sys.stdin:
    if line == "purge\n":
        library.MallocExtension_ReleaseFreeMemory()
    for _ in range(3):  # what printing itself has is there from the first time on
        text = json.dumps(statistics())
    print(text, flush=True)
