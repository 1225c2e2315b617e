/* SPDX-License-Identifier: Apache-2.0 */
/* Used by group.c: the entries that traces are grouped into, and their lookup. */
#pragma once

#include "snapshot/estimate.h"
#include "snapshot/group/group.h"
#include "util/id_map.h"

struct sums {
	uint64_t size, count;
	double rounded;
	struct statistic_extra extra;
};

/* One of the snapshots being grouped. */
struct side {
	const struct snapshot *snapshot;
	uint32_t *strings; /* string id -> id common to both sides; NULL: unchanged */
	struct app_run app;
	int old;
};

struct grouping {
	const struct statistics_opts *opts;
	/* (file name, line), or a hash of the entry's name -> index in entries */
	struct id_map groups;
	uint32_t *next; /* per entry: the next one with the same key, or ID_MAP_NONE */
	size_t next_capacity;
	/*
	 * Cumulative mode: per entry, 1 + the last row of the current side that was added; 0: none.
	 */
	uint32_t *last_rows;
	size_t last_rows_capacity;
	struct statistics *out;
	size_t capacity;
	struct side *sides; /* [0] the new snapshot, [1] the old one */
	/* of the current side, by traceback, or for owners by process */
	struct sums *rows;
	struct estimate *row_estimates; /* the same for a sampled side */
	/* if either side is sampled: as many for each entry as the options need */
	struct estimate *estimates;
	size_t estimates_each, estimates_capacity;
	struct estimate total[2], parts[STATISTICS_PARTS][2]; /* of the sides */
};

/* The estimate of an entry for a side; once: as in struct statistic, only in cumulative mode. */
static inline struct estimate *entry_estimate(const struct grouping *grouping, size_t entry,
					      int old, int once)
{
	size_t sides = grouping->sides[1].snapshot ? 2 : 1;

	return &grouping->estimates[entry * grouping->estimates_each + (once ? sides : 0) +
				    (size_t)old];
}

/*
 * The number of rows of a side. A row is a unit that adds to the same entries: a traceback, or for
 * owners a process.
 */
size_t group_row_total(const struct grouping *grouping, const struct side *side);
/* Iterates over the entries that a row adds to. Zero-initialise. */
struct row_cursor {
	int begun;
	int rank;      /* enum app_rank of the frames that count; 0: all frames count */
	int outside;   /* as in struct statistic */
	uint32_t next; /* index of the next frame */
};
/* Returns 1 and the index of the next entry, created at first use; 0: end; -ENOMEM. */
int group_row_next(struct grouping *grouping, struct side *side, uint32_t row,
		   struct row_cursor *cursor, uint32_t *index);
/* Orders entries by name, ascending. */
int group_entry_compare(const struct grouping *grouping, const struct statistic *x,
			const struct statistic *y);
