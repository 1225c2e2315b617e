/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Why a process that was forked has pages of its own where its parent has others: what differs in
 * them. What is the same in both was written, too: a reference count that was raised and lowered
 * again, a head that a collection changed and restored.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "inspect/graph/graph.h"
#include "proc/memory.h"

/* What differs in a page: the last of these that some word is. */
enum unshared_class {
	UNSHARED_SAME,    /* nothing */
	UNSHARED_HEADS,   /* the collector's heads of objects */
	UNSHARED_COUNTS,  /* reference counts */
	UNSHARED_FREED,   /* blocks that are free now, and heads of pools */
	UNSHARED_CONTENT, /* what objects and buffers hold, and memory that is not Python's */
	UNSHARED_ANEW,    /* more than half of the page: filled anew, or never shared */
	UNSHARED_CLASSES
};

struct unshared_type {
	uint32_t type;           /* of the graph */
	uint64_t bytes, objects; /* of its objects in pages whose contents are the same */
};

struct unshared {
	uint64_t pages[UNSHARED_CLASSES];
	/*
	 * of UNSHARED_SAME and UNSHARED_HEADS: pages with objects that a collection writes to,
	 * which gc.freeze() before the fork keeps from that
	 */
	uint64_t tracked;
	uint64_t unread; /* pages that could not be read in both */
	/* Have the two counted different numbers of collections since the fork? */
	bool collected;
	struct unshared_type *types; /* of pages up to UNSHARED_COUNTS; the most bytes first */
	size_t type_count;
};

/* Told of each object that counts for unshared.types, with its bytes. 0; what else ends it. */
typedef int (*unshared_object_fn)(void *context, uint32_t object, uint64_t bytes);

/*
 * Compares the image of the graph, of the process that was forked, with the memory of its parent.
 * visit NULL: nobody is told of objects. 0; what it returns; -ESRCH: one of the two has ended;
 * -ENOMEM; -errno. The caller frees it with unshared_free().
 */
int unshared_read(struct unshared *out, const struct graph *graph, struct space *parent,
		  unshared_object_fn visit, void *context);
void unshared_free(struct unshared *unshared);
