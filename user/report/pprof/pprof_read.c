/* SPDX-License-Identifier: Apache-2.0 */
#include "report/pprof/pprof.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "abi/sample.h"
#include "report/pprof/pprof_format.h"
#include "report/pprof/pprof_wire.h"
#include "report/pprof/profile.pb-c.h"
#include "snapshot/ages.h"
#include "snapshot/builder.h"
#include "snapshot/estimate.h"
#include "util/array.h"
#include "util/error.h"
#include "util/id_map.h"
#include "util/utf8.h"

#define FRAMES_MAX 65536u /* of one sample */

enum {
	FIELD_SAMPLE = 2,
	FIELD_MAPPING = 3,
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
	LABEL_SELF_SAMPLED,
	LABEL_DEVIATIONS,
	LABEL_LIFETIME,
	LABEL_THREAD,
	LABEL_THREAD_NAME,
	LABEL_TASK,
	LABEL_AGE,
	LABELS
};

struct sample {
	uint32_t nframe, value_count;
	int64_t values[SNAPSHOT_LAYERS * PPROF_VALUES];
	int64_t labels
		/*
		 * -1: the sample has no such label, or pprof wrote the file, which drops labels of
		 * 0
		 */
		[LABELS];
};

/* Frames of one location. */
struct location {
	uint32_t first; /* in location_frames */
	uint32_t count;
};

struct messages {
	struct span *items;
	size_t count, capacity;
};

struct pprof_reader {
	const unsigned char *profile;
	struct messages mapping_messages, function_messages, location_messages;
	struct id_map natives; /* the id of a mapping -> snapshot_frame.native, unless that is 0 */
	uint32_t *strings;     /* offsets of the strings' length prefixes */
	size_t string_count, string_capacity;
	/* index of the string with the meta data; 0: a file of an older version, or not ours */
	uint64_t lines;
	uint64_t *comments; /* indices of strings */
	size_t comment_count, comment_capacity;
	struct function *functions;
	size_t function_count, function_capacity;
	struct location *locations;
	size_t location_count, location_capacity;
	struct snapshot_frame *location_frames;
	size_t location_frame_count, location_frame_capacity;
	struct id_map function_ids, location_ids;
	struct id_map estimates; /* index of a string with deviations -> snapshot_trace.estimate */
	struct sample sample;    /* the sample being read */
	struct snapshot_frame frames[FRAMES_MAX]; /* the sample's frames */
	struct account *account, snapshot_account;
	/* indices of the labels' names; the last one: of a label that is not ours */
	uint64_t label_keys[LABELS + 1];
	char label_key[EVENT_LABEL_TEXT]; /* LABEL_TASK, beside "task"; "": not known yet */
	struct builder builder;
};

/*
 * Reads the profiles that pprof_write.c wrote, or that a tool such as pprof wrote again. The
 * profile is unpacked as a whole. Its top level is parsed by hand, so that hostile input uses
 * memory in proportion to its size; every submessage except the samples goes through protobuf-c.
 * Fields may come in any order, so a first pass finds what the second pass, over the samples,
 * needs.
 */

#define PROFILE_MAX UINT32_MAX /* bytes unpacked: offsets have 32 bits */
#define ITEMS_MAX   (1u << 26) /* strings, functions, locations */

/* Calls take for each top-level field. */
static int profile_walk(struct pprof_reader *reader, size_t bytes,
			int (*take)(struct pprof_reader *reader, struct field *field))
{
	struct span span = {.data = reader->profile, .bytes = bytes};
	struct field field;
	int err = 0;

	while (!err && span.bytes) {
		err = field_take(&span, &field) ?: take(reader, &field);
	}
	return err;
}

/* Makes room for one more entry. */
static int items_reserve(struct pprof_reader *reader, void *array, size_t *capacity, size_t count,
			 size_t size)
{
	if (count >= ITEMS_MAX)
		return error_set(-EBADMSG, "the profile is corrupt: more than %u entries",
				 ITEMS_MAX);
	return array_reserve_in(reader->account, array, capacity, count, 1, size);
}

