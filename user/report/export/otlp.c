/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The request is packed from the inside out: samples are appended to a profile, profiles to their
 * scope, scopes to their resource, resources to the request. Entries of the dictionary are appended
 * to it when a sample first names them, so that none is without a reference, and it comes last.
 */
#include "report/export/otlp.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "report/export/exporter.h"
#include "report/export/otlp.pb-c.h"
#include "report/pprof/pprof_format.h"
#include "runtime/cpython/version.h"
#include "snapshot/estimate.h"
#include "util/array.h"
#include "util/error.h"
#include "util/id_map.h"
#include "util/sorted.h"
#include "util/utf8.h"

#define SERVICE_UNKNOWN "unknown_service" /* OpenTelemetry's rule: followed by ":PROGRAM" */
#define LAYER_OLDER     "older"
#define MAPPING_BINARY  (1ull << 32)

/* What the list of a location begins with. */
enum { LOCATION_PYTHON, LOCATION_NATIVE, LOCATION_ADDRESS };

/* Entries that lists of numbers identify. Zero-initialise. */
struct otlp_table {
	/* number of the list without its last item << 32 | item -> number of the list */
	struct id_map lists;
	struct id_map entries; /* number of a list -> index of its entry */
};

struct otlp_writer {
	const struct snapshot *snapshot;
	const struct otlp_opts *opts;
	bool is_part; /* filters have left blocks out */
	struct buffer dictionary;
	struct buffer text;               /* scratch */
	struct strings *strings;          /* the string table: ids are indices */
	struct strings *attributes;       /* the same for attributes: KEY \1 UNIT \1 VALUE */
	struct id_map mappings;           /* MAPPING_BINARY | native, or the file's name -> index */
	struct otlp_table functions;      /* name, file */
	struct otlp_table locations;      /* LOCATION_*, mapping, function and line of each frame */
	struct otlp_table stacks;         /* locations */
	int32_t *string_of;               /* by the snapshot's: its string; 0: not asked for yet */
	uint32_t *stack_of;               /* by traceback: its stack; 0: not asked for yet */
	uint32_t *scratch;                /* locations of one stack */
	size_t next[SNAPSHOT_LAYERS + 1]; /* traces that are written: of each layer, of the first */
};

/* Appends a message, which may be a part of one. 0, -ENOMEM. */
static int piece_append(struct buffer *out, const ProtobufCMessage *piece)
{
	int err = buffer_reserve(out, protobuf_c_message_get_packed_size(piece));

	if (!err)
		out->size += protobuf_c_message_pack(piece, out->data + out->size);
	return err;
}

/* Appends a member of the dictionary: one entry of one table. */
#define ENTRY_APPEND(writer, table, entry)                                                         \
	piece_append(&(writer)->dictionary,                                                        \
		     &(Otlp__ProfilesDictionary){.base = PROTOBUF_C_MESSAGE_INIT(                  \
							 &otlp__profiles_dictionary__descriptor),  \
						 .n_##table = 1,                                   \
						 .table = (entry)}                                 \
			      .base)

/* --- otlp tables ------------------------------------------------------------------------------ */

static void table_free(struct otlp_table *table)
{
	id_map_free(&table->lists);
	id_map_free(&table->entries);
}

/*
 * The index of the entry, from 1. If *is_new, the caller appends it. 0, -ENOMEM, -EOVERFLOW
 * (error_set).
 */
static int table_find(struct otlp_table *table, const uint32_t *list, size_t count, uint32_t *index,
		      bool *is_new)
{
	uint32_t number = 0;
	int err = 0;

	for (size_t i = 0; !err && i < count; i++) {
		uint64_t key = (uint64_t)number << 32 | list[i];

		number = id_map_find(&table->lists, key);
		if (number != ID_MAP_NONE)
			continue;
		number = (uint32_t)table->lists.count + 1;
		err = id_map_put(&table->lists, key, number);
	}
	*index = id_map_find(&table->entries, number);
	*is_new = *index == ID_MAP_NONE;
	if (err || !*is_new)
		return err;
	if (table->entries.count >= INT32_MAX)
		return error_set(-EOVERFLOW, "more than 2^31 stacks, lines or functions");
	*index = (uint32_t)table->entries.count + 1;
	return id_map_put(&table->entries, number, *index);
}

/* Text as valid UTF-8, in the writer's scratch. */
static int text_escape_to(struct buffer *out, const char *text)
{
	out->size = 0;
	int err = buffer_reserve(out, UTF8_ESCAPED(strlen(text)));
	if (!err)
		out->size = utf8_escape((char *)out->data, text);
	return err;
}

static int string_index(struct otlp_writer *writer, const char *text, int32_t *index)
{
	uint32_t count = strings_count(writer->strings), id;
	int err = text_escape_to(&writer->text, text);
	char *escaped = (char *)writer->text.data;

	err = err ?: strings_intern(writer->strings, escaped, writer->text.size, &id);
	if (!err && id > INT32_MAX)
		return error_set(-EOVERFLOW, "more than 2^31 names");
	if (err)
		return err;
	*index = (int32_t)id;
	return id == count ? ENTRY_APPEND(writer, string_table, &escaped) : 0;
}

