/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Model (Objects/obmalloc.c). An array of arena objects names the arenas; an arena is cut from its
 * first aligned address on into pools, those below arena.pool_address have been used. A pool with
 * ref.count > 0 holds blocks of one size class behind its header: those below nextoffset were
 * handed out at least once, of which the ones on the list at freeblock are free again. So the live
 * blocks are
 *
 * 	{header, header + size, … < nextoffset} - {freeblock, *freeblock, …}
 *
 * and there are exactly ref.count of them. A pool where that does not hold was caught in the middle
 * of a change (or is not one): it is read again, and counted as unreadable if that does not help.
 */
#include "python/heap.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "abi/events.h"
#include "base/clock.h"
#include "base/error.h"
#include "process/memory.h"
#include "python/heap_place.h"

#define MAX_POOL_BYTES  16384u
#define MAX_BLOCK_BYTES 512u /* SMALL_REQUEST_THRESHOLD */
#define TRIES           3
#define ARENAS_PIECE    1024u /* arena objects that are copied at once */
#define TRIAL_POOLS     64u   /* of a heap, which show whether it is one */

struct heap_walk {
	pid_t pid;
	const struct heap_offsets *offsets;
	heap_pool_fn visit;
	void *context;
	struct heap_reading *reading;
	uint8_t *arena; /* arena_bytes */
	int stop;
};

static uint32_t u32_at(const uint8_t *bytes)
{
	uint32_t value;

	memcpy(&value, bytes, sizeof(value));
	return value;
}

static uint64_t u64_at(const uint8_t *bytes)
{
	uint64_t value;

	memcpy(&value, bytes, sizeof(value));
	return value;
}

/* What pool_check() finds out about a pool; blocks are numbered from the header on. */
struct pool_state {
	uint32_t block_bytes, carved;
	uint8_t free[MAX_POOL_BYTES / EVENT_BLOCK_STEP]; /* by number */
};

/*
 * 1: a pool in use and consistent, *state tells its blocks; 0: not in use; -EAGAIN: inconsistent.
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

		/* Wraps to something huge for a pointer below the pool's first block. */
		if (at >= (uint64_t)state->carved * bytes || at % bytes || state->free[at / bytes])
			return -EAGAIN;
		state->free[at / bytes] = 1;
		free_count++;
		block = u64_at(pool + offsets->pool_header_size + at);
	}
	return state->carved - free_count == count ? 1 : -EAGAIN;
}

static void pool_visit(struct heap_walk *walk, const uint8_t *bytes, uint64_t address,
		       const struct pool_state *state)
{
	uint32_t header = walk->offsets->pool_header_size;
	struct heap_pool pool = {.address = address + header,
				 .block_bytes = state->block_bytes,
				 .count = state->carved,
				 .free = state->free,
				 .content = bytes + header};
	uint32_t live = u32_at(bytes + walk->offsets->pool_count);

	walk->reading->pools++;
	walk->reading->blocks += live;
	walk->reading->bytes += (uint64_t)live * state->block_bytes;
	walk->stop = walk->visit(&pool, walk->context);
}

static void pool_give_up(struct heap_walk *walk, uint64_t address)
{
	static const uint8_t none[MAX_POOL_BYTES / EVENT_BLOCK_STEP];
	uint32_t header = walk->offsets->pool_header_size;
	struct heap_pool pool = {.address = address + header,
				 .count = (walk->offsets->pool_bytes - header) / EVENT_BLOCK_STEP,
				 .free = none};

	walk->reading->pools_unreadable++;
	walk->stop = walk->visit(&pool, walk->context);
}

/*
 * pool: the bytes at hand, NULL when they could not be read along with the arena. 0, -ESRCH,
 * -EPERM.
 */
static int pool_read(struct heap_walk *walk, const uint8_t *pool, uint64_t address)
{
	uint8_t again[MAX_POOL_BYTES];
	struct pool_state state;

	for (int i = 0; i < TRIES; i++) {
		int got;

		if (!pool || i) {
			int err = memory_read(walk->pid, address, again, walk->offsets->pool_bytes);

			if (err == -ESRCH || err == -EPERM)
				return err;
			if (err)
				break;
			pool = again;
		}
		got = pool_check(walk->offsets, pool, address, &state);
		if (got > 0)
			pool_visit(walk, pool, address, &state);
		if (got >= 0)
			return 0;
	}
	pool_give_up(walk, address);
	return 0;
}

