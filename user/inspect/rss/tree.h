/* SPDX-License-Identifier: Apache-2.0 */
/* A tree of figures: what a size consists of. Pure. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "inspect/rss/account.h"

struct memory_node {
	char *name;       /* owned */
	int64_t size;     /* resident bytes; less than 0 only for what changed while it was read */
	uint64_t virtual; /* bytes, resident or not; 0: not counted */
	uint64_t count;   /* blocks or ranges; 0: not counted */
	uint64_t trimmable; /* bytes that malloc_trim(0) would return; malloc's node only */
	struct memory_node *children;
	size_t child_count, child_capacity;
};

/*
 * The tree of an account, whose children add up to rss: what maps and kinds do not explain is a
 * node of its own. allocator: the name of a library that replaces malloc, to whose node anonymous
 * memory without a name goes; "": none. 0, the caller frees it with memory_node_free(); -ENOMEM.
 */
int memory_tree_build(struct memory_node *root, const struct memory_account *account, uint64_t rss,
		      uint64_t trimmable, const char *allocator);
void memory_node_free(struct memory_node *node);
/* The child of that name, or NULL. */
const struct memory_node *memory_node_child(const struct memory_node *node, const char *name);
