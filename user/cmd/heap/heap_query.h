/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The query language of tracer heap: a condition for each object of a heap.
 *
 *	type = dict and retained > 1M and path ~ "sys.modules.*cache"
 *
 * A comparison is FIELD OPERATOR VALUE; `not`, `and`, `or` and parentheses combine them, in this
 * order. docs/heap.md has the fields. A value with spaces, parentheses or quotes is quoted, as in
 * C.
 */
#pragma once

#include "cmd/heap/heap_choice.h"

#define QUERY_TEXT  4096u /* bytes of a query at most */
#define QUERY_NODES 256u  /* comparisons and what combines them, at most */

struct query;

/*
 * values: the contents of texts may be compared. 0; -EINVAL: error_set() has the column, which is
 * counted from 1, and what may stand there; -ENOMEM. The caller frees with query_free(); *out is
 * untouched on failure.
 */
int query_parse(struct query **out, const char *text, int values);
void query_free(struct query *query); /* NULL is legal */

/* The objects that a query means. */
struct query_found {
	uint8_t *matched; /* by object: 1 if it is meant */
	size_t count;
	uint64_t bytes;
	struct retained_sum retained; /* what would be freed with all of them */
};

/*
 * heap: with HEAP_RETAINED and HEAP_PATHS. 0, -ENOMEM. The caller frees with query_found_free(),
 * also after a failure.
 */
int query_run(struct query *query, const struct heap_graph *heap, struct query_found *out);
void query_found_free(struct query_found *found);

/*
 * The fields, for completion: NULL behind the last. *help: what its values are; *operators: those
 * that it takes, with spaces between them.
 */
const char *query_field(size_t number, const char **help, const char **operators);
