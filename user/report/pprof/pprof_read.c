/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads the profiles that pprof_write.c wrote, or that a tool such as pprof wrote again. The
 * profile is unpacked as a whole. Its top level is parsed by hand, so that hostile input uses
 * memory in proportion to its size; every submessage except the samples goes through protobuf-c.
 * Fields may come in any order, so a first pass finds what the second pass, over the samples,
 * needs.
 */
#include "report/pprof/pprof.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "abi/sample.h"
#include "report/pprof/pprof_reader.h"
#include "report/pprof/profile.pb-c.h"
#include "util/array.h"
#include "util/error.h"
#include "util/utf8.h"

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

int pprof_numbers_take(struct pprof_reader *reader, struct field *field,
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

int pprof_string_get(const struct pprof_reader *reader, uint64_t index, struct span *out)
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

int pprof_string_intern(struct pprof_reader *reader, int64_t index, uint32_t *id)
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

int pprof_corrupt(const char *what)
{
	return error_set(-EBADMSG, "the profile is corrupt: a %s cannot be", what);
}

static int mapping_take(struct pprof_reader *reader, const struct span *span)
{
	Perftools__Profiles__Mapping *message =
		perftools__profiles__mapping__unpack(NULL, span->bytes, span->data);
	struct span text = {0};

	if (!message)
		return pprof_corrupt("mapping");
	int err = pprof_string_get(reader, (uint64_t)message->filename, &text);
	if (!err && text.bytes == strlen(PPROF_NATIVE) &&
	    !memcmp(text.data, PPROF_NATIVE, text.bytes))
		reader->native_mapping = message->id;
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
			.native = message->mapping_id &&
				  message->mapping_id == reader->native_mapping,
			.inlined = at + 1 < message->n_line,
		};
	return err;
}

static int location_add(struct pprof_reader *reader, const Perftools__Profiles__Location *message)
{
	const struct location location = {.first = (uint32_t)reader->location_frame_count,
					  .count = (uint32_t)message->n_line};
	int err = items_reserve(reader, &reader->locations, &reader->location_capacity,
				reader->location_count, sizeof(*reader->locations));

	if (!err && (!message->n_line || message->n_line > PPROF_LINES_MAX))
		return pprof_corrupt("location");
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
	reader->estimates.account = account;
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
