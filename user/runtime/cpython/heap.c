/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Model (Objects/obmalloc.c). An array of arena objects refers to the arenas. An arena is divided
 * into pools from its first aligned address on; those below arena.pool_address have been used. A
 * pool with ref.count > 0 holds blocks of one size class after its header. Blocks below nextoffset
 * were handed out at least once; those on the list at freeblock are free again. So the live blocks
 * are
 *
 * 	{header, header + size, … < nextoffset} - {freeblock, *freeblock, …}
 *
 * and there are exactly ref.count of them. A pool that violates this was read during a change, or
 * is not a pool: it is read again, and counted as unreadable if that does not help.
 */
#include "runtime/cpython/heap.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "abi/events.h"
#include "proc/memory.h"
#include "proc/process.h"
#include "runtime/cpython/heap_place.h"
#include "runtime/cpython/heap_walker.h"
#include "util/clock.h"
#include "util/error.h"

#define MAX_POOL_BYTES  16384u
#define MAX_BLOCK_BYTES 512u /* SMALL_REQUEST_THRESHOLD */
#define TRIES           3
#define ARENAS_PIECE    1024u /* arena objects copied at once */

/* Result of pool_check(); blocks are numbered from the header on. */
struct pool_state {
	uint32_t block_bytes, carved;
	uint8_t free[MAX_POOL_BYTES / EVENT_BLOCK_STEP]; /* enum heap_block, by number */
};

/*
 * 1: the pool is in use and consistent, *state describes its blocks; 0: not in use; -EAGAIN:
 * inconsistent.
 */
static int pool_check(const struct heap_offsets *offsets, const uint8_t *pool, uint64_t address,
		      struct pool_state *state)
{
	uint32_t count = u32_at(pool + offsets->pool_count);
	uint32_t szidx = u32_at(pool + offsets->pool_szidx);
	uint32_t next = u32_at(pool + offsets->pool_nextoffset);
	uint64_t block = u64_at(pool + offsets->pool_freeblock);
	uint32_t free_count = 0, bytes;

	if (!count)
		return 0;
	if (szidx >= MAX_BLOCK_BYTES / offsets->alignment)
		return -EAGAIN;
	bytes = (szidx + 1) * offsets->alignment;
	if (next < offsets->pool_header_size || next > offsets->pool_bytes ||
	    (next - offsets->pool_header_size) % bytes ||
	    u32_at(pool + offsets->pool_maxnextoffset) != offsets->pool_bytes - bytes)
		return -EAGAIN;
	state->block_bytes = bytes;
	state->carved = (next - offsets->pool_header_size) / bytes;
	if (count > state->carved)
		return -EAGAIN;
	memset(state->free, 0, state->carved);
	while (block) {
		uint64_t at = block - address - offsets->pool_header_size;

		/* A pointer below the pool's first block wraps to a huge value. */
		if (at >= (uint64_t)state->carved * bytes || at % bytes || state->free[at / bytes])
			return -EAGAIN;
		state->free[at / bytes] = 1;
		free_count++;
		block = u64_at(pool + offsets->pool_header_size + at);
	}
	return state->carved - free_count == count ? 1 : -EAGAIN;
}

static struct heap_pool pool_begin(struct heap_walker *walker, uint64_t address)
{
	return (struct heap_pool){.arena = walker->arena_address,
				  .arena_bytes = walker->offsets->arena_bytes,
				  .start = address,
				  .end = address + walker->offsets->pool_bytes,
				  .address = address + walker->offsets->pool_header_size};
}

static void pool_visit(struct heap_walker *walker, const uint8_t *bytes, uint64_t address,
		       const struct pool_state *state)
{
	uint32_t header = walker->offsets->pool_header_size;
	struct heap_pool pool = pool_begin(walker, address);
	uint32_t live = u32_at(bytes + walker->offsets->pool_count);

	pool.block_bytes = state->block_bytes;
	pool.count = state->carved;
	pool.state = state->free;
	pool.content = bytes + header;
	pool.content_bytes = pool.count * pool.block_bytes;
	walker->walk->pools++;
	walker->walk->blocks += live;
	walker->walk->bytes += (uint64_t)live * state->block_bytes;
	walker->stop = walker->visit(&pool, walker->context);
}

static void pool_give_up(struct heap_walker *walker, uint64_t address)
{
	static const uint8_t none[MAX_POOL_BYTES / EVENT_BLOCK_STEP];
	uint32_t header = walker->offsets->pool_header_size;
	struct heap_pool pool = pool_begin(walker, address);

	pool.count = (walker->offsets->pool_bytes - header) / EVENT_BLOCK_STEP;
	pool.state = none;
	walker->walk->pools_unreadable++;
	walker->stop = walker->visit(&pool, walker->context);
}

