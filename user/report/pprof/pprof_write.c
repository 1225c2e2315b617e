/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A protobuf message is the concatenation of its serialised fields. The profile is written one
 * sample, location and so on at a time, through deflate into the file, and is never in memory as a
 * whole.
 *
 * The profile's string table begins with the snapshot's strings, by the same ids; ours follow. All
 * are valid UTF-8, which strict readers demand (utf8_escape()).
 */
#include "report/pprof/pprof.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "report/caveats/not_seen.h"
#include "report/export/exporter.h"
#include "report/pprof/pprof_format.h"
#include "report/pprof/pprof_writer.h"
#include "report/report.h"
#include "util/buffer.h"
#include "util/utf8.h"

static const char *const more_texts[MORE_TEXTS] = {"process", "comm", "container"};
static const char *const window_texts[WINDOW_TEXTS] = {
	[WINDOW_OLDER_OBJECTS] = "older_objects",
	[WINDOW_OLDER_SPACE] = "older_space",
	[WINDOW_DEVIATIONS] = PPROF_DEVIATIONS,
	[WINDOW_ERROR] = "standard_error",
};
static const char *const texts[TEXTS] = {
	[TEXT_OBJECTS] = "inuse_objects",
	[TEXT_COUNT] = "count",
	[TEXT_SPACE] = "inuse_space",
	[TEXT_BYTES] = "bytes",
	[TEXT_PYTHON_OBJECTS] = "python_objects",
	[TEXT_PYTHON_SPACE] = "python_space",
	[TEXT_NATIVE_OBJECTS] = "native_objects",
	[TEXT_NATIVE_SPACE] = "native_space",
	[TEXT_REGIONS] = "mapped_regions",
	[TEXT_MAPPED] = "mapped_space",
	[TEXT_DOMAIN] = "domain",
	[TEXT_PID] = "pid",
	[TEXT_TOTAL] = "total_nframe",
	[TEXT_ROUNDED] = "rounded",
	[TEXT_INHERITED] = "inherited",
	[TEXT_SELF_SAMPLED] = "self_sampled",
	[TEXT_NATIVE] = PPROF_NATIVE,
	[TEXT_ALLOC_OBJECTS] = "alloc_objects",
	[TEXT_ALLOC_SPACE] = "alloc_space",
	[TEXT_FREED_OBJECTS] = "freed_objects",
	[TEXT_FREED_SPACE] = "freed_space",
	[TEXT_PEAK_OBJECTS] = "peak_objects",
	[TEXT_PEAK_SPACE] = "peak_space",
	[TEXT_THREAD_OBJECTS] = "thread_objects",
	[TEXT_THREAD_SPACE] = "thread_space",
	[TEXT_PYTHON_ALLOC_OBJECTS] = "python_alloc_objects",
	[TEXT_PYTHON_ALLOC_SPACE] = "python_alloc_space",
	[TEXT_PYTHON_FREED_OBJECTS] = "python_freed_objects",
	[TEXT_PYTHON_FREED_SPACE] = "python_freed_space",
	[TEXT_PYTHON_PEAK_OBJECTS] = "python_peak_objects",
	[TEXT_PYTHON_PEAK_SPACE] = "python_peak_space",
	[TEXT_PYTHON_THREAD_OBJECTS] = "python_thread_objects",
	[TEXT_PYTHON_THREAD_SPACE] = "python_thread_space",
	[TEXT_NATIVE_ALLOC_OBJECTS] = "native_alloc_objects",
	[TEXT_NATIVE_ALLOC_SPACE] = "native_alloc_space",
	[TEXT_NATIVE_FREED_OBJECTS] = "native_freed_objects",
	[TEXT_NATIVE_FREED_SPACE] = "native_freed_space",
	[TEXT_NATIVE_PEAK_OBJECTS] = "native_peak_objects",
	[TEXT_NATIVE_PEAK_SPACE] = "native_peak_space",
	[TEXT_NATIVE_THREAD_OBJECTS] = "native_thread_objects",
	[TEXT_NATIVE_THREAD_SPACE] = "native_thread_space",
	[TEXT_ALLOCATED] = "allocated",
	[TEXT_AT_PEAK] = "at_peak",
	[TEXT_THREAD] = "thread",
	[TEXT_THREAD_NAME] = "thread_name",
	[TEXT_TASK] = "task",
	[TEXT_LIFETIME] = "lifetime",
	[TEXT_NAME] = NULL /* the program */,
};

