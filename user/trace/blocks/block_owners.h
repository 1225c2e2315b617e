/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who allocates blocks: threads, in the asyncio tasks that they run. A block names its owner by an
 * index, which takes no more memory than a thread's number. There is an owner for each task that
 * has allocated; those of which no block is left are dropped before the table grows.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "util/id_map.h"

#define OWNER_NONE 0u         /* there was no memory for it: thread 0, without a task */
#define OWNERS_FEW (1u << 14) /* so many more may come before some are dropped */
#define OWNERS_MAX (1u << 20) /* with blocks, at a time */

struct block_owner {
	uint32_t tid;
	uint32_t task; /* its name, in the terms of the caller; 0: no task */
};

/* Zero-initialise; index.seed and index.account may be set before the first owner. */
struct block_owners {
	struct block_owner *items;
	size_t count, capacity;
	size_t added;     /* since some were dropped */
	size_t kept;      /* then */
	uint32_t *unused; /* indices to be given out again */
	size_t unused_count, unused_capacity;
	struct id_map index; /* of those in use, by both numbers */
};

/* Copies from, including its seed, to out, which must be empty. 0, -ENOMEM, -EDQUOT. */
int block_owners_copy(struct block_owners *out, const struct block_owners *from);
void block_owners_free(struct block_owners *owners);
/* The index of an owner, which is added if it is new; OWNER_NONE: there is no memory. */
uint32_t block_owners_find(struct block_owners *owners, uint32_t tid, uint32_t task);
/* Should those without blocks be dropped before the next one is added? */
bool block_owners_are_many(const struct block_owners *owners);
/*
 * Drops every owner whose bit is not set in used, of owners->count bits. As many as are left may be
 * added until the next time. Without memory none is dropped.
 */
void block_owners_keep(struct block_owners *owners, const uint64_t *used);
/* Borrowed until the next one is added; of any index. */
const struct block_owner *block_owners_get(const struct block_owners *owners, uint32_t index);