static int arena_read(struct heap_walk *walk, uint64_t address, uint64_t pool_address)
{
	const struct heap_offsets *offsets = walk->offsets;
	uint64_t end = address + offsets->arena_bytes;
	uint64_t pool = (address + offsets->pool_bytes - 1) & ~(uint64_t)(offsets->pool_bytes - 1);
	int err, whole;

	walk->reading->arenas++;
	if (pool_address > end)
		pool_address = end;
	if (pool + offsets->pool_bytes > pool_address)
		return 0;
	err = memory_read(walk->pid, address, walk->arena, pool_address - address);
	if (err == -ESRCH || err == -EPERM)
		return err;
	whole = !err;
	for (; pool + offsets->pool_bytes <= pool_address && !walk->stop;
	     pool += offsets->pool_bytes) {
		err = pool_read(walk, whole ? walk->arena + (pool - address) : NULL, pool);
		if (err)
			return err;
	}
	return 0;
}

/* Could arena->address be mmap()ed memory whose used part ends at pool_address? */
static int arena_plausible(const struct heap_offsets *offsets, uint64_t address,
			   uint64_t pool_address)
{
	return !(address & 15) && address < 1ull << 56 && pool_address >= address &&
	       pool_address <= address + offsets->arena_bytes + offsets->pool_bytes;
}

/*
 * Where the array of arena objects is now, and how many it has; 0 of them: this heap has no arena.
 */
static int array_find(const struct heap_walk *walk, const struct heap_head *head, uint64_t *array,
		      uint32_t *count)
{
	int err = memory_read_u64(walk->pid, head->arenas, array);

	if (!err)
		err = memory_read(walk->pid, head->maxarenas, count, sizeof(*count));
	if (!err && *count > HEAP_ARENAS)
		return error_set(-ENOTSUP, "its heap claims to have %u arenas", *count);
	if (!err && !*array)
		*count = 0;
	return err;
}

/*
 * A copy of at most ARENAS_PIECE arena objects from first on, so that what the heap claims to have
 * costs no memory. The target moves the array when it grows, and what it had is then in the same
 * places of the new one: a piece counts if the array was there before and after. *objects: how many
 * there are, 0 behind the last.
 */
static int arenas_read(const struct heap_walk *walk, const struct heap_head *head, uint32_t first,
		       uint8_t *piece, uint32_t *objects)
{
	const size_t size = walk->offsets->arena_object_size;
	uint64_t array, array_after = 0;
	uint32_t count;
	int err = -EFAULT;

	*objects = 0;
	for (int i = 0; i < TRIES && err == -EFAULT; i++) {
		err = array_find(walk, head, &array, &count);
		if (err || first >= count)
			return err;
		*objects = count - first < ARENAS_PIECE ? count - first : ARENAS_PIECE;
		err = memory_read(walk->pid, array + first * size, piece, *objects * size);
		if (!err)
			err = memory_read_u64(walk->pid, head->arenas, &array_after);
		if (!err && array != array_after)
			err = -EFAULT;
	}
	return err;
}

static int raw_read(const struct heap_walk *walk, const struct heap_head *head,
		    uint64_t blocks_before)
{
	uint64_t count, here = walk->reading->blocks - blocks_before;
	int err = memory_read_u64(walk->pid, head->raw_blocks, &count);

	if (err)
		return err;
	if (head->raw_is_total)
		count = count > here ? count - here : 0;
	/* a count of a heap that changes may pass below zero for a moment */
	if ((int64_t)count > 0)
		walk->reading->raw_blocks += count;
	return 0;
}

/* Those of the arenas that are in use; *wild: objects that are none. */
static int piece_read(struct heap_walk *walk, const uint8_t *piece, uint32_t objects,
		      uint32_t *wild)
{
	const struct heap_offsets *offsets = walk->offsets;
	int err = 0;

	for (uint32_t i = 0; i < objects && !err && !walk->stop; i++) {
		const uint8_t *object = piece + (size_t)i * offsets->arena_object_size;
		uint64_t address = u64_at(object + offsets->arena_address);
		uint64_t pool_address = u64_at(object + offsets->arena_pool_address);

		if (!address)
			continue;
		if (arena_plausible(offsets, address, pool_address))
			err = arena_read(walk, address, pool_address);
		else
			++*wild;
	}
	return err;
}

static int head_read(struct heap_walk *walk, const struct heap_head *head)
{
	const struct heap_offsets *offsets = walk->offsets;
	uint64_t blocks_before = walk->reading->blocks;
	uint8_t *piece = malloc((size_t)ARENAS_PIECE * offsets->arena_object_size);
	uint32_t objects = 0, first = 0, wild = 0;
	int err = piece ? arenas_read(walk, head, first, piece, &objects) : -ENOMEM;

	while (!err && objects && !walk->stop) {
		err = piece_read(walk, piece, objects, &wild);
		first += objects;
		if (!err)
			err = arenas_read(walk, head, first, piece, &objects);
	}
	free(piece);
	if (err || !first)
		return err;
	if (wild && !walk->reading->arenas)
		return error_set(-ENOTSUP, "what should be its heap's arenas are none");
	walk->reading->arenas_lost += wild;
	walk->reading->pools_unreadable +=
		(uint64_t)wild * (offsets->arena_bytes / offsets->pool_bytes);
	return raw_read(walk, head, blocks_before);
}

