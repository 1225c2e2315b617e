/* SPDX-License-Identifier: Apache-2.0 */
/* A state as a profile again (pprof.h). Its parser checks what is not checked here. */
#include <errno.h>
#include <string.h>

#include "report/recording/profile_fields.h"
#include "report/recording/record_state.h"
#include "util/error.h"

/* A field with a message: what it holds so far, then what is added. */
static int message_put(struct buffer *out, uint32_t field, struct span message, struct span added)
{
	return record_put(out, field << 3 | 2) ?: record_put(out, message.bytes + added.bytes)
		?: buffer_append(out, message.data, message.bytes)
		?: buffer_append(out, added.data, added.bytes);
}

static struct span buffer_span(const struct buffer *buffer)
{
	return (struct span){.data = buffer->data, .bytes = buffer->size};
}

static int header_put(const struct record_state *state, struct buffer *out, struct buffer *texts)
{
	struct span header = buffer_span(&state->header), text = {0};
	uint64_t strings = state->kinds[RECORD_STRINGS].count, field, kind, number = 0;
	int err = 0;

	while (!err && header.bytes) {
		err = varint_take(&header, &field) ?: varint_take(&header, &kind);
		if (!err)
			err = kind == RECORD_FIELD_NUMBER ? varint_take(&header, &number)
							  : span_take(&header, &text);
		if (!err && field > PROFILE_FIELDS)
			err = error_set(-EBADMSG, "the recording is corrupt: a field %llu",
					(unsigned long long)field);
		if (err)
			break;
		if (kind == RECORD_FIELD_MESSAGE) {
			err = message_put(out, (uint32_t)field, text, (struct span){0});
			continue;
		}
		if (kind == RECORD_FIELD_TEXT) {
			err = message_put(texts, PROFILE_STRING, text, (struct span){0});
			number = strings++;
		}
		err = err ?: record_put(out, field << 3) ?: record_put(out, number);
	}
	return err;
}

static int tables_put(const struct record_state *state, struct buffer *out)
{
	static const uint32_t fields[RECORD_SAMPLES] = {PROFILE_STRING, PROFILE_MAPPING,
							PROFILE_FUNCTION, PROFILE_LOCATION};
	struct buffer id = {0};
	int err = 0;

	for (int kind = 0; kind < RECORD_SAMPLES; kind++)
		for (size_t i = 0; !err && i < state->kinds[kind].count; i++) {
			id.size = 0;
			if (kind != RECORD_STRINGS)
				err = record_put(&id, 1 << 3) ?: record_put(&id, i + 1);
			err = err
				      ?: message_put(out, fields[kind],
						     items_get(&state->kinds[kind], i),
						     buffer_span(&id));
		}
	buffer_free(&id);
	return err;
}

/* The numbers of the strings that name the labels; 0: there is none. */
static void labels_find(const struct record_state *state, uint64_t keys[RECORD_LABELS])
{
	memset(keys, 0, RECORD_LABELS * sizeof(*keys));
	for (size_t i = 0; i < state->kinds[RECORD_STRINGS].count; i++) {
		struct span text = items_get(&state->kinds[RECORD_STRINGS], i);

		for (int label = 0; label < RECORD_LABELS; label++)
			if (text.bytes == strlen(record_labels[label]) &&
			    !memcmp(text.data, record_labels[label], text.bytes))
				keys[label] = i;
	}
}

static int label_put(struct buffer *out, uint64_t key, enum record_label label, uint64_t number)
{
	unsigned char bytes[32];
	struct buffer message = {.data = bytes, .capacity = sizeof(bytes)};
	int field = label == RECORD_DEVIATIONS ? LABEL_STR : LABEL_NUM;
	int err = record_put(&message, LABEL_KEY << 3) ?: record_put(&message, key)
		?: record_put(&message, (uint64_t)field << 3) ?: record_put(&message, number);

	return err ?: message_put(out, SAMPLE_LABEL, buffer_span(&message), (struct span){0});
}

/* What is added to a sample's item: its values. */
static int values_put(const struct record_state *state, const int64_t *row,
		      const uint64_t keys[RECORD_LABELS], struct buffer *numbers,
		      struct buffer *out)
{
	uint32_t count = state->width - RECORD_LABELS;
	int err = 0;

	numbers->size = 0;
	for (uint32_t i = 0; !err && i < count; i++)
		err = record_put(numbers, (uint64_t)row[i]);
	if (!err)
		err = message_put(out, SAMPLE_VALUE, buffer_span(numbers), (struct span){0});
	for (uint32_t i = 0; !err && i < RECORD_LABELS; i++)
		if (row[count + i] && keys[i])
			err = label_put(out, keys[i], (enum record_label)i,
					(uint64_t)row[count + i]);
	return err;
}

static int samples_put(const struct record_state *state, struct buffer *out)
{
	struct buffer added = {0}, numbers = {0};
	uint64_t keys[RECORD_LABELS], twin;
	int err = 0;

	labels_find(state, keys);
	for (size_t i = 0; !err && i < state->kinds[RECORD_SAMPLES].count; i++) {
		const int64_t *row = state->rows + i * state->width;
		struct span item = items_get(&state->kinds[RECORD_SAMPLES], i);
		uint32_t at = 0;

		while (at < state->width && !row[at])
			at++;
		if (at == state->width)
			continue;
		added.size = 0;
		err = varint_take(&item, &twin)
		       ?: values_put(state, row, keys, &numbers, &added)
		       ?: message_put(out, PROFILE_SAMPLE, item, buffer_span(&added));
	}
	buffer_free(&added);
	buffer_free(&numbers);
	return err;
}

int record_profile(const struct record_state *state, struct buffer *out)
{
	struct buffer texts = {0};
	int err = state->width < RECORD_LABELS
			  ? error_set(-EBADMSG, "the recording is corrupt: samples without values")
			  : header_put(state, out, &texts);

	err = err ?: tables_put(state, out);
	err = err ?: buffer_append(out, texts.data, texts.size);
	buffer_free(&texts);
	return err ?: samples_put(state, out);
}
