/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The state of a recording at one moment: the profile of a snapshot (pprof.h), taken apart so that
 * two of them can be compared.
 *
 * Strings, mappings, functions, locations and samples are numbered in the order in which the
 * recording first had them, and keep their numbers. An item is the serialised message without its
 * id, in which references are such numbers (an id is the number + 1). A sample has a row of values:
 * those of its message, and labels that change from snapshot to snapshot. All zeros: the
 * snapshot does not have it.
 *
 * A payload describes a state, or what has changed since the one before:
 *
 *     width of a row
 *     bytes of the header, header: the other fields of the profile, each {field, 0, number},
 *         {field, 1, bytes, message} or {field, 2, bytes, text of the string that it names}
 *     for strings, mappings, functions, locations, samples: number of new ones, each {bytes, item}
 *     number of rows that differ, each {rows skipped, width differences}
 *
 * Numbers are varints, differences zigzag varints. An item of a sample begins with a number, which
 * tells equal samples of one snapshot apart. Texts that only the header names are not among the
 * strings.
 */
#pragma once

#include "report/recording/items.h"
#include "util/buffer.h"

enum record_kind {
	RECORD_STRINGS,
	RECORD_MAPPINGS,
	RECORD_FUNCTIONS,
	RECORD_LOCATIONS,
	RECORD_SAMPLES,
	RECORD_KINDS
};

/* The labels that are values, after those of the sample. */
enum record_label {
	RECORD_ERROR,
	RECORD_DEVIATIONS,
	RECORD_SELF_SAMPLED,
	RECORD_BYTES, /* of samples of what was allocated or freed: there it is a mean */
	RECORD_LABELS
};
extern const char *const record_labels[RECORD_LABELS];

#define RECORD_WIDTH_MAX 64u

enum { RECORD_FIELD_NUMBER, RECORD_FIELD_MESSAGE, RECORD_FIELD_TEXT };

/* Zero-initialise; account may be set. */
struct record_state {
	struct account *account; /* borrowed; NULL: none */
	struct items kinds[RECORD_KINDS];
	struct buffer header;
	uint32_t width;
	int64_t *rows; /* width numbers for each sample */
	size_t row_capacity;
	size_t live; /* rows that are not all zeros */
};

void record_state_free(struct record_state *state);
/* Rows for all samples: those that are missing are zeros. 0, -ENOMEM, -EDQUOT, -EOVERFLOW. */
int record_rows_reserve(struct record_state *state);
int record_row_lives(const int64_t *row, uint32_t width); /* Is it not all zeros? */
/*
 * Applies a payload. 0; -EBADMSG (error_set); -ENOMEM, -EDQUOT, -EOVERFLOW. The state is not to be
 * used after an error.
 */
int record_state_apply(struct record_state *state, struct span payload);
/*
 * Appends the payload from a state that had the first known[kind] items, and those rows, to this
 * one. Without them (NULL), it is the whole state. 0, -ENOMEM.
 */
int record_payload(const struct record_state *state, const size_t *known, const int64_t *old_rows,
		   struct buffer *out);
/* Appends the state's profile, for pprof_parse_in(). 0; -EBADMSG (error_set); -ENOMEM. */
int record_profile(const struct record_state *state, struct buffer *out);

int record_put(struct buffer *out, uint64_t number); /* a varint: 0, -ENOMEM */
int record_put_span(struct buffer *out, struct span span);
