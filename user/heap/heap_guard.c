/* SPDX-License-Identifier: Apache-2.0 */
#include "heap/heap_guard.h"

#include "process/pagemap.h"
#include "python/heap.h"
#include "python/heap_walker.h"

#define DATA_MAX (16u << 20)

static int process_read(void *context, uint64_t address, void *out, size_t bytes)
{
	return runtime_read(context, address, out, bytes);
}

/* The interpreter's own variables: its static types, by which objects are recognised. */
static void data_touch(const struct python_runtime *runtime)
{
	uint64_t address = 0, bytes = 0, word;

	runtime_data(runtime, &address, &bytes);
	if (bytes > DATA_MAX)
		return;
	for (uint64_t page = address & ~(uint64_t)(PAGEMAP_PAGE - 1); page < address + bytes;
	     page += PAGEMAP_PAGE)
		runtime_read_u64(runtime, page, &word);
}

/* Whatever cannot be read is left out. */
static void heads_touch(const struct python_runtime *runtime)
{
	struct heap_head heads[HEAP_INTERPRETERS];
	struct memory_reader source = {process_read, (void *)runtime};
	struct heap_walk walk = {0};
	struct heap_walker walker = {.source = &source,
				     .python = runtime->offsets,
				     .offsets = &runtime->offsets->heap,
				     .walk = &walk};
	struct heap_segments segments = {0};
	uint32_t count = 0;

	if (heap_heads(runtime, heads, &count))
		return;
	if (runtime->offsets->build == BUILD_FREE_THREADED) {
		heap_segments_find(&segments, &walker, heads, count);
		heap_segments_free(&segments);
		return;
	}
	for (uint32_t i = 0; i < count; i++)
		heap_arenas_touch(&walker, &heads[i]);
}

int heap_guard(struct python_runtime *runtime, struct swap_guard *guard)
{
	int err = swap_guard_open(guard, runtime->pid);

	if (err)
		return err;
	data_touch(runtime);
	heads_touch(runtime);
	runtime->guard = guard;
	return 0;
}