/* A string of the snapshot, which is escaped only once: names may be long. */
static int name_index(struct otlp_writer *writer, uint32_t id, int32_t *index)
{
	*index = writer->string_of[id];
	if (*index)
		return 0;
	int err = string_index(writer, strings_get(writer->snapshot->strings, id), index);
	if (!err)
		writer->string_of[id] = *index;
	return err;
}

/* An attribute of a profile or a location; text NULL: the number. */
static int attribute_index(struct otlp_writer *writer, const char *key, const char *text,
			   uint64_t number, const char *unit, int32_t *index)
{
	Otlp__AnyValue value = OTLP__ANY_VALUE__INIT;
	Otlp__KeyValueAndUnit entry = OTLP__KEY_VALUE_AND_UNIT__INIT, *entries = &entry;
	uint32_t count = strings_count(writer->attributes), id;
	struct buffer name = {0}, escaped = {0};
	int err = text ? text_escape_to(&escaped, text) : 0;

	if (!err && text)
		err = buffer_printf(&name, "%s\1%s\1%s", key, unit, (char *)escaped.data);
	else if (!err)
		err = buffer_printf(&name, "%s\1%s\1\1%llu", key, unit, (unsigned long long)number);
	err = err ?: strings_intern(writer->attributes, (char *)name.data, name.size, &id);
	if (!err && id == count) {
		value.value_case = text ? OTLP__ANY_VALUE__VALUE_STRING_VALUE
					: OTLP__ANY_VALUE__VALUE_INT_VALUE;
		if (text)
			value.string_value = (char *)escaped.data;
		else
			value.int_value = number < INT64_MAX ? (int64_t)number : INT64_MAX;
		entry.value = &value;
		err = string_index(writer, key, &entry.key_strindex)
			      ?: string_index(writer, unit, &entry.unit_strindex)
			      ?: ENTRY_APPEND(writer, attribute_table, &entries);
	}
	*index = err ? 0 : (int32_t)id;
	buffer_free(&name);
	buffer_free(&escaped);
	return err;
}

/* The first entry of each table, which is empty. */
static int dictionary_begin(struct otlp_writer *writer)
{
	static uint8_t zeros[16];
	Otlp__Mapping mapping = OTLP__MAPPING__INIT, *mappings = &mapping;
	Otlp__Location location = OTLP__LOCATION__INIT, *locations = &location;
	Otlp__Function function = OTLP__FUNCTION__INIT, *functions = &function;
	Otlp__Link link = OTLP__LINK__INIT, *links = &link;
	Otlp__KeyValueAndUnit attribute = OTLP__KEY_VALUE_AND_UNIT__INIT, *attributes = &attribute;
	Otlp__Stack stack = OTLP__STACK__INIT, *stacks = &stack;
	char *empty = "";

	link.trace_id = (ProtobufCBinaryData){16, zeros};
	link.span_id = (ProtobufCBinaryData){8, zeros};
	return ENTRY_APPEND(writer, mapping_table, &mappings)
	       ?: ENTRY_APPEND(writer, location_table, &locations)
	       ?: ENTRY_APPEND(writer, function_table, &functions)
	       ?: ENTRY_APPEND(writer, link_table, &links)
	       ?: ENTRY_APPEND(writer, string_table, &empty)
	       ?: ENTRY_APPEND(writer, attribute_table, &attributes)
	       ?: ENTRY_APPEND(writer, stack_table, &stacks);
}

/* --- otlp stacks ------------------------------------------------------------------------------ */

static int binary_add(struct otlp_writer *writer, const struct snapshot_binary *binary)
{
	const char *build_id = strings_get(writer->snapshot->strings, binary->build_id);
	Otlp__Mapping mapping = OTLP__MAPPING__INIT, *mappings = &mapping;
	int32_t attribute;

	mapping.memory_start = binary->start;
	mapping.memory_limit = binary->limit;
	mapping.file_offset = binary->offset;
	mapping.n_attribute_indices = build_id[0] != 0;
	mapping.attribute_indices = &attribute;
	int err = name_index(writer, binary->path, &mapping.filename_strindex);
	if (!err && build_id[0])
		err = attribute_index(writer, "process.executable.build_id.gnu", build_id, 0, "",
				      &attribute);
	return err ?: ENTRY_APPEND(writer, mapping_table, &mappings);
}

/*
 * If the binary is not known, a native frame without a line has its name, others that of a source
 * file. Python's code is in no mapping.
 */
static int mapping_index(struct otlp_writer *writer, const struct snapshot_frame *frame,
			 uint32_t *index)
{
	const char *file = strings_get(writer->snapshot->strings, frame->filename);
	const struct snapshot_binary *binary = snapshot_binary(writer->snapshot, frame);
	Otlp__Mapping mapping = OTLP__MAPPING__INIT, *mappings = &mapping;
	uint64_t key = MAPPING_BINARY | frame->native;

	*index = 0;
	if (!binary) {
		if (!frame->native || frame->line || file[0] != '/')
			return 0;
		int err = name_index(writer, frame->filename, &mapping.filename_strindex);
		if (err)
			return err;
		key = (uint32_t)mapping.filename_strindex;
	}
	*index = id_map_find(&writer->mappings, key);
	if (*index != ID_MAP_NONE)
		return 0;
	*index = (uint32_t)writer->mappings.count + 1;
	return id_map_put(&writer->mappings, key, *index)
		       ?: binary ? binary_add(writer, binary)
				 : ENTRY_APPEND(writer, mapping_table, &mappings);
}

