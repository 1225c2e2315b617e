/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading back what pprof_write.c wrote, or a tool like pprof wrote again. The profile is unpacked as a
 * whole; its top level is walked by hand, so that hostile input costs memory in proportion to its size, and
 * each submessage goes through protobuf-c. Fields come in any order, so there is one walk for each kind:
 * strings and comments, functions, locations, samples.
 */
#include "export/pprof.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/error.h"
#include "export/pprof_format.h"
#include "export/profile.pb-c.h"
#include "stats/builder.h"
#include "trace/id_map.h"

#define PROFILE_MAX UINT32_MAX /* bytes unpacked: offsets are 32 bits */
#define MESSAGE_MAX (1u << 20) /* bytes of a submessage or string */
#define ITEMS_MAX   (1u << 26) /* strings, functions, locations */
#define FRAMES_MAX  65536u     /* of one sample */

enum { FIELD_SAMPLE = 2, FIELD_LOCATION = 4, FIELD_FUNCTION = 5, FIELD_STRING = 6, FIELD_COMMENT = 13 };

struct span {
	const unsigned char *data;
	size_t bytes;
};

struct function {
	uint32_t name, filename; /* ids in the snapshot's strings */
};

struct reader {
	const unsigned char *profile;
	uint32_t *strings; /* offsets of their length prefix */
	size_t string_count, string_room;
	uint64_t *comments; /* indices of strings */
	size_t comment_count, comment_room;
	struct function *functions;
	size_t function_count, function_room;
	struct snapshot_frame *locations;
	size_t location_count, location_room;
	struct id_map function_ids, location_ids;
	struct snapshot_frame frames[FRAMES_MAX]; /* of the sample being read */
	struct builder builder;
};

/* Takes a varint off span. 0 or -EBADMSG. */
static int varint_take(struct span *span, uint64_t *value)
{
	*value = 0;
	for (unsigned int shift = 0; shift < 64 && span->bytes; shift += 7) {
		unsigned char byte = *span->data;

		span->data++;
		span->bytes--;
		*value |= (uint64_t)(byte & 0x7f) << shift;
		if (!(byte & 0x80))
			return 0;
	}
	return error_set(-EBADMSG, "the profile is corrupt: a number is cut off");
}

/* Takes a length and that many bytes off span. */
static int span_take(struct span *span, struct span *out)
{
	uint64_t bytes;
	int err = varint_take(span, &bytes);

	if (err)
		return err;
	if (bytes > span->bytes || bytes > MESSAGE_MAX)
		return error_set(-EBADMSG, "the profile is corrupt: a field of %llu bytes cannot be",
				 (unsigned long long)bytes);
	*out = (struct span){.data = span->data, .bytes = (size_t)bytes};
	span->data += bytes;
	span->bytes -= (size_t)bytes;
	return 0;
}

/* A top-level field: number for a varint, span otherwise (prefix: where its length stands). */
struct field {
	uint32_t id, wire_type;
	uint64_t number;
	struct span span;
	const unsigned char *prefix;
};

static int field_take(struct span *span, struct field *field)
{
	uint64_t tag;
	int err = varint_take(span, &tag);

	if (err)
		return err;
	*field = (struct field){.id = (uint32_t)(tag >> 3), .wire_type = tag & 7, .prefix = span->data};
	switch (field->wire_type) {
	case 0:
		return varint_take(span, &field->number);
	case 2:
		return span_take(span, &field->span);
	default:
		return error_set(-EBADMSG, "the profile is corrupt: wire type %u", field->wire_type);
	}
}

/* Calls take for each top-level field. */
static int profile_walk(struct reader *reader, size_t bytes,
			int (*take)(struct reader *reader, const struct field *field))
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
static int items_reserve(void *array, size_t *room, size_t count, size_t size)
{
	if (count >= ITEMS_MAX)
		return error_set(-EBADMSG, "the profile is corrupt: more than %u entries", ITEMS_MAX);
	return array_reserve(array, room, count, 1, size);
}

