/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A protobuf message may be cut anywhere between two fields: serialised pieces in a row are the
 * message. So the profile goes out one sample, location … at a time, through deflate into the file,
 * and never stands in memory as a whole.
 *
 * The profile's strings are the snapshot's, by the same ids, followed by ours. File names that are
 * not UTF-8 (lone surrogates) are written as they are: losing them would be worse than what strict
 * readers make of them.
 */
#include "export/pprof.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "base/buffer.h"
#include "base/id_map.h"
#include "export/exporter.h"
#include "export/pprof_format.h"
#include "export/profile.pb-c.h"
#include "report/not_seen.h"
#include "report/report.h"
#include "snapshot/estimate.h"

/* of a sample: of the first layer, and of those beside it */
#define VALUES     (EVENT_LAYERS * PPROF_VALUES)
#define LABELS_MAX 9

typedef Perftools__Profiles__Profile Profile;
typedef Perftools__Profiles__ValueType ValueType;
typedef Perftools__Profiles__Sample Sample;
typedef Perftools__Profiles__Label Label;
typedef Perftools__Profiles__Mapping Mapping;
typedef Perftools__Profiles__Location Location;
typedef Perftools__Profiles__Line Line;
typedef Perftools__Profiles__Function Function;

/* Our own strings, by index after the snapshot's; the meta data and the comments follow them. */
enum {
	TEXT_OBJECTS,
	TEXT_COUNT,
	TEXT_SPACE,
	TEXT_BYTES,
	TEXT_PYTHON_OBJECTS,
	TEXT_PYTHON_SPACE,
	TEXT_NATIVE_OBJECTS,
	TEXT_NATIVE_SPACE,
	TEXT_REGIONS,
	TEXT_MAPPED,
	TEXT_DOMAIN,
	TEXT_PID,
	TEXT_TOTAL,
	TEXT_ROUNDED,
	TEXT_INHERITED,
	TEXT_NAME,
	TEXTS
};

/*
 * Of several processes, behind those: names of labels, then what each process is called, and where
 * it runs.
 */
enum { MORE_PROCESS, MORE_COMM, MORE_CONTAINER, MORE_TEXTS };
#define MORE_PER_PROCESS 2

static const char *const more_texts[MORE_TEXTS] = {"process", "comm", "container"};
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
	[TEXT_NAME] = NULL /* the program */,
};

struct writer {
	const struct snapshot *snapshot;
	struct outfile *file;
	z_stream zlib;
	struct buffer packed;
	uint32_t text_base;
	int64_t more_base;
	struct id_map functions; /* file name << 32 | function -> id - 1 */
	struct id_map locations; /* function id - 1 << 32 | line -> id - 1 */
	uint64_t *ids;           /* locations of one sample */
};

