/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * A reading of pymalloc's heap from within the target, when its interpreter begins to shut down, or
 * else when its last thread ends or it execs: what is live then is what a report of the whole run
 * is about, and a reader outside would come too late. The thread that shuts the interpreter down
 * holds the GIL, and a last thread is alone: the heap stands still.
 *
 * The target says how large its heap is, and nobody else runs on the processor meanwhile. So a
 * reading is one flat loop with a budget of steps (HEAP_STEPS): each turn reads one interpreter,
 * one arena object or one pool, and pays for it. Where the interpreter shuts down there are several
 * probes one behind the other, between which the processor is free, and each reads a piece. A
 * thread that ends has one piece. What the last piece does not reach is told of (EVENT_CENSUS_CUT):
 * the reader keeps there what it had, and knows by EVENT_CENSUS_ARENA where it need not.
 *
 * The model is that of user/python/heap.c, which reads the heap of a process that goes on; the
 * records are the same. Kernels without bpf_loop() do not read it.
 */
#ifndef TRACER_BPF_HEAP_H
#define TRACER_BPF_HEAP_H

#include "state.h"

#define MAX_INTERPRETERS 1024
#define MAX_HEAPS        32 /* of interpreters that do not share the main one's */
#define MAX_ARENAS       (1u << 20)
#define POOL_WORDS       (EVENT_POOL_BLOCKS / 64)
#define POOL_BYTES_MAX   16384u
#define POOL_HEAD_WORDS  6
#define LINKS_A_TURN     8
#define HEAP_LISTS       32 /* of pools, one for each size class */
#define HEAP_LISTS_STEP  8
#define LIST_BYTES       16
/* exact for EVENT_POOL_BLOCKS steps and block sizes up to EVENT_SMALL_BYTES */
#define INVERSE_SHIFT 16

/*
 * A step is what the next link of a free list takes, the cheapest of all. The others' prices are
 * rounded up from what was measured; docs/design/kernel.md, "Bounds in the kernel", has the
 * figures.
 */
#define HEAP_STEPS        180000u /* of a piece; a pool more at most */
#define STEPS_INTERPRETER 64
#define STEPS_ARENA       32 /* its object */
#define STEPS_POOL        48 /* its head */
#define STEPS_RECORD      56
#define STEPS_LINE        2 /* 64 bytes of a pool that is copied */

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
	struct event_census_arena arena_record;
	__u64 id;
	__u64 interp, interp_next; /* interp_next: offset of the link */
	__u64 heaps[MAX_HEAPS];    /* read already: interpreters may share one */
	__u32 heap_count, interp_count;
	__u64 objects; /* arena objects of the heap being read */
	/* number of the one that comes next, and of the one behind the last */
	__u32 arena, arena_stop;
	__u64 pool, pools_end; /* in the arena being read */
	__u64 head[POOL_HEAD_WORDS];
	__u64 block; /* on the pool's free list */
	__u32 block_bytes, carved, free_count, inconsistent;
	__u32 inverse; /* of block_bytes in steps: to divide by it would be half of a link's time */
	__u64 blocks, large_blocks, pools_unreadable;
	__u64 steps, steps_before; /* of this piece, and of those before it */
	__u64 slowest_ns;          /* of all pieces */
	__u32 pieces;
	__u32 arenas;      /* read whole */
	__u32 unread;      /* something could not be read */
	__u32 arenas_lost; /* some that nobody knows where to find */
	__u32 failed;
	__u32 running; /* it has begun, and has not ended */
	__u32 whole;   /* all of the heap was looked at */
};

TASK_STATE(heap_walks, struct heap_walk)

/*
 * A pool's bytes: its links are followed in a copy, ten times as fast as in the target. Nothing as
 * large is kept of a thread, and what is kept by processor another program may write meanwhile; so
 * whoever needs one takes one that is free.
 */
#define POOL_COPIES      64
#define POOL_COPIES_LOOK 8

struct pool_copy {
	__u64 taken;
	__u64 words[POOL_BYTES_MAX / sizeof(__u64)];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, POOL_COPIES);
	__type(key, __u32);
	__type(value, struct pool_copy);
} pool_copies SEC(".maps");

