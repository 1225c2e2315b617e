/* SPDX-License-Identifier: Apache-2.0 */
/* A tree of figures: what a size consists of. Pure. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "inspect/rss/smaps.h"

struct memory_node {
	char *name;       /* owned */
	int64_t size;     /* resident bytes; less than 0 only for what changed while it was read */
	int64_t own;      /* of them, in pages that no other process has */
	uint64_t virtual; /* bytes, resident or not; 0: not counted */
	uint64_t count;   /* blocks or ranges; 0: not counted */
	/* nodes of allocators: the call that returns free pages, and how many bytes it would */
	const char *purge; /* borrowed; NULL: none */
	uint64_t trimmable;
	struct memory_node *children;
	size_t child_count, child_capacity;
};

/* What replaces malloc in a process. */
struct memory_allocators {
	const struct allocator *items; /* those that were read */
	size_t count;
	/* a library that was not: anonymous memory without a name goes to its node; "": none */
	const char *unread;
};

/*
 * The tree of an account, whose children add up to rss, and to own: what maps and kinds do not
 * explain is a node of its own. trimmable: bytes that malloc_trim(0) would return. 0, the caller
 * frees it with memory_node_free(); -ENOMEM.
 */
int memory_tree_build(struct memory_node *root, const struct memory_account *account,
		      const struct smaps_totals *totals, uint64_t trimmable,
		      const struct memory_allocators *allocators);
void memory_node_free(struct memory_node *node);
/* The child of that name, or NULL. */
const struct memory_node *memory_node_child(const struct memory_node *node, const char *name);
