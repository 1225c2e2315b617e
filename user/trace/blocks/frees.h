/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Frees that windows of malloc's probes have shown. Would walks of malloc's heap, which come
 * between windows, have noticed that such a block died? They would not if they find a chunk of the
 * same size at its address, which is another block's. So the next walk is asked.
 *
 * Blocks that were seen in the same window are too many to be kept one by one: they are counted by
 * stack, size and age.
 */
#pragma once

#include "trace/blocks/chunk_table.h"
#include "trace/blocks/deaths.h"
#include "util/id_map.h"

/* More are not kept: of frees that no walk has been asked about yet, and of lives (a ring). */
#define FREES_MAX 65536u
#define LIVES_MAX 65536u
/* Ages of blocks are told apart by these: up to 4 ms, 8 ms, and so on; the last: any longer one. */
#define LIFE_AGES   16u
#define LIFE_AGE_NS 4000000ull

/* Blocks of one row that were seen and freed in one window, at about the same age. */
struct life {
	uint32_t stack, kind, class_bytes, window;
	uint32_t count;
	uint32_t asked, hidden; /* of these: a walk was asked about; it would not have noticed */
	uint64_t lived_ns;      /* all together */
};

/* A free that the next walk is to be asked about. */
struct freed {
	uint64_t address;
	uint32_t units; /* of its chunk */
	uint32_t place; /* in lives, or in deaths */
	uint32_t window;
	int is_death; /* which of these */
};

/* Zero-initialise; account may be set before the first one. */
struct frees {
	struct freed *items;
	size_t count, capacity;
	struct life *lives;
	size_t life_count, life_capacity, last; /* last: where the newest one is */
	struct id_map index;                    /* of the lives of the newest window */
	uint32_t window;                        /* that one */
	struct account *account;                /* borrowed; NULL: none */
};

/*
 * A block was freed in a window: one that was seen in the same window (like: all but the counts is
 * set), or one seen in an earlier one, which is at a place in deaths. Without memory it is not
 * noted.
 */
void frees_life(struct frees *frees, const struct life *like, uint64_t address, uint32_t units);
void frees_death(struct frees *frees, uint32_t place, uint32_t window, uint64_t address,
		 uint32_t units);
/* A walk of malloc's heap is complete. */
void frees_walked(struct frees *frees, const struct chunk_table *chunks, struct deaths *deaths);
/* Two neighbouring windows each have become one. */
void frees_halve(struct frees *frees);
/* Leaves none, with the same account. */
void frees_free(struct frees *frees);
