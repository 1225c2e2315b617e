/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two passes over the profile's fields: all strings, then everything else. pprof_write() writes
 * mappings, functions and locations before their first use.
 */
#include "recording/profile_split.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/error.h"
#include "recording/profile_fields.h"
#include "recording/profile_labels.h"

#define TWINS_MAX 1024u /* equal samples of a snapshot */
#define FIELDS    11

/* What becomes of a field of a message. */
enum rule { KEEP, ID, STRING, MAPPING, FUNCTION, LOCATION, LINE, LABEL };

static const unsigned char rules[][FIELDS] = {
	[MAPPING] = {[1] = ID, [5] = STRING, [6] = STRING},
	[FUNCTION] = {[1] = ID, [2] = STRING, [3] = STRING, [4] = STRING},
	[LOCATION] = {[1] = ID, [2] = MAPPING, [4] = LINE},
	[LINE] = {[1] = FUNCTION},
	/* also a ValueType, whose two fields are strings */
	[LABEL] = {[LABEL_KEY] = STRING, [LABEL_STR] = STRING, [LABEL_NUM_UNIT] = STRING},
};

struct split {
	struct record_state *state;
	struct span *texts; /* the profile's strings */
	size_t string_count, text_capacity;
	uint32_t *strings;               /* their numbers in the state */
	struct id_map ids[RECORD_KINDS]; /* the profile's ids -> numbers in the state */
	struct label_keys keys;
	int of_mean; /* the sample's blocks have a mean size */
	struct buffer item, part, sample;
};

static int corrupt(const char *what)
{
	return error_set(-EBADMSG, "the profile is corrupt: %s", what);
}

static int reference(const struct split *split, enum rule rule, uint64_t id, uint64_t *out)
{
	static const unsigned char kinds[] = {[MAPPING] = RECORD_MAPPINGS,
					      [FUNCTION] = RECORD_FUNCTIONS,
					      [LOCATION] = RECORD_LOCATIONS};
	uint32_t number;

	*out = id;
	if (rule == KEEP || (!id && rule != STRING))
		return 0;
	if (rule == STRING) {
		if (id >= split->string_count)
			return corrupt("no such string");
		*out = split->strings[id];
		return 0;
	}
	number = id_map_find(&split->ids[kinds[rule]], id);
	*out = (uint64_t)number + 1;
	return number == ID_MAP_NONE ? corrupt("no such entry") : 0;
}

/* Appends the message with the state's numbers. *id: its own, which is left out. */
static int message_take(struct split *split, enum rule message, struct span span, uint64_t *id,
			struct buffer *out)
{
	struct field field;
	uint64_t number;
	int err = 0;

	while (!err && span.bytes) {
		enum rule rule;

		err = field_take(&span, &field);
		rule = err || field.id >= FIELDS ? KEEP : (enum rule)rules[message][field.id];
		if (err)
			break;
		if (rule == ID) {
			*id = field.number;
			continue;
		}
		err = record_put(out, field.id << 3 | field.wire_type);
		if (!err && rule == LINE && field.wire_type == 2) {
			split->part.size = 0;
			err = message_take(split, LINE, field.span, id, &split->part);
			if (!err)
				err = record_put_span(out,
						      (struct span){.data = split->part.data,
								    .bytes = split->part.size});
		} else if (!err && field.wire_type == 2) {
			err = record_put_span(out, field.span);
		} else if (!err) {
			err = reference(split, rule, field.number, &number)
				      ?: record_put(out, number);
		}
	}
	return err;
}

static int table_take(struct split *split, enum rule message, enum record_kind kind,
		      struct span span)
{
	uint64_t id = 0;
	uint32_t number;

	split->item.size = 0;
	int err = message_take(split, message, span, &id, &split->item);
	if (!err)
		err = items_intern(
			&split->state->kinds[kind],
			(struct span){.data = split->item.data, .bytes = split->item.size},
			&number);
	return err ?: id_map_put(&split->ids[kind], id, number);
}

/* Does a label belong to the values? Its number, or RECORD_LABELS. */
static int label_is_value(const struct split *split, struct span span, int64_t *value)
{
	struct label_read label = label_read(span);

	*value = (int64_t)label.number;
	if (label.is_text && label.number < split->string_count)
		*value = split->strings[label.number];
	return label_value(&split->keys, &label, split->of_mean);
}

