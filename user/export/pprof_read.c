/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading back what pprof_write.c wrote, or a tool like pprof wrote again. The profile is unpacked
 * as a whole; its top level is walked by hand, so that hostile input costs memory in proportion to
 * its size, and each submessage but the samples goes through protobuf-c. Fields come in any order,
 * so a first walk finds what the second one, of the samples, needs.
 */
#include "export/pprof.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "abi/sample.h"
#include "base/array.h"
#include "base/error.h"
#include "base/id_map.h"
#include "export/pprof_format.h"
#include "export/pprof_wire.h"
#include "export/profile.pb-c.h"
#include "snapshot/builder.h"
#include "snapshot/estimate.h"

#define PROFILE_MAX UINT32_MAX /* bytes unpacked: offsets are 32 bits */
#define ITEMS_MAX   (1u << 26) /* strings, functions, locations */
#define FRAMES_MAX  65536u     /* of one sample */

enum {
	FIELD_SAMPLE = 2,
	FIELD_LOCATION = 4,
	FIELD_FUNCTION = 5,
	FIELD_STRING = 6,
	FIELD_KEEP_FRAMES = 8,
	FIELD_COMMENT = 13
};

struct function {
	uint32_t name, filename; /* ids in the snapshot's strings */
};

enum label {
	LABEL_BYTES,
	LABEL_DOMAIN,
	LABEL_TOTAL,
	LABEL_PROCESS,
	LABEL_ROUNDED,
	LABEL_INHERITED,
	LABELS
};

struct sample {
	uint32_t nframe, value_count;
	int64_t values[EVENT_LAYERS * PPROF_VALUES];
	int64_t labels
		/* -1: it has none of that name, or pprof, which drops those that are 0, wrote it */
		[LABELS];
};

struct messages {
	struct span *items;
	size_t count, room;
};

struct reader {
	const unsigned char *profile;
	struct messages function_messages, location_messages;
	uint32_t *strings; /* offsets of their length prefix */
	size_t string_count, string_room;
	/* the index of the string with the meta data; 0: an older file, or not ours */
	uint64_t lines;
	uint64_t *comments; /* indices of strings */
	size_t comment_count, comment_room;
	struct function *functions;
	size_t function_count, function_room;
	struct snapshot_frame *locations;
	size_t location_count, location_room;
	struct id_map function_ids, location_ids;
	struct sample sample;                     /* being read */
	struct snapshot_frame frames[FRAMES_MAX]; /* its frames */
	struct account *account, snapshot_account;
	/* indices of strings; the last: of one that is none of ours */
	uint64_t label_keys[LABELS + 1];
	struct builder builder;
};

/* Calls take for each top-level field. */
static int profile_walk(struct reader *reader, size_t bytes,
			int (*take)(struct reader *reader, struct field *field))
{
	struct span span = {.data = reader->profile, .bytes = bytes};
	struct field field;
	int err = 0;

	while (!err && span.bytes) {
		err = field_take(&span, &field);
		if (!err)
			err = take(reader, &field);
	}
	return err;
}

/* Room for one more entry. */
static int items_reserve(struct reader *reader, void *array, size_t *room, size_t count,
			 size_t size)
{
	if (count >= ITEMS_MAX)
		return error_set(-EBADMSG, "the profile is corrupt: more than %u entries",
				 ITEMS_MAX);
	return array_reserve_in(reader->account, array, room, count, 1, size);
}

static int comment_take(struct reader *reader, uint64_t index)
{
	int err = items_reserve(reader, &reader->comments, &reader->comment_room,
				reader->comment_count, sizeof(*reader->comments));

	if (!err)
		reader->comments[reader->comment_count++] = index;
	return err;
}

/* Calls take for each number of a repeated field, packed or not. */
static int numbers_take(struct reader *reader, struct field *field,
			int (*take)(struct reader *reader, uint64_t number))
{
	uint64_t number;
	int err = 0;

	if (field->wire_type == 0)
		return take(reader, field->number);
	while (!err && field->span.bytes) {
		err = varint_take(&field->span, &number);
		if (!err)
			err = take(reader, number);
	}
	return err;
}

static int message_keep(struct reader *reader, struct messages *messages, const struct span *span)
{
	int err = span_check(span);

	if (!err)
		err = items_reserve(reader, &messages->items, &messages->room, messages->count,
				    sizeof(*messages->items));

	if (!err)
		messages->items[messages->count++] = *span;
	return err;
}