static int function_index(struct otlp_writer *writer, const struct snapshot_frame *frame,
			  uint32_t *index)
{
	Otlp__Function function = OTLP__FUNCTION__INIT, *functions = &function;
	bool is_new;
	int err = name_index(writer, frame->function, &function.name_strindex)
			  ?: name_index(writer, frame->filename, &function.filename_strindex);

	*index = 0;
	if (err || (!function.name_strindex && !function.filename_strindex))
		return err;
	err = table_find(&writer->functions,
			 (uint32_t[]){(uint32_t)function.name_strindex,
				      (uint32_t)function.filename_strindex},
			 2, index, &is_new);
	return err || !is_new ? err : ENTRY_APPEND(writer, function_table, &functions);
}

/* Appends a location, whose members are set but for these. */
static int location_append(struct otlp_writer *writer, Otlp__Location location, uint32_t mapping,
			   bool is_native)
{
	Otlp__Location *locations = &location;
	int32_t kind;
	int err = attribute_index(writer, "profile.frame.type", is_native ? "native" : "cpython", 0,
				  "", &kind);

	location.mapping_index = (int32_t)mapping;
	location.n_attribute_indices = 1;
	location.attribute_indices = &kind;
	return err ?: ENTRY_APPEND(writer, location_table, &locations);
}

/* The location of a function that is not known: an address, for whoever has its symbols. */
static int address_index(struct otlp_writer *writer, const struct snapshot_frame *frame,
			 uint64_t offset, uint32_t *index)
{
	const struct snapshot_binary *binary = snapshot_binary(writer->snapshot, frame);
	Otlp__Location location = OTLP__LOCATION__INIT;
	uint32_t list[] = {LOCATION_ADDRESS, 0, 0, 0};
	bool is_new = false;
	int err = mapping_index(writer, frame, &list[1]);

	location.address = binary->start + (offset - binary->offset);
	list[2] = (uint32_t)(location.address >> 32);
	list[3] = (uint32_t)location.address;
	err = err ?: table_find(&writer->locations, list, ARRAY_SIZE(list), index, &is_new);
	return err || !is_new ? err : location_append(writer, location, list[1], true);
}

/* The location of `count` frames, of which each is inlined into the next. */
static int location_index(struct otlp_writer *writer, const struct snapshot_frame *frames,
			  uint32_t count, uint32_t *index)
{
	uint32_t list[2 + 2 * PPROF_LINES_MAX] = {frames[0].native ? LOCATION_NATIVE
								   : LOCATION_PYTHON};
	Otlp__Line lines[PPROF_LINES_MAX], *pointers[PPROF_LINES_MAX];
	Otlp__Location location = OTLP__LOCATION__INIT;
	uint64_t offset;
	bool is_new = false;

	if (count == 1 && pprof_is_unnamed(writer->snapshot, frames, &offset))
		return address_index(writer, frames, offset, index);
	int err = mapping_index(writer, &frames[count - 1], &list[1]);

	for (uint32_t i = 0; !err && i < count; i++) {
		pointers[i] = &lines[i];
		otlp__line__init(&lines[i]);
		err = function_index(writer, &frames[i], &list[2 + 2 * i]);
		lines[i].function_index = (int32_t)list[2 + 2 * i];
		lines[i].line = list[3 + 2 * i] = frames[i].line;
	}
	err = err ?: table_find(&writer->locations, list, 2 + 2 * count, index, &is_new);
	location.n_lines = count;
	location.lines = pointers;
	return err || !is_new ? err : location_append(writer, location, list[1], frames[0].native);
}

static int stack_index(struct otlp_writer *writer, uint32_t traceback, uint32_t *index)
{
	const struct snapshot_traceback *from = &writer->snapshot->tracebacks[traceback];
	Otlp__Stack stack = OTLP__STACK__INIT, *stacks = &stack;
	bool is_new = false;
	int err = 0;

	*index = writer->stack_of[traceback];
	if (*index)
		return 0;
	for (uint32_t i = 0, count; !err && i < from->nframe; i += count) {
		const struct snapshot_frame *frames = &writer->snapshot->frames[from->first + i];

		count = pprof_location_frames(frames, from->nframe - i);
		err = location_index(writer, frames, count,
				     &writer->scratch[stack.n_location_indices++]);
	}
	err = err
		      ?: table_find(&writer->stacks, writer->scratch, stack.n_location_indices,
				    index, &is_new);
	stack.location_indices = (int32_t *)writer->scratch;
	if (!err && is_new)
		err = ENTRY_APPEND(writer, stack_table, &stacks);
	if (!err)
		writer->stack_of[traceback] = *index;
	return err;
}

