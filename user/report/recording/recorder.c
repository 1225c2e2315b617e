/* SPDX-License-Identifier: Apache-2.0 */
#include "report/recording/recorder.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

#include "report/pprof/pprof.h"
#include "report/recording/profile_fields.h"
#include "report/recording/record_state.h"
#include "util/array.h"
#include "util/error.h"

/* --- profile split ---------------------------------------------------------------------------- */

/* Takes a profile that pprof_write_unpacked() wrote apart into the state of a recording. */

/*
 * Two passes over the profile's fields: all strings, then everything else. pprof_write() writes
 * mappings, functions and locations before their first use.
 */

/* --- profile labels --------------------------------------------------------------------------- */

/* Which labels of a profile's samples are values in a recording (record_state.h). */

/* Labels of samples whose blocks have a mean size: of what was allocated, of what was freed. */
enum { MEAN_ALLOCATED, MEAN_LIFETIME, MEAN_LABELS };

/* Indices of the strings that name labels; 0: the profile has none. Zero-initialise. */
struct label_keys {
	uint64_t values[RECORD_LABELS], means[MEAN_LABELS];
};

struct label_read {
	uint64_t key, number;
	int is_text; /* number is the index of a string */
};

static const char *const mean_labels[MEAN_LABELS] = {
	[MEAN_ALLOCATED] = "allocated",
	[MEAN_LIFETIME] = "lifetime",
};

static int text_is(struct span text, const char *wanted)
{
	return text.bytes == strlen(wanted) && !memcmp(text.data, wanted, text.bytes);
}

/* Takes note of the profile's string at that index. */
static void label_keys_add(struct label_keys *keys, struct span text, uint64_t index)
{
	if (!text.bytes)
		return;
	for (int label = 0; label < RECORD_LABELS; label++)
		if (text_is(text, record_labels[label]))
			keys->values[label] = index;
	for (int label = 0; label < MEAN_LABELS; label++)
		if (text_is(text, mean_labels[label]))
			keys->means[label] = index;
}

static struct label_read label_read(struct span message)
{
	struct label_read label = {0};
	struct field field;

	while (message.bytes && !field_take(&message, &field)) {
		if (field.id == LABEL_KEY)
			label.key = field.number;
		if (field.id == LABEL_STR || field.id == LABEL_NUM)
			label.number = field.number;
		label.is_text |= field.id == LABEL_STR;
	}
	return label;
}

/* The enum record_label of a label; RECORD_LABELS: it is none of the values. */
static int label_value(const struct label_keys *keys, const struct label_read *label, int of_mean)
{
	for (int value = 0; value < RECORD_LABELS; value++)
		if (label->key && label->key == keys->values[value])
			return value == RECORD_BYTES && !of_mean ? RECORD_LABELS : value;
	return RECORD_LABELS;
}

/* Do the sample's blocks have a mean size, which changes from snapshot to snapshot? */
static int sample_is_of_mean(const struct label_keys *keys, struct span sample)
{
	struct field field;

	while (sample.bytes && !field_take(&sample, &field)) {
		if (field.id != SAMPLE_LABEL || field.wire_type != 2)
			continue;
		struct label_read label = label_read(field.span);
		for (int mean = 0; mean < MEAN_LABELS; mean++)
			if (label.key && label.key == keys->means[mean])
				return 1;
	}
	return 0;
}

/* --- profile split ---------------------------------------------------------------------------- */

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

	*out = id;
	if (rule == KEEP || (!id && rule != STRING))
		return 0;
	if (rule == STRING) {
		if (id >= split->string_count)
			return corrupt("no such string");
		*out = split->strings[id];
		return 0;
	}
	uint32_t number = id_map_find(&split->ids[kinds[rule]], id);
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
	int label = label_is_value(split, span, &value);
	uint64_t id;

	if (label < RECORD_LABELS) {
		row[split->state->width - RECORD_LABELS + (uint32_t)label] = value;
		return 0;
	}
	split->part.size = 0;
	int err = message_take(split, LABEL, span, &id, &split->part);
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
		err = err ?: record_rows_reserve(state);
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
	int err = ARRAY_GROW(split->texts, split->text_capacity, split->string_count);

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

/*
 * Adds what the profile has to the state's items, and sets its header and its rows, which were
 * those of the snapshot before: samples that the profile does not have get rows of zeros.
 * 0; -EBADMSG (error_set); -ESTALE: rows have another width, the state is to begin anew; -ENOMEM,
 * -EOVERFLOW. After an error the state is not to be used.
 */
