/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * A reading of pymalloc's heap from within the target, when its interpreter begins to shut down, or else when its last
 * thread ends or it execs: what is live then is what a report of the whole run is about, and a reader outside would
 * come too late. The thread that shuts the interpreter down holds the GIL, and a last thread is alone: the heap
 * stands still.
 *
 * The model is that of user/python/heap.c, which reads the heap of a process that goes on; the records are the same. Kernels without
 * bpf_loop() do not read it.
 */
#ifndef TRACER_BPF_HEAP_H
#define TRACER_BPF_HEAP_H

#include "state.h"

#define MAX_INTERPRETERS 1024
#define MAX_HEAPS        32 /* of interpreters that do not share the main one's */
#define MAX_ARENAS       (1u << 20)
#define MAX_ARENA_POOLS  256
#define POOL_WORDS       (EVENT_POOL_BLOCKS / 64)
#define BLOCK_STEP       16u /* every block begins at a multiple */

/* struct event_census_pool with its bits. */
struct pool_record {
	__u64 head[sizeof(struct event_census_pool) / sizeof(__u64)];
	__u64 live[POOL_WORDS];
};

#define RECORD(walk) ((struct event_census_pool *)(walk)->record.head)

/* The reading that a thread makes. */
struct heap_walk {
	struct abi_heap heap;
	struct pool_record record;
	struct event_census census;
	__u64 id;
	__u64 interp, interp_next; /* interp_next: offset of the link */
	__u64 heaps[MAX_HEAPS];    /* read already: interpreters may share one */
	__u32 heap_count;
	__u64 objects;         /* arena objects */
	__u64 pool, pools_end; /* in the arena being read */
	__u64 block;           /* on the pool's free list */
	__u32 block_bytes, carved, free_count, inconsistent;
	__u64 blocks, large_blocks, pools_unreadable;
	__u32 arenas;      /* seen so far */
	__u32 unread;      /* something could not be read */
	__u32 arenas_lost; /* some that nobody knows where to find */
	__u32 failed;
};

TASK_STATE(heap_walks, struct heap_walk)

/* What cannot be read (a page that is not resident, an address space that is gone) is 0, and leaves a mark. */
static __always_inline __u64 heap_u64(struct heap_walk *walk, __u64 address)
{
	__u64 value = 0;

	if (bpf_probe_read_user(&value, sizeof(value), (void *)address))
		walk->unread = 1;
	return value;
}

static __always_inline __u32 heap_u32(struct heap_walk *walk, __u64 address)
{
	__u32 value = 0;

	if (bpf_probe_read_user(&value, sizeof(value), (void *)address))
		walk->unread = 1;
	return value;
}

/* One link of a pool's free list. */
static long free_block(__u32 index UNUSED, void *context)
{
	struct heap_walk *walk = *(struct heap_walk **)context;
	__u64 at;
	__u32 number;

	if (!walk->block || !walk->block_bytes)
		return 1;
	at = walk->block - RECORD(walk)->address;
	number = at / walk->block_bytes;
	if (at >= (__u64)walk->carved * walk->block_bytes || at % walk->block_bytes ||
	    !(walk->record.live[number / 64 & (POOL_WORDS - 1)] >> (number & 63) & 1)) {
		walk->inconsistent = 1;
		return 1;
	}
	walk->record.live[number / 64 & (POOL_WORDS - 1)] &= ~(1ull << (number & 63));
	walk->free_count++;
	walk->block = heap_u64(walk, walk->block);
	walk->inconsistent |= walk->unread;
	return walk->inconsistent ? 1 : 0;
}

/* All blocks handed out so far live, until the free list says otherwise. */
static __always_inline void pool_fill(struct heap_walk *walk)
{
	int i;

	for (i = 0; i < (int)POOL_WORDS; i++) {
		__u32 rest = walk->carved - i * 64;

		walk->record.live[i] = walk->carved <= (__u32)i * 64 ? 0
				       : rest >= 64                  ? ~0ull
								     : (1ull << rest) - 1;
	}
}

