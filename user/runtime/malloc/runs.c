/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/malloc/runs.h"

#include <string.h>

#include "util/sorted.h"

#define ADDRESS_END (1ull << 47)

int runs_end(struct runs *runs)
{
	struct allocator_run run = runs->last;

	runs->last.count = 0;
	return run.count ? runs->visit(&run, runs->context) : 0;
}

int runs_put(struct runs *runs, uint64_t address, uint64_t block_bytes, uint64_t count,
	     enum allocator_kind kind)
{
	struct allocator_run *last = &runs->last;

	if (!count || !block_bytes)
		return 0;
	if (address < runs->end || address >= ADDRESS_END ||
	    block_bytes > (ADDRESS_END - address) / count) {
		runs->totals->cut++;
		return 0;
	}
	runs->end = address + block_bytes * count;
	if (last->count && last->kind == kind && last->block_bytes == block_bytes &&
	    last->address + last->block_bytes * last->count == address) {
		last->count += count;
		return 0;
	}
	int stop = runs_end(runs);
	*last = (struct allocator_run){address, block_bytes, count, kind};
	return stop;
}

int runs_put_blocks(struct runs *runs, uint64_t address, uint64_t block_bytes,
		    const uint8_t *states, uint64_t count, struct allocator_class *class)
{
	int stop = 0;

	for (uint64_t i = 0, first; i < count && !stop;) {
		enum allocator_kind kind = (enum allocator_kind)states[i];

		for (first = i; i < count && states[i] == kind; i++)
			;
		if (class)
			*(kind == ALLOCATOR_USED     ? &class->used
			  : kind == ALLOCATOR_CACHED ? &class->cached
						     : &class->free) += i - first;
		stop = runs_put(runs, address + first * block_bytes, block_bytes, i - first, kind);
	}
	return stop;
}

struct allocator_class *runs_class(struct allocator_totals *totals, uint64_t block_bytes)
{
	struct allocator_class *classes = totals->classes;
	size_t at = SORTED_ABOVE(classes, totals->class_count, block_bytes, block_bytes);

	if (at && classes[at - 1].block_bytes == block_bytes)
		return &classes[at - 1];
	if (totals->class_count == ALLOCATOR_CLASSES)
		return NULL;
	memmove(&classes[at + 1], &classes[at], (totals->class_count - at) * sizeof(*classes));
	totals->class_count++;
	classes[at] = (struct allocator_class){.block_bytes = block_bytes};
	return &classes[at];
}