static int values_take(struct split *split, struct field *field, int64_t *row, uint32_t *count)
{
	uint64_t number;
	int err = 0;

	if (field->wire_type == 0) {
		if (*count == split->state->width - RECORD_LABELS)
			return corrupt("too many values");
		row[(*count)++] = (int64_t)field->number;
	}
	while (!err && field->wire_type == 2 && field->span.bytes) {
		err = varint_take(&field->span, &number);
		if (!err && *count == split->state->width - RECORD_LABELS)
			return corrupt("too many values");
		if (!err)
			row[(*count)++] = (int64_t)number;
	}
	return err;
}

static int locations_take(struct split *split, struct field *field)
{
	uint64_t id, number;
	int err = 0;

	split->part.size = 0;
	if (field->wire_type == 0)
		err = reference(split, LOCATION, field->number, &number)
			      ?: record_put(&split->part, number);
	while (!err && field->wire_type == 2 && field->span.bytes)
		err = varint_take(&field->span, &id) ?: reference(split, LOCATION, id, &number)
			?: record_put(&split->part, number);
	return err ?: record_put(&split->sample, SAMPLE_LOCATION << 3 | 2)
		?: record_put_span(&split->sample, (struct span){.data = split->part.data,
								 .bytes = split->part.size});
}

static int label_take(struct split *split, struct span span, int64_t *row)
{
	int64_t value;
	int label = label_is_value(split, span, &value), err;
	uint64_t id;

	if (label < RECORD_LABELS) {
		row[split->state->width - RECORD_LABELS + (uint32_t)label] = value;
		return 0;
	}
	split->part.size = 0;
	err = message_take(split, LABEL, span, &id, &split->part);
	return err ?: record_put(&split->sample, SAMPLE_LABEL << 3 | 2)
		?: record_put_span(&split->sample, (struct span){.data = split->part.data,
								 .bytes = split->part.size});
}

/*
 * Adds the row to that of its sample. Equal samples with deviations have rows of their own, and so
 * have those with a mean.
 */
static int row_add(struct split *split, const int64_t *row)
{
	struct record_state *state = split->state;
	uint32_t labels = state->width - RECORD_LABELS, number = 0;
	uint32_t deviations = labels + RECORD_DEVIATIONS, mean = labels + RECORD_BYTES;

	for (uint32_t twin = 0; twin < TWINS_MAX; twin++) {
		split->item.size = 0;
		int err = record_put(&split->item, twin)
				  ?: buffer_append(&split->item, split->sample.data,
						   split->sample.size);

		if (!err)
			err = items_intern(
				&state->kinds[RECORD_SAMPLES],
				(struct span){.data = split->item.data, .bytes = split->item.size},
				&number);
		if (!err)
			err = record_rows_reserve(state);
		if (err)
			return err;
		int64_t *sum = state->rows + (size_t)number * state->width;

		if (record_row_lives(sum, state->width) &&
		    (sum[deviations] || row[deviations] || sum[mean] || row[mean]))
			continue;
		for (uint32_t i = 0; i < state->width; i++)
			sum[i] += row[i];
		return 0;
	}
	return corrupt("too many equal samples");
}

static int sample_take(struct split *split, struct span span)
{
	int64_t row[RECORD_WIDTH_MAX] = {0};
	uint32_t count = 0;
	int err = 0;

	split->sample.size = 0;
	split->of_mean = sample_is_of_mean(&split->keys, span);
	while (!err && span.bytes) {
		struct field field;

		err = field_take(&span, &field);
		if (err)
			break;
		if (field.id == SAMPLE_VALUE)
			err = values_take(split, &field, row, &count);
		else if (field.id == SAMPLE_LOCATION)
			err = locations_take(split, &field);
		else if (field.id == SAMPLE_LABEL && field.wire_type == 2)
			err = label_take(split, field.span, row);
	}
	return err ?: row_add(split, row);
}

static int string_take(struct split *split, struct span text)
{
	int err = array_reserve(&split->texts, &split->text_capacity, split->string_count, 1,
				sizeof(*split->texts));

	if (!err)
		split->texts[split->string_count++] = text;
	return err;
}

/* A field of the header; strings that are in no other place are written there as texts. */
static int header_take(struct split *split, const struct field *field, struct buffer *out)
{
	int is_text = field->id == PROFILE_KEEP_FRAMES || field->id == PROFILE_COMMENT;
	uint64_t number = field->number, id;
	int err = record_put(out, field->id);

	if (err)
		return err;
	if (field->wire_type == 2 && !is_text) {
		split->part.size = 0;
		return message_take(split, LABEL, field->span, &id, &split->part)
			?: record_put(out, RECORD_FIELD_MESSAGE)
			?: record_put_span(out, (struct span){.data = split->part.data,
							      .bytes = split->part.size});
	}
	if (is_text)
		return number >= split->string_count
			       ? corrupt("no such string")
			       : record_put(out, RECORD_FIELD_TEXT)
					 ?: record_put_span(out, split->texts[number]);
	if (field->id == PROFILE_DEFAULT_SAMPLE_TYPE)
		err = reference(split, STRING, field->number, &number);
	return err ?: record_put(out, RECORD_FIELD_NUMBER) ?: record_put(out, number);
}