/* What a turn of the reading's loop is given. */
struct heap_turn {
	struct heap_walk *walk;
	struct pool_copy *copy;
};

/*
 * What cannot be read (a page that is not resident, an address space that is gone) is 0, and leaves
 * a mark.
 */
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

/*
 * Takes the block at an offset behind the pool's first one out of those that live. 0; -1: none
 * begins there, or it is on the list twice.
 */
static __always_inline int block_free_take(struct heap_walk *walk, __u64 at)
{
	__u32 number =
		(at / EVENT_BLOCK_STEP & (EVENT_POOL_BLOCKS - 1)) * walk->inverse >> INVERSE_SHIFT;
	__u64 *live = &walk->record.live[number / 64 & (POOL_WORDS - 1)];

	if (number >= walk->carved || at != (__u64)number * walk->block_bytes ||
	    !(*live >> (number & 63) & 1))
		return -1;
	*live &= ~(1ull << (number & 63));
	return 0;
}

/* Some links of a pool's free list, so many that the calls do not count. */
static long free_blocks(__u32 index UNUSED, void *context)
{
	struct heap_walk *walk = ((struct heap_turn *)context)->walk;
	struct pool_copy *copy = ((struct heap_turn *)context)->copy;
	__u64 block = walk->block, at;
	int i;

	for (i = 0; i < LINKS_A_TURN && block; i++) {
		at = block - RECORD(walk)->address;
		if (block_free_take(walk, at)) {
			walk->inconsistent = 1;
			break;
		}
		at += walk->heap.pool_header_size;
		block = copy->words[at / sizeof(__u64) & (POOL_BYTES_MAX / sizeof(__u64) - 1)];
	}
	walk->steps += i;
	walk->free_count += i;
	walk->block = block;
	return !block || walk->inconsistent;
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
	walk->steps += STEPS_RECORD;
	if (record_output(&walk->record, bytes, LOSS_PROCESS))
		walk->failed = 1;
}

#define HEAD_U32(walk, offset) (*(__u32 *)((__u8 *)(walk)->head + OFFSET_WITHIN(offset, 44, 4)))
#define HEAD_U64(walk, offset) (*(__u64 *)((__u8 *)(walk)->head + OFFSET_WITHIN(offset, 40, 8)))

/*
 * What RECORD(walk), carved and the free list begin with, by walk->head. If it is no pool's,
 * walk->inconsistent is set.
 */
static __always_inline void pool_head(struct heap_walk *walk, __u64 pool)
{
	__u32 szidx = HEAD_U32(walk, walk->heap.pool_szidx);
	__u32 next = HEAD_U32(walk, walk->heap.pool_nextoffset);

	walk->block = HEAD_U64(walk, walk->heap.pool_freeblock);
	walk->block_bytes = (szidx + 1) * EVENT_BLOCK_STEP;
	walk->free_count = 0;
	RECORD(walk)->address = pool + walk->heap.pool_header_size;
	walk->inconsistent = walk->unread || szidx >= EVENT_SMALL_BYTES / EVENT_BLOCK_STEP ||
			     next < walk->heap.pool_header_size || next > walk->heap.pool_bytes;
	if (walk->inconsistent)
		return;
	walk->carved = (next - walk->heap.pool_header_size) / walk->block_bytes;
	walk->inverse = (1u << INVERSE_SHIFT) / (szidx + 1) + 1;
}

/*
 * Takes the blocks of the pool's free list out of RECORD(walk). What lies behind the last block's
 * link may never have been touched: a page that is not there, and cannot be copied.
 */
static __always_inline void pool_links(struct heap_turn *turn, __u64 pool)
{
	struct heap_walk *walk = turn->walk;
	__u32 bytes = walk->heap.pool_header_size + (walk->carved - 1) * walk->block_bytes +
		      sizeof(__u64);

	if (!walk->carved || bytes > POOL_BYTES_MAX)
		bytes = POOL_BYTES_MAX;
	walk->steps += bytes / 64 * STEPS_LINE;
	if (bpf_probe_read_user(turn->copy->words, bytes, (void *)pool))
		walk->inconsistent = 1;
	else
		bpf_loop(EVENT_POOL_BLOCKS / LINKS_A_TURN + 1, free_blocks, turn, 0);
}