static int comment_take(struct reader *reader, uint64_t index)
{
	int err = items_reserve(&reader->comments, &reader->comment_room, reader->comment_count,
				sizeof(*reader->comments));

	if (!err)
		reader->comments[reader->comment_count++] = index;
	return err;
}

static int table_take(struct reader *reader, const struct field *field)
{
	int packed = field->wire_type == 2;

	if (field->id == FIELD_STRING && packed) {
		int err = items_reserve(&reader->strings, &reader->string_room, reader->string_count,
					sizeof(*reader->strings));

		if (!err)
			reader->strings[reader->string_count++] = (uint32_t)(field->prefix - reader->profile);
		return err;
	}
	if (field->id != FIELD_COMMENT)
		return 0;
	if (!packed)
		return comment_take(reader, field->number);
	struct span span = field->span;
	int err = 0;
	while (!err && span.bytes) {
		uint64_t index;

		err = varint_take(&span, &index);
		if (!err)
			err = comment_take(reader, index);
	}
	return err;
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

	if (err)
		return err;
	if (memchr(text.data, 0, text.bytes))
		return error_set(-EBADMSG, "the profile is corrupt: a name holds a NUL");
	return strings_intern(reader->builder.snapshot->strings, (const char *)text.data, text.bytes, id);
}

static int corrupt(const char *what)
{
	return error_set(-EBADMSG, "the profile is corrupt: a %s cannot be", what);
}

static int function_take(struct reader *reader, const struct field *field)
{
	if (field->id != FIELD_FUNCTION || field->wire_type != 2)
		return 0;
	Perftools__Profiles__Function *message =
		perftools__profiles__function__unpack(NULL, field->span.bytes, field->span.data);
	if (!message)
		return corrupt("function");
	int err = items_reserve(&reader->functions, &reader->function_room, reader->function_count,
				sizeof(*reader->functions));
	struct function function;
	if (!err)
		err = string_intern(reader, message->name, &function.name);
	if (!err)
		err = string_intern(reader, message->filename, &function.filename);
	if (!err)
		err = id_map_put(&reader->function_ids, message->id, (uint32_t)reader->function_count);
	if (!err)
		reader->functions[reader->function_count++] = function;
	perftools__profiles__function__free_unpacked(message, NULL);
	return err;
}

static int location_add(struct reader *reader, const Perftools__Profiles__Location *message)
{
	if (message->n_line != 1 || message->line[0]->line < 0 || message->line[0]->line > UINT32_MAX)
		return corrupt("location");
	uint32_t function = id_map_find(&reader->function_ids, message->line[0]->function_id);
	if (function == ID_MAP_NONE)
		return corrupt("location's function");
	int err = items_reserve(&reader->locations, &reader->location_room, reader->location_count,
				sizeof(*reader->locations));
	if (!err)
		err = id_map_put(&reader->location_ids, message->id, (uint32_t)reader->location_count);
	if (!err)
		reader->locations[reader->location_count++] = (struct snapshot_frame){
			.filename = reader->functions[function].filename,
			.function = reader->functions[function].name,
			.line = (uint32_t)message->line[0]->line,
		};
	return err;
}

static int location_take(struct reader *reader, const struct field *field)
{
	if (field->id != FIELD_LOCATION || field->wire_type != 2)
		return 0;
	Perftools__Profiles__Location *message =
		perftools__profiles__location__unpack(NULL, field->span.bytes, field->span.data);
	if (!message)
		return corrupt("location");
	int err = location_add(reader, message);
	perftools__profiles__location__free_unpacked(message, NULL);
	return err;
}

/* A numeric label of a sample, -1 when it has none of that name. */
static int64_t label_number(const struct reader *reader, const Perftools__Profiles__Sample *message,
			    const char *name)
{
	for (size_t i = 0; i < message->n_label; i++) {
		struct span key = {0};

		if (!string_get(reader, (uint64_t)message->label[i]->key, &key) &&
		    key.bytes == strlen(name) && !memcmp(key.data, name, key.bytes))
			return message->label[i]->num;
	}
	return -1;
}