static int deflate_out(struct writer *writer, const void *data, size_t bytes, int flush)
{
	unsigned char chunk[32768];

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

static int piece_write(struct writer *writer, const Profile *piece)
{
	size_t bytes = perftools__profiles__profile__get_packed_size(piece);

	writer->packed.size = 0;
	int err = buffer_reserve(&writer->packed, bytes);
	if (err)
		return err;
	perftools__profiles__profile__pack(piece, writer->packed.data);
	return deflate_out(writer, writer->packed.data, bytes, Z_NO_FLUSH);
}

static int64_t text_index(const struct writer *writer, int text)
{
	return (int64_t)writer->text_base + text;
}

/*
 * Those of a layer beside the first only where it was followed: files without are as they always
 * were.
 */
static size_t value_count(const struct snapshot *snapshot)
{
	return PPROF_VALUES * (1 + (size_t)__builtin_popcount(snapshot->meta.layers));
}

static int header_write(struct writer *writer)
{
	const struct snapshot_meta *meta = &writer->snapshot->meta;
	static const int kinds[EVENT_LAYERS][PPROF_VALUES] = {
		[EVENT_LAYER_PYTHON] = {TEXT_PYTHON_OBJECTS, TEXT_PYTHON_SPACE},
		[EVENT_LAYER_NATIVE] = {TEXT_NATIVE_OBJECTS, TEXT_NATIVE_SPACE},
		[EVENT_LAYER_MMAP] = {TEXT_REGIONS, TEXT_MAPPED},
	};
	static const int first[PPROF_VALUES] = {TEXT_OBJECTS, TEXT_SPACE},
			 units[PPROF_VALUES] = {TEXT_COUNT, TEXT_BYTES};
	ValueType values[VALUES], *types[VALUES];
	Mapping mapping = PERFTOOLS__PROFILES__MAPPING__INIT, *mappings[] = {&mapping};
	ValueType period = PERFTOOLS__PROFILES__VALUE_TYPE__INIT;
	Profile piece = PERFTOOLS__PROFILES__PROFILE__INIT;
	size_t count = 0;

	for (int layer = -1; layer < EVENT_LAYERS; layer++) {
		if (layer >= 0 && !(meta->layers & 1u << layer))
			continue;
		for (size_t i = 0; i < PPROF_VALUES; i++, count++) {
			perftools__profiles__value_type__init(&values[count]);
			values[count].type =
				text_index(writer, layer < 0 ? first[i] : kinds[layer][i]);
			values[count].unit = text_index(writer, units[i]);
			types[count] = &values[count];
		}
	}
	piece.n_sample_type = count;
	piece.sample_type = types;
	mapping.id = 1;
	mapping.filename = text_index(writer, TEXT_NAME);
	mapping.has_functions = mapping.has_filenames = mapping.has_line_numbers = 1;
	piece.n_mapping = 1;
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
	return piece_write(writer, &piece);
}

static int string_write(struct writer *writer, const char *text)
{
	char *table[] = {(char *)text};
	Profile piece = PERFTOOLS__PROFILES__PROFILE__INIT;

	piece.n_string_table = 1;
	piece.string_table = table;
	return piece_write(writer, &piece);
}

static int strings_write(struct writer *writer)
{
	int err = 0;

	for (uint32_t i = 0; !err && i < writer->text_base; i++)
		err = string_write(writer, strings_get(writer->snapshot->strings, i));
	for (int i = 0; !err && i < TEXTS; i++)
		err = string_write(writer, texts[i] ? texts[i] : writer->snapshot->meta.name);
	writer->more_base = text_index(writer, TEXTS);
	return err;
}

static int meta_write(struct writer *writer)
{
	Profile piece = PERFTOOLS__PROFILES__PROFILE__INIT;
	struct buffer lines = {0};
	int err = pprof_meta_append(writer->snapshot, &lines);

	if (!err)
		err = buffer_append(&lines, "", 1);
	if (!err)
		err = string_write(writer, (const char *)lines.data);
	piece.keep_frames = writer->more_base++;
	if (!err)
		err = piece_write(writer, &piece);
	buffer_free(&lines);
	return err;
}

static int comment_write(struct writer *writer, const char *text)
{
	Profile piece = PERFTOOLS__PROFILES__PROFILE__INIT;
	int64_t index = writer->more_base++;
	int err = string_write(writer, text);

	piece.n_comment = 1;
	piece.comment = &index;
	return err ? err : piece_write(writer, &piece);
}

/* pprof prints them before everything else: only what its reader wants to know. A line each. */
static int comments_write(struct writer *writer)
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

static int processes_write(struct writer *writer)
{
	const struct snapshot *snapshot = writer->snapshot;
	int err = 0;

	for (int i = 0; !err && i < MORE_TEXTS && snapshot->process_count; i++)
		err = string_write(writer, more_texts[i]);
	for (size_t i = 0; !err && i < snapshot->process_count; i++) {
		err = string_write(writer, snapshot->processes[i].name);
		if (!err)
			err = string_write(writer, snapshot->processes[i].container);
	}
	return err;
}

static int function_write(struct writer *writer, const struct snapshot_frame *frame,
			  uint32_t *index)
{
	uint64_t key = (uint64_t)frame->filename << 32 | frame->function;
	Function function = PERFTOOLS__PROFILES__FUNCTION__INIT, *functions[] = {&function};
	Profile piece = PERFTOOLS__PROFILES__PROFILE__INIT;

	*index = id_map_find(&writer->functions, key);
	if (*index != ID_MAP_NONE)
		return 0;
	*index = (uint32_t)writer->functions.count;
	int err = id_map_put(&writer->functions, key, *index);
	if (err)
		return err;
	function.id = (uint64_t)*index + 1;
	/*
	 * Of a name that is the linker's, too, pprof cuts off what looks like C++'s templates: of
	 * "<module>" nothing stays.
	 */
	function.name = frame->function;
	function.filename = frame->filename;
	piece.n_function = 1;
	piece.function = functions;
	return piece_write(writer, &piece);
}

static int location_write(struct writer *writer, const struct snapshot_frame *frame, uint64_t *id)
{
	Line line = PERFTOOLS__PROFILES__LINE__INIT, *lines[] = {&line};
	Location location = PERFTOOLS__PROFILES__LOCATION__INIT, *locations[] = {&location};
	Profile piece = PERFTOOLS__PROFILES__PROFILE__INIT;
	uint32_t function;
	int err = function_write(writer, frame, &function);

	if (err)
		return err;
	uint64_t key = (uint64_t)function << 32 | frame->line;
	uint32_t index = id_map_find(&writer->locations, key);
	if (index != ID_MAP_NONE) {
		*id = (uint64_t)index + 1;
		return 0;
	}
	index = (uint32_t)writer->locations.count;
	err = id_map_put(&writer->locations, key, index);
	if (err)
		return err;
	*id = (uint64_t)index + 1;
	line.function_id = (uint64_t)function + 1;
	line.line = frame->line;
	location.id = *id;
	location.mapping_id = 1;
	location.n_line = 1;
	location.line = lines;
	piece.n_location = 1;
	piece.location = locations;
	return piece_write(writer, &piece);
}

/* The labels of a sample, for its message to point to. */
struct labels {
	Label items[LABELS_MAX], *pointers[LABELS_MAX];
	size_t count;
};

static Label *label_add(struct labels *labels, int64_t key)
{
	Label *label = &labels->items[labels->count];

	perftools__profiles__label__init(label);
	label->key = key;
	labels->pointers[labels->count++] = label;
	return label;
}

static void label_text(struct labels *labels, int64_t key, const char *text, int64_t index)
{
	if (text[0])
		label_add(labels, key)->str = index;
}

static void labels_set(const struct writer *writer, const struct snapshot_trace *trace,
		       struct labels *labels)
{
	const struct snapshot_meta *process = snapshot_process(writer->snapshot, trace->process);
	uint32_t total = writer->snapshot->tracebacks[trace->traceback].total;
	int64_t more = writer->more_base,
		names = more + MORE_TEXTS + MORE_PER_PROCESS * (int64_t)trace->process;
	Label *bytes = label_add(labels, text_index(writer, TEXT_BYTES));

	bytes->num = (int64_t)trace->bytes;
	bytes->num_unit = text_index(writer, TEXT_BYTES);
	label_add(labels, text_index(writer, TEXT_DOMAIN))->num = trace->domain;
	label_add(labels, text_index(writer, TEXT_PID))->num = process->pid;
	if (total != SNAPSHOT_TOTAL_UNKNOWN)
		label_add(labels, text_index(writer, TEXT_TOTAL))->num = total;
	if (trace->flags & SNAPSHOT_ROUNDED)
		label_add(labels, text_index(writer, TEXT_ROUNDED))->num = 1;
	if (trace->flags & SNAPSHOT_INHERITED)
		label_add(labels, text_index(writer, TEXT_INHERITED))->num = 1;
	if (!writer->snapshot->process_count)
		return;
	/* pprof drops a 0 */
	label_add(labels, more + MORE_PROCESS)->num = (int64_t)trace->process + 1;
	label_text(labels, more + MORE_COMM, process->name, names);
	label_text(labels, more + MORE_CONTAINER, process->container, names + 1);
}

/* position: of its layer among those that the file has, the first is 0. */
static int sample_write(struct writer *writer, const struct snapshot_trace *trace,
			unsigned int position, enum event_layer layer)
{
	const struct snapshot_traceback *traceback =
		&writer->snapshot->tracebacks[trace->traceback];
	Sample sample = PERFTOOLS__PROFILES__SAMPLE__INIT, *samples[] = {&sample};
	Profile piece = PERFTOOLS__PROFILES__PROFILE__INIT;
	int64_t values[VALUES] = {0};
	struct labels labels = {.count = 0};
	uint64_t size = 0, count = 0;
	uint64_t mean =
		layer == EVENT_LAYER_MMAP ? 0 : snapshot_sample_bytes(writer->snapshot, trace);
	int err = estimate_trace(mean, trace, &size, &count);

	for (uint32_t i = 0; !err && i < traceback->nframe; i++)
		err = location_write(writer, &writer->snapshot->frames[traceback->first + i],
				     &writer->ids[i]);
	if (err)
		return err;
	values[position * PPROF_VALUES] = (int64_t)count;
	values[position * PPROF_VALUES + 1] = (int64_t)size;
	labels_set(writer, trace, &labels);
	sample.n_location_id = traceback->nframe;
	sample.location_id = writer->ids;
	sample.n_value = value_count(writer->snapshot);
	sample.value = values;
	sample.n_label = labels.count;
	sample.label = labels.pointers;
	piece.n_sample = 1;
	piece.sample = samples;
	return piece_write(writer, &piece);
}

static int samples_write(struct writer *writer)
{
	const struct snapshot *snapshot = writer->snapshot;
	unsigned int position = 0;
	int err = 0;

	for (size_t i = 0; !err && i < snapshot->trace_count; i++)
		err = sample_write(writer, &snapshot->traces[i], 0, snapshot->meta.layer);
	for (int layer = 0; layer < EVENT_LAYERS; layer++) {
		if (!(snapshot->meta.layers & 1u << layer))
			continue;
		position++;
		for (size_t i = 0; !err && i < snapshot->layers[layer].trace_count; i++)
			err = sample_write(writer, &snapshot->layers[layer].traces[i], position,
					   layer);
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

int pprof_write(const struct snapshot *snapshot, struct outfile *file)
{
	struct writer writer = {
		.snapshot = snapshot, .file = file, .text_base = strings_count(snapshot->strings)};
	const int gzip = 16 + MAX_WBITS;
	int err = -ENOMEM;

	if (deflateInit2(&writer.zlib, Z_DEFAULT_COMPRESSION, Z_DEFLATED, gzip, 8,
			 Z_DEFAULT_STRATEGY) != Z_OK)
		return -ENOMEM;
	writer.ids = calloc(frames_longest(snapshot), sizeof(*writer.ids));
	if (!writer.ids)
		goto out;
	err = header_write(&writer);
	if (!err)
		err = strings_write(&writer);
	if (!err)
		err = meta_write(&writer);
	if (!err)
		err = comments_write(&writer);
	if (!err)
		err = processes_write(&writer);
	if (!err)
		err = samples_write(&writer);
	if (!err)
		err = deflate_out(&writer, NULL, 0, Z_FINISH);
out:
	deflateEnd(&writer.zlib);
	buffer_free(&writer.packed);
	id_map_free(&writer.functions);
	id_map_free(&writer.locations);
	free(writer.ids);
	return err;
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
	.merged = 1,
	.write = pprof_export,
};