/* The next pool of the arena. */
static __always_inline void pool_next(struct heap_turn *turn)
{
	struct heap_walk *walk = turn->walk;
	__u64 pool = walk->pool;
	__u32 count;

	walk->pool += walk->heap.pool_bytes;
	walk->steps += STEPS_POOL;
	walk->unread = bpf_probe_read_user(walk->head, sizeof(walk->head), (void *)pool) != 0;
	count = HEAD_U32(walk, walk->heap.pool_count);
	if (!count && !walk->unread)
		return;
	pool_head(walk, pool);
	if (!walk->inconsistent) {
		pool_fill(walk);
		if (walk->block)
			pool_links(turn, pool);
	}
	if (walk->inconsistent || walk->carved - walk->free_count != count) {
		walk->pools_unreadable++;
		RECORD(walk)->block_bytes = 0;
		RECORD(walk)->count =
			(walk->heap.pool_bytes - walk->heap.pool_header_size) / EVENT_BLOCK_STEP;
	} else {
		walk->blocks += count;
		RECORD(walk)->block_bytes = walk->block_bytes;
		RECORD(walk)->count = walk->carved;
	}
	pool_output(walk);
}

/* All pools of an arena were read: what is not among them is dead. */
static __always_inline void arena_end(struct heap_walk *walk)
{
	struct event_census_arena *record = &walk->arena_record;

	walk->pools_end = 0;
	walk->arenas++;
	walk->steps += STEPS_RECORD;
	record->id = walk->id;
	header_fill(&record->header, EVENT_CENSUS_ARENA, sizeof(*record));
	if (record_output(record, sizeof(*record), LOSS_PROCESS))
		walk->failed = 1;
}

/* The next arena object. */
static __always_inline void arena_next(struct heap_walk *walk)
{
	__u64 object = walk->objects + (__u64)walk->arena++ * walk->heap.arena_object_size;
	__u64 address, used;

	walk->steps += STEPS_ARENA;
	walk->unread = 0;
	address = heap_u64(walk, object + walk->heap.arena_address);
	used = heap_u64(walk, object + walk->heap.arena_pool_address);
	walk->failed |= walk->unread;
	if (!address || walk->failed)
		return;
	if (address & (EVENT_BLOCK_STEP - 1) || used < address) {
		walk->arenas_lost = 1;
		walk->pools_unreadable += walk->heap.arena_bytes / walk->heap.pool_bytes;
		return;
	}
	walk->arena_record.address = address;
	walk->arena_record.bytes = walk->heap.arena_bytes;
	walk->pools_end = address + walk->heap.arena_bytes;
	if (used < walk->pools_end)
		walk->pools_end = used;
	walk->pool = (address + walk->heap.pool_bytes - 1) & -(__u64)walk->heap.pool_bytes;
}

/* A heap's arenas come next. */
static __always_inline void heap_head(struct heap_walk *walk, __u64 arenas, __u64 maxarenas,
				      __u64 raw_blocks)
{
	__u64 large;

	walk->unread = 0;
	walk->arena = 0;
	walk->arena_stop = heap_u32(walk, maxarenas);
	walk->objects = heap_u64(walk, arenas);
	large = heap_u64(walk, raw_blocks);
	if (walk->unread || walk->arena_stop > MAX_ARENAS)
		walk->failed = 1;
	if (!walk->objects)
		walk->arena_stop = 0;
	if ((__s64)large > 0)
		walk->large_blocks += large;
}

/*
 * Its structure begins with two words for each size class: the address of a pool, or the class's
 * own. What is somewhere else in this release has anything there. user/python/heap_place.c looks at
 * all of them, here some do: the verifier counts them.
 */