/* Which layer a sample is of: the one whose values are not 0. */
static size_t layer_of(const Perftools__Profiles__Sample *message)
{
	return message->n_value == 2 * PPROF_VALUES && !message->value[0];
}

static int sample_add(struct reader *reader, const Perftools__Profiles__Sample *message)
{
	int64_t bytes = label_number(reader, message, "bytes");
	int64_t domain = label_number(reader, message, "domain");
	int64_t total = label_number(reader, message, "total_nframe");
	uint32_t nframe = (uint32_t)message->n_location_id;
	size_t layer = layer_of(message);
	const int64_t *values = message->value + layer * PPROF_VALUES;
	struct snapshot_trace trace;
	int64_t product;

	if (!message->n_location_id || message->n_location_id > FRAMES_MAX ||
	    (message->n_value != PPROF_VALUES && message->n_value != 2 * PPROF_VALUES) || values[0] <= 0 ||
	    bytes < 0 || domain < 0 || domain > UINT32_MAX || total < nframe || total > UINT32_MAX ||
	    __builtin_mul_overflow(bytes, values[0], &product) || product != values[1])
		return corrupt("sample");
	for (uint32_t i = 0; i < nframe; i++) {
		uint32_t location = id_map_find(&reader->location_ids, message->location_id[i]);

		if (location == ID_MAP_NONE)
			return corrupt("sample's location");
		reader->frames[i] = reader->locations[location];
	}
	trace = (struct snapshot_trace){
		.domain = (uint32_t)domain, .bytes = (uint64_t)bytes, .count = (uint64_t)values[0]};
	int err = builder_traceback(&reader->builder, reader->frames, nframe, (uint32_t)total,
				    &trace.traceback);
	if (!err)
		err = layer ? builder_mapped(&reader->builder, &trace)
			    : builder_trace(&reader->builder, &trace);
	return err == -EOVERFLOW ? corrupt("sum of sizes") : err;
}

static int sample_take(struct reader *reader, const struct field *field)
{
	if (field->id != FIELD_SAMPLE || field->wire_type != 2)
		return 0;
	Perftools__Profiles__Sample *message =
		perftools__profiles__sample__unpack(NULL, field->span.bytes, field->span.data);
	if (!message)
		return corrupt("sample");
	int err = sample_add(reader, message);
	perftools__profiles__sample__free_unpacked(message, NULL);
	return err;
}

static int comments_read(struct reader *reader)
{
	int ours = 0;

	for (size_t i = 0; i < reader->comment_count; i++) {
		struct span text = {0};
		int err = string_get(reader, reader->comments[i], &text);

		if (!err)
			err = pprof_meta_parse(&reader->builder.snapshot->meta, (const char *)text.data,
					       text.bytes);
		if (err < 0)
			return err;
		ours |= err;
	}
	if (!ours)
		return error_set(-EBADMSG, "a pprof profile, but not written by tracer: it lacks the comment "
					   "\"" PPROF_COMMENT "snapshot=1\"");
	return 0;
}

int pprof_parse(const unsigned char *profile, size_t bytes, struct snapshot **out)
{
	struct reader *reader = calloc(1, sizeof(*reader));
	int err;

	if (!reader)
		return -ENOMEM;
	reader->profile = profile;
	err = bytes > PROFILE_MAX ? -EFBIG : builder_begin(&reader->builder);
	if (err)
		goto out;
	err = profile_walk(reader, bytes, table_take);
	if (!err)
		err = comments_read(reader);
	if (!err)
		err = profile_walk(reader, bytes, function_take);
	if (!err)
		err = profile_walk(reader, bytes, location_take);
	if (!err)
		err = profile_walk(reader, bytes, sample_take);
	if (err)
		builder_abort(&reader->builder);
	else
		*out = builder_finish(&reader->builder);
out:
	free(reader->strings);
	free(reader->comments);
	free(reader->functions);
	free(reader->locations);
	id_map_free(&reader->function_ids);
	id_map_free(&reader->location_ids);
	free(reader);
	return err;
}
