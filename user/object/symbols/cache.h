/* SPDX-License-Identifier: Apache-2.0 */
/* Frames by {file, offset}: a hash table that only grows. Pure. Zero-initialise except account. */
#pragma once

#include "object/symbols/symbols.h"

struct cache_slot {
	uint64_t offset;
	uint32_t file; /* 0: free slot */
	uint32_t count;
	size_t first; /* in frames */
};

struct cache {
	struct cache_slot *slots;
	size_t capacity, used; /* a power of two */
	struct symbols_frame *frames;
	size_t frame_count, frame_capacity;
	struct account *account; /* borrowed; NULL: none */
};

/*
 * Returns the number of frames, 0: unknown. *frames is borrowed until cache_add(). file is not 0.
 */
uint32_t cache_find(const struct cache *cache, uint32_t file, uint64_t offset,
		    const struct symbols_frame **frames);
/* Adds a new entry; count is not 0. 0, -ENOMEM, -EDQUOT, -EOVERFLOW. */
int cache_add(struct cache *cache, uint32_t file, uint64_t offset,
	      const struct symbols_frame frames[], uint32_t count);
void cache_free(struct cache *cache);
size_t cache_memory(const struct cache *cache);
