/* SPDX-License-Identifier: Apache-2.0 */
/* Where jemalloc's structures are in a process, and all extents that its tree leads to. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "proc/memory.h"
#include "proc/process.h"
#include "runtime/malloc/jemalloc_layout.h"
#include "runtime/malloc/reader.h"

/* Memory of its own structures, by address. Of all copies of jemalloc that a process has. */
struct jemalloc_blocks {
	struct jemalloc_block *items;
	size_t count, capacity;
	uint64_t until; /* CLOCK_MONOTONIC in ns: when others are searched for again */
};

/*
 * Brings the blocks up to date. anew: searches for others, too, which is a look at each 2 MiB of
 * the memory; else that is done now and then. 0; -ESRCH; -EPERM; -ENOMEM. The caller frees the
 * items.
 */
int jemalloc_blocks_look(struct jemalloc_blocks *blocks, struct space *space,
			 const struct process_maps *maps, bool anew);

/* A copy of jemalloc in the process. */
struct jemalloc_tree {
	const struct jemalloc_layout *layout;
	uint64_t root; /* address of the tree's first table */
	struct jemalloc_sizes sizes;
	uint64_t pad; /* jemalloc_large_bytes() */
};

/*
 * Searches the data of a file for a tree, by what it must lead to, and proves the layout by the
 * extents there. 0; -ENOENT: there is none; -ESRCH; -EPERM; -ENOMEM.
 */
int jemalloc_tree_find(struct jemalloc_tree *out, struct malloc_reader *reader, struct space *space,
		       const struct jemalloc_blocks *blocks, uint64_t start, uint64_t end);

/* A table of the last level. */
struct jemalloc_leaf {
	uint64_t first; /* address of the first page that it is about */
	uint64_t table;
};

/* A table that is read from its start to its end; what is not resident has no entries. */
struct jemalloc_table {
	struct space *space;
	uint64_t address, count; /* count: of entries */
	unsigned int entry_bytes;
	uint64_t known; /* address of the first of the pages */
	size_t known_count;
	uint64_t page; /* address of what is in bytes; 0: none */
	uint8_t pages[SPACE_PAGES];
	uint8_t bytes[SPACE_PAGE];
	uint64_t swapped; /* pages left out */
};

/* All extents of a tree, in order of address. */
struct jemalloc_cursor {
	struct jemalloc_tree *tree;
	struct malloc_reader *reader; /* shared */
	struct jemalloc_leaf *leaves; /* by address */
	size_t leaf_count, leaf_capacity, leaf;
	uint64_t at;           /* where the next extent may begin */
	uint64_t good, failed; /* extents; failed: inconsistent in several tries */
	struct jemalloc_table table;
};

/*
 * Reads the upper tables. 0; -EAGAIN: they are inconsistent; -ESRCH; -EPERM; -ENOMEM. The caller
 * frees it in any case.
 */
int jemalloc_cursor_open(struct jemalloc_cursor *cursor, struct jemalloc_tree *tree,
			 struct malloc_reader *reader, struct space *space,
			 const struct jemalloc_blocks *blocks);
void jemalloc_cursor_close(struct jemalloc_cursor *cursor);
/*
 * The next extent, whose state is JEMALLOC_STATES if it stayed inconsistent; extents do not
 * overlap. 1; 0: there is none; -ESRCH; -EPERM; -ENOMEM.
 */
int jemalloc_cursor_next(struct jemalloc_cursor *cursor, struct jemalloc_extent *out);
