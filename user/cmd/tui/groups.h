/* SPDX-License-Identifier: Apache-2.0 */
/* The rows of a live view: the stacks of a model, grouped, filtered and sorted. Pure. */
#pragma once

#include <stdio.h>

#include "cmd/tui/model.h"

#define WATCH_NAMELESS 1u /* the key of stacks whose text was not read yet */

enum watch_by {
	WATCH_LINE,
	WATCH_FUNCTION,
	WATCH_FILE,
	WATCH_TRACEBACK,
	WATCH_PROCESS,
	WATCH_CONTAINER,
	WATCH_THREAD, /* of a model whose sums are by thread, */
	WATCH_TASK,   /* by task */
	WATCH_BYS
};

enum watch_sort { WATCH_SIZE, WATCH_COUNT, WATCH_GROWTH, WATCH_ALLOCATED, WATCH_DIFF, WATCH_SORTS };

struct watch_group {
	uint64_t key;
	uint32_t process, sum; /* one of its sums; the indices may change with the version */
	double size, count;
	double growth;                 /* bytes a second */
	double allocated;              /* the same, of what was allocated, alive or not */
	double mark_size, mark_count;  /* at the mark */
	uint32_t first, first_process; /* of its sums, by watch_sum.next; first WATCH_NONE: none */
	uint32_t oldest, median;       /* ages in ms, if it is a row; 0: not known */
	uint32_t turn;                 /* of watch_groups, when growth and allocated were begun */
	uint32_t row;        /* 1 + its place among those that watch_groups_rows() returned */
	unsigned char shown; /* 1 + whether it passes the filter; 0: not known yet */
};

struct watch_aged {
	uint32_t age;
	double count;
};

struct watch_groups {
	enum watch_by by;
	enum watch_sort sort;
	char filter[128]; /* part of a row's text, without regard to the case of ASCII letters */
	struct watch_group *items;
	size_t count, capacity;
	struct id_map keys; /* -> index in items */
	uint64_t version;   /* of the model, */
	uint64_t whole;     /* and its whole when all sums were added up */
	uint32_t turn;      /* the number of times that rows were made */
	size_t rows;      /* groups that hold something, or did at the mark, and pass the filter */
	double rows_size; /* their sum */
	float (*histories)[WATCH_HISTORY];
	size_t history_capacity;
	struct watch_aged *aged; /* of one row */
	size_t aged_count, aged_capacity;
};

void watch_groups_free(struct watch_groups *groups);
/* Changes what stacks are grouped by, or which rows pass. */
void watch_groups_by(struct watch_groups *groups, struct watch_model *model, enum watch_by by);
void watch_groups_filter(struct watch_groups *groups, const char *filter);
/*
 * Sums up the model and writes the indices of the first want rows to rows. Returns their number,
 * -ENOMEM.
 */
int watch_groups_rows(struct watch_groups *groups, struct watch_model *model, size_t want,
		      uint32_t *rows);
/* The sizes of such a row at the last refreshes, the oldest first. NULL: it is none. Borrowed. */
const float *watch_groups_history(const struct watch_groups *groups,
				  const struct watch_group *group);
/* The text of a row, escaped for a terminal. */
void watch_group_label(const struct watch_groups *groups, const struct watch_model *model,
		       const struct watch_group *group, FILE *out);
/* A frame as "FILE:LINE in FUNCTION", escaped. */
void watch_frame_label(const struct watch_model *model, const struct stacks_frame *frame,
		       FILE *out);
const char *watch_by_name(const struct watch_model *model, enum watch_by by);
const char *watch_sort_name(enum watch_sort sort);
