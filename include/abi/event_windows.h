/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * Records of EVENT_MODE_WINDOWS: when the probes of allocations were in place, and what heap walks
 * find in the blocks that were seen then.
 */
#pragma once

#include "abi/event_types.h"

/*
 * A window begins (end_ns 0) or ends. Allocations from pymalloc's pools that are reported in
 * between are all of that time; others are incomplete, and are not kept. So it is with those of
 * malloc's where Python's layer is not traced. A change to EVENT_MODE_WINDOWS begins a window, too:
 * blocks that are in the table then were seen in it.
 */
struct event_window {
	struct event_header header;
	__u64 start_ns, end_ns;
	/*
	 * Of one that ends: for how long its threads have run on a processor, or waited for one, in
	 * it, together. UINT64_MAX: not known.
	 */
	__u64 busy_ns;
};

/* What is in a block. */
enum event_kind {
	EVENT_KIND_FREE = 0,  /* it is not live */
	EVENT_KIND_OTHER = 1, /* no object: the items of a list, the keys of a dict */
	EVENT_KIND_DEAD = 2,  /* a dead object that CPython keeps for reuse */
	EVENT_KIND_FIRST = 3, /* from here on: a hash of the object's type */
};
/*
 * These bits of a kind are those of the object's length instead, where it has one that never
 * changes: of a str, bytes, tuple or int. The others are the type alone, and not all 0.
 */
#define EVENT_KIND_LENGTH 63u

struct event_census_kind {
	__u32 kind;
	/* a hash of content that never changes while the object lives; 0: there is none */
	__u32 print;
};

/*
 * What was found in the blocks of a pool. In a walk of the whole heap (id is that of its
 * EVENT_CENSUS) it follows the pool's EVENT_CENSUS_POOL. id 0: one of the pools that hold blocks
 * seen in windows was read, without a walk.
 */
struct event_census_kinds {
	struct event_header header;
	__u64 id;
	__u64 address; /* of the pool's first block */
	/* of each; 0: the pool could not be read, and there are no kinds */
	__u32 block_bytes;
	/* at most EVENT_POOL_BLOCKS: blocks that were handed out at least once; others are free */
	__u32 count;
	struct event_census_kind kinds[];
};

struct event_large_block {
	__u64 address; /* as malloc returned it */
	__u64 bytes;   /* that it can hold; its print contains them */
	struct event_census_kind kind;
};

/* What was found in blocks of malloc's that were seen in windows (EVENT_MODE_LARGE_WINDOWS). */
#define EVENT_LARGE_MAX 512u
struct event_census_large {
	struct event_header header;
	__u64 count; /* 1 to EVENT_LARGE_MAX */
	__u64 used;  /* allocated blocks of malloc's in all; 0: not counted */
	struct event_large_block blocks[];
};

/*
 * The blocks of malloc's that are allocated: all of them, for a process whose native layer is
 * traced in windows; for one whose Python layer is, those of more than EVENT_SMALL_BYTES. A walk is
 * some such records in a row, the chunks of all of them in order of address.
 */
#define EVENT_CHUNKS_MAX   1024u
#define EVENT_CHUNK_UNIT   16u /* all sizes and addresses are multiples of it */
#define EVENT_CHUNK_HEADER 16u /* from a chunk's beginning to what malloc() returned */
#define EVENT_CHUNKS_FIRST 1u  /* the walk begins */
#define EVENT_CHUNKS_LAST  2u  /* it is complete */
/*
 * Some allocator gives out blocks of the sizes of classes, which may be much larger than what was
 * asked for: their units are those of a chunk of glibc's with as much room. Then addresses are
 * multiples of half a unit.
 */
#define EVENT_CHUNKS_CLASSES 4u
struct event_chunk {
	__u64 address; /* as malloc() returned it */
	__u32 units;   /* of the chunk, with its header */
	__u32 unread;  /* 1: units that could not be read, whatever is in them */
};
struct event_census_chunks {
	struct event_header header;
	__u32 flags; /* EVENT_CHUNKS_* */
	__u32 count; /* at most EVENT_CHUNKS_MAX */
	struct event_chunk chunks[];
};

_Static_assert(sizeof(struct event_chunk) == 16, "chunk");
_Static_assert(sizeof(struct event_census_chunks) == 32, "census_chunks");
_Static_assert(sizeof(struct event_window) == 48, "window");
_Static_assert(sizeof(struct event_large_block) == 24, "large_block");
_Static_assert(sizeof(struct event_census_kinds) == 48, "census_kinds");
