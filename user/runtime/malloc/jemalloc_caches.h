/* SPDX-License-Identifier: Apache-2.0 */
/* Blocks in the caches of threads (tcache), which jemalloc counts as allocated. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "runtime/malloc/jemalloc_tree.h"

struct jemalloc_cached {
	uint64_t address;
};

struct jemalloc_caches {
	struct jemalloc_cached *blocks; /* by address, each once */
	size_t block_count, capacity;
	uint64_t count; /* caches */
	uint64_t cut;   /* lists of caches that stayed inconsistent */
};

/*
 * Adds the caches that a jemalloc with the layout of this tree has. An arena lists those of its
 * threads, unless jemalloc was built without statistics. 0; -ESRCH; -EPERM; -ENOMEM. The caller
 * frees the blocks, also on failure.
 */
int jemalloc_caches_read(struct jemalloc_caches *caches, const struct jemalloc_tree *tree,
			 struct malloc_reader *reader, struct space *space,
			 const struct jemalloc_blocks *blocks);
void jemalloc_caches_sort(struct jemalloc_caches *caches);