static int comment_take(struct pprof_reader *reader, uint64_t index)
{
	int err = items_reserve(reader, &reader->comments, &reader->comment_capacity,
				reader->comment_count, sizeof(*reader->comments));

	if (!err)
		reader->comments[reader->comment_count++] = index;
	return err;
}

/* Calls take for each number of a repeated field, packed or not. 0, -EBADMSG, take's error. */
static int pprof_numbers_take(struct pprof_reader *reader, struct field *field,
			      int (*take)(struct pprof_reader *reader, uint64_t number))
{
	uint64_t number;
	int err = 0;

	if (field->wire_type == 0)
		return take(reader, field->number);
	while (!err && field->span.bytes) {
		err = varint_take(&field->span, &number) ?: take(reader, number);
	}
	return err;
}

static int message_keep(struct pprof_reader *reader, struct messages *messages,
			const struct span *span)
{
	int err = span_check(span);

	err = err
		      ?: items_reserve(reader, &messages->items, &messages->capacity,
				       messages->count, sizeof(*messages->items));

	if (!err)
		messages->items[messages->count++] = *span;
	return err;
}

static int table_take(struct pprof_reader *reader, struct field *field)
{
	if (field->id == FIELD_MAPPING && field->wire_type == 2)
		return message_keep(reader, &reader->mapping_messages, &field->span);
	if (field->id == FIELD_FUNCTION && field->wire_type == 2)
		return message_keep(reader, &reader->function_messages, &field->span);
	if (field->id == FIELD_LOCATION && field->wire_type == 2)
		return message_keep(reader, &reader->location_messages, &field->span);
	if (field->id == FIELD_STRING && field->wire_type == 2) {
		int err = items_reserve(reader, &reader->strings, &reader->string_capacity,
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
	return pprof_numbers_take(reader, field, comment_take);
}

/* The string at an index of the profile's string table. 0, -EBADMSG (error_set). */
static int pprof_string_get(const struct pprof_reader *reader, uint64_t index, struct span *out)
{
	if (index >= reader->string_count)
		return error_set(-EBADMSG, "the profile is corrupt: no string %llu",
				 (unsigned long long)index);
	struct span span = {.data = reader->profile + reader->strings[index], .bytes = SIZE_MAX};
	return span_take(&span, out); /* in bounds: the first pass has checked it */
}

/* Restores a text of ours, which the caller frees. 0, -ENOMEM. */
static int text_restore(const struct span *text, char **out, size_t *bytes)
{
	*out = malloc(text->bytes + 1);
	if (!*out)
		return -ENOMEM;
	*bytes = utf8_unescape(*out, (const char *)text->data, text->bytes);
	return 0;
}

/* Its id in the snapshot's strings. 0, -EBADMSG (error_set), -ENOMEM. */
static int pprof_string_intern(struct pprof_reader *reader, int64_t index, uint32_t *id)
{
	struct span text = {0};
	char *name = NULL;
	size_t bytes;
	int err = pprof_string_get(reader, (uint64_t)index, &text) ?: span_check(&text);

	if (err)
		return err;
	if (memchr(text.data, 0, text.bytes))
		return error_set(-EBADMSG, "the profile is corrupt: a name holds a NUL");
	err = text_restore(&text, &name, &bytes)
		      ?: strings_intern(reader->builder.snapshot->strings, name, bytes, id);
	free(name);
	return err;
}

/* Sets the error "the profile is corrupt: a … cannot be"; returns -EBADMSG. */
static int pprof_corrupt(const char *what)
{
	return error_set(-EBADMSG, "the profile is corrupt: a %s cannot be", what);
}

#define DEVIATION_CHARS 24 /* of one deviation */
#define DEVIATION_MAX   0x1p66

static int sample_location(struct pprof_reader *reader, uint64_t id)
{
	uint32_t index = id_map_find(&reader->location_ids, id);
	const struct location *location;

	if (index == ID_MAP_NONE)
		return pprof_corrupt("sample's location");
	location = &reader->locations[index];
	if (FRAMES_MAX - reader->sample.nframe < location->count)
		return pprof_corrupt("sample");
	memcpy(&reader->frames[reader->sample.nframe], &reader->location_frames[location->first],
	       location->count * sizeof(*reader->frames));
	reader->sample.nframe += location->count;
	return 0;
}

static int sample_value(struct pprof_reader *reader, uint64_t value)
{
	if (reader->sample.value_count == SNAPSHOT_LAYERS * PPROF_VALUES)
		return pprof_corrupt("sample");
	reader->sample.values[reader->sample.value_count++] = (int64_t)value;
	return 0;
}

static bool span_is(const struct span *span, const char *text)
{
	return span->bytes == strlen(text) && !memcmp(span->data, text, span->bytes);
}

/*
 * The label that a key names; LABELS: none of ours. The key is nearly always the same as in the
 * previous sample.
 */
static enum label label_of(struct pprof_reader *reader, uint64_t key)
{
	static const char *const names[LABELS] = {"bytes",        "domain",         "total_nframe",
						  "process",      "rounded",        "inherited",
						  "self_sampled", PPROF_DEVIATIONS, "lifetime",
						  "thread",       "thread_name",    "task",
						  "age"};
	struct span text = {0};

	for (enum label i = 0; i <= LABELS; i++)
		if (reader->label_keys[i] == key && key)
			return i;
	reader->label_keys[LABELS] = key;
	if (pprof_string_get(reader, key, &text))
		return LABELS;
	if (!reader->label_key[0])
		pprof_label_key(&reader->builder.snapshot->meta, reader->label_key);
	for (enum label i = 0; i < LABELS; i++) {
		if (span_is(&text, names[i]) ||
		    (i == LABEL_TASK && span_is(&text, reader->label_key))) {
			reader->label_keys[i] = key;
			reader->label_keys[LABELS] = 0;
			return i;
		}
	}
	return LABELS;
}

static bool label_is_text(enum label label)
{
	return label == LABEL_DEVIATIONS || label == LABEL_LIFETIME || label == LABEL_THREAD_NAME ||
	       label == LABEL_TASK;
}

static int sample_label(struct pprof_reader *reader, struct span *span)
{
	enum { KEY = 1 << 3, TEXT = 2 << 3, NUMBER = 3 << 3 };
	uint64_t key = 0, number = 0, string = 0, tag, value;
	int err = 0;

	while (!err && span->bytes) {
		struct span text;

		err = varint_take(span, &tag);
		if (!err)
			err = (tag & 7) == 0   ? varint_take(span, &value)
			      : (tag & 7) == 2 ? span_take(span, &text)
					       : pprof_corrupt("label");
		if (tag == KEY)
			key = value;
		else if (tag == NUMBER)
			number = value;
		else if (tag == TEXT)
			string = value;
	}
	if (err)
		return err;
	enum label label = label_of(reader, key);
	if (label != LABELS && reader->sample.labels[label] < 0)
		reader->sample.labels[label] = (int64_t)(label_is_text(label) ? string : number);
	return 0;
}

/* A sample belongs to the layer whose values are not 0. */
static size_t sample_position(const struct sample *sample)
{
	size_t count = sample->value_count / PPROF_VALUES;

	for (size_t i = 0; i < count; i++)
		if (sample->values[i * PPROF_VALUES])
			return i;
	return 0;
}

/* The layer at a position after the first; -1: the file has none there. */
static int layer_at(const struct pprof_reader *reader, size_t position)
{
	const struct snapshot_meta *meta = &reader->builder.snapshot->meta;

	for (uint32_t layer = 0; layer < SNAPSHOT_LAYERS; layer++)
		if (snapshot_has_extra(meta, layer) && !--position)
			return (int)layer;
	return -1;
}

/* Parses the deviations of an estimate. */
static int deviations_parse(const struct span *text, struct snapshot_estimate *estimate)
{
	char copy[CALIBRATE_DEVIATIONS * DEVIATION_CHARS], *at = copy;

	if (text->bytes >= sizeof(copy))
		return pprof_corrupt("list of deviations");
	memcpy(copy, text->data, text->bytes);
	copy[text->bytes] = '\0';
	for (uint32_t i = 0; i < CALIBRATE_DEVIATIONS; i++) {
		char *end;
		double value = strtod(at, &end);

		if (end == at || !(value > -DEVIATION_MAX && value < DEVIATION_MAX))
			return pprof_corrupt("list of deviations");
		/* 0 is added because -0 is another value to the builder. */
		estimate->deviations[i] = (float)(value / PPROF_DEVIATION_STEPS) + 0.0f;
		at = end;
	}
	return *at ? pprof_corrupt("list of deviations") : 0;
}

/* Sets trace->estimate, by the index of the string that has its deviations. */
static int estimate_find(struct pprof_reader *reader, int64_t string, struct snapshot_trace *trace)
{
	struct snapshot_estimate estimate;
	struct span text = {0};

	if (string < 0)
		return 0;
	uint32_t known = id_map_find(&reader->estimates, (uint64_t)string);
	if (known != ID_MAP_NONE) {
		trace->estimate = known & SNAPSHOT_ESTIMATES_MAX;
		return 0;
	}

	return pprof_string_get(reader, (uint64_t)string, &text)
	       ?: deviations_parse(&text, &estimate)
	       ?: builder_estimate(&reader->builder, &estimate, trace)
	       ?: id_map_put(&reader->estimates, (uint64_t)string, trace->estimate);
}

/* Sets the lifetime of freed blocks, by the index of the string that names it. */
static int lifetime_find(struct pprof_reader *reader, int64_t string, struct snapshot_trace *trace)
{
	struct span text = {0};
	int err = string < 0 ? 0 : pprof_string_get(reader, (uint64_t)string, &text);

	if (err || string < 0)
		return err;
	for (uint32_t i = 0; i < LIFETIMES; i++) {
		const char *name = snapshot_lifetime_name(i);

		if (text.bytes == strlen(name) && !memcmp(text.data, name, text.bytes)) {
			trace->flags |= (i << SNAPSHOT_LIFETIME_SHIFT) & 0xf0u;
			return 0;
		}
	}
	return pprof_corrupt("lifetime");
}

/* The thread of a sample, and its name, by the index of its string. */
static int thread_find(struct pprof_reader *reader, const struct sample *sample,
		       struct snapshot_trace *trace)
{
	int64_t tid = sample->labels[LABEL_THREAD], string = sample->labels[LABEL_THREAD_NAME];
	char name[EVENT_THREAD_NAME] = "";
	struct span text = {0};

	if (tid <= 0)
		return 0;
	if (tid > UINT32_MAX)
		return pprof_corrupt("thread");
	trace->thread = (uint32_t)tid;
	int err = string < 0 ? 0 : pprof_string_get(reader, (uint64_t)string, &text);
	if (err || string < 0)
		return err;
	if (text.bytes >= sizeof(name))
		return pprof_corrupt("name of a thread");
	memcpy(name, text.data, text.bytes);
	return name[0] ? builder_thread(&reader->builder, trace->thread, name) : 0;
}

/* The asyncio task of a sample, by the index of its name. */
static int task_find(struct pprof_reader *reader, const struct sample *sample,
		     struct snapshot_trace *trace)
{
	int64_t string = sample->labels[LABEL_TASK];

	return string <= 0 ? 0 : pprof_string_intern(reader, string, &trace->task);
}

/* The age of a sample of that layer. */
static int age_find(const struct pprof_reader *reader, const struct sample *sample, int layer,
		    struct snapshot_trace *trace)
{
	const struct snapshot *snapshot = reader->builder.snapshot;
	int64_t age = sample->labels[LABEL_AGE];

	if (layer >= (int)SNAPSHOT_EXTRA_FIRST)
		return 0;
	trace->age = AGE_UNKNOWN;
	if (!snapshot_process(snapshot, trace->process)->ages)
		return 0;
	if (layer == SNAPSHOT_OLDER)
		trace->age = AGE_BEFORE;
	else if (age >= AGE_BEFORE)
		return pprof_corrupt("age");
	else if (age > 0)
		trace->age = (uint32_t)age;
	return 0;
}

static int64_t zero_of(int64_t label)
{
	return label == -1 ? 0 : label;
}

static int sample_add(struct pprof_reader *reader)
{
	const struct sample *sample = &reader->sample;
	int64_t bytes = zero_of(sample->labels[LABEL_BYTES]),
		domain = zero_of(sample->labels[LABEL_DOMAIN]);
	int64_t total = sample->labels[LABEL_TOTAL];
	const struct snapshot *snapshot = reader->builder.snapshot;
	int64_t process = snapshot->process_count ? sample->labels[LABEL_PROCESS] - 1 : 0;
	size_t position = sample_position(sample);
	const int64_t *values = sample->values + position * PPROF_VALUES;
	int64_t weighted = sample->labels[LABEL_SELF_SAMPLED];
	int layer = position ? layer_at(reader, position) : (int)snapshot->meta.layer;
	struct snapshot_trace trace;
	int64_t product;

	if (process < 0 || (uint64_t)process >= snapshot_process_count(snapshot))
		return pprof_corrupt("sample's process");
	trace = (struct snapshot_trace){
		.domain = (uint32_t)domain,
		.process = (uint32_t)process,
		.flags = (sample->labels[LABEL_ROUNDED] > 0 ? SNAPSHOT_ROUNDED : 0) |
			 (sample->labels[LABEL_INHERITED] > 0 ? SNAPSHOT_INHERITED : 0),
		.bytes = (uint64_t)bytes,
	};
	const uint64_t mean = layer == EVENT_LAYER_MMAP || layer >= (int)SNAPSHOT_EXTRA_FIRST
				      ? 0
				      : snapshot_sample_bytes(snapshot, &trace);
	if (layer < 0 || bytes < 0 || domain < 0 || !sample->nframe || !sample->value_count ||
	    sample->value_count % PPROF_VALUES || values[0] <= 0 || domain > UINT32_MAX ||
	    total > UINT32_MAX ||
	    __builtin_mul_overflow(bytes, weighted > 0 ? weighted : values[0], &product) ||
	    (weighted > 0 ? !bytes || product > values[1] : !mean && product != values[1]))
		return pprof_corrupt("sample");
	trace.count = weighted > 0 ? (uint64_t)weighted
				   : estimate_sampled(mean, trace.bytes, (uint64_t)values[0]);
	trace.weight = weighted > 0 ? (uint64_t)values[1] : 0;
	if (!trace.count)
		return pprof_corrupt("sample");
	int err = builder_traceback(&reader->builder, reader->frames, sample->nframe,
				    total < 0 ? SNAPSHOT_TOTAL_UNKNOWN : (uint32_t)total,
				    &trace.traceback);
	err = err ?: estimate_find(reader, sample->labels[LABEL_DEVIATIONS], &trace);
	err = err ?: lifetime_find(reader, sample->labels[LABEL_LIFETIME], &trace);
	err = err ?: thread_find(reader, sample, &trace);
	err = err ?: task_find(reader, sample, &trace);
	err = err ?: age_find(reader, sample, layer, &trace);
	if (!err)
		err = position ? builder_layer(&reader->builder, (uint32_t)layer, &trace)
			       : builder_trace(&reader->builder, &trace);
	return err == -EOVERFLOW ? pprof_corrupt("sum of sizes") : err;
}

/*
 * Adds a sample to the snapshot; other fields are ignored. The meta data, functions and locations
 * are known already. 0; -EBADMSG (error_set); -ENOMEM, -EDQUOT.
 */
/* Parsed by hand: protobuf-c would call malloc a dozen times for each of a million samples. */
static int pprof_sample_take(struct pprof_reader *reader, struct field *field)
{
	enum { LOCATION = 1, VALUE = 2, LABEL = 3 };
	struct field part;
	int err = 0;

	if (field->id != FIELD_SAMPLE || field->wire_type != 2)
		return 0;
	err = span_check(&field->span);
	reader->sample =
		(struct sample){.labels = {-1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1}};
	while (!err && field->span.bytes) {
		err = field_take(&field->span, &part);
		if (!err && part.id == LOCATION)
			err = pprof_numbers_take(reader, &part, sample_location);
		else if (!err && part.id == VALUE)
			err = pprof_numbers_take(reader, &part, sample_value);
		else if (!err && part.id == LABEL && part.wire_type == 2)
			err = sample_label(reader, &part.span);
	}
	return err ?: sample_add(reader);
}

static int binary_take(struct pprof_reader *reader, const Perftools__Profiles__Mapping *message)
{
	struct snapshot_binary binary = {.start = message->memory_start,
					 .limit = message->memory_limit,
					 .offset = message->file_offset};
	uint16_t native;

	return pprof_string_intern(reader, message->filename, &binary.path)
		       ?: pprof_string_intern(reader, message->build_id, &binary.build_id)
		       ?: builder_binary(&reader->builder, &binary, &native)
		       ?: id_map_put(&reader->natives, message->id, native);
}

static int mapping_take(struct pprof_reader *reader, const struct span *span)
{
	Perftools__Profiles__Mapping *message =
		perftools__profiles__mapping__unpack(NULL, span->bytes, span->data);
	struct span text = {0};

	if (!message)
		return pprof_corrupt("mapping");
	int err = pprof_string_get(reader, (uint64_t)message->filename, &text);
	if (!err && message->memory_start < message->memory_limit)
		err = binary_take(reader, message);
	else if (!err && text.bytes == strlen(PPROF_NATIVE) &&
		 !memcmp(text.data, PPROF_NATIVE, text.bytes))
		err = id_map_put(&reader->natives, message->id, SNAPSHOT_NATIVE);
	perftools__profiles__mapping__free_unpacked(message, NULL);
	return err;
}

static int function_take(struct pprof_reader *reader, const struct span *span)
{
	Perftools__Profiles__Function *message =
		perftools__profiles__function__unpack(NULL, span->bytes, span->data);
	if (!message)
		return pprof_corrupt("function");
	int err = items_reserve(reader, &reader->functions, &reader->function_capacity,
				reader->function_count, sizeof(*reader->functions));
	struct function function;
	err = err ?: pprof_string_intern(reader, message->name, &function.name);
	err = err ?: pprof_string_intern(reader, message->filename, &function.filename);
	err = err
		      ?: id_map_put(&reader->function_ids, message->id,
				    (uint32_t)reader->function_count);
	if (!err)
		reader->functions[reader->function_count++] = function;
	perftools__profiles__function__free_unpacked(message, NULL);
	return err;
}

static uint16_t location_native(const struct pprof_reader *reader,
				const Perftools__Profiles__Location *message)
{
	uint32_t native = id_map_find(&reader->natives, message->mapping_id);

	return native == ID_MAP_NONE ? 0 : (uint16_t)native;
}

/* The frame of a location without lines: only its address is known. */
static int address_add(struct pprof_reader *reader, const Perftools__Profiles__Location *message)
{
	struct snapshot *snapshot = reader->builder.snapshot;
	struct snapshot_frame frame = {.native = location_native(reader, message)};
	const struct snapshot_binary *binary = snapshot_binary(snapshot, &frame);
	struct buffer name = {0};

	if (!binary || message->address < binary->start || message->address >= binary->limit)
		return pprof_corrupt("location");
	frame.filename = binary->path;
	int err = pprof_unnamed_name(strings_get(snapshot->strings, binary->path),
				     message->address - binary->start + binary->offset, &name)
			  ?: strings_intern(snapshot->strings, (const char *)name.data,
					    name.size - 1, &frame.function)
			  ?: items_reserve(reader, &reader->location_frames,
					   &reader->location_frame_capacity,
					   reader->location_frame_count,
					   sizeof(*reader->location_frames));
	buffer_free(&name);
	if (!err)
		reader->location_frames[reader->location_frame_count++] = frame;
	return err;
}

/* Line `at` of a location: all but the last are inlined into the next. */
static int line_add(struct pprof_reader *reader, const Perftools__Profiles__Location *message,
		    size_t at)
{
	const Perftools__Profiles__Line *line = message->line[at];
	uint32_t function = id_map_find(&reader->function_ids, line->function_id);

	if (line->line < 0 || line->line > UINT32_MAX)
		return pprof_corrupt("location");
	if (function == ID_MAP_NONE)
		return pprof_corrupt("location's function");
	int err = items_reserve(reader, &reader->location_frames, &reader->location_frame_capacity,
				reader->location_frame_count, sizeof(*reader->location_frames));
	if (!err)
		reader->location_frames[reader->location_frame_count++] = (struct snapshot_frame){
			.filename = reader->functions[function].filename,
			.function = reader->functions[function].name,
			.line = (uint32_t)line->line,
			.native = location_native(reader, message),
			.inlined = at + 1 < message->n_line,
		};
	return err;
}

static int location_add(struct pprof_reader *reader, const Perftools__Profiles__Location *message)
{
	const struct location location = {.first = (uint32_t)reader->location_frame_count,
					  .count = message->n_line ? (uint32_t)message->n_line : 1};
	int err = items_reserve(reader, &reader->locations, &reader->location_capacity,
				reader->location_count, sizeof(*reader->locations));

	if (!err && message->n_line > PPROF_LINES_MAX)
		return pprof_corrupt("location");
	if (!err && !message->n_line)
		err = address_add(reader, message);
	for (size_t i = 0; !err && i < message->n_line; i++)
		err = line_add(reader, message, i);
	err = err
		      ?: id_map_put(&reader->location_ids, message->id,
				    (uint32_t)reader->location_count);
	if (!err)
		reader->locations[reader->location_count++] = location;
	return err;
}

static int location_take(struct pprof_reader *reader, const struct span *span)
{
	Perftools__Profiles__Location *message =
		perftools__profiles__location__unpack(NULL, span->bytes, span->data);
	if (!message)
		return pprof_corrupt("location");
	int err = location_add(reader, message);
	perftools__profiles__location__free_unpacked(message, NULL);
	return err;
}

static int layers_valid(const struct snapshot_meta *meta)
{
	uint32_t tables = 0;

	for (size_t i = 0; i < EXTRAS; i++)
		tables |= meta->extra[i].known;
	return meta->layer < EVENT_LAYERS && !(meta->layers >> EVENT_LAYERS) &&
	       !(meta->layers & 1u << meta->layer) && !(tables >> EVENT_LAYER_TABLES);
}

/* The meta data of files of older versions. */
static int comments_parse(struct pprof_reader *reader)
{
	int ours = 0;

	for (size_t i = 0; i < reader->comment_count; i++) {
		struct span text = {0};
		int err = pprof_string_get(reader, reader->comments[i], &text);

		err = err
			      ?: pprof_meta_parse_line(&reader->builder, (const char *)text.data,
						       text.bytes);
		if (err < 0)
			return err;
		ours |= err;
	}
	return ours;
}

static int lines_parse(struct pprof_reader *reader)
{
	struct span text = {0};
	char *lines = NULL;
	size_t bytes;
	int err = pprof_string_get(reader, reader->lines, &text)
			  ?: text_restore(&text, &lines, &bytes);

	/* Names of processes are bytes, other than those of Python. */
	if (!err)
		bytes = utf8_fsencode(lines, lines);
	err = err ?: pprof_meta_parse(&reader->builder, lines, bytes);
	free(lines);
	return err;
}

static int meta_read(struct pprof_reader *reader)
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
			return pprof_corrupt("mean of a sample");
	for (size_t i = 0; i < snapshot_process_count(reader->builder.snapshot); i++)
		if (!layers_valid(snapshot_process(reader->builder.snapshot, i)))
			return pprof_corrupt("list of layers");
	if (!layers_valid(&reader->builder.snapshot->meta))
		return pprof_corrupt("list of layers");
	return pprof_meta_end(&reader->builder);
}

static void reader_free(struct pprof_reader *reader)
{
	struct account *account = reader->account;

	array_release(account, &reader->strings, &reader->string_capacity,
		      sizeof(*reader->strings));
	array_release(account, &reader->comments, &reader->comment_capacity,
		      sizeof(*reader->comments));
	array_release(account, &reader->mapping_messages.items, &reader->mapping_messages.capacity,
		      sizeof(struct span));
	array_release(account, &reader->function_messages.items,
		      &reader->function_messages.capacity, sizeof(struct span));
	array_release(account, &reader->location_messages.items,
		      &reader->location_messages.capacity, sizeof(struct span));
	array_release(account, &reader->functions, &reader->function_capacity,
		      sizeof(*reader->functions));
	array_release(account, &reader->locations, &reader->location_capacity,
		      sizeof(*reader->locations));
	array_release(account, &reader->location_frames, &reader->location_frame_capacity,
		      sizeof(*reader->location_frames));
	id_map_free(&reader->natives);
	id_map_free(&reader->function_ids);
	id_map_free(&reader->location_ids);
	id_map_free(&reader->estimates);
	account_uncharge(account, sizeof(*reader));
	free(reader);
}

static int profile_read(struct pprof_reader *reader, size_t bytes)
{
	int err = profile_walk(reader, bytes, table_take) ?: meta_read(reader);

	for (size_t i = 0; !err && i < reader->mapping_messages.count; i++)
		err = mapping_take(reader, &reader->mapping_messages.items[i]);
	for (size_t i = 0; !err && i < reader->function_messages.count; i++)
		err = function_take(reader, &reader->function_messages.items[i]);
	for (size_t i = 0; !err && i < reader->location_messages.count; i++)
		err = location_take(reader, &reader->location_messages.items[i]);
	err = err ?: profile_walk(reader, bytes, pprof_sample_take);
	return err ?: builder_order(&reader->builder);
}

int pprof_parse_in(struct account *account, const unsigned char *profile, size_t bytes,
		   struct snapshot **out)
{
	struct pprof_reader *reader = calloc(1, sizeof(*reader));
	int err = reader ? account_charge(account, sizeof(*reader)) : -ENOMEM;

	if (err) {
		free(reader);
		return err;
	}
	reader->profile = profile;
	reader->account = account;
	reader->function_ids.account = reader->location_ids.account = account;
	reader->estimates.account = reader->natives.account = account;
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
				 "takes more memory than a profile of its size may: %llu bytes",
				 (unsigned long long)account->limit);
	return err;
}

int pprof_parse(const unsigned char *profile, size_t bytes, struct snapshot **out)
{
	struct account account = {.limit = account_file_limit(bytes, PPROF_RATIO)};

	return pprof_parse_in(&account, profile, bytes, out);
}