static __always_inline void pool_output(struct heap_walk *walk)
{
	__u32 words = (RECORD(walk)->count + 63) / 64, bytes;

	if (words > POOL_WORDS)
		words = POOL_WORDS;
	bytes = sizeof(struct event_census_pool) + words * sizeof(__u64);
	header_fill(&RECORD(walk)->header, EVENT_CENSUS_POOL, bytes);
	RECORD(walk)->id = walk->id;
	if (record_output(&walk->record, bytes, LOSS_PROCESS))
		walk->failed = 1;
}

/* The head of a pool: what RECORD(walk), carved and the free list begin with. Is it none, walk->inconsistent is set. */
__noinline int pool_head_read(struct heap_walk *walk, __u64 pool)
{
	__u32 szidx, next;

	if (!walk)
		return 0;
	szidx = heap_u32(walk, pool + walk->heap.pool_szidx);
	next = heap_u32(walk, pool + walk->heap.pool_nextoffset);
	walk->block = heap_u64(walk, pool + walk->heap.pool_freeblock);
	walk->block_bytes = (szidx + 1) * BLOCK_STEP;
	walk->free_count = 0;
	RECORD(walk)->address = pool + walk->heap.pool_header_size;
	walk->inconsistent = walk->unread || szidx >= EVENT_SMALL_BYTES / BLOCK_STEP ||
			     next < walk->heap.pool_header_size || next > walk->heap.pool_bytes;
	if (!walk->inconsistent)
		walk->carved = (next - walk->heap.pool_header_size) / walk->block_bytes;
	return 0;
}

/* One pool of an arena. */
static long arena_pool(__u32 index UNUSED, void *context)
{
	struct heap_walk *walk = *(struct heap_walk **)context;
	__u32 count;
	__u64 pool;

	if (walk->failed)
		return 1;
	pool = walk->pool;
	if (pool + walk->heap.pool_bytes > walk->pools_end)
		return 1;
	walk->pool += walk->heap.pool_bytes;
	walk->unread = 0;
	count = heap_u32(walk, pool + walk->heap.pool_count);
	if (!count && !walk->unread)
		return 0;
	pool_head_read(walk, pool);
	if (!walk->inconsistent) {
		pool_fill(walk);
		bpf_loop(EVENT_POOL_BLOCKS, free_block, &walk, 0);
	}
	if (walk->inconsistent || walk->carved - walk->free_count != count) {
		walk->pools_unreadable++;
		RECORD(walk)->block_bytes = 0;
		RECORD(walk)->count = (walk->heap.pool_bytes - walk->heap.pool_header_size) / BLOCK_STEP;
	} else {
		walk->blocks += count;
		RECORD(walk)->block_bytes = walk->block_bytes;
		RECORD(walk)->count = walk->carved;
	}
	pool_output(walk);
	return 0;
}

/* One arena object. */
static long heap_arena(__u32 index, void *context)
{
	struct heap_walk *walk = *(struct heap_walk **)context;
	__u64 object, address, used;

	if (walk->failed || !walk->heap.pool_bytes)
		return 1;
	object = walk->objects + (__u64)index * walk->heap.arena_object_size;
	walk->unread = 0;
	address = heap_u64(walk, object + walk->heap.arena_address);
	used = heap_u64(walk, object + walk->heap.arena_pool_address);
	walk->failed |= walk->unread;
	if (!address || walk->failed)
		return walk->failed ? 1 : 0;
	if (address & (BLOCK_STEP - 1) || used < address) {
		walk->arenas_lost = 1;
		walk->pools_unreadable += walk->heap.arena_bytes / walk->heap.pool_bytes;
		return 0;
	}
	walk->arenas++;
	walk->pools_end = address + walk->heap.arena_bytes;
	if (used < walk->pools_end)
		walk->pools_end = used;
	walk->pool = (address + walk->heap.pool_bytes - 1) & -(__u64)walk->heap.pool_bytes;
	bpf_loop(MAX_ARENA_POOLS, arena_pool, &walk, 0);
	return 0;
}