static int table_take(struct reader *reader, struct field *field)
{
	if (field->id == FIELD_FUNCTION && field->wire_type == 2)
		return message_keep(reader, &reader->function_messages, &field->span);
	if (field->id == FIELD_LOCATION && field->wire_type == 2)
		return message_keep(reader, &reader->location_messages, &field->span);
	if (field->id == FIELD_STRING && field->wire_type == 2) {
		int err = items_reserve(reader, &reader->strings, &reader->string_room,
					reader->string_count, sizeof(*reader->strings));

		if (!err)
			reader->strings[reader->string_count++] =
				(uint32_t)(field->prefix - reader->profile);
		return err;
	}
	if (field->id == FIELD_KEEP_FRAMES && field->wire_type == 0)
		reader->lines = field->number;
	if (field->id != FIELD_COMMENT)
		return 0;
	return numbers_take(reader, field, comment_take);
}

/* The text behind an index into the profile's string table. */
static int string_get(const struct reader *reader, uint64_t index, struct span *out)
{
	if (index >= reader->string_count)
		return error_set(-EBADMSG, "the profile is corrupt: no string %llu",
				 (unsigned long long)index);
	struct span span = {.data = reader->profile + reader->strings[index], .bytes = SIZE_MAX};
	return span_take(&span, out); /* in bounds: the walk has been here */
}

static int string_intern(struct reader *reader, int64_t index, uint32_t *id)
{
	struct span text = {0};
	int err = string_get(reader, (uint64_t)index, &text);

	if (!err)
		err = span_check(&text);
	if (err)
		return err;
	if (memchr(text.data, 0, text.bytes))
		return error_set(-EBADMSG, "the profile is corrupt: a name holds a NUL");
	return strings_intern(reader->builder.snapshot->strings, (const char *)text.data,
			      text.bytes, id);
}

static int corrupt(const char *what)
{
	return error_set(-EBADMSG, "the profile is corrupt: a %s cannot be", what);
}

static int function_take(struct reader *reader, const struct span *span)
{
	Perftools__Profiles__Function *message =
		perftools__profiles__function__unpack(NULL, span->bytes, span->data);
	if (!message)
		return corrupt("function");
	int err = items_reserve(reader, &reader->functions, &reader->function_room,
				reader->function_count, sizeof(*reader->functions));
	struct function function;
	if (!err)
		err = string_intern(reader, message->name, &function.name);
	if (!err)
		err = string_intern(reader, message->filename, &function.filename);
	if (!err)
		err = id_map_put(&reader->function_ids, message->id,
				 (uint32_t)reader->function_count);
	if (!err)
		reader->functions[reader->function_count++] = function;
	perftools__profiles__function__free_unpacked(message, NULL);
	return err;
}

static int location_add(struct reader *reader, const Perftools__Profiles__Location *message)
{
	if (message->n_line != 1 || message->line[0]->line < 0 ||
	    message->line[0]->line > UINT32_MAX)
		return corrupt("location");
	uint32_t function = id_map_find(&reader->function_ids, message->line[0]->function_id);
	if (function == ID_MAP_NONE)
		return corrupt("location's function");
	int err = items_reserve(reader, &reader->locations, &reader->location_room,
				reader->location_count, sizeof(*reader->locations));
	if (!err)
		err = id_map_put(&reader->location_ids, message->id,
				 (uint32_t)reader->location_count);
	if (!err)
		reader->locations[reader->location_count++] = (struct snapshot_frame){
			.filename = reader->functions[function].filename,
			.function = reader->functions[function].name,
			.line = (uint32_t)message->line[0]->line,
		};
	return err;
}

static int location_take(struct reader *reader, const struct span *span)
{
	Perftools__Profiles__Location *message =
		perftools__profiles__location__unpack(NULL, span->bytes, span->data);
	if (!message)
		return corrupt("location");
	int err = location_add(reader, message);
	perftools__profiles__location__free_unpacked(message, NULL);
	return err;
}

static int sample_location(struct reader *reader, uint64_t id)
{
	uint32_t location = id_map_find(&reader->location_ids, id);

	if (location == ID_MAP_NONE)
		return corrupt("sample's location");
	if (reader->sample.nframe == FRAMES_MAX)
		return corrupt("sample");
	reader->frames[reader->sample.nframe++] = reader->locations[location];
	return 0;
}

static int sample_value(struct reader *reader, uint64_t value)
{
	if (reader->sample.value_count == EVENT_LAYERS * PPROF_VALUES)
		return corrupt("sample");
	reader->sample.values[reader->sample.value_count++] = (int64_t)value;
	return 0;
}

/*
 * Which of ours a label's key is; LABELS: none. The index of its name is nearly always the one of
 * last time.
 */
static enum label label_of(struct reader *reader, uint64_t key)
{
	static const char *const names[LABELS] = {"bytes",   "domain",  "total_nframe",
						  "process", "rounded", "inherited"};
	struct span text = {0};

