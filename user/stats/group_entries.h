/* SPDX-License-Identifier: Apache-2.0 */
/* For group.c: the entries that traces are grouped into, and how they are found. */
#ifndef TRACER_STATS_GROUP_ENTRIES_H
#define TRACER_STATS_GROUP_ENTRIES_H

#include "base/id_map.h"
#include "snapshot/estimate.h"
#include "stats/group.h"

struct sums {
	uint64_t size, count;
	double rounded;
};

/* One of the snapshots that are grouped. */
struct side {
	const struct snapshot *snapshot;
	uint32_t *strings; /* string id -> the same in both; NULL: as it is */
	struct app_run app;
	int old;
};

struct entry_estimates {
	struct estimate sides[2], once[2];
};

struct grouping {
	const struct statistics_opts *opts;
	struct id_map
		/* (file name, line), or a hash of what the entry is called -> index in entries */
		groups;
	uint32_t *next; /* the next entry with the same key, or ID_MAP_NONE */
	size_t next_room;
	/*
	 * Cumulative: by entry, the last row of the side at hand that has added to it, and 1; 0:
	 * none.
	 */
	uint32_t *last_rows;
	size_t last_rows_room;
	struct statistics *out;
	size_t room;
	struct side *sides; /* the new snapshot, the old one */
	/* of the side at hand, by traceback, or of owners by process */
	struct sums *rows;
	struct estimate *row_estimates;    /* the same of a side that is a sample */
	struct entry_estimates *estimates; /* of entries, if either side is a sample */
	size_t estimates_room;
	struct entry_estimates total, parts[STATISTICS_PARTS];
};

/* Of a side; a row is what of it has the same entries: a traceback, or of owners a process. */
size_t group_row_total(const struct grouping *grouping, const struct side *side);
/* The entries that a row adds to. Zero-initialise. */
struct row_cursor {
	int begun;
	int rank;      /* enum app_rank of the frames that count; 0: all do */
	int outside;   /* of the traceback, see struct statistic */
	uint32_t next; /* frame */
};
/* The next of them, made at first mention. 1, its index in *index; 0: that was all; -ENOMEM. */
int group_row_next(struct grouping *grouping, struct side *side, uint32_t row,
		   struct row_cursor *cursor, uint32_t *index);
/* By what they are called, ascending. */
int group_entry_compare(const struct grouping *grouping, const struct statistic *x,
			const struct statistic *y);

#endif