__noinline int heap_head(struct heap_walk *walk, __u64 arenas, __u64 maxarenas, __u64 raw_blocks)
{
	__u64 before, large;
	__u32 count;

	if (!walk)
		return 0;
	before = walk->blocks;
	walk->unread = 0;
	count = heap_u32(walk, maxarenas);
	walk->objects = heap_u64(walk, arenas);
	large = heap_u64(walk, raw_blocks);
	if (walk->unread || count > MAX_ARENAS)
		walk->failed = 1;
	if (walk->objects && !walk->failed)
		bpf_loop(count, heap_arena, &walk, 0);
	if (walk->heap.raw_is_total)
		large -= walk->blocks - before;
	if ((__s64)large > 0)
		walk->large_blocks += large;
	return 0;
}

/* One interpreter (3.12+). */
static long heap_interpreter(__u32 index UNUSED, void *context)
{
	struct heap_walk *walk = *(struct heap_walk **)context;
	__u64 state, interp;
	int i;

	if (!walk->interp || walk->failed)
		return 1;
	interp = walk->interp;
	walk->unread = 0;
	walk->interp = heap_u64(walk, interp + walk->interp_next);
	state = interp + walk->heap.interp_obmalloc;
	if (walk->heap.obmalloc_is_pointer)
		state = heap_u64(walk, state);
	if (!state && !walk->unread)
		return 0;
	for (i = 0; i < MAX_HEAPS && i < (int)walk->heap_count; i++)
		if (walk->heaps[i] == state)
			return 0;
	if (i >= MAX_HEAPS || walk->unread) {
		walk->failed = 1;
		return 1;
	}
	walk->heaps[i] = state;
	walk->heap_count++;
	heap_head(walk, state + walk->heap.mgmt_arenas, state + walk->heap.mgmt_maxarenas,
		  state + walk->heap.mgmt_raw_blocks);
	return 0;
}

static __always_inline int census_output(struct heap_walk *walk, __u32 type)
{
	struct event_census *record = &walk->census;

	record->id = walk->id;
	record->failed = walk->failed        ? EVENT_CENSUS_GIVEN_UP
			 : walk->arenas_lost ? EVENT_CENSUS_PARTIAL
					     : EVENT_CENSUS_COMPLETE;
	record->large_blocks = walk->large_blocks;
	record->pools_unreadable = walk->pools_unreadable;
	record->elapsed_ns = 0;
	header_fill(&record->header, type, sizeof(*record));
	if (type == EVENT_CENSUS_DONE)
		record->elapsed_ns = record->header.time_ns - (walk->id & ~EVENT_CENSUS_INSIDE);
	return record_output(record, sizeof(*record), LOSS_PROCESS);
}

/* A function of its own for the verifier, which looks at it once, wherever the walk is kept. */
__noinline int heap_walk_run(struct heap_walk *walk, struct abi_target *target)
{
	if (!walk || !target)
		return 0;
	walk->heap = target->heap;
	target->heap.pool_bytes = 0;
	walk->id = bpf_ktime_get_ns() | EVENT_CENSUS_INSIDE;
	walk->blocks = walk->large_blocks = walk->pools_unreadable = 0;
	walk->heap_count = walk->arenas = walk->arenas_lost = walk->failed = walk->unread = 0;
	if (census_output(walk, EVENT_CENSUS))
		return 0;
	if (walk->heap.interp_obmalloc) {
		walk->interp = heap_u64(walk, target->runtime + target->offsets.runtime_interpreters_head);
		walk->interp_next = target->offsets.interp_next;
		walk->failed = walk->unread;
		bpf_loop(MAX_INTERPRETERS, heap_interpreter, &walk, 0);
		walk->failed |= !!walk->interp; /* more than that, or a list without end */
	} else {
		heap_head(walk, walk->heap.arenas, walk->heap.maxarenas, walk->heap.raw_blocks);
	}
	walk->failed |= !walk->arenas;
	return census_output(walk, EVENT_CENSUS_DONE);
}

/* Reads the heap once in a process's life. */
static __always_inline void heap_read(struct abi_target *target)
{
	struct task_struct *task = (void *)bpf_get_current_task_btf();
	struct heap_walk *walk;

	if (!has_loop || !target->heap.pool_bytes)
		return;
	walk = heap_walks_get(task);
	if (walk)
		heap_walk_run(walk, target);
	else
		loss_add(LOSS_PROCESS, 1);
}

#endif
