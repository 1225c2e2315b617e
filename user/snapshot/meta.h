/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The members of struct snapshot_meta, a row for each: how it adds up over processes, under which
 * key a profile stores it, and where reports show it. A new counter is a member and a row.
 *
 * Without a row are the members that are no plain number or text: loss and changes.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "snapshot/snapshot.h"

/*
 * When a profile has it. KNOWN: if it is not 0 or ""; OF_SEVERAL: the same, for one of several
 * processes.
 */
enum meta_when { META_ALWAYS, META_KNOWN, META_OF_SEVERAL };

/* What several processes have together. */
enum meta_sum {
	META_SINGLE, /* nothing: 0 or "" */
	META_SUM,
	META_MOST,
	META_ANY,   /* what one of them has: bits */
	META_ALL,   /* what each of them has: bits */
	META_SAME,  /* what is equal in all of them, or nothing */
	META_MIXED, /* a text that is equal in all of them, or SNAPSHOT_MIXED */
	META_OTHER, /* merge.c knows */
};

/* The object of a JSON report that it is in, in the order of the struct's members. */
enum meta_json {
	META_JSON_NONE,
	META_JSON_COVERAGE,
	META_JSON_ENDING,
	META_JSON_PAGES,
	META_JSON_NOT_SEEN,
	META_JSON_DROPPED, /* of the same object, if it is not 0 */
};

/* The part of a text report that has "TEXT: NUMBER", if it is not 0. */
enum meta_caveat {
	META_CAVEAT_NONE,
	META_CAVEAT_UNKNOWN, /* blocks at <unknown> */
	META_CAVEAT_BLOCKS,
	META_CAVEAT_RECORDS,
	META_CAVEAT_NATIVE, /* of the native layer, if it is not the first */
	META_CAVEAT_STACKS, /* native ones */
	META_CAVEAT_MAPPED,
};

struct meta_field {
	const char *key; /* of a profile's line */
	uint16_t offset, size;
	enum meta_when when;
	enum meta_sum sum;
	enum meta_json json;
	const char *json_key; /* NULL: key */
	enum meta_caveat caveat;
	const char *text;
};

/* A kind of lost event: its key in JSON reports, and what one and several are called. */
struct meta_loss {
	const char *json_key; /* NULL: "lost_N", if there are any */
	const char *one, *many;
	int ring; /* lost when the ring buffer is full */
};
extern const struct meta_loss meta_losses[LOSS_COUNT]; /* by LOSS_* */

/* In the order of a profile's lines. The first one, the PID, identifies a process. */
extern const struct meta_field meta_fields[];
extern const size_t meta_field_count;

/* A text is as long as its array, which is filled up with zeros. All else is a number. */
bool meta_is_text(const struct meta_field *field);
uint64_t meta_number(const struct snapshot_meta *meta, const struct meta_field *field);
void meta_number_set(struct snapshot_meta *meta, const struct meta_field *field, uint64_t number);
const char *meta_text(const struct snapshot_meta *meta, const struct meta_field *field);
/* Is it not 0 or ""? */
bool meta_is_known(const struct snapshot_meta *meta, const struct meta_field *field);
/* Adds what one more process has to the sum. */
void meta_add(struct snapshot_meta *sum, const struct snapshot_meta *one);
