/* SPDX-License-Identifier: Apache-2.0 */
#include "report/recording/record_state.h"

#include <errno.h>
#include <string.h>

#include "util/array.h"
#include "util/error.h"

const char *const record_labels[RECORD_LABELS] = {
	[RECORD_ERROR] = "standard_error",
	[RECORD_DEVIATIONS] = "deviations",
	[RECORD_SELF_SAMPLED] = "self_sampled",
	[RECORD_BYTES] = "bytes",
};

void record_state_free(struct record_state *state)
{
	for (int kind = 0; kind < RECORD_KINDS; kind++)
		items_free(&state->kinds[kind]);
	array_release(state->account, &state->rows, &state->row_capacity, sizeof(*state->rows));
	buffer_free(&state->header);
	*state = (struct record_state){.account = state->account};
}

int record_put(struct buffer *out, uint64_t number)
{
	unsigned char bytes[10];
	size_t count = 0;

	do {
		bytes[count++] = (unsigned char)((number & 0x7f) | (number > 0x7f ? 0x80 : 0));
		number >>= 7;
	} while (number);
	return buffer_append(out, bytes, count);
}

int record_put_span(struct buffer *out, struct span span)
{
	return record_put(out, span.bytes) ?: buffer_append(out, span.data, span.bytes);
}

static uint64_t zigzag(uint64_t number)
{
	return number << 1 ^ (0 - (number >> 63));
}

static uint64_t zigzag_undo(uint64_t number)
{
	return number >> 1 ^ (0 - (number & 1));
}

static int corrupt(const char *what)
{
	return error_set(-EBADMSG, "the recording is corrupt: %s", what);
}

int record_rows_reserve(struct record_state *state)
{
	size_t rows = state->kinds[RECORD_SAMPLES].count, had = state->row_capacity;
	int err = 0;

	if (rows * state->width > had)
		err = array_reserve_in(state->account, &state->rows, &state->row_capacity, had,
				       rows * state->width - had, sizeof(*state->rows));
	if (!err && state->row_capacity > had)
		memset(state->rows + had, 0, (state->row_capacity - had) * sizeof(*state->rows));
	return err;
}

int record_row_lives(const int64_t *row, uint32_t width)
{
	for (uint32_t i = 0; i < width; i++)
		if (row[i])
			return 1;
	return 0;
}

static int items_apply(struct record_state *state, struct span *payload)
{
	uint64_t count;
	int err = 0;

	for (int kind = 0; !err && kind < RECORD_KINDS; kind++) {
		state->kinds[kind].account = state->account;
		err = varint_take(payload, &count);
		for (; !err && count; count--) {
			struct span item = {0};

			err = span_take(payload, &item) ?: items_add(&state->kinds[kind], item);
		}
	}
	return err;
}

static int row_apply(struct record_state *state, struct span *payload, int64_t *row)
{
	int lived = record_row_lives(row, state->width), err = 0;

	for (uint32_t i = 0; !err && i < state->width; i++) {
		uint64_t difference = 0;

		err = varint_take(payload, &difference);
		row[i] = (int64_t)((uint64_t)row[i] + zigzag_undo(difference));
	}
	state->live += (size_t)record_row_lives(row, state->width);
	state->live -= (size_t)lived;
	return err;
}

static int rows_apply(struct record_state *state, struct span *payload)
{
	size_t at = 0, rows = state->kinds[RECORD_SAMPLES].count;
	uint64_t count, skipped;
	int err = record_rows_reserve(state) ?: varint_take(payload, &count);

	for (; !err && count; count--, at++) {
		err = varint_take(payload, &skipped);
		if (!err && (at >= rows || skipped >= rows - at))
			return corrupt("values of a sample that it does not have");
		at += err ? 0 : skipped;
		err = err ?: row_apply(state, payload, state->rows + at * state->width);
	}
	return err;
}

int record_state_apply(struct record_state *state, struct span payload)
{
	struct span header = {0};
	uint64_t width;
	int err = varint_take(&payload, &width);

	if (!err && (!width || width > RECORD_WIDTH_MAX || (state->width && state->width != width)))
		return corrupt("samples of another width");
	err = err ?: span_take(&payload, &header);
	if (err)
		return err;
	state->width = (uint32_t)width;
	state->header.size = 0;
	err = buffer_append(&state->header, header.data, header.bytes)
	       ?: items_apply(state, &payload)
	       ?: rows_apply(state, &payload);
	if (!err && payload.bytes)
		return corrupt("more bytes follow its values");
	return err;
}

static int rows_put(const struct record_state *state, const size_t *known, const int64_t *old_rows,
		    struct buffer *out)
{
	static const int64_t none[RECORD_WIDTH_MAX];
	size_t rows = state->kinds[RECORD_SAMPLES].count, bytes = state->width * sizeof(*none),
	       skipped = 0, count = 0;
	struct buffer changes = {0};
	int err = 0;

	for (size_t at = 0; !err && at < rows; at++) {
		const int64_t *row = state->rows + at * state->width, *old = none;

		if (known && at < known[RECORD_SAMPLES])
			old = old_rows + at * state->width;
		if (!memcmp(row, old, bytes)) {
			skipped++;
			continue;
		}
		err = record_put(&changes, skipped);
		for (uint32_t i = 0; !err && i < state->width; i++)
			err = record_put(&changes, zigzag((uint64_t)row[i] - (uint64_t)old[i]));
		skipped = 0;
		count++;
	}
	err = err ?: record_put(out, count) ?: buffer_append(out, changes.data, changes.size);
	buffer_free(&changes);
	return err;
}

int record_payload(const struct record_state *state, const size_t *known, const int64_t *old_rows,
		   struct buffer *out)
{
	const struct span header = {.data = state->header.data, .bytes = state->header.size};
	int err = record_put(out, state->width) ?: record_put_span(out, header);

	for (int kind = 0; !err && kind < RECORD_KINDS; kind++) {
		const struct items *items = &state->kinds[kind];
		size_t first = known ? known[kind] : 0;

		err = record_put(out, items->count - first);
		for (size_t i = first; !err && i < items->count; i++)
			err = record_put_span(out, items_get(items, i));
	}
	return err ?: rows_put(state, known, old_rows, out);
}