static __always_inline int is_heap_state(struct heap_walk *walk, __u64 state)
{
	__u64 strange = 0, word;
	int i;

	for (i = 0; i < HEAP_LISTS; i += HEAP_LISTS_STEP) {
		word = heap_u64(walk, state + i * LIST_BYTES);
		if (word != state + i * LIST_BYTES - LIST_BYTES)
			strange |= !word | (word & (walk->heap.pool_bytes - 1));
	}
	return !strange;
}

/* The next interpreter (3.12+). */
static __always_inline void interpreter_next(struct heap_walk *walk)
{
	__u64 state, interp = walk->interp;
	int i;

	walk->steps += STEPS_INTERPRETER;
	walk->unread = 0;
	walk->interp = heap_u64(walk, interp + walk->interp_next);
	state = interp + walk->heap.interp_obmalloc;
	if (walk->heap.obmalloc_is_pointer)
		state = heap_u64(walk, state);
	if (walk->unread || ++walk->interp_count > MAX_INTERPRETERS)
		walk->failed = 1; /* more than that, or a list without end */
	if (!state || walk->failed)
		return;
	for (i = 0; i < MAX_HEAPS && i < (int)walk->heap_count; i++)
		if (walk->heaps[i] == state)
			return;
	if (i >= MAX_HEAPS || !is_heap_state(walk, state)) {
		walk->failed = 1;
		return;
	}
	walk->heaps[i] = state;
	walk->heap_count++;
	heap_head(walk, state + walk->heap.mgmt_arenas, state + walk->heap.mgmt_maxarenas,
		  state + walk->heap.mgmt_raw_blocks);
}

/* One turn: whatever comes next. */
static long heap_turn(__u32 index UNUSED, void *context)
{
	struct heap_turn *turn = context;
	struct heap_walk *walk = turn->walk;

	if (walk->failed || walk->steps >= HEAP_STEPS || !walk->heap.pool_bytes)
		return 1;
	if (!walk->pools_end && walk->arena >= walk->arena_stop && !walk->interp) {
		walk->whole = 1;
		return 1;
	}
	if (!walk->pools_end && walk->arena >= walk->arena_stop)
		interpreter_next(walk);
	else if (!walk->pools_end)
		arena_next(walk);
	else if (walk->pool + walk->heap.pool_bytes <= walk->pools_end)
		pool_next(turn);
	else
		arena_end(walk);
	return 0;
}

static __always_inline int census_output(struct heap_walk *walk, __u32 type)
{
	struct event_census *record = &walk->census;
	__u64 large = walk->large_blocks;

	if (walk->heap.raw_is_total)
		large = large > walk->blocks ? large - walk->blocks : 0;
	record->id = walk->id;
	record->failed = walk->failed        ? EVENT_CENSUS_GIVEN_UP
			 : !walk->whole      ? EVENT_CENSUS_CUT
			 : walk->arenas_lost ? EVENT_CENSUS_PARTIAL
					     : EVENT_CENSUS_COMPLETE;
	record->large_blocks = large;
	record->pools_unreadable = walk->pools_unreadable;
	record->elapsed_ns = 0;
	record->steps = walk->steps_before;
	record->slowest_ns = walk->slowest_ns;
	record->pieces = walk->pieces;
	record->arenas = walk->arenas;
	record->arenas_unread = walk->arena_stop - walk->arena + !!walk->pools_end;
	header_fill(&record->header, type, sizeof(*record));
	if (type == EVENT_CENSUS_DONE)
		record->elapsed_ns = record->header.time_ns - (walk->id & ~EVENT_CENSUS_INSIDE);
	return record_output(record, sizeof(*record), LOSS_PROCESS);
}

