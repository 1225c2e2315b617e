/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The structures of jemalloc 5.2 and 5.3 on x86-64 with pages of 4 KiB, as bytes that were copied
 * from a process. Pure. Which layout a process has is proven there (jemalloc_tree.h).
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/malloc/allocator.h"

#define JEMALLOC_PAGE         4096ull
#define JEMALLOC_ADDRESS_BITS 47 /* of a process */
#define JEMALLOC_SIZES_MAX    255u
#define JEMALLOC_SLAB_BLOCKS  512u /* limit of blocks in a slab */
#define JEMALLOC_BLOCK_ALIGN  (2ull << 20)
#define JEMALLOC_LEVELS_MAX   3u

/*
 * A radix tree leads from each page to the extent that it is in. Its tables but the last have
 * pointers; the last have an element for each page. An extent's first and last page have one, a
 * slab's pages between them, too.
 */
struct jemalloc_layout {
	unsigned int minor;         /* of the oldest jemalloc 5.minor */
	unsigned int levels;        /* of the tree */
	unsigned int index_bits;    /* of the index in a table */
	unsigned int element_bytes; /* in tables of the last level; 8: packed in one word */
	/* in the first word of an extent; states has a bit for each that is no transition */
	unsigned int state_shift, state_bits, size_shift, free_shift;
};

/* NULL: there is no such layout. */
const struct jemalloc_layout *jemalloc_layout_at(size_t index);
uint64_t jemalloc_table_bytes(const struct jemalloc_layout *layout, unsigned int level);
/* How far an index in a table of that level is shifted in an address; level 0 is the root. */
unsigned int jemalloc_table_shift(const struct jemalloc_layout *layout, unsigned int level);

struct jemalloc_element {
	uint64_t extent; /* address of its structure; 0: the page has none */
	unsigned int size_class;
	int state; /* enum jemalloc_state; -1: this layout does not tell */
	bool slab;
};

/* bytes: element_bytes of them. */
struct jemalloc_element jemalloc_element_read(const struct jemalloc_layout *layout,
					      const uint8_t *bytes);

enum jemalloc_state {
	JEMALLOC_ACTIVE,
	JEMALLOC_DIRTY,
	JEMALLOC_MUZZY,
	JEMALLOC_RETAINED,
	JEMALLOC_STATES /* from here on: changes at the moment */
};

#define JEMALLOC_EXTENT_BYTES 128u

struct jemalloc_extent {
	uint64_t start, bytes; /* whole pages */
	uint64_t address;      /* of a large block, which may begin behind the start */
	unsigned int arena;
	unsigned int state; /* enum jemalloc_state */
	unsigned int size_class;
	unsigned int free; /* blocks of a slab */
	bool slab;
	uint64_t free_map[JEMALLOC_SLAB_BLOCKS / 64]; /* of a slab; bit n: block n is free */
};

void jemalloc_extent_read(const struct jemalloc_layout *layout,
			  const uint8_t bytes[JEMALLOC_EXTENT_BYTES], struct jemalloc_extent *out);

/* The bytes of blocks of each size class. */
struct jemalloc_sizes {
	unsigned int count;
	uint64_t bytes[JEMALLOC_SIZES_MAX];
};

/* The table of sizes, anywhere among words. 0; -ENOENT. */
int jemalloc_sizes_find(const uint8_t *bytes, size_t size, struct jemalloc_sizes *out);
/* How many of them slabs may have. */
unsigned int jemalloc_sizes_small(const struct jemalloc_sizes *sizes);
/*
 * May this extent be that of the page of an element? Checks all that its words tell: its bounds,
 * that both agree, and that a slab has as many free blocks as it counts.
 */
bool jemalloc_extent_fits(const struct jemalloc_extent *extent,
			  const struct jemalloc_element *element, uint64_t page,
			  const struct jemalloc_sizes *sizes);
/*
 * Bytes of the block that an active extent without slab is. *pad: bytes that large extents have
 * more than their blocks (0 or a page: an option), as far as those seen so far tell; updated.
 */
uint64_t jemalloc_large_bytes(const struct jemalloc_extent *extent,
			      const struct jemalloc_sizes *sizes, uint64_t *pad);

/* Memory of its own structures. The first of an arena has the arena. */
struct jemalloc_block {
	uint64_t start, end;
	uint64_t used_end; /* what is behind was never given to a structure */
	bool first;
};

#define JEMALLOC_BLOCK_HEAD 40u

/* Is what begins at this address such memory? */
bool jemalloc_block_read(const uint8_t bytes[JEMALLOC_BLOCK_HEAD], uint64_t address,
			 struct jemalloc_block *out);

/* "5.3.0", of the version that its programs can ask for, among read-only data. 0; -ENOENT. */
int jemalloc_version_find(const char *text, size_t size, char out[ALLOCATOR_VERSION]);