/* --- otlp samples ----------------------------------------------------------------------------- */

enum { VALUE_SPACE, VALUE_OBJECTS, VALUES };

/* What one process has in one layer: traces of the snapshot. */
struct part {
	const struct snapshot_trace *traces;
	size_t count;
	bool scaled; /* its figures stand for themselves, also in a sample */
};

/* Sums of a traceback, or of a line; given: what its samples have so far. */
struct otlp_sums {
	uint32_t traceback;
	double values[VALUES];
	uint64_t given[VALUES];
};

struct otlp_sample {
	uint32_t stack;
	int64_t values[VALUES];
};

/* Zero-initialise. */
struct otlp_samples {
	struct otlp_sample *items;
	size_t count, capacity;
	uint64_t error[VALUES]; /* standard errors of their sums */
};

static int row_compare(const void *a, const void *b)
{
	return CMP(((const struct otlp_sums *)a)->traceback,
		   ((const struct otlp_sums *)b)->traceback);
}

/* Sums the traces of each traceback, in the order of tracebacks. The caller frees the rows. */
static int rows_make(const struct snapshot *snapshot, const struct part *part,
		     struct otlp_sums **rows, size_t *count)
{
	struct id_map indices = {0};
	int err = 0;

	*count = 0;
	*rows = calloc(part->count + 1, sizeof(**rows));
	if (!*rows)
		return -ENOMEM;
	for (size_t i = 0; !err && i < part->count; i++) {
		const struct snapshot_trace *trace = &part->traces[i];
		double chance = part->scaled ? 1 : estimate_chance_of(snapshot, trace);
		uint32_t row = id_map_find(&indices, trace->traceback);

		if (row == ID_MAP_NONE) {
			row = (uint32_t)(*count)++;
			(*rows)[row].traceback = trace->traceback;
			err = id_map_put(&indices, trace->traceback, row);
		}
		(*rows)[row].values[VALUE_OBJECTS] += (double)trace->count / chance;
		(*rows)[row].values[VALUE_SPACE] +=
			(double)trace->count * (double)trace->bytes / chance;
	}
	id_map_free(&indices);
	qsort(*rows, *count, sizeof(**rows), row_compare);
	return err;
}

/* Adds to the sample of the traceback's stack. index: stack -> sample. */
static int sample_add(struct otlp_writer *writer, struct otlp_samples *samples,
		      struct id_map *index, uint32_t traceback, const uint64_t added[VALUES])
{
	uint32_t stack, at;
	int err = stack_index(writer, traceback, &stack);

	if (err)
		return err;
	at = id_map_find(index, stack);
	if (at == ID_MAP_NONE) {
		at = (uint32_t)samples->count;
		err = ARRAY_GROW(samples->items, samples->capacity, at)
			      ?: id_map_put(index, stack, at);
		if (err)
			return err;
		samples->items[samples->count++] = (struct otlp_sample){.stack = stack};
	}
	for (int i = 0; i < VALUES; i++)
		samples->items[at].values[i] += (int64_t)added[i];
	return 0;
}

/*
 * Rounds the rows: what a line has so far is rounded, and a row gets what that has grown by. So a
 * line's samples add up to its rounded sum, which is what reports have.
 */
static int rows_round(struct otlp_writer *writer, const struct otlp_sums *rows, size_t count,
		      struct otlp_samples *samples)
{
	struct otlp_sums *lines = calloc(count + 1, sizeof(*lines));
	struct otlp_table numbers = {0};
	struct id_map index = {0};
	int err = lines ? 0 : -ENOMEM;

	for (size_t i = 0; !err && i < count; i++) {
		const struct snapshot_frame *frame =
			&writer->snapshot
				 ->frames[writer->snapshot->tracebacks[rows[i].traceback].first];
		uint64_t whole, added[VALUES] = {0};
		uint32_t number;
		bool is_new;

		err = table_find(&numbers,
				 (uint32_t[]){frame->filename, frame->line,
					      frame->line ? 0 : frame->function},
				 3, &number, &is_new);
		for (int value = 0; !err && value < VALUES; value++) {
			struct otlp_sums *line = &lines[number - 1];

			line->values[value] += rows[i].values[value];
			err = estimate_round(line->values[value], &whole);
			if (!err) {
				added[value] = whole - line->given[value];
				line->given[value] = whole;
			}
		}
		if (!err && (added[VALUE_SPACE] || added[VALUE_OBJECTS]))
			err = sample_add(writer, samples, &index, rows[i].traceback, added);
	}
	free(lines);
	table_free(&numbers);
	id_map_free(&index);
	return err;
}

/* The errors of all of it, as reports have them, and that its sums can be written. */
static int total_check(const struct otlp_writer *writer, const struct part *part,
		       struct otlp_samples *samples)
{
	struct estimate total = {0};
	uint64_t whole;

	for (size_t i = 0; i < part->count; i++)
		if (part->scaled)
			estimate_add_sampled(&total, 1, part->traces[i].bytes,
					     part->traces[i].count);
		else
			estimate_add_trace(&total, writer->snapshot, &part->traces[i]);
	if (!writer->is_part)
		estimate_include_unseen(&total);
	samples->error[VALUE_SPACE] = estimate_size_error(&total);
	samples->error[VALUE_OBJECTS] = estimate_count_error(&total);
	return estimate_round(total.size, &whole) ?: estimate_round(total.count, &whole);
}