/* A repeated field is packed: each of its numbers is a field of its own here. */
static int header_numbers_take(struct split *split, struct field *field)
{
	struct field one = {.id = field->id};
	int err = 0;

	if (field->wire_type != 2 || field->id != PROFILE_COMMENT)
		return header_take(split, field, &split->state->header);
	while (!err && field->span.bytes)
		err = varint_take(&field->span, &one.number)
			      ?: header_take(split, &one, &split->state->header);
	return err;
}

static int field_split(struct split *split, struct field *field)
{
	switch (field->id) {
	case PROFILE_STRING:
		return 0;
	case PROFILE_MAPPING:
		return table_take(split, MAPPING, RECORD_MAPPINGS, field->span);
	case PROFILE_FUNCTION:
		return table_take(split, FUNCTION, RECORD_FUNCTIONS, field->span);
	case PROFILE_LOCATION:
		return table_take(split, LOCATION, RECORD_LOCATIONS, field->span);
	case PROFILE_SAMPLE:
		return sample_take(split, field->span);
	default:
		return header_numbers_take(split, field);
	}
}

/* Texts that only the header names differ from snapshot to snapshot: they are no items. */
static int texts_mark(struct split *split, struct span profile, unsigned char *is_text)
{
	struct field field;
	int err = 0;

	while (!err && profile.bytes) {
		uint64_t number;

		err = field_take(&profile, &field);
		if (err || (field.id != PROFILE_KEEP_FRAMES && field.id != PROFILE_COMMENT))
			continue;
		if (field.wire_type == 0 && field.number < split->string_count)
			is_text[field.number] = 1;
		while (!err && field.wire_type == 2 && field.span.bytes) {
			err = varint_take(&field.span, &number);
			if (!err && number < split->string_count)
				is_text[number] = 1;
		}
	}
	return err;
}

static int strings_number(struct split *split, struct span profile)
{
	unsigned char *is_text = calloc(split->string_count + 1, 1);
	int err = is_text ? texts_mark(split, profile, is_text) : -ENOMEM;

	split->strings = calloc(split->string_count + 1, sizeof(*split->strings));
	if (!split->strings)
		err = -ENOMEM;
	for (size_t i = 0; !err && i < split->string_count; i++) {
		struct span text = split->texts[i];

		if (is_text[i])
			continue;
		err = items_intern(&split->state->kinds[RECORD_STRINGS], text, &split->strings[i]);
		label_keys_add(&split->keys, text, i);
	}
	free(is_text);
	return err;
}

/* The strings, and the width of a row. */
static int first_pass(struct split *split, struct span profile)
{
	struct span rest = profile;
	uint32_t width = RECORD_LABELS;
	int err = 0;

	while (!err && rest.bytes) {
		struct field field;

		err = field_take(&rest, &field);
		if (!err && field.id == PROFILE_STRING)
			err = string_take(split, field.span);
		else if (!err && field.id == PROFILE_SAMPLE_TYPE)
			width++;
	}
	if (err)
		return err;
	if (width > RECORD_WIDTH_MAX)
		return corrupt("too many types of values");
	if (split->state->width && split->state->width != width)
		return -ESTALE;
	split->state->width = width;
	return strings_number(split, profile);
}

int profile_split(struct record_state *state, struct span profile)
{
	struct split split = {.state = state};
	struct field field;
	int err = first_pass(&split, profile);

	state->header.size = 0;
	while (!err && profile.bytes)
		err = field_take(&profile, &field) ?: field_split(&split, &field);
	if (!err)
		err = record_rows_reserve(state);
	state->live = 0;
	for (size_t i = 0; !err && i < state->kinds[RECORD_SAMPLES].count; i++)
		state->live +=
			(size_t)record_row_lives(state->rows + i * state->width, state->width);
	for (int kind = 0; kind < RECORD_KINDS; kind++)
		id_map_free(&split.ids[kind]);
	free(split.strings);
	free(split.texts);
	buffer_free(&split.item);
	buffer_free(&split.part);
	buffer_free(&split.sample);
	return err;
}