/* An interpreter may end while the heaps are read, and its heap with it. */
static int head_is_gone(const struct python_runtime *runtime, const struct heap_head *head)
{
	struct heap_head heads[HEAP_INTERPRETERS];
	uint32_t count;

	if (!runtime->offsets->heap.interp_obmalloc || heap_place_heads(runtime, heads, &count))
		return 0;
	while (count && heads[count - 1].arenas != head->arenas)
		count--;
	return !count;
}

int heap_read_pools(const struct python_runtime *runtime, heap_pool_fn visit, void *context,
		    struct heap_reading *out)
{
	struct heap_head heads[HEAP_INTERPRETERS];
	struct heap_reading reading = {0};
	struct heap_walk walk = {.pid = runtime->pid,
				 .offsets = &runtime->offsets->heap,
				 .visit = visit,
				 .context = context,
				 .reading = &reading};
	uint64_t began = clock_ns(CLOCK_MONOTONIC);
	uint64_t interpreters;
	uint32_t count;
	int err;

	err = memory_read_u64(runtime->pid,
			      runtime->target.runtime +
				      runtime->offsets->abi.runtime_interpreters_head,
			      &interpreters);
	if (err)
		return err;
	if (!interpreters)
		return error_set(-EAGAIN, "its interpreter has not been started yet");
	err = heap_place_heads(runtime, heads, &count);
	if (err)
		return err;
	walk.arena = malloc(walk.offsets->arena_bytes);
	if (!walk.arena)
		return -ENOMEM;
	for (uint32_t i = 0; i < count && !err && !walk.stop; i++) {
		err = head_read(&walk, &heads[i]);
		if ((err == -EFAULT || err == -ENOTSUP) && head_is_gone(runtime, &heads[i]))
			err = 0;
	}
	free(walk.arena);
	if (err)
		return err;
	if (!reading.arenas)
		return error_set(
			-ENODATA,
			"it has no pymalloc heap: not started yet, or PYTHONMALLOC=malloc");
	reading.elapsed_ns = clock_ns(CLOCK_MONOTONIC) - began;
	*out = reading;
	return 0;
}

struct block_visitor {
	heap_block_fn visit;
	void *context;
};

static int blocks_visit(const struct heap_pool *pool, void *context)
{
	const struct block_visitor *visitor = context;
	uint32_t at = 0;
	int stop = 0;

	if (!visitor->visit || !pool->block_bytes)
		return 0;
	for (uint32_t i = 0; i < pool->count && !stop; i++, at += pool->block_bytes)
		if (!pool->free[i])
			stop = visitor->visit(pool->address + at, pool->block_bytes,
					      pool->content + at, visitor->context);
	return stop;
}

int heap_read(const struct python_runtime *runtime, heap_block_fn visit, void *context,
	      struct heap_reading *out)
{
	struct block_visitor visitor = {.visit = visit, .context = context};

	return heap_read_pools(runtime, blocks_visit, &visitor, out);
}

/* What is found out about a heap from its first pools. */
struct trial {
	uint32_t good, bad;
};

static int pool_try(const struct heap_pool *pool, void *context)
{
	struct trial *trial = context;

	trial->good += pool->block_bytes != 0;
	trial->bad += !pool->block_bytes;
	return trial->good + trial->bad >= TRIAL_POOLS;
}

int heap_find(const struct python_runtime *runtime)
{
	struct abi_heap described;
	struct heap_reading reading;
	struct trial trial = {0};
	uint64_t interpreters = 0;
	int err = memory_read_u64(runtime->pid,
				  runtime->target.runtime +
					  runtime->offsets->abi.runtime_interpreters_head,
				  &interpreters);

	/* Its library is not loaded yet. */
	if (err == -EFAULT || (!err && !interpreters))
		return heap_describe(runtime, &described);
	if (!err)
		err = heap_read_pools(runtime, pool_try, &trial, &reading);
	if (!err && trial.bad > trial.good)
		return error_set(-ENOTSUP, "what should be its heap's pools are none");
	if (err == -EFAULT)
		return error_set(-ENOTSUP, "what should be its heap cannot be read");
	return err == -EAGAIN || err == -ENODATA ? 0 : err;
}