/* The caller frees samples->items, also on failure. */
static int samples_make(struct otlp_writer *writer, const struct part *part,
			struct otlp_samples *samples)
{
	struct otlp_sums *rows;
	size_t count;
	int err = total_check(writer, part, samples);

	if (err)
		return err;
	err = rows_make(writer->snapshot, part, &rows, &count)
		      ?: rows_round(writer, rows, count, samples);
	free(rows);
	return err;
}

/* --- otlp profiles ---------------------------------------------------------------------------- */

#define PROFILE_ATTRIBUTES 6

/* The attributes of one profile. */
struct profile_attributes {
	int32_t items[PROFILE_ATTRIBUTES];
	size_t count;
};

static int profile_attribute_add(struct otlp_writer *writer, struct profile_attributes *attributes,
				 const char *key, const char *text, uint64_t number,
				 const char *unit)
{
	return attribute_index(writer, key, text, number, unit,
			       &attributes->items[attributes->count++]);
}

/* What a reader of the figures must know. meta: of the process and layer. */
static int profile_attributes_set(struct otlp_writer *writer, const struct snapshot_meta *meta,
				  uint64_t error, int value, struct profile_attributes *attributes)
{
	uint64_t lost = snapshot_lost_events(writer->snapshot);
	int err = 0;

	if (meta->mode[0])
		err = profile_attribute_add(writer, attributes, "tracer.mode", meta->mode, 0, "");
	if (!err && strcmp(meta->mode, SNAPSHOT_TRACEMALLOC))
		err = profile_attribute_add(writer, attributes, "tracer.traced_from",
					    meta->from_start ? "start" : "attach", 0, "");
	if (!err && meta->at_peak)
		err = profile_attribute_add(writer, attributes, "tracer.moment", "peak", 0, "");
	if (!err && (snapshot_is_estimated(meta) || meta->at_peak > 1))
		err = profile_attribute_add(writer, attributes, "tracer.estimated_from",
					    meta->windows.count ? "windows" : "sample", 0, "");
	if (!err && error)
		err = profile_attribute_add(writer, attributes, "tracer.standard_error", NULL,
					    error, value == VALUE_SPACE ? "By" : "");
	if (!err && lost)
		err = profile_attribute_add(writer, attributes, "tracer.lost_events", NULL, lost,
					    "");
	return err;
}

static int value_type_set(struct otlp_writer *writer, Otlp__ValueType *out, const char *type,
			  int value)
{
	return string_index(writer, type, &out->type_strindex)
		       ?: string_index(writer, value == VALUE_SPACE ? "bytes" : "count",
				       &out->unit_strindex);
}

/* The time that a profile covers ends with the snapshot. */
static void time_set(Otlp__Profile *profile, const struct snapshot_meta *meta, uint64_t duration_ns)
{
	uint64_t end = meta->taken_realtime_ns <= INT64_MAX ? meta->taken_realtime_ns : 0;

	profile->duration_nano = duration_ns < end ? duration_ns : end;
	profile->time_unix_nano = end - profile->duration_nano;
}

static int profile_write(struct otlp_writer *writer, const struct snapshot_meta *meta,
			 const struct otlp_samples *samples, bool allocated, int value,
			 struct buffer *out)
{
	static const char *const types[][VALUES] = {{"inuse_space", "inuse_objects"},
						    {"alloc_space", "alloc_objects"}};
	Otlp__ValueType type = OTLP__VALUE_TYPE__INIT, period = OTLP__VALUE_TYPE__INIT;
	Otlp__Profile piece = OTLP__PROFILE__INIT;
	struct profile_attributes attributes = {.count = 0};
	int err = value_type_set(writer, &type, types[allocated][value], value)
			  ?: profile_attributes_set(writer, meta, samples->error[value], value,
						    &attributes);

	piece.sample_type = &type;
	time_set(&piece, meta,
		 writer->opts->duration_ns || !allocated ? writer->opts->duration_ns
							 : meta->allocated_ns);
	if (!err && meta->sample_bytes && meta->sample_bytes <= INT64_MAX) {
		err = value_type_set(writer, &period, types[1][VALUE_SPACE], VALUE_SPACE);
		piece.period_type = &period;
		piece.period = (int64_t)meta->sample_bytes;
	}
	piece.n_attribute_indices = attributes.count;
	piece.attribute_indices = attributes.items;
	err = err ?: piece_append(out, &piece.base);
	for (size_t i = 0; !err && i < samples->count; i++) {
		Otlp__Sample sample = OTLP__SAMPLE__INIT, *items = &sample;
		int64_t number = samples->items[i].values[value];

		if (!number)
			continue;
		otlp__profile__init(&piece);
		sample.stack_index = (int32_t)samples->items[i].stack;
		sample.n_values = 1;
		sample.values = &number;
		piece.n_samples = 1;
		piece.samples = &items;
		err = piece_append(out, &piece.base);
	}
	return err;
}