	for (enum label i = 0; i <= LABELS; i++)
		if (reader->label_keys[i] == key && key)
			return i;
	reader->label_keys[LABELS] = key;
	if (string_get(reader, key, &text))
		return LABELS;
	for (enum label i = 0; i < LABELS; i++) {
		if (text.bytes == strlen(names[i]) && !memcmp(text.data, names[i], text.bytes)) {
			reader->label_keys[i] = key;
			reader->label_keys[LABELS] = 0;
			return i;
		}
	}
	return LABELS;
}

static int sample_label(struct reader *reader, struct span *span)
{
	enum { KEY = 1 << 3, NUMBER = 3 << 3 };
	uint64_t key = 0, number = 0, tag, value;
	int err = 0;

	while (!err && span->bytes) {
		struct span text;

		err = varint_take(span, &tag);
		if (!err)
			err = (tag & 7) == 0   ? varint_take(span, &value)
			      : (tag & 7) == 2 ? span_take(span, &text)
					       : corrupt("label");
		if (tag == KEY)
			key = value;
		else if (tag == NUMBER)
			number = value;
	}
	if (err)
		return err;
	enum label label = label_of(reader, key);
	if (label != LABELS && reader->sample.labels[label] < 0)
		reader->sample.labels[label] = (int64_t)number;
	return 0;
}

/* The layer that a sample is of is the one whose values are not 0. */
static size_t sample_position(const struct sample *sample)
{
	size_t count = sample->value_count / PPROF_VALUES;

	for (size_t i = 0; i < count; i++)
		if (sample->values[i * PPROF_VALUES])
			return i;
	return 0;
}

/* The layer at a position behind the first; -1: the file has none there. */
static int layer_at(const struct reader *reader, size_t position)
{
	for (int layer = 0; layer < EVENT_LAYERS; layer++)
		if (reader->builder.snapshot->meta.layers & 1u << layer && !--position)
			return layer;
	return -1;
}

static int64_t zero_of(int64_t label)
{
	return label == -1 ? 0 : label;
}

static int sample_add(struct reader *reader)
{
	const struct sample *sample = &reader->sample;
	int64_t bytes = zero_of(sample->labels[LABEL_BYTES]),
		domain = zero_of(sample->labels[LABEL_DOMAIN]);
	int64_t total = sample->labels[LABEL_TOTAL];
	const struct snapshot *snapshot = reader->builder.snapshot;
	int64_t process = snapshot->process_count ? sample->labels[LABEL_PROCESS] - 1 : 0;
	size_t position = sample_position(sample);
	const int64_t *values = sample->values + position * PPROF_VALUES;
	int layer = position ? layer_at(reader, position) : (int)snapshot->meta.layer;
	struct snapshot_trace trace;
	int64_t product;

	if (process < 0 || (uint64_t)process >= snapshot_process_count(snapshot))
		return corrupt("sample's process");
	trace = (struct snapshot_trace){
		.domain = (uint32_t)domain,
		.process = (uint32_t)process,
		.flags = (sample->labels[LABEL_ROUNDED] > 0 ? SNAPSHOT_ROUNDED : 0) |
			 (sample->labels[LABEL_INHERITED] > 0 ? SNAPSHOT_INHERITED : 0),
		.bytes = (uint64_t)bytes,
	};
	const uint64_t mean =
		layer == EVENT_LAYER_MMAP ? 0 : snapshot_sample_bytes(snapshot, &trace);
	if (layer < 0 || bytes < 0 || domain < 0 || !sample->nframe || !sample->value_count ||
	    sample->value_count % PPROF_VALUES || values[0] <= 0 || domain > UINT32_MAX ||
	    total > UINT32_MAX || __builtin_mul_overflow(bytes, values[0], &product) ||
	    (!mean && product != values[1]))
		return corrupt("sample");
	trace.count = estimate_sampled(mean, trace.bytes, (uint64_t)values[0]);
	if (!trace.count)
		return corrupt("sample");
	int err = builder_traceback(&reader->builder, reader->frames, sample->nframe,
				    total < 0 ? SNAPSHOT_TOTAL_UNKNOWN : (uint32_t)total,
				    &trace.traceback);
	if (!err)
		err = position ? builder_layer(&reader->builder, (enum event_layer)layer, &trace)
			       : builder_trace(&reader->builder, &trace);
	return err == -EOVERFLOW ? corrupt("sum of sizes") : err;
}

/*
 * By hand, not through protobuf-c: it would ask malloc a dozen times for each of a million samples.
 */
static int sample_take(struct reader *reader, struct field *field)
{
	enum { LOCATION = 1, VALUE = 2, LABEL = 3 };
	struct field part;
	int err = 0;

	if (field->id != FIELD_SAMPLE || field->wire_type != 2)
		return 0;
	err = span_check(&field->span);
	reader->sample = (struct sample){.labels = {-1, -1, -1, -1, -1, -1}};
	while (!err && field->span.bytes) {
		err = field_take(&field->span, &part);
		if (!err && part.id == LOCATION)
			err = numbers_take(reader, &part, sample_location);
		else if (!err && part.id == VALUE)
			err = numbers_take(reader, &part, sample_value);
		else if (!err && part.id == LABEL && part.wire_type == 2)
			err = sample_label(reader, &part.span);
	}
	return err ? err : sample_add(reader);
}

