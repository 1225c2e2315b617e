/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * The state of a walk of pymalloc's heap (heap.h): what is kept for the walking thread, the prices
 * of its steps, and the copies in which free lists are followed.
 */
#pragma once

#include "state.h"

#define MAX_INTERPRETERS 1024
#define MAX_HEAPS        32 /* of interpreters that do not share the main one's */
#define MAX_ARENAS       (1u << 20)
#define POOL_WORDS       (EVENT_POOL_BLOCKS / 64)
#define POOL_BYTES_MAX   16384u
#define POOL_HEAD_WORDS  6
#define LINKS_PER_TURN   8
#define HEAP_LISTS       32 /* of pools, one for each size class */
#define HEAP_LISTS_STEP  8
#define LIST_BYTES       16
/* division by the inverse is exact for EVENT_POOL_BLOCKS steps and sizes up to EVENT_SMALL_BYTES */
#define INVERSE_SHIFT 16

/*
 * A step is the time to follow one link of a free list, the cheapest operation. The prices of the
 * others are rounded up from measurements; docs/design/kernel.md, "Bounds in the kernel", has the
 * figures.
 */
#define HEAP_STEPS        180000u /* of a piece, exceeded by one pool at most */
#define STEPS_INTERPRETER 64
#define STEPS_ARENA       32 /* the arena object */
#define STEPS_POOL        48 /* the pool's header */
#define STEPS_RECORD      56
#define STEPS_LINE        2 /* 64 bytes of a pool that is copied */

/* struct event_census_pool with its bitmap. */
struct pool_record {
	__u64 head[sizeof(struct event_census_pool) / sizeof(__u64)];
	__u64 live[POOL_WORDS];
};

#define RECORD(walk) ((struct event_census_pool *)(walk)->record.head)

/* A thread's walk. */
struct heap_walk {
	struct abi_heap heap;
	struct pool_record record;
	struct event_census census;
	struct event_census_arena arena_record;
	__u64 id;
	__u64 interp, interp_next; /* interp_next: offset of the link */
	__u64 heaps[MAX_HEAPS];    /* walked already: interpreters may share a heap */
	__u32 heap_count, interp_count;
	__u64 objects;           /* arena objects of the current heap */
	__u32 arena, arena_stop; /* number of the next one; number of arenas */
	__u64 pool, pools_end;   /* the next pool; end of the current arena's pools, 0: none */
	__u64 head[POOL_HEAD_WORDS];
	__u64 block; /* the next one on the pool's free list */
	__u32 block_bytes, carved, free_count, inconsistent;
	__u32 inverse; /* of the block size: a division would take half of a link's time */
	__u64 blocks, large_blocks, pools_unreadable;
	__u64 steps, steps_before; /* of this piece; of those before it */
	__u64 slowest_ns;          /* of all pieces */
	__u32 pieces;
	__u32 arenas;      /* read completely */
	__u32 unread;      /* a read has failed */
	__u32 arenas_lost; /* some arenas have an invalid address */
	__u32 failed;
	__u32 running;  /* it has begun and has not ended */
	__u32 complete; /* the whole heap was walked */
};

TASK_STATE(heap_walks, struct heap_walk)

/*
 * A pool's bytes: following its links in a copy is ten times as fast as in the target. A copy is
 * too large for a thread's state, and another program may overwrite one that is kept per processor.
 * So a walk takes a free copy from these and gives it back.
 */
#define POOL_COPIES       64
#define POOL_COPIES_TRIED 8

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

/* The argument of the loop's turns. */
struct heap_turn {
	struct heap_walk *walk;
	struct pool_copy *copy;
};

/*
 * A word of the target. If it cannot be read (the page is not resident, the address space is gone)
 * the result is 0 and walk->unread is set.
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
