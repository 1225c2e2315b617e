/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What was found at {file, offset}: a hash table that only grows. Pure. Zero-initialise but for
 * account.
 */
#ifndef TRACER_SYMBOLS_MEMO_H
#define TRACER_SYMBOLS_MEMO_H

#include "symbols/symbols.h"

struct memo_place {
	uint64_t offset;
	uint32_t file; /* 0: free slot */
	uint32_t count;
	size_t first; /* in frames */
};

struct memo {
	struct memo_place *places;
	size_t capacity, used; /* a power of two */
	struct symbols_frame *frames;
	size_t frame_count, frame_room;
	struct account *account; /* borrowed; NULL: none */
};

/* Their number and the frames, borrowed until memo_add(); 0: not known. file is not 0. */
uint32_t memo_find(const struct memo *memo, uint32_t file, uint64_t offset,
		   const struct symbols_frame **frames);
/* Adds what is not known yet; count is not 0. 0, -ENOMEM, -EDQUOT, -EOVERFLOW. */
int memo_add(struct memo *memo, uint32_t file, uint64_t offset, const struct symbols_frame frames[],
	     uint32_t count);
void memo_free(struct memo *memo);
size_t memo_memory(const struct memo *memo);

#endif