static int profile_split(struct record_state *state, struct span profile)
{
	struct split split = {.state = state};
	struct field field;
	int err = first_pass(&split, profile);

	state->header.size = 0;
	while (!err && profile.bytes)
		err = field_take(&profile, &field) ?: field_split(&split, &field);
	err = err ?: record_rows_reserve(state);
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

/* --- recorder --------------------------------------------------------------------------------- */

/* Samples that are gone are dropped by a whole record when they are more than those that live. */
#define DEAD_SPARE 4096u

static int write_all(int fd, const void *data, size_t bytes, uint64_t at)
{
	const unsigned char *from = data;

	while (bytes) {
		ssize_t n = pwrite(fd, from, bytes, (off_t)at);

		if (n < 0 && errno != EINTR)
			return error_set(-errno, "cannot write the recording: %s", strerror(errno));
		if (n < 0)
			continue;
		from += n;
		at += (uint64_t)n;
		bytes -= (size_t)n;
	}
	return 0;
}

int recorder_begin(int file, uint64_t begin_realtime_ns)
{
	struct recording_header header = {.version = RECORDING_VERSION,
					  .begin_realtime_ns = begin_realtime_ns};

	memcpy(header.magic, RECORDING_MAGIC, sizeof(header.magic));
	return write_all(file, &header, sizeof(header), 0);
}

/* A file in memory, as a whole. */
static int file_read(int fd, struct buffer *out)
{
	off_t bytes = fd < 0 ? 0 : lseek(fd, 0, SEEK_END);
	int err = bytes < 0 ? -errno : buffer_reserve(out, (size_t)bytes);

	while (!err && out->size < (size_t)bytes) {
		ssize_t n = pread(fd, out->data + out->size, (size_t)bytes - out->size,
				  (off_t)out->size);

		if (n > 0)
			out->size += (size_t)n;
		else if (!n || errno != EINTR)
			err = n ? -errno : -EIO;
	}
	return err;
}

/* The state's file: the dictionary, its length before it; then the payload of a whole record. */
static int state_load(int fd, struct buffer *file, struct span *dictionary,
		      struct record_state *state)
{
	struct span rest;
	int err = file_read(fd, file);

	*dictionary = (struct span){0};
	if (err || !file->size)
		return err;
	rest = (struct span){.data = file->data, .bytes = file->size};
	return span_take(&rest, dictionary) ?: record_state_apply(state, rest);
}

static int state_store(const struct recorder *recorder, const struct record_state *state,
		       struct span dictionary)
{
	struct buffer file = {0};
	int err = record_put_span(&file, dictionary)
	       ?: record_payload(state, NULL, NULL, &file)
	       ?: write_all(recorder->next, file.data, file.size, 0);

	buffer_free(&file);
	return err;
}

/* Packs to `out`, after what is in it. */
static int pack(struct span payload, struct span dictionary, struct buffer *out)
{
	z_stream zlib = {0};

	if (deflateInit2(&zlib, Z_BEST_COMPRESSION, Z_DEFLATED, -MAX_WBITS, 9,
			 Z_DEFAULT_STRATEGY) != Z_OK)
		return -ENOMEM;
	int err = buffer_reserve(out, deflateBound(&zlib, payload.bytes));
	if (!err && dictionary.bytes &&
	    deflateSetDictionary(&zlib, dictionary.data, (uInt)dictionary.bytes) != Z_OK)
		err = -EIO;
	if (!err) {
		zlib.next_in = (Bytef *)payload.data;
		zlib.avail_in = (uInt)payload.bytes;
		zlib.next_out = out->data + out->size;
		zlib.avail_out = (uInt)(out->capacity - out->size);
		err = deflate(&zlib, Z_FINISH) == Z_STREAM_END ? 0 : -EIO;
		out->size += zlib.total_out;
	}
	deflateEnd(&zlib);
	return err;
}

static int record_write(const struct recorder *recorder, struct span payload,
			struct span dictionary, uint32_t flags)
{
	struct record_header header = {.magic = RECORD_MAGIC,
				       .flags = flags,
				       .since_ns = recorder->since_ns,
				       .memory_left = recorder->memory_left,
				       .unpacked = (uint32_t)payload.bytes};
	const size_t summed = offsetof(struct record_header, checksum);
	struct buffer record = {0};
	int err = payload.bytes > RECORD_BYTES_MAX
			  ? error_set(-EFBIG, "the snapshot is too large for a recording")
			  : buffer_append(&record, &header, sizeof(header));

	err = err ?: pack(payload, dictionary, &record);
	if (!err) {
		header.packed = (uint32_t)(record.size - sizeof(header));
		header.checksum = (uint32_t)crc32(crc32(0, (const Bytef *)&header, (uInt)summed),
						  record.data + sizeof(header), header.packed);
		memcpy(record.data, &header, sizeof(header));
		err = write_all(recorder->file, record.data, record.size, recorder->end);
	}
	buffer_free(&record);
	return err;
}

/* The state after the profile, and the payload that leads to it. */
static int state_advance(struct record_state *state, struct span profile, struct buffer *payload,
			 uint32_t *flags)
{
	struct record_state before = {.rows = state->rows, .row_capacity = state->row_capacity};
	size_t known[RECORD_KINDS];
	int err = state->width ? 0 : -ESTALE;

	for (int kind = 0; kind < RECORD_KINDS; kind++)
		known[kind] = state->kinds[kind].count;
	state->rows = NULL;
	state->row_capacity = 0;
	err = err ?: profile_split(state, profile);
	size_t samples = state->kinds[RECORD_SAMPLES].count;
	*flags = err == -ESTALE || samples - state->live > state->live + DEAD_SPARE ? RECORD_WHOLE
										    : 0;
	if (*flags) {
		record_state_free(state);
		err = profile_split(state, profile);
	}
	if (!err)
		err = record_payload(state, *flags ? NULL : known, before.rows, payload);
	free(before.rows);
	return err;
}

int recorder_append(const struct recorder *recorder, const struct snapshot *snapshot)
{
	struct record_state state = {0};
	struct buffer file = {0}, profile = {0}, payload = {0};
	struct span dictionary, whole;
	uint32_t flags = 0;
	int err = state_load(recorder->state, &file, &dictionary, &state)
			  ?: pprof_write_unpacked(snapshot, &profile);

	if (!err)
		err = state_advance(&state,
				    (struct span){.data = profile.data, .bytes = profile.size},
				    &payload, &flags);
	whole = (struct span){.data = payload.data, .bytes = payload.size};
	if (flags)
		dictionary.bytes = 0;
	err = err ?: record_write(recorder, whole, dictionary, flags);
	whole.bytes = whole.bytes < RECORD_DICTIONARY ? whole.bytes : RECORD_DICTIONARY;
	err = err ?: state_store(recorder, &state, whole);
	record_state_free(&state);
	buffer_free(&file);
	buffer_free(&profile);
	buffer_free(&payload);
	return err;
}
