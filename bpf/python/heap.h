/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * The walk of pymalloc's heap from within the target: when its interpreter begins to shut down, or
 * else when its last thread ends or it calls exec. A report of the whole run shows what is live at
 * that moment, and a walk from outside would come too late. The heap does not change meanwhile: the
 * thread that shuts the interpreter down holds the GIL, and a last thread is alone.
 *
 * The target determines how large its heap is, and nothing else runs on the processor during the
 * walk. So the walk is one flat loop with a budget of steps (HEAP_STEPS): each turn reads one
 * interpreter, one arena object or one pool, and is charged its price. Where the interpreter shuts
 * down there are several probes on consecutive instructions, and each walks one piece; between them
 * the thread can be preempted. A thread that ends has one piece. If the last piece does not reach
 * the end, the census ends as EVENT_CENSUS_CUT: user space then keeps the blocks that it had, but
 * for those in the arenas that an EVENT_CENSUS_ARENA reports as read.
 *
 * user/runtime/cpython/heap.c walks the heap of a running process in the same way and emits the
 * same records. Kernels without bpf_loop() do no walk here.
 */
#pragma once

#include "python/heap_pool.h"

/* All pools of an arena were read: a block that is in none of their records is dead. */
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

/* Begins a heap: its arenas come next. The arguments are addresses. */
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
 * Is this address an obmalloc state? It begins with two words for each size class: the address of a
 * pool, or of the class's own list head. If this release has the state at another offset, the words
 * are arbitrary. user/runtime/cpython/heap_place.c checks all of them. Here a few must do, since
 * each adds to what the verifier checks.
 */
static __always_inline int is_heap_state(struct heap_walk *walk, __u64 state)
{
	__u64 invalid = 0, word;
	int i;

	for (i = 0; i < HEAP_LISTS; i += HEAP_LISTS_STEP) {
		word = heap_u64(walk, state + i * LIST_BYTES);
		if (word != state + i * LIST_BYTES - LIST_BYTES)
			invalid |= !word | (word & (walk->heap.pool_bytes - 1));
	}
	return !invalid;
}

/* Was the heap of this state walked already? */
__noinline int heap_is_walked(struct heap_walk *walk, __u64 state)
{
	__u32 i;

	for (i = 0; walk && i < MAX_HEAPS && i < walk->heap_count; i++)
		if (walk->heaps[i] == state)
			return 1;
	return 0;
}

/* The next interpreter (3.12+). */
static __always_inline void interpreter_next(struct heap_walk *walk)
{
	__u64 state, interp = walk->interp;
	__u32 slot = walk->heap_count;

	walk->steps += STEPS_INTERPRETER;
	walk->unread = 0;
	walk->interp = heap_u64(walk, interp + walk->interp_next);
	state = interp + walk->heap.interp_obmalloc;
	if (walk->heap.obmalloc_is_pointer)
		state = heap_u64(walk, state);
	if (walk->unread || ++walk->interp_count > MAX_INTERPRETERS)
		walk->failed = 1; /* too many, or a circular list */
	if (!state || walk->failed || heap_is_walked(walk, state))
		return;
	if (slot >= MAX_HEAPS || !is_heap_state(walk, state)) {
		walk->failed = 1;
		return;
	}
	walk->heaps[slot] = state;
	walk->heap_count++;
	heap_head(walk, state + walk->heap.mgmt_arenas, state + walk->heap.mgmt_maxarenas,
		  state + walk->heap.mgmt_raw_blocks);
}

/* One turn of the loop: the next interpreter, arena object or pool, or the end of an arena. */
static long heap_turn(__u32 index UNUSED, void *context)
{
	struct heap_turn *turn = context;
	struct heap_walk *walk = turn->walk;

	if (walk->failed || walk->steps >= HEAP_STEPS || !walk->heap.pool_bytes)
		return 1;
	if (!walk->pools_end && walk->arena >= walk->arena_stop && !walk->interp) {
		walk->complete = 1;
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
			 : !walk->complete   ? EVENT_CENSUS_CUT
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

/*
 * Not inline, so that the verifier checks each once, whether the walk is in task storage or in the
 * hash.
 */
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
	walk->pieces = walk->complete = walk->arena = walk->arena_stop = 0;
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

/* A free copy, which the caller gives back by clearing `taken`; NULL: none was found. */
static __always_inline struct pool_copy *pool_copy_take(void)
{
	__u32 first = bpf_get_smp_processor_id(), slot, i;
	struct pool_copy *copy;

	for (i = 0; i < POOL_COPIES_TRIED; i++) {
		slot = (first + i) & (POOL_COPIES - 1);
		copy = bpf_map_lookup_elem(&pool_copies, &slot);
		if (copy && !__sync_lock_test_and_set(&copy->taken, 1))
			return copy;
	}
	return NULL;
}

/* The next piece of the running thread's walk. Skipped if no pool copy is free. */
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
	walk->failed |= walk->complete && !walk->arenas;
	census_output(walk, EVENT_CENSUS_DONE);
	return 0;
}

enum heap_result {
	HEAP_NOTHING, /* there is no heap to walk, or it was walked before */
	HEAP_MORE,    /* a piece was walked, and there is more */
	HEAP_ENDED,   /* the walk has just ended */
};

/*
 * Walks the next piece of the heap, which is walked once in a process's life. is_last: no other
 * piece will follow.
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
	if (!is_last && !walk->complete && !walk->failed)
		return HEAP_MORE;
	heap_walk_end(walk);
	return HEAP_ENDED;
}

/*
 * The running thread ends: a walk that it began ends with what it has read.
 */
static __always_inline void heap_abandon(void)
{
	struct heap_walk *walk = heap_walks_find((void *)bpf_get_current_task_btf());

	if (has_loop && walk)
		heap_walk_end(walk);
}
