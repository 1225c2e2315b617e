/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* Records of blocks and of mapped memory. */
#pragma once

#include "abi/event_types.h"

/*
 * The allocator domain (CPython's PyMemAllocatorDomain) that a block was requested from.
 * tracemalloc's domain is another number: event_alloc.domain.
 */
enum event_api {
	EVENT_API_RAW = 0, /* PyMem_Raw*: the caller may not hold the GIL */
	EVENT_API_MEM = 1, /* PyMem_* */
	EVENT_API_OBJ = 2, /* PyObject_*; also PyMem_* where both share one implementation */
	/* PyTraceMalloc_Track/Untrack: an extension module reports its own memory */
	EVENT_API_TRACK = 3,
	/* as EVENT_API_OBJ, for a request that pymalloc has passed on to malloc */
	EVENT_API_LARGE = 4,
	/*
	 * Growth mode: a pool of pymalloc's, in use again or new. The address is that of its first
	 * block, as in struct event_census_pool; bytes are the pool's.
	 */
	EVENT_API_POOL = 5,
	/* malloc and its kin: a layer below Python's allocators, in a table of its own */
	EVENT_API_NATIVE = 6,
};

/*
 * Layers that are traced side by side. Their bytes are never added up: most of one layer's memory
 * lies in blocks of the next.
 */
enum event_layer {
	EVENT_LAYER_PYTHON = 0, /* Python's allocators: every api but EVENT_API_NATIVE */
	EVENT_LAYER_NATIVE = 1, /* malloc and its kin */
	EVENT_LAYER_MMAP = 2,   /* regions (EVENT_MAP and its kin) */
	EVENT_LAYER_PAGES = 3,  /* resident pages (EVENT_FAULT, EVENT_PAGES); alone */
	EVENT_LAYERS
};
#define EVENT_LAYER_TABLES 2 /* the layers that are tables of blocks */

/* The field `api` of an allocation or a free: enum event_api, and flags. */
#define EVENT_API_MASK 0xffu
/* the block begins EVENT_HOOKS_BEFORE bytes within the allocator's block */
#define EVENT_API_HOOKED  0x200u
#define EVENT_API_ROUNDED 0x100u /* bytes is the size class: the requested size is unknown */

/*
 * CPython's debugging hooks (_PyMem_Debug*) prepend EVENT_HOOKS_BEFORE bytes to a block and add
 * EVENT_HOOKS_BYTES in total. Records have the address and the size that the program sees.
 */
#define EVENT_HOOKS_BEFORE 16u
#define EVENT_HOOKS_BYTES  24u

/* pymalloc passes requests of 0 or of more than EVENT_SMALL_BYTES bytes on to malloc. */
#define EVENT_SMALL_BYTES 512u
/* pymalloc's size classes and block addresses are multiples of EVENT_BLOCK_STEP. */
#define EVENT_BLOCK_STEP        16u
#define EVENT_POOL_HEADER_BYTES 48u /* in a pool, before its first block */

struct event_alloc {
	struct event_header header;
	__u64 address;
	__u64 bytes;    /* as requested, not as rounded by the allocator */
	__u64 stack_id; /* of an EVENT_STACK, maybe an earlier one; 0: no Python frame */
	__u32 domain;   /* tracemalloc's: 0 for Python's own allocators */
	__u32 api;      /* enum event_api | EVENT_API_ROUNDED | EVENT_API_HOOKED */
};

/*
 * A block of the native layer that the process has sampled itself, with a probability of
 * bytes / weighted_bytes. Such a block's EVENT_FREE follows as any other's.
 */
struct event_alloc_weighted {
	struct event_header header;
	__u64 address;
	__u64 bytes;
	__u64 stack_id;       /* as in struct event_alloc */
	__u64 weighted_bytes; /* what the block stands for, as the process says */
};

struct event_free {
	struct event_header header;
	__u64 address;
	__u32 domain;
	__u32 api;
};

/* A range of whole pages. stack_id as in struct event_alloc, 0 with EVENT_UNMAP. */
struct event_map {
	struct event_header header;
	__u64 address;
	__u64 bytes;
	__u64 stack_id;
	__u64 old_address, old_bytes; /* EVENT_REMAP */
	__u64 protection;             /* EVENT_MAP, EVENT_PROTECT: PROT_*; 0: only reserved */
};

/* A page fault was handled: the page is resident, unless the process has released it since. */
struct event_fault {
	struct event_header header;
	__u64 address;  /* of the page */
	__u64 bytes;    /* of a page of the kernel's: the fault may have brought more of them */
	__u64 stack_id; /* as in struct event_alloc */
};

/*
 * The resident pages of one map. A walk is a series of such records, in order of address; a large
 * map has several. A record's runs lie within whole areas of EVENT_PAGES_AREA bytes, so that what a
 * fault has brought besides its own page is in one record.
 */
#define EVENT_PAGES_AREA  (2u << 20)
#define EVENT_PAGES_UNIT  4096u /* bytes, whatever the size of the kernel's pages */
#define EVENT_PAGES_MAX   4096u /* runs */
#define EVENT_PAGES_FIRST 1u    /* the walk begins */
#define EVENT_PAGES_LAST  2u    /* it is complete */
#define EVENT_PAGES_HUGE  4u    /* the map has huge pages */
struct event_page_run {
	__u64 address;
	__u32 count;   /* of EVENT_PAGES_UNIT; at least 1 */
	__u32 is_file; /* 1: pages of a file, or shared memory */
};
struct event_pages {
	struct event_header header;
	__u32 flags; /* EVENT_PAGES_* */
	__u32 count; /* of runs */
	/* LAST: resident bytes that the walk could not tell, because their map is too large */
	__u64 unread_bytes;
	struct event_page_run runs[];
};

_Static_assert(sizeof(struct event_fault) == 48, "fault");
_Static_assert(sizeof(struct event_pages) == 40, "pages");
_Static_assert(__builtin_offsetof(struct event_alloc, stack_id) == 40, "alloc.stack_id");
_Static_assert(sizeof(struct event_alloc) == 56, "alloc");
_Static_assert(sizeof(struct event_alloc_weighted) == 56, "alloc_weighted");
_Static_assert(sizeof(struct event_free) == 40, "free");
_Static_assert(sizeof(struct event_map) == 72, "map");