/* Reads the pool at address; pool: its bytes if they were read already. 0, -ESRCH, -EPERM. */
static int heap_pool_read(struct heap_walker *walker, const uint8_t *pool, uint64_t address)
{
	uint8_t again[MAX_POOL_BYTES];
	struct pool_state state;

	for (int i = 0; i < TRIES; i++) {
		if (!pool || i) {
			int err = heap_read_bytes(walker, address, again,
						  walker->offsets->pool_bytes);

			if (err == -ESRCH || err == -EPERM)
				return err;
			if (err)
				break;
			pool = again;
		}
		int got = pool_check(walker->offsets, pool, address, &state);
		if (got > 0)
			pool_visit(walker, pool, address, &state);
		if (got >= 0)
			return 0;
	}
	pool_give_up(walker, address);
	return 0;
}

static int arena_read(struct heap_walker *walker, uint64_t address, uint64_t pool_address)
{
	const struct heap_offsets *offsets = walker->offsets;
	uint64_t end = address + offsets->arena_bytes;
	uint64_t pool = (address + offsets->pool_bytes - 1) & ~(uint64_t)(offsets->pool_bytes - 1);

	walker->walk->arenas++;
	walker->arena_address = address;
	if (pool_address > end)
		pool_address = end;
	if (pool + offsets->pool_bytes > pool_address)
		return 0;
	int err = heap_read_bytes(walker, address, walker->arena, pool_address - address);
	if (err == -ESRCH || err == -EPERM)
		return err;
	int complete = !err;
	for (; pool + offsets->pool_bytes <= pool_address && !walker->stop;
	     pool += offsets->pool_bytes) {
		err = heap_pool_read(walker, complete ? walker->arena + (pool - address) : NULL,
				     pool);
		if (err)
			return err;
	}
	return 0;
}

/*
 * Is this an arena that overlaps none that was read? Each one's place within arena_bytes is kept
 * under the number of the multiple of that in which it begins, so that it can only overlap the one
 * before and the one behind. While the heap changes, an arena may be seen twice.
 */
static int arena_take(struct heap_walker *walker, uint64_t address)
{
	const uint64_t bytes = walker->offsets->arena_bytes, number = address / bytes;
	const uint32_t here = (uint32_t)(address % bytes);
	uint32_t before = id_map_find(&walker->arenas, number - 1);
	uint32_t behind = id_map_find(&walker->arenas, number + 1);

	if (id_map_find(&walker->arenas, number) != ID_MAP_NONE ||
	    (before != ID_MAP_NONE && before > here) || (behind != ID_MAP_NONE && behind < here))
		return 0;
	return id_map_put(&walker->arenas, number, here) ?: 1;
}

/* Whether arena->address is plausible as mapped memory whose used part ends at pool_address. */
static int arena_plausible(const struct heap_offsets *offsets, uint64_t address,
			   uint64_t pool_address)
{
	return !(address & 15) && address < 1ull << 56 && pool_address >= address &&
	       pool_address <= address + offsets->arena_bytes + offsets->pool_bytes;
}

/* Reads the address and length of the array of arena objects; length 0: the heap has no arena. */
static int array_find(struct heap_walker *walker, const struct heap_head *head, uint64_t *array,
		      uint32_t *count)
{
	int err = heap_read_bytes(walker, head->arenas, array, sizeof(*array));

	err = err ?: heap_read_bytes(walker, head->maxarenas, count, sizeof(*count));
	if (!err && *count > HEAP_ARENAS)
		return error_set(-ENOTSUP, "its heap claims to have %u arenas", *count);
	if (!err && !*array)
		*count = 0;
	return err;
}

/*
 * Copies at most ARENAS_PIECE arena objects from first on, so that a false array length costs no
 * memory. The target moves the array when it grows and keeps the order of its objects: a copy is
 * valid if the array had the same address before and after. *objects: the number copied, 0 after
 * the last.
 */
static int arenas_read(struct heap_walker *walker, const struct heap_head *head, uint32_t first,
		       uint8_t *piece, uint32_t *objects)
{
	const size_t size = walker->offsets->arena_object_size;
	uint64_t array, array_after = 0;
	uint32_t count;
	int err = -EFAULT;

	*objects = 0;
	for (int i = 0; i < TRIES && err == -EFAULT; i++) {
		err = array_find(walker, head, &array, &count);
		if (err || first >= count)
			return err;
		*objects = count - first < ARENAS_PIECE ? count - first : ARENAS_PIECE;
		err = heap_read_bytes(walker, array + first * size, piece, *objects * size)
			      ?: heap_read_bytes(walker, head->arenas, &array_after,
						 sizeof(array_after));
		if (!err && array != array_after)
			err = -EFAULT;
	}
	return err;
}

static int raw_read(struct heap_walker *walker, const struct heap_head *head,
		    uint64_t blocks_before)
{
	uint64_t count = 0, here = walker->walk->blocks - blocks_before;
	int err = head->raw_blocks
			  ? heap_read_bytes(walker, head->raw_blocks, &count, sizeof(count))
			  : 0;

	if (err)
		return err;
	if (head->raw_is_total)
		count = count > here ? count - here : 0;
	/* the computed count may be negative while the heap changes */
	if ((int64_t)count > 0)
		walker->walk->raw_blocks += count;
	return 0;
}

