/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A block may die between two windows, and its address be given to another block that looks the
 * same: equal content, or content that may change. No look notices. But in windows such an
 * allocation is seen. So for the blocks of one row (stack, kind, size class)
 *
 *   rate = allocations at their addresses that windows have shown and looks would not have noticed
 *          / seconds in which such blocks counted as alive and a window was open
 *
 * is known by the age of the blocks, and with T seconds between windows since it was shown a block
 * is still the same one with the probability exp(-sum of rate * T) (Nelson and Aalen). A target
 * that is slowed in windows allocates more between them: rates are divided by its speed.
 *
 * Of blocks of malloc's, windows show the frees, and the next walk says whether looks would have
 * noticed (trace/blocks/frees.h).
 *
 * The address of a dead block goes on to count for its row, and what is there now may be replaced
 * more often. So each block counts with the probability that it is still the same one, from the
 * youngest age on. Pure.
 */
#pragma once

#include "snapshot/estimate/calibrate.h"
#include "trace/process/process_tables.h"

#define REUSE_ALL CALIBRATE_GROUPS /* in rates: of all windows */

struct reuse_row {
	size_t items, items_end; /* blocks that were seen */
	/* by age, without each group of windows, and of all */
	double rates[CALIBRATE_GROUPS + 1][LIFE_AGES];
};

/* What windows took until the beginning of one. */
struct reuse_clock {
	double dark; /* seconds between windows */
	double open[CALIBRATE_GROUPS];
};

/* Blocks that were seen, and counted as alive until end_ns; shown within the same millisecond. */
struct reuse_item {
	uint32_t row, count;
	uint32_t hidden; /* its address was used again then, and no recheck would have noticed */
	uint64_t shown_ns, end_ns;
	double hazard; /* the sum of rate * T so far */
};

struct reuse {
	const struct process_state *process;
	const struct trace_windows *windows;
	bool by_owner;        /* rows are of one thread or task each, too; not of malloc's blocks */
	uint64_t walk_ns;     /* the last walk */
	struct id_map rows;   /* reuse_key() -> index; only those with events */
	struct reuse_row *of; /* by that index */
	size_t count;
	struct reuse_item *items; /* by row */
	size_t item_count, item_capacity;
	uint64_t from_ns;          /* deaths before are not known any more */
	uint8_t *groups;           /* by window */
	struct reuse_clock *clock; /* by window, and one more */
};

/* 0; -ENOMEM. *out is the caller's to reuse_free() in any case. */
int reuse_find(const struct process_state *process, uint64_t walk_ns, bool by_owner,
	       struct reuse *out);
/* Computes the rates. speed: of the target in windows, above 0, at most 1. */
void reuse_rates(struct reuse *reuse, double speed);
void reuse_free(struct reuse *reuse);

/* What row blocks are of; owner: as in struct block. */
struct reuse_like {
	uint32_t stack, kind, class_bytes, owner;
};
uint64_t reuse_key(const struct reuse *reuse, const struct reuse_like *like);
/* Has a block of that row ever been seen to be replaced unnoticed? Its row; NULL: no. */
const struct reuse_row *reuse_row_of(const struct reuse *reuse, uint64_t key);
/* Of a block that counts as alive since a walk has shown it at shown_ns. */
struct calibrate_survival reuse_alive(const struct reuse *reuse, const struct reuse_row *row,
				      uint64_t shown_ns);
/* The part of the time from then until until_ns in which it was the same block. */
struct calibrate_survival reuse_lived(const struct reuse *reuse, const struct reuse_row *row,
				      uint64_t shown_ns, uint64_t until_ns);
