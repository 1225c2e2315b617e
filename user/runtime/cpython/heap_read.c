/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/cpython/heap.h"

#include <errno.h>
#include <time.h>

#include "abi/events.h"
#include "proc/memory.h"
#include "proc/process.h"
#include "runtime/cpython/heap_place.h"
#include "runtime/cpython/heap_walker.h"
#include "util/clock.h"
#include "util/error.h"

#define MAX_POOL_BYTES   16384u
#define WALK_LEAST_BYTES (256ull << 20)

static struct heap_walker walker_of(const struct memory_reader *source,
				    const struct python_offsets *offsets, heap_pool_fn visit,
				    void *context, struct heap_walk *walk)
{
	return (struct heap_walker){.source = source,
				    .python = offsets,
				    .offsets = &offsets->heap,
				    .visit = visit,
				    .context = context,
				    .walk = walk,
				    .left = UINT64_MAX};
}

/* Which allocator the heads are of depends on the build. */
static int heads_read(struct heap_walker *walker, const struct python_runtime *runtime,
		      const struct heap_head *heads, uint32_t count)
{
	int err = walker->python->build == BUILD_FREE_THREADED
			  ? heap_segments_read(walker, heads, count)
			  : heap_arenas_read(walker, runtime, heads, count);

	if (walker->given_up == -ENOTSUP)
		return error_set(-ENOTSUP,
				 "its heap claims more memory than the process has: the walk of it "
				 "was given up");
	if (walker->given_up)
		return error_set(walker->given_up, "the walk of it was ended by a signal");
	return err;
}

/*
 * How much a walk may read: a pool is read at most four times. What the kernel counts is not exact,
 * and the heap grows meanwhile.
 */
static uint64_t walk_limit(pid_t pid)
{
	uint64_t bytes;

	if (pid <= 0 || process_own_bytes_read(pid, &bytes))
		return UINT64_MAX;
	return 6 * bytes + WALK_LEAST_BYTES;
}

int heap_walk_source(const struct memory_reader *source, const struct python_offsets *offsets,
		     const struct heap_head *heads, uint32_t count, heap_pool_fn visit,
		     void *context, struct heap_walk *out)
{
	struct heap_walk walk = {0};
	struct heap_walker walker = walker_of(source, offsets, visit, context, &walk);
	uint64_t began = clock_ns(CLOCK_MONOTONIC);
	int err = heads_read(&walker, NULL, heads, count);

	walk.elapsed_ns = clock_ns(CLOCK_MONOTONIC) - began;
	if (!err)
		*out = walk;
	return err;
}

static int process_read(void *context, uint64_t address, void *out, size_t bytes)
{
	return runtime_read(context, address, out, bytes);
}

int heap_heads(const struct python_runtime *runtime, struct heap_head heads[HEAP_INTERPRETERS],
	       uint32_t *count)
{
	uint64_t interpreters;
	int err = runtime_read_u64(
		runtime, runtime->target.runtime + runtime->offsets->abi.runtime_interpreters_head,
		&interpreters);

	if (err)
		return err;
	if (!interpreters)
		return error_set(-EAGAIN, "its interpreter has not been started yet");
	return heap_place_heads(runtime, heads, count);
}

int heap_read_pools(const struct python_runtime *runtime, heap_pool_fn visit, void *context,
		    struct heap_walk *out)
{
	struct heap_head heads[HEAP_INTERPRETERS];
	struct heap_walk walk = {0};
	struct memory_reader source = {process_read, (void *)runtime};
	struct heap_walker walker = walker_of(&source, runtime->offsets, visit, context, &walk);
	uint64_t began = clock_ns(CLOCK_MONOTONIC);
	uint32_t count;

	walker.left = walk_limit(runtime->pid);
	int err = heap_heads(runtime, heads, &count) ?: heads_read(&walker, runtime, heads, count);

	walk.elapsed_ns = clock_ns(CLOCK_MONOTONIC) - began;
	*out = err ? *out : walk;
	return err;
}

int heap_read_pool(const struct python_runtime *runtime, uint64_t address, heap_pool_fn visit,
		   void *context)
{
	const struct heap_offsets *offsets = &runtime->offsets->heap;
	struct heap_walk walk = {0};
	struct memory_reader source = {process_read, (void *)runtime};
	struct heap_walker walker = walker_of(&source, runtime->offsets, visit, context, &walk);
	struct heap_pool none = {.address = address + offsets->pool_header_size,
				 .block_bytes = EVENT_BLOCK_STEP};
	uint8_t bytes[MAX_POOL_BYTES];

	if (runtime->offsets->build == BUILD_FREE_THREADED)
		return error_set(-ENOTSUP, "without the GIL its heap has no pools");
	int err = runtime_read(runtime, address, bytes, offsets->pool_bytes);
	err = err == -EFAULT ? 0 : err ?: heap_pool_read(&walker, bytes, address);
	if (err || walk.pools || walk.pools_unreadable)
		return err ?: walker.stop;
	return visit(&none, context);
}

struct block_visitor {
	heap_block_fn visit;
	void *context;
};

static int blocks_visit(const struct heap_pool *pool, void *context)
{
	const struct block_visitor *visitor = context;
	uint64_t at = 0;
	int stop = 0;

	if (!visitor->visit || !pool->block_bytes)
		return 0;
	for (uint32_t i = 0; i < pool->count && !stop; i++, at += pool->block_bytes)
		if (heap_pool_live(pool, i))
			stop = visitor->visit(pool->address + at, pool->block_bytes,
					      pool->content + at, visitor->context);
	return stop;
}

int heap_read(const struct python_runtime *runtime, heap_block_fn visit, void *context,
	      struct heap_walk *out)
{
	struct block_visitor visitor = {.visit = visit, .context = context};

	return heap_read_pools(runtime, blocks_visit, &visitor, out);
}