static int deflate_out(struct pprof_writer *writer, const void *data, size_t bytes, int flush)
{
	unsigned char chunk[32768];

	if (writer->unpacked)
		return buffer_append(writer->unpacked, data, bytes);
	writer->zlib.next_in = (Bytef *)data;
	writer->zlib.avail_in = (uInt)bytes;
	for (;;) {
		writer->zlib.next_out = chunk;
		writer->zlib.avail_out = sizeof(chunk);
		int status = deflate(&writer->zlib, flush);
		int err =
			outfile_write(writer->file, chunk, sizeof(chunk) - writer->zlib.avail_out);

		if (err)
			return err;
		if (status == Z_STREAM_END || (flush == Z_NO_FLUSH && writer->zlib.avail_out))
			return 0;
		if (status != Z_OK && status != Z_BUF_ERROR)
			return -EIO;
	}
}

int pprof_piece_write(struct pprof_writer *writer, const Profile *piece)
{
	size_t bytes = perftools__profiles__profile__get_packed_size(piece);

	writer->packed.size = 0;
	int err = buffer_reserve(&writer->packed, bytes);
	if (err)
		return err;
	perftools__profiles__profile__pack(piece, writer->packed.data);
	return deflate_out(writer, writer->packed.data, bytes, Z_NO_FLUSH);
}

/* The type of a value (0: number, 1: bytes); which: -1 for the first layer. */
static int value_text(const struct snapshot_meta *meta, int which, size_t value)
{
	static const int kinds[SNAPSHOT_BESIDE_FIRST][PPROF_VALUES] = {
		[EVENT_LAYER_PYTHON] = {TEXT_PYTHON_OBJECTS, TEXT_PYTHON_SPACE},
		[EVENT_LAYER_NATIVE] = {TEXT_NATIVE_OBJECTS, TEXT_NATIVE_SPACE},
		[EVENT_LAYER_MMAP] = {TEXT_REGIONS, TEXT_MAPPED},
		[SNAPSHOT_OLDER] = {TEXTS + WINDOW_OLDER_OBJECTS, TEXTS + WINDOW_OLDER_SPACE},
	};

	uint32_t beside, layer;

	if (which < 0)
		return value ? TEXT_SPACE : TEXT_OBJECTS;
	if (which < SNAPSHOT_BESIDE_FIRST)
		return kinds[which][value];
	beside = (uint32_t)which - SNAPSHOT_BESIDE_FIRST;
	layer = beside % EVENT_LAYER_TABLES;
	beside /= EVENT_LAYER_TABLES;
	return (layer == meta->layer
			? TEXT_ALLOC_OBJECTS
			: TEXT_PYTHON_ALLOC_OBJECTS + (int)(layer * BESIDES * PPROF_VALUES)) +
	       (int)(beside * PPROF_VALUES + value);
}

static int header_write(struct pprof_writer *writer)
{
	const struct snapshot_meta *meta = &writer->snapshot->meta;
	static const int units[PPROF_VALUES] = {TEXT_COUNT, TEXT_BYTES};
	ValueType values[VALUES], *types[VALUES];
	Mapping mapping = PERFTOOLS__PROFILES__MAPPING__INIT, native,
		*mappings[] = {&mapping, &native};
	ValueType period = PERFTOOLS__PROFILES__VALUE_TYPE__INIT;
	Profile piece = PERFTOOLS__PROFILES__PROFILE__INIT;
	size_t count = 0;

	for (int layer = -1; layer < SNAPSHOT_LAYERS; layer++) {
		if (layer >= 0 && !snapshot_has_beside(meta, (uint32_t)layer))
			continue;
		for (size_t i = 0; i < PPROF_VALUES; i++, count++) {
			perftools__profiles__value_type__init(&values[count]);
			values[count].type = text_index(writer, value_text(meta, layer, i));
			values[count].unit = text_index(writer, units[i]);
			types[count] = &values[count];
		}
	}
	piece.n_sample_type = count;
	piece.sample_type = types;
	mapping.id = PPROF_MAPPING;
	mapping.filename = text_index(writer, TEXT_NAME);
	mapping.has_functions = mapping.has_filenames = mapping.has_line_numbers = 1;
	native = mapping;
	native.id = PPROF_MAPPING_NATIVE;
	native.filename = text_index(writer, TEXT_NATIVE);
	piece.n_mapping = snapshot_has_native_frames(writer->snapshot) ? 2 : 1;
	piece.mapping = mappings;
	piece.time_nanos = (int64_t)meta->taken_realtime_ns;
	piece.duration_nanos = (int64_t)meta->duration_ns;
	piece.default_sample_type = text_index(writer, TEXT_SPACE);
	if (meta->sample_bytes) {
		period.type = text_index(writer, TEXT_SPACE);
		period.unit = text_index(writer, TEXT_BYTES);
		piece.period_type = &period;
		piece.period = (int64_t)meta->sample_bytes;
	}
	return pprof_piece_write(writer, &piece);
}