/* The profiles of both values, each appended to a scope. */
static int profiles_write(struct otlp_writer *writer, const struct snapshot_meta *meta,
			  const struct part *part, bool allocated, struct buffer *out)
{
	struct otlp_samples samples = {0};
	struct buffer profile = {0};
	int err = samples_make(writer, part, &samples);

	for (int value = 0; !err && value < VALUES; value++) {
		Otlp__ScopeProfiles piece = OTLP__SCOPE_PROFILES__INIT;
		ProtobufCBinaryData packed;

		profile.size = 0;
		err = profile_write(writer, meta, &samples, allocated, value, &profile);
		packed = (ProtobufCBinaryData){profile.size, profile.data};
		piece.n_profiles = 1;
		piece.profiles = &packed;
		err = err ?: piece_append(out, &piece.base);
	}
	buffer_free(&profile);
	free(samples.items);
	return err;
}

/* The begin of a scope: which layer it is. */
static int scope_begin(struct buffer *out, const char *layer)
{
	Otlp__AnyValue value = OTLP__ANY_VALUE__INIT;
	Otlp__KeyValue attribute = OTLP__KEY_VALUE__INIT, *attributes = &attribute;
	Otlp__InstrumentationScope scope = OTLP__INSTRUMENTATION_SCOPE__INIT;
	Otlp__ScopeProfiles piece = OTLP__SCOPE_PROFILES__INIT;

	value.value_case = OTLP__ANY_VALUE__VALUE_STRING_VALUE;
	value.string_value = (char *)layer;
	attribute.key = "tracer.layer";
	attribute.value = &value;
	scope.name = "tracer";
	scope.version = TRACER_VERSION;
	scope.n_attributes = 1;
	scope.attributes = &attributes;
	piece.scope = &scope;
	return piece_append(out, &piece.base);
}

/* --- otlp resources --------------------------------------------------------------------------- */

/* Most attributes that a snapshot tells. */
#define RESOURCE_OWN 7

/* The attributes of a resource. Texts are owned. */
struct resource {
	Otlp__KeyValue *items;
	Otlp__AnyValue *values;
	Otlp__KeyValue **pointers;
	size_t count;
};

static void resource_free(struct resource *resource)
{
	for (size_t i = 0; i < resource->count; i++) {
		free(resource->items[i].key);
		if (resource->values[i].value_case == OTLP__ANY_VALUE__VALUE_STRING_VALUE)
			free(resource->values[i].string_value);
	}
	free(resource->items);
	free(resource->values);
	free(resource->pointers);
}

static char *utf8_copy(const char *text)
{
	char *copy = malloc(UTF8_ESCAPED(strlen(text)));

	if (copy)
		utf8_escape(copy, text);
	return copy;
}

/* text NULL: the number. An attribute whose key is there already is left out, and an empty one. */
static int resource_add(struct resource *resource, const char *key, const char *text,
			int64_t number)
{
	Otlp__KeyValue *item = &resource->items[resource->count];
	Otlp__AnyValue *value = &resource->values[resource->count];
	char *name = utf8_copy(key);

	if (!name)
		return -ENOMEM;
	for (size_t i = 0; i < resource->count; i++)
		if (!strcmp(resource->items[i].key, name))
			name[0] = '\0';
	if (!name[0] || (text && !text[0])) {
		free(name);
		return 0;
	}
	otlp__key_value__init(item);
	otlp__any_value__init(value);
	item->key = name;
	item->value = value;
	resource->pointers[resource->count++] = item;
	if (!text) {
		value->value_case = OTLP__ANY_VALUE__VALUE_INT_VALUE;
		value->int_value = number;
		return 0;
	}
	value->value_case = OTLP__ANY_VALUE__VALUE_STRING_VALUE;
	value->string_value = utf8_copy(text);
	return value->string_value ? 0 : -ENOMEM;
}

/* Snapshots have a container's name or, if it has none, the begin of its id. */
static bool is_container_id(const char *container)
{
	size_t digits = strspn(container, "0123456789abcdef");

	return !container[digits] && (digits == 12 || digits == 64);
}

/* A service is named by its user, by the process itself, or as its container, or as its program. */
static int resource_service_add(struct resource *resource, const struct snapshot_meta *process)
{
	char name[sizeof(SERVICE_UNKNOWN ":") + sizeof(process->name)];
	int err = resource_add(resource, "service.version", process->version, 0);

	if (err || process->service[0])
		return err ?: resource_add(resource, "service.name", process->service, 0);
	if (process->container[0] && !is_container_id(process->container))
		return resource_add(resource, "service.name", process->container, 0);
	snprintf(name, sizeof(name), process->name[0] ? SERVICE_UNKNOWN ":%s" : SERVICE_UNKNOWN,
		 process->name);
	return resource_add(resource, "service.name", name, 0);
}

static int resource_runtime_add(struct resource *resource, const struct snapshot_meta *process)
{
	char version[VERSION_TEXT];

	if (!process->python_version)
		return 0;
	return resource_add(resource, "process.runtime.name", "cpython", 0)
		       ?: resource_add(resource, "process.runtime.version",
				       version_text(version, process->python_version), 0);
}