/* Reads the arenas in use; adds objects with invalid addresses, or that overlap, to *wild. */
static int piece_read(struct heap_walker *walker, const uint8_t *piece, uint32_t objects,
		      uint32_t *wild)
{
	const struct heap_offsets *offsets = walker->offsets;
	int err = 0, taken;

	for (uint32_t i = 0; i < objects && !err && !walker->stop; i++) {
		const uint8_t *object = piece + (size_t)i * offsets->arena_object_size;
		uint64_t address = u64_at(object + offsets->arena_address);
		uint64_t pool_address = u64_at(object + offsets->arena_pool_address);

		if (!address)
			continue;
		taken = arena_plausible(offsets, address, pool_address)
				? arena_take(walker, address)
				: 0;
		if (taken > 0)
			err = arena_read(walker, address, pool_address);
		else if (!taken)
			++*wild;
		else
			err = taken;
	}
	return err;
}

static int head_read(struct heap_walker *walker, const struct heap_head *head)
{
	const struct heap_offsets *offsets = walker->offsets;
	uint64_t blocks_before = walker->walk->blocks;
	uint8_t *piece = malloc((size_t)ARENAS_PIECE * offsets->arena_object_size);
	uint32_t objects = 0, first = 0, wild = 0;
	int err = piece ? arenas_read(walker, head, first, piece, &objects) : -ENOMEM;

	while (!err && objects && !walker->stop) {
		err = piece_read(walker, piece, objects, &wild);
		first += objects;
		err = err ?: arenas_read(walker, head, first, piece, &objects);
	}
	free(piece);
	if (err || !first)
		return err;
	if (wild && !walker->walk->arenas)
		return error_set(-ENOTSUP,
				 "the memory where its heap's arenas should be holds no arenas");
	walker->walk->arenas_lost += wild;
	walker->walk->pools_unreadable +=
		(uint64_t)wild * (offsets->arena_bytes / offsets->pool_bytes);
	return raw_read(walker, head, blocks_before);
}

/* Whether the heap has disappeared: its interpreter may end while the heaps are read. */
static bool head_is_gone(const struct python_runtime *runtime, const struct heap_head *head)
{
	struct heap_head heads[HEAP_INTERPRETERS];
	uint32_t count;

	if (!runtime->offsets->heap.interp_obmalloc || heap_place_heads(runtime, heads, &count))
		return 0;
	while (count && heads[count - 1].arenas != head->arenas)
		count--;
	return !count;
}

/*
 * Reads the heaps of pymalloc that these heads name. runtime: heads of interpreters that have ended
 * meanwhile are skipped; NULL: the heap is a copy, which does not change. 0; -ENODATA, -ENOTSUP
 * (error_set); -EFAULT; -ENOMEM; errors of the source.
 */
static int heap_arenas_read(struct heap_walker *walker, const struct python_runtime *runtime,
			    const struct heap_head *heads, uint32_t count)
{
	int err = 0;

	walker->arena = malloc(walker->offsets->arena_bytes);
	if (!walker->arena)
		return -ENOMEM;
	for (uint32_t i = 0; i < count && !err && !walker->stop; i++) {
		err = head_read(walker, &heads[i]);
		if ((err == -EFAULT || err == -ENOTSUP) && runtime &&
		    head_is_gone(runtime, &heads[i]))
			err = 0;
	}
	free(walker->arena);
	id_map_free(&walker->arenas);
	if (!err && !walker->walk->arenas)
		err = error_set(-ENODATA, "it has no pymalloc heap: not started yet, or "
					  "PYTHONMALLOC=malloc");
	return err;
}

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

#define TRIAL_POOLS 64u /* pools that are read to test a heap */

/* Readable and unreadable pools among the first pools of a heap. */
struct layout_trial {
	uint32_t good, bad;
};

static int pool_try(const struct heap_pool *pool, void *context)
{
	struct layout_trial *trial = context;

	trial->good += pool->block_bytes != 0;
	trial->bad += !pool->block_bytes;
	return trial->good + trial->bad >= TRIAL_POOLS;
}

int heap_find(const struct python_runtime *runtime)
{
	struct abi_heap described;
	struct heap_walk walk;
	struct layout_trial trial = {0};
	uint64_t interpreters = 0;
	int err = runtime_read_u64(
		runtime, runtime->target.runtime + runtime->offsets->abi.runtime_interpreters_head,
		&interpreters);

	/* -EFAULT: its library is not loaded yet. */
	if (err == -EFAULT || (!err && !interpreters))
		return runtime->offsets->build == BUILD_FREE_THREADED
			       ? 0
			       : heap_describe(runtime, &described);
	err = err ?: heap_read_pools(runtime, pool_try, &trial, &walk);
	if (!err && trial.bad > trial.good)
		return error_set(-ENOTSUP,
				 "the memory where its heap's pools should be holds no pools");
	if (err == -EFAULT)
		return error_set(-ENOTSUP, "the memory where its heap should be cannot be read");
	return err == -EAGAIN || err == -ENODATA ? 0 : err;
}