static int layers_valid(const struct snapshot_meta *meta)
{
	return meta->layer < EVENT_LAYERS && !(meta->layers >> EVENT_LAYERS) &&
	       !(meta->layers & 1u << meta->layer);
}

/* Of older files. */
static int comments_parse(struct reader *reader)
{
	int ours = 0;

	for (size_t i = 0; i < reader->comment_count; i++) {
		struct span text = {0};
		int err = string_get(reader, reader->comments[i], &text);

		if (!err)
			err = pprof_meta_parse_line(&reader->builder, (const char *)text.data,
						    text.bytes);
		if (err < 0)
			return err;
		ours |= err;
	}
	return ours;
}

static int lines_parse(struct reader *reader)
{
	struct span text = {0};
	int err = string_get(reader, reader->lines, &text);

	return err ? err : pprof_meta_parse(&reader->builder, (const char *)text.data, text.bytes);
}

static int meta_read(struct reader *reader)
{
	int ours = reader->lines ? lines_parse(reader) : comments_parse(reader);

	if (ours < 0)
		return ours;
	if (!ours)
		return error_set(-EBADMSG,
				 "a pprof profile, but not written by tracer: it lacks the line "
				 "\"" PPROF_SIGN "snapshot=1\" and, with its samples, the size and "
				 "domain of their blocks");
	for (size_t i = 0; i < snapshot_process_count(reader->builder.snapshot); i++)
		if (snapshot_process(reader->builder.snapshot, i)->sample_bytes > SAMPLE_MEAN_MAX)
			return corrupt("mean of a sample");
	for (size_t i = 0; i < snapshot_process_count(reader->builder.snapshot); i++)
		if (!layers_valid(snapshot_process(reader->builder.snapshot, i)))
			return corrupt("list of layers");
	if (!layers_valid(&reader->builder.snapshot->meta))
		return corrupt("list of layers");
	return pprof_meta_end(&reader->builder);
}

static void reader_free(struct reader *reader)
{
	struct account *account = reader->account;

	array_release(account, &reader->strings, &reader->string_room, sizeof(*reader->strings));
	array_release(account, &reader->comments, &reader->comment_room, sizeof(*reader->comments));
	array_release(account, &reader->function_messages.items, &reader->function_messages.room,
		      sizeof(struct span));
	array_release(account, &reader->location_messages.items, &reader->location_messages.room,
		      sizeof(struct span));
	array_release(account, &reader->functions, &reader->function_room,
		      sizeof(*reader->functions));
	array_release(account, &reader->locations, &reader->location_room,
		      sizeof(*reader->locations));
	id_map_free(&reader->function_ids);
	id_map_free(&reader->location_ids);
	account_uncharge(account, sizeof(*reader));
	free(reader);
}

static int profile_read(struct reader *reader, size_t bytes)
{
	int err = profile_walk(reader, bytes, table_take);

	if (!err)
		err = meta_read(reader);
	for (size_t i = 0; !err && i < reader->function_messages.count; i++)
		err = function_take(reader, &reader->function_messages.items[i]);
	for (size_t i = 0; !err && i < reader->location_messages.count; i++)
		err = location_take(reader, &reader->location_messages.items[i]);
	if (!err)
		err = profile_walk(reader, bytes, sample_take);
	return err ? err : builder_order(&reader->builder);
}

int pprof_parse_in(struct account *account, const unsigned char *profile, size_t bytes,
		   struct snapshot **out)
{
	struct reader *reader = calloc(1, sizeof(*reader));
	int err = reader ? account_charge(account, sizeof(*reader)) : -ENOMEM;

	if (err) {
		free(reader);
		return err;
	}
	reader->profile = profile;
	reader->account = reader->function_ids.account = reader->location_ids.account = account;
	reader->snapshot_account.parent = account;
	err = bytes > PROFILE_MAX ? -EFBIG
				  : builder_begin_in(&reader->builder, &reader->snapshot_account);
	if (!err) {
		err = profile_read(reader, bytes);
		if (err)
			builder_abort(&reader->builder);
		else
			*out = builder_finish(&reader->builder);
	}
	reader_free(reader);
	if (err == -EDQUOT)
		return error_set(-EFBIG,
				 "takes more memory than a profile of its size can: %llu bytes",
				 (unsigned long long)account->limit);
	return err;
}

int pprof_parse(const unsigned char *profile, size_t bytes, struct snapshot **out)
{
	struct account account = {.limit = account_file_limit(bytes, PPROF_RATIO)};

	return pprof_parse_in(&account, profile, bytes, out);
}