static int string_write(struct pprof_writer *writer, const char *text)
{
	char *escaped = malloc(UTF8_ESCAPED(strlen(text)));
	Profile piece = PERFTOOLS__PROFILES__PROFILE__INIT;
	int err;

	if (!escaped)
		return -ENOMEM;
	utf8_escape(escaped, text);
	piece.n_string_table = 1;
	piece.string_table = &escaped;
	err = pprof_piece_write(writer, &piece);
	free(escaped);
	return err;
}

static int strings_write(struct pprof_writer *writer)
{
	int err = 0;

	for (uint32_t i = 0; !err && i < writer->text_base; i++)
		err = string_write(writer, strings_get(writer->snapshot->strings, i));
	for (int i = 0; !err && i < TEXTS; i++)
		err = string_write(writer,
				   i >= TEXT_LIFETIMES && i <= TEXT_LIFETIMES_LAST
					   ? snapshot_lifetime_name((uint32_t)(i - TEXT_LIFETIMES))
				   : texts[i] ? texts[i]
					      : writer->snapshot->meta.name);
	writer->more_base = text_index(writer, TEXTS);
	return err;
}

static int deviations_write(struct pprof_writer *writer, const struct snapshot_estimate *estimate)
{
	struct buffer text = {0};
	int err = 0;

	for (uint32_t i = 0; !err && i < CALIBRATE_DEVIATIONS; i++)
		err = buffer_printf(&text, i ? " %.0f" : "%.0f",
				    (double)estimate->deviations[i] * PPROF_DEVIATION_STEPS);
	if (!err)
		err = buffer_append(&text, "", 1);
	err = err ?: string_write(writer, (const char *)text.data);
	buffer_free(&text);
	return err;
}

static int estimates_write(struct pprof_writer *writer)
{
	const struct snapshot *snapshot = writer->snapshot;
	int err = 0;

	if (!snapshot->meta.windows.count)
		return 0;
	for (int i = 0; !err && i < WINDOW_TEXTS; i++)
		err = string_write(writer, window_texts[i]);
	for (size_t i = 0; !err && i < snapshot->estimate_count; i++)
		err = deviations_write(writer, &snapshot->estimates[i]);
	writer->more_base += WINDOW_TEXTS + (int64_t)snapshot->estimate_count;
	return err;
}

static int meta_write(struct pprof_writer *writer)
{
	Profile piece = PERFTOOLS__PROFILES__PROFILE__INIT;
	struct buffer lines = {0};
	int err = pprof_meta_append(writer->snapshot, &lines);

	if (!err)
		err = buffer_append(&lines, "", 1);
	err = err ?: string_write(writer, (const char *)lines.data);
	piece.keep_frames = writer->more_base++;
	err = err ?: pprof_piece_write(writer, &piece);
	buffer_free(&lines);
	return err;
}

static int comment_write(struct pprof_writer *writer, const char *text)
{
	Profile piece = PERFTOOLS__PROFILES__PROFILE__INIT;
	int64_t index = writer->more_base++;
	int err = string_write(writer, text);

	piece.n_comment = 1;
	piece.comment = &index;
	return err ?: pprof_piece_write(writer, &piece);
}