static int resource_set(struct resource *resource, const struct otlp_opts *opts,
			const struct snapshot_meta *process)
{
	int err = 0;

	for (size_t i = 0; !err && i < opts->resource_count; i++)
		err = resource_add(resource, opts->resource[i].key, opts->resource[i].value, 0);
	if (!err && process->pid)
		err = resource_add(resource, "process.pid", NULL, process->pid);
	return err
	       ?: resource_add(resource, "process.executable.name", process->name, 0)
	       ?: resource_add(resource,
			       is_container_id(process->container) ? "container.id"
								   : "container.name",
			       process->container, 0)
	       ?: resource_runtime_add(resource, process)
	       ?: resource_service_add(resource, process);
}

/* The begin of a resource: its attributes. */
static int resource_begin(const struct otlp_opts *opts, const struct snapshot_meta *process,
			  struct buffer *out)
{
	size_t most = opts->resource_count + RESOURCE_OWN;
	struct resource resource = {.items = calloc(most, sizeof(*resource.items)),
				    .values = calloc(most, sizeof(*resource.values)),
				    .pointers = calloc(most, sizeof(*resource.pointers))};
	Otlp__Resource attributes = OTLP__RESOURCE__INIT;
	Otlp__ResourceProfiles piece = OTLP__RESOURCE_PROFILES__INIT;
	int err = -ENOMEM;

	if (resource.items && resource.values && resource.pointers)
		err = resource_set(&resource, opts, process);
	attributes.n_attributes = resource.count;
	attributes.attributes = resource.pointers;
	piece.resource = &attributes;
	err = err ?: piece_append(out, &piece.base);
	resource_free(&resource);
	return err;
}

/* --- otlp request ----------------------------------------------------------------------------- */

/* The process's traces in a layer, which follow those of processes before; -1: the first layer. */
static struct part part_take(struct otlp_writer *writer, int which, uint32_t process)
{
	const struct snapshot *snapshot = writer->snapshot;
	const struct snapshot_layer layer =
		which < 0 ? (struct snapshot_layer){snapshot->traces, snapshot->trace_count}
			  : snapshot->layers[which];
	size_t *next = &writer->next[which + 1], first = *next;

	while (*next < layer.trace_count && layer.traces[*next].process == process)
		++*next;
	return (struct part){.traces = *next > first ? layer.traces + first : NULL,
			     .count = *next - first,
			     .scaled = which == EVENT_LAYER_MMAP || which >= SNAPSHOT_EXTRA_FIRST};
}

/*
 * Appends a scope to a resource, if the process has the layer. meta: of the process and layer. What
 * was allocated is left out where a part of it is not known.
 */
static int layer_write(struct otlp_writer *writer, uint32_t process,
		       const struct snapshot_meta *meta, int which, bool traced, struct buffer *out)
{
	struct part live = part_take(writer, which, process), allocated = {0};
	bool is_older = which == SNAPSHOT_OLDER;
	Otlp__ResourceProfiles piece = OTLP__RESOURCE_PROFILES__INIT;
	ProtobufCBinaryData packed;
	struct buffer scope = {0};
	const struct snapshot_extra *extra = &meta->extra[EXTRA_ALLOCATED];
	bool counts = !is_older && meta->layer < EVENT_LAYER_TABLES;

	live.scaled |= meta->layer == EVENT_LAYER_MMAP;
	if (counts)
		allocated =
			part_take(writer, SNAPSHOT_EXTRA(EXTRA_ALLOCATED, meta->layer), process);
	if (!traced && !live.count)
		return 0;
	int err = scope_begin(&scope, is_older ? LAYER_OLDER : event_layer_name(meta->layer))
			  ?: profiles_write(writer, meta, &live, 0, &scope);
	if (!err && counts && (extra->known & ~extra->gaps) >> meta->layer & 1)
		err = profiles_write(writer, meta, &allocated, 1, &scope);
	packed = (ProtobufCBinaryData){scope.size, scope.data};
	piece.n_scope_profiles = 1;
	piece.scope_profiles = &packed;
	err = err ?: piece_append(out, &piece.base);
	buffer_free(&scope);
	return err;
}

/* The meta data of a process in one of its layers. */
static struct snapshot_meta layer_meta(const struct snapshot *snapshot, uint32_t process,
				       enum event_layer layer)
{
	struct snapshot one = *snapshot;

	one.meta = *snapshot_process(snapshot, process);
	return snapshot_of_layer(&one, layer).meta;
}

/* A layer that was traced, by its number. first: only if it is the process's own first one. */
static int traced_write(struct otlp_writer *writer, uint32_t process, enum event_layer layer,
			struct buffer *out)
{
	const struct snapshot *snapshot = writer->snapshot;
	const struct snapshot_meta *own = snapshot_process(snapshot, process);
	const struct snapshot_meta meta = layer_meta(snapshot, process, layer);
	bool is_first = layer == snapshot->meta.layer;

	return layer_write(writer, process, &meta, is_first ? -1 : (int)layer,
			   is_first && !snapshot->meta.layers
				   ? true
				   : own->layer == layer || own->layers >> layer & 1,
			   out);
}