/* Functions of their own for the verifier, which looks at them once, wherever the walk is kept. */
__noinline int heap_walk_begin(struct heap_walk *walk, struct abi_target *target)
{
	if (!walk || !target)
		return 0;
	walk->heap = target->heap;
	target->heap.pool_bytes = 0;
	walk->id = bpf_ktime_get_ns() | EVENT_CENSUS_INSIDE;
	walk->blocks = walk->large_blocks = walk->pools_unreadable = 0;
	walk->heap_count = walk->interp_count = walk->arenas = walk->arenas_lost = walk->failed =
		walk->unread = 0;
	walk->steps_before = walk->slowest_ns = walk->pools_end = walk->interp = 0;
	walk->pieces = walk->whole = walk->arena = walk->arena_stop = 0;
	walk->running = !census_output(walk, EVENT_CENSUS);
	if (walk->heap.interp_obmalloc) {
		walk->interp =
			heap_u64(walk, target->runtime + target->offsets.runtime_interpreters_head);
		walk->interp_next = target->offsets.interp_next;
		walk->failed = walk->unread;
	} else {
		heap_head(walk, walk->heap.arenas, walk->heap.maxarenas, walk->heap.raw_blocks);
	}
	return 0;
}

__noinline int heap_walk_piece(struct heap_walk *walk, struct pool_copy *copy)
{
	struct heap_turn turn = {.walk = walk, .copy = copy};
	__u64 began = bpf_ktime_get_ns();

	if (!walk || !copy)
		return 0;
	walk->steps = 0;
	bpf_loop(HEAP_STEPS, heap_turn, &turn, 0);
	walk->steps_before += walk->steps;
	walk->pieces++;
	began = bpf_ktime_get_ns() - began;
	if (began > walk->slowest_ns)
		walk->slowest_ns = began;
	return 0;
}

static __always_inline struct pool_copy *pool_copy_take(void)
{
	__u32 first = bpf_get_smp_processor_id(), slot, i;
	struct pool_copy *copy;

	for (i = 0; i < POOL_COPIES_LOOK; i++) {
		slot = (first + i) & (POOL_COPIES - 1);
		copy = bpf_map_lookup_elem(&pool_copies, &slot);
		if (copy && !__sync_lock_test_and_set(&copy->taken, 1))
			return copy;
	}
	return NULL;
}

/* The next piece of the running thread's reading. Without room for a copy nothing is read of it. */
__noinline int heap_walk_step(struct heap_walk *walk)
{
	struct pool_copy *copy = pool_copy_take();

	if (!copy)
		return 0;
	if (walk)
		heap_walk_piece(walk, copy);
	__sync_lock_test_and_set(&copy->taken, 0);
	return 0;
}

__noinline int heap_walk_end(struct heap_walk *walk)
{
	if (!walk || !walk->running)
		return 0;
	walk->running = 0;
	walk->failed |= walk->whole && !walk->arenas;
	census_output(walk, EVENT_CENSUS_DONE);
	return 0;
}

enum heap_result {
	HEAP_NOTHING, /* there is none to be read, or it was read before */
	HEAP_MORE,    /* a piece was read, and there is more */
	HEAP_ENDED,   /* the reading has ended just now */
};

/*
 * Reads a piece of the heap, which is read once in a process's life; is_last: there is no other
 * piece.
 */
static __always_inline enum heap_result heap_read(struct abi_target *target, int is_last)
{
	struct task_struct *task = (void *)bpf_get_current_task_btf();
	int is_first = target->heap.pool_bytes != 0;
	struct heap_walk *walk;

	if (!has_loop)
		return HEAP_NOTHING;
	walk = is_first ? heap_walks_get(task) : heap_walks_find(task);
	if (!walk) {
		loss_add(LOSS_PROCESS, is_first);
		return HEAP_NOTHING;
	}
	if (is_first)
		heap_walk_begin(walk, target);
	if (!walk->running)
		return HEAP_NOTHING;
	heap_walk_step(walk);
	if (!is_last && !walk->whole && !walk->failed)
		return HEAP_MORE;
	heap_walk_end(walk);
	return HEAP_ENDED;
}

/*
 * The running thread ends, or its program does: a reading that it began is as whole as it will get.
 */
static __always_inline void heap_abandon(void)
{
	struct heap_walk *walk = heap_walks_find((void *)bpf_get_current_task_btf());

	if (has_loop && walk)
		heap_walk_end(walk);
}

#endif