/* pprof prints comments before everything else: only what its user needs, one comment per line. */
static int comments_write(struct pprof_writer *writer)
{
	char *text = NULL, *rest, *line;
	size_t size;
	FILE *out = open_memstream(&text, &size);
	int err = 0;

	if (!out)
		return -ENOMEM;
	report_title_print(out, writer->snapshot);
	not_seen_brief_print(out, writer->snapshot);
	if (fclose(out))
		err = -ENOMEM;
	for (line = text; !err && (line = strtok_r(line, "\n", &rest)); line = NULL)
		err = comment_write(writer, line + strspn(line, " "));
	free(text);
	return err;
}

static int threads_write(struct pprof_writer *writer)
{
	const struct snapshot *snapshot = writer->snapshot;
	int err = 0;

	writer->thread_base = writer->more_base;
	for (size_t i = 0; !err && i < snapshot->thread_count; i++) {
		err = string_write(writer, snapshot->threads[i].name)
			      ?: id_map_put(&writer->threads, snapshot->threads[i].tid,
					    (uint32_t)i);
		writer->more_base++;
	}
	return err;
}

static int processes_write(struct pprof_writer *writer)
{
	const struct snapshot *snapshot = writer->snapshot;
	int err = 0;

	for (int i = 0; !err && i < MORE_TEXTS && snapshot->process_count; i++)
		err = string_write(writer, more_texts[i]);
	for (size_t i = 0; !err && i < snapshot->process_count; i++) {
		err = string_write(writer, snapshot->processes[i].name);
		err = err ?: string_write(writer, snapshot->processes[i].container);
	}
	return err;
}

static uint32_t frames_longest(const struct snapshot *snapshot)
{
	uint32_t longest = 1;

	for (size_t i = 0; i < snapshot->traceback_count; i++)
		if (snapshot->tracebacks[i].nframe > longest)
			longest = snapshot->tracebacks[i].nframe;
	return longest;
}

static int profile_write(struct pprof_writer *writer)
{
	int err = -ENOMEM;

	writer->ids = calloc(frames_longest(writer->snapshot), sizeof(*writer->ids));
	if (!writer->ids)
		return err;
	err = header_write(writer);
	err = err ?: strings_write(writer);
	err = err ?: estimates_write(writer);
	err = err ?: meta_write(writer);
	err = err ?: comments_write(writer);
	err = err ?: threads_write(writer);
	err = err ?: processes_write(writer);
	err = err ?: pprof_samples_write(writer);
	buffer_free(&writer->packed);
	id_map_free(&writer->threads);
	id_map_free(&writer->functions);
	id_map_free(&writer->places);
	id_map_free(&writer->locations);
	free(writer->ids);
	return err;
}

int pprof_write(const struct snapshot *snapshot, struct outfile *file)
{
	struct pprof_writer writer = {
		.snapshot = snapshot, .file = file, .text_base = strings_count(snapshot->strings)};
	const int gzip = 16 + MAX_WBITS;
	int err;

	if (deflateInit2(&writer.zlib, Z_DEFAULT_COMPRESSION, Z_DEFLATED, gzip, 8,
			 Z_DEFAULT_STRATEGY) != Z_OK)
		return -ENOMEM;
	err = profile_write(&writer);
	err = err ?: deflate_out(&writer, NULL, 0, Z_FINISH);
	deflateEnd(&writer.zlib);
	return err;
}

int pprof_save(const struct snapshot *snapshot, struct outfile *file)
{
	int err = pprof_write(snapshot, file);

	if (!err)
		return outfile_commit(file);
	outfile_discard(file);
	return err;
}

int pprof_write_unpacked(const struct snapshot *snapshot, struct buffer *out)
{
	struct pprof_writer writer = {.snapshot = snapshot,
				      .unpacked = out,
				      .text_base = strings_count(snapshot->strings)};

	return profile_write(&writer);
}

static int pprof_export(const struct snapshot *snapshot, const struct export_opts *opts,
			struct outfile *file)
{
	(void)opts;
	return pprof_write(snapshot, file);
}

const struct exporter export_pprof = {
	.name = "pprof",
	.help = "a snapshot of tracer, a gzip'd pprof profile",
	.whole = 1,
	.merged = 1,
	.write = pprof_export,
};