/* A process with its layers, its own first layer first. */
static int process_write(struct otlp_writer *writer, uint32_t process, struct buffer *out)
{
	const struct snapshot *snapshot = writer->snapshot;
	const struct snapshot_meta *own = snapshot_process(snapshot, process);
	enum event_layer first = snapshot->meta.layers ? own->layer : snapshot->meta.layer;
	const struct snapshot_meta meta = layer_meta(snapshot, process, first);
	int err =
		resource_begin(writer->opts, own, out) ?: traced_write(writer, process, first, out);

	for (int layer = 0; !err && layer < EVENT_LAYERS; layer++)
		if (layer != (int)first && snapshot_has_layer(snapshot, (enum event_layer)layer))
			err = traced_write(writer, process, (enum event_layer)layer, out);
	return err ?: layer_write(writer, process, &meta, SNAPSHOT_OLDER, false, out);
}

static int processes_write(struct otlp_writer *writer, struct buffer *out)
{
	struct buffer resource = {0};
	int err = 0;

	for (size_t i = 0; !err && i < snapshot_process_count(writer->snapshot); i++) {
		Otlp__ExportProfilesServiceRequest piece =
			OTLP__EXPORT_PROFILES_SERVICE_REQUEST__INIT;
		ProtobufCBinaryData packed;

		resource.size = 0;
		err = process_write(writer, (uint32_t)i, &resource);
		packed = (ProtobufCBinaryData){resource.size, resource.data};
		piece.n_resource_profiles = 1;
		piece.resource_profiles = &packed;
		err = err ?: piece_append(out, &piece.base);
	}
	buffer_free(&resource);
	return err;
}

static int writer_begin(struct otlp_writer *writer)
{
	const struct snapshot *snapshot = writer->snapshot;
	uint32_t longest = 1;

	for (size_t i = 0; i < snapshot->traceback_count; i++)
		if (snapshot->tracebacks[i].nframe > longest)
			longest = snapshot->tracebacks[i].nframe;
	writer->string_of = calloc(strings_count(snapshot->strings), sizeof(*writer->string_of));
	writer->stack_of = calloc(snapshot->traceback_count + 1, sizeof(*writer->stack_of));
	writer->scratch = calloc(longest, sizeof(*writer->scratch));
	if (!writer->string_of || !writer->stack_of || !writer->scratch)
		return -ENOMEM;
	return strings_new(&writer->strings)
	       ?: strings_new(&writer->attributes)
	       ?: dictionary_begin(writer);
}

static void writer_end(struct otlp_writer *writer)
{
	buffer_free(&writer->dictionary);
	buffer_free(&writer->text);
	strings_free(writer->strings);
	strings_free(writer->attributes);
	id_map_free(&writer->mappings);
	table_free(&writer->functions);
	table_free(&writer->locations);
	table_free(&writer->stacks);
	free(writer->string_of);
	free(writer->stack_of);
	free(writer->scratch);
}

static int request_write(struct otlp_writer *writer, struct buffer *out)
{
	Otlp__ExportProfilesServiceRequest piece = OTLP__EXPORT_PROFILES_SERVICE_REQUEST__INIT;
	size_t before = out->size;
	int err = writer_begin(writer) ?: processes_write(writer, out);

	piece.dictionary = (ProtobufCBinaryData){writer->dictionary.size, writer->dictionary.data};
	err = err ?: piece_append(out, &piece.base);
	writer_end(writer);
	if (err)
		out->size = before;
	return err;
}

static const struct otlp_opts otlp_defaults;

int otlp_write(const struct snapshot *snapshot, const struct otlp_opts *opts, struct buffer *out)
{
	struct otlp_writer writer = {.snapshot = snapshot, .opts = opts ? opts : &otlp_defaults};

	return request_write(&writer, out);
}

int otlp_answer_read(const struct buffer *answer, long long *rejected, char *why, size_t capacity)
{
	Otlp__ExportProfilesServiceResponse *response =
		otlp__export_profiles_service_response__unpack(NULL, answer->size, answer->data);
	const Otlp__PartialSuccess *partial = response ? response->partial_success : NULL;

	*rejected = partial ? partial->rejected_profiles : 0;
	snprintf(why, capacity, "%s", partial ? partial->error_message : "");
	if (!response)
		return error_set(-EBADMSG, "it is no answer of OTLP");
	otlp__export_profiles_service_response__free_unpacked(response, NULL);
	return 0;
}

static int otlp_export(const struct snapshot *snapshot, const struct export_opts *opts,
		       struct outfile *file)
{
	struct otlp_writer writer = {
		.snapshot = snapshot, .opts = &otlp_defaults, .is_part = opts->is_part};
	struct buffer request = {0};
	int err =
		request_write(&writer, &request) ?: outfile_write(file, request.data, request.size);

	buffer_free(&request);
	return err;
}

const struct exporter export_otlp = {
	.name = "otlp",
	.help = "OTLP profiles for OpenTelemetry, in protobuf",
	.whole = 1,
	.merged = 1,
	.write = otlp_export,
};
