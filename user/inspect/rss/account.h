/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Divides a process's resident memory among what it is used for. Pure: it takes the maps with their
 * resident pages, then ranges of addresses with what is in them, and counts only what is resident.
 * Bytes are never counted twice: each range belongs to one region, regions do not overlap, and a
 * region is taken from its start to its end. So the kinds, and what is left of each map, add up to
 * the maps' resident bytes.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "runtime/malloc/allocator.h"

#define MEMORY_PAGE 4096u

enum memory_kind {
	MEMORY_PY_LIVE,       /* blocks of pymalloc or mimalloc that are in use */
	MEMORY_PY_WAITING,    /* of these, what is freed once no thread reads it any more */
	MEMORY_PY_PINNED,     /* free blocks in pools that have blocks in use */
	MEMORY_PY_HEADERS,    /* headers of pools, and what is left over at their ends */
	MEMORY_PY_FREE_POOLS, /* and parts of arenas that were never used */
	MEMORY_PY_UNREAD,
	MEMORY_USED_PYTHON, /* allocated blocks of malloc that Python's objects refer to */
	MEMORY_USED,        /* other allocated blocks of malloc */
	MEMORY_TCACHE,      /* malloc's free memory, by the list that it is in */
	MEMORY_FASTBINS,
	MEMORY_BINS,
	MEMORY_TOP,
	MEMORY_OWN, /* malloc's own structures */
	MEMORY_UNREAD,
	MEMORY_MAPPED_PYTHON, /* blocks of malloc with their own mapping, divided in the same way */
	MEMORY_MAPPED,
	MEMORY_STACKS, /* of threads other than the first */
	MEMORY_BSS,    /* zero-initialised data of files */
	MEMORY_KINDS
};

/* Behind them those of allocators that replace malloc: of the n-th an enum allocator_kind, or: */
#define MEMORY_ALLOCATOR_PYTHON   ALLOCATOR_KINDS /* as MEMORY_USED_PYTHON */
#define MEMORY_ALLOCATOR_KINDS    (ALLOCATOR_KINDS + 1)
#define MEMORY_ALLOCATOR(n, kind) (MEMORY_KINDS + (n)*MEMORY_ALLOCATOR_KINDS + (kind))
#define MEMORY_KINDS_ALL          (MEMORY_KINDS + ALLOCATORS_MAX * MEMORY_ALLOCATOR_KINDS)

enum memory_source {
	MEMORY_ANONYMOUS, /* no name, or one that the program gave it */
	MEMORY_BREAK,
	MEMORY_STACK, /* of the first thread */
	MEMORY_FILE,
	MEMORY_SHARED, /* shared memory: memfd, /dev/shm, System V */
	MEMORY_KERNEL, /* vdso and the like */
};

/* Resident bytes of a map as smaps gives them. */
struct memory_map {
	uint64_t start, end;
	enum memory_source source;
	char *name; /* owned; "" for none */
	int writable;
	int shared; /* MAP_SHARED */
	uint64_t rss, private_clean, private_dirty, shared_clean, shared_dirty, swap;
	uint64_t anonymous; /* pages of its own, no file's */
	uint64_t huge;      /* of them in transparent huge pages */
	/*
	 * bit n: page n is resident; NULL: all of them if rss is the size of the map, else unknown,
	 * and taken for none. Owned.
	 */
	uint64_t *pages;
	/*
	 * bit n: no other process has page n; NULL: unknown, and taken for none. Owned. Of a map
	 * with it private_clean and private_dirty add up to the same.
	 */
	uint64_t *own;
	uint64_t taken, taken_own; /* resident bytes that regions took, and those of its own */
};

struct memory_sum {
	uint64_t size;    /* resident bytes */
	uint64_t own;     /* of them, in pages that no other process has */
	uint64_t virtual; /* bytes, resident or not */
	uint64_t count;   /* blocks, chunks or ranges */
};

struct memory_range {
	uint64_t start, end;
};

struct memory_account {
	struct memory_map *maps; /* by address, disjoint */
	size_t map_count, map_capacity;
	struct memory_range *regions; /* by address, disjoint */
	size_t region_count, region_capacity;
	struct memory_sum sums[MEMORY_KINDS_ALL];
	size_t last; /* the map that was last found */
};

/* A region that is being taken. */
struct memory_region {
	struct memory_account *account;
	uint64_t at, end;
};

void memory_account_free(struct memory_account *account);
/* Resident bytes of [start, end). */
uint64_t memory_resident(struct memory_account *account, uint64_t start, uint64_t end);
/* The map that holds an address, or NULL. */
struct memory_map *memory_map_at(struct memory_account *account, uint64_t address);
/* 0; -EEXIST: another region has a part of it; -EINVAL: it is empty; -ENOMEM. */
int memory_region_open(struct memory_account *account, uint64_t start, uint64_t end,
		       struct memory_region *region);
/*
 * Takes the region's bytes from where it was last taken to end, as `count` things of a kind. An end
 * outside what is left is moved into it.
 */
void memory_region_take(struct memory_region *region, uint64_t end, unsigned int kind,
			uint64_t count);
/*
 * Opens a region for a range, or adds the range to the region that ends there, and takes it. For
 * ranges in order of address. Errors as memory_region_open().
 */
int memory_range_take(struct memory_account *account, uint64_t start, uint64_t end,
		      unsigned int kind, uint64_t count);
