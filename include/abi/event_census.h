/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * Records of a census, a walk of pymalloc's heap: EVENT_CENSUS, an EVENT_CENSUS_THREAD for every
 * thread that may be between a record and the operation that it reports, an EVENT_CENSUS_POOL for
 * every pool in use, EVENT_CENSUS_DONE. The heap changes during the walk: the events between these
 * records are newer than what a pool's record says.
 */
#pragma once

#include "abi/event_types.h"

struct event_census {
	struct event_header header;
	__u64 id;       /* tells the records of overlapping walks apart */
	__u32 baseline; /* 1: the first walk: blocks without an event predate the trace */
	__u32 failed;   /* EVENT_CENSUS_DONE: enum event_census_end */
	/* The fields from here on are valid in EVENT_CENSUS_DONE only. */
	__u64 large_blocks; /* passed on to malloc by pymalloc; only their number is known */
	__u64 pools_unreadable;
	__u64 elapsed_ns;
	__u64 frozen_ns; /* for how long the target was stopped; 0: it was not */
	/*
	 * Older captures lack the fields from here on: their record is shorter. 0 for walks from
	 * outside the target.
	 */
	/* of BPF's budget for a piece (bpf/python/heap_walk.h), over all pieces */
	__u64 steps;
	__u64 slowest_ns; /* the piece that took the longest */
	__u32 pieces;
	__u32 arenas;        /* read completely */
	__u32 arenas_unread; /* EVENT_CENSUS_CUT: an upper bound for the heaps that were found */
	__u32 pad;
};

#define EVENT_CENSUS_MIN 72u /* bytes of the shortest struct event_census */

/*
 * Flag in the id of a walk that BPF makes as the interpreter shuts down. No walk from outside
 * overlaps with it.
 */
#define EVENT_CENSUS_INSIDE 1ull

enum event_census_end {
	EVENT_CENSUS_COMPLETE = 0,
	EVENT_CENSUS_GIVEN_UP = 1, /* its records say nothing */
	/* some pools were not found: a block that is not reported may be live */
	EVENT_CENSUS_PARTIAL = 2,
	/* BPF's steps ran out: a block that is not reported is dead only in the reported arenas */
	EVENT_CENSUS_CUT = 3,
};

#define EVENT_POOL_BLOCKS 1024u /* in a pool at most: 16 KiB of 16-byte blocks */

struct event_census_pool {
	struct event_header header;
	__u64 id;
	__u64 address; /* of its first block */
	/* of each; 0: the pool is unreadable, its blocks lie in the 16-byte steps that follow */
	__u32 block_bytes;
	__u32 count;  /* blocks, live or not; at most EVENT_POOL_BLOCKS */
	__u64 live[]; /* a bit for each, in (count + 63) / 64 words */
};

/*
 * Follows the EVENT_CENSUS_POOL of some pools: the sizes that were requested for the objects'
 * blocks, as computed from the objects' types, rounded up to 8 bytes.
 */
struct event_census_sizes {
	struct event_header header;
	__u64 id;
	__u64 address; /* as in the pool's record */
	__u32 block_bytes;
	__u32 count; /* at most EVENT_POOL_BLOCKS */
	/* of each block, padded to a multiple of 4 entries; 0: no object, or its size is unknown */
	__u16 bytes[];
};

struct event_census_arena {
	struct event_header header;
	__u64 id;
	__u64 address, bytes;
};

_Static_assert(__builtin_offsetof(struct event_census, steps) == EVENT_CENSUS_MIN, "census.steps");
_Static_assert(sizeof(struct event_census) == 104, "census");
_Static_assert(sizeof(struct event_census_arena) == 48, "census_arena");
_Static_assert(sizeof(struct event_census_pool) == 48, "census_pool");
