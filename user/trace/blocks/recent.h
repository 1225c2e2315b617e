/* SPDX-License-Identifier: Apache-2.0 */
/* The blocks that a thread has allocated last, to tell which of them it frees again soon. */
#ifndef TRACER_TRACE_BLOCKS_RECENT_H
#define TRACER_TRACE_BLOCKS_RECENT_H

#include <stdint.h>

#define RECENT_BLOCKS 2u

/* Zero-initialise. */
struct recent {
	uint64_t blocks[RECENT_BLOCKS]; /* the newest first; 0: it was freed, or there is none */
};

/* The thread has allocated a block. */
static inline void recent_put(struct recent *recent, uint64_t address)
{
	for (uint32_t i = RECENT_BLOCKS - 1; i; i--)
		recent->blocks[i] = recent->blocks[i - 1];
	recent->blocks[0] = address;
}

/*
 * The thread has freed a block: how many blocks it has allocated after that one. RECENT_BLOCKS: so
 * many or more, or it has not allocated it.
 */
static inline uint32_t recent_take(struct recent *recent, uint64_t address)
{
	uint32_t later = 0;

	while (later < RECENT_BLOCKS && recent->blocks[later] != address)
		later++;
	if (later < RECENT_BLOCKS)
		recent->blocks[later] = 0;
	return later;
}

#endif
