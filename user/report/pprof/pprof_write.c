/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A protobuf message is the concatenation of its serialised fields. The profile is written one
 * sample, location and so on at a time, through deflate into the file, and is never in memory as a
 * whole.
 *
 * The profile's string table begins with our strings; the snapshot's follow. All are valid UTF-8,
 * which strict readers demand (utf8_escape()).
 *
 * A profile that is not packed is to be packed against another one of the same program
 * (report/recording/): what has not changed should be the same bytes. So the ids of functions and
 * locations are hashes of their contents there. Elsewhere they are numbers, which take less.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "report/caveats/not_seen.h"
#include "report/export/exporter.h"
#include "report/pprof/pprof.h"
#include "report/pprof/pprof_format.h"
#include "report/pprof/profile.pb-c.h"
#include "report/report.h"
#include "snapshot/ages.h"
#include "snapshot/estimate.h"
#include "util/array.h"
#include "util/buffer.h"
#include "util/id_map.h"
#include "util/outfile.h"
#include "util/utf8.h"

/* of a sample: those of the first layer, and of the others */
#define VALUES (SNAPSHOT_LAYERS * PPROF_VALUES)

typedef Perftools__Profiles__Profile Profile;
typedef Perftools__Profiles__ValueType ValueType;
typedef Perftools__Profiles__Sample Sample;
typedef Perftools__Profiles__Label Label;
typedef Perftools__Profiles__Mapping Mapping;
typedef Perftools__Profiles__Location Location;
typedef Perftools__Profiles__Line Line;
typedef Perftools__Profiles__Function Function;

/* Our own strings, which follow the snapshot's; the meta data and the comments come after them. */
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
	TEXT_PAGES,
	TEXT_RESIDENT,
	TEXT_DOMAIN,
	TEXT_PID,
	TEXT_TOTAL,
	TEXT_ROUNDED,
	TEXT_INHERITED,
	TEXT_SELF_SAMPLED,
	TEXT_NATIVE,
	TEXT_PERIOD,
	TEXT_ALLOC_OBJECTS, /* from here on in the order of enum snapshot_extras */
	TEXT_ALLOC_SPACE,
	TEXT_FREED_OBJECTS,
	TEXT_FREED_SPACE,
	TEXT_PEAK_OBJECTS,
	TEXT_PEAK_SPACE,
	TEXT_THREAD_OBJECTS,
	TEXT_THREAD_SPACE,
	TEXT_PYTHON_ALLOC_OBJECTS, /* the same by enum event_layer */
	TEXT_PYTHON_ALLOC_SPACE,
	TEXT_PYTHON_FREED_OBJECTS,
	TEXT_PYTHON_FREED_SPACE,
	TEXT_PYTHON_PEAK_OBJECTS,
	TEXT_PYTHON_PEAK_SPACE,
	TEXT_PYTHON_THREAD_OBJECTS,
	TEXT_PYTHON_THREAD_SPACE,
	TEXT_NATIVE_ALLOC_OBJECTS,
	TEXT_NATIVE_ALLOC_SPACE,
	TEXT_NATIVE_FREED_OBJECTS,
	TEXT_NATIVE_FREED_SPACE,
	TEXT_NATIVE_PEAK_OBJECTS,
	TEXT_NATIVE_PEAK_SPACE,
	TEXT_NATIVE_THREAD_OBJECTS,
	TEXT_NATIVE_THREAD_SPACE,
	TEXT_ALLOCATED,
	TEXT_AT_PEAK,
	TEXT_THREAD,
	TEXT_THREAD_NAME,
	TEXT_TASK,
	TEXT_LIFETIME,
	TEXT_AGE,
	TEXT_MILLISECONDS,
	TEXT_LIFETIMES,
	TEXT_LIFETIMES_LAST = TEXT_LIFETIMES + LIFETIMES - 1,
	TEXT_NAME,
	TEXTS
};

/* In a trace with windows, after the above; the deviations of its estimates follow. */
enum { WINDOW_OLDER_OBJECTS, WINDOW_OLDER_SPACE, WINDOW_DEVIATIONS, WINDOW_ERROR, WINDOW_TEXTS };

/*
 * With several processes, after the above: the names of labels, then the command and the container
 * of each process.
 */
enum { MORE_PROCESS, MORE_COMM, MORE_CONTAINER, MORE_TEXTS };
#define MORE_PER_PROCESS 2

/* The ids of entries, by their numbers. */
struct ids {
	uint64_t *items;
	size_t capacity;
	struct id_map taken; /* ids that are hashes */
};

/* What holds for all locations of a mapping. Zero-initialise. */
struct mapping_use {
	bool used, lacks_functions, lacks_files, lacks_lines;
};

struct pprof_writer {
	const struct snapshot *snapshot;
	struct mapping_use *mappings; /* by snapshot_frame.native */
	struct outfile *file;
	z_stream zlib;
	struct buffer *unpacked; /* in place of the two: the profile as it is; NULL: none */
	uint64_t seed;           /* of ids that are hashes, if it is unpacked */
	struct buffer packed;    /* the part being written */
	int64_t string_count;    /* those that are written */
	char label_key[EVENT_LABEL_TEXT]; /* TEXT_TASK */
	/* indices in the profile's string table: MORE_PROCESS; what follows the texts */
	int64_t more_base, snapshot_base, deviation_base, thread_base;
	struct id_map threads;   /* number -> index in the snapshot's */
	struct id_map functions; /* file name << 32 | function -> number */
	/* function << 32 | native << 31 | line -> number of a frame */
	struct id_map places;
	/*
	 * The frames of a location, one by one: number of the previous one's entry + 1 << 32 |
	 * number of the frame, and LOCATION_MORE if more follow -> number. Before the first one of
	 * a binary: LOCATION_BINARY | its native -> number
	 */
	struct id_map locations;
	struct ids function_ids, location_ids;
	uint64_t *ids; /* location ids of one sample */
};

#define LOCATION_MORE   (1ull << 63)
#define LOCATION_BINARY (LOCATION_MORE | UINT32_MAX) /* minus native */
#define HASH_IDS        ((1u << 21) - 1) /* ids of three bytes; more if two have the same hash */

/* The index of one of our strings; the first of all is "". */
static inline int64_t text_index(int text)
{
	return 1 + text;
}

/* The index of a string of the snapshot. */
static inline int64_t string_index(const struct pprof_writer *writer, uint32_t id)
{
	return id ? writer->snapshot_base + id - 1 : 0;
}

/*
 * Layers beside the first have values only if they were traced; other files stay as they were
 * before layers.
 */
static inline size_t value_count(const struct snapshot *snapshot)
{
	size_t count = 1;

	for (uint32_t which = 0; which < SNAPSHOT_LAYERS; which++)
		count += snapshot_has_extra(&snapshot->meta, which) != 0;
	return PPROF_VALUES * count;
}

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
	[TEXT_PAGES] = "resident_pages",
	[TEXT_RESIDENT] = "resident_space",
	[TEXT_DOMAIN] = "domain",
	[TEXT_PID] = "pid",
	[TEXT_TOTAL] = "total_nframe",
	[TEXT_ROUNDED] = "rounded",
	[TEXT_INHERITED] = "inherited",
	[TEXT_SELF_SAMPLED] = "self_sampled",
	[TEXT_NATIVE] = PPROF_NATIVE,
	[TEXT_PERIOD] = "space", /* as in Go's heap profiles */
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
	[TEXT_TASK] = NULL /* pprof_label_key() */,
	[TEXT_LIFETIME] = "lifetime",
	[TEXT_AGE] = "age",
	[TEXT_MILLISECONDS] = "milliseconds",
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

/* Writes a part of the profile. 0, -ENOMEM, -EIO and other errors of outfile_write(). */
static int pprof_piece_write(struct pprof_writer *writer, const Profile *piece)
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
	static const int kinds[SNAPSHOT_EXTRA_FIRST][PPROF_VALUES] = {
		[EVENT_LAYER_PYTHON] = {TEXT_PYTHON_OBJECTS, TEXT_PYTHON_SPACE},
		[EVENT_LAYER_NATIVE] = {TEXT_NATIVE_OBJECTS, TEXT_NATIVE_SPACE},
		[EVENT_LAYER_MMAP] = {TEXT_REGIONS, TEXT_MAPPED},
		[EVENT_LAYER_PAGES] = {TEXT_PAGES, TEXT_RESIDENT},
		[SNAPSHOT_OLDER] = {TEXTS + WINDOW_OLDER_OBJECTS, TEXTS + WINDOW_OLDER_SPACE},
	};

	uint32_t extra, layer;

	if (which < 0)
		return value ? TEXT_SPACE : TEXT_OBJECTS;
	if (which < SNAPSHOT_EXTRA_FIRST)
		return kinds[which][value];
	extra = (uint32_t)which - SNAPSHOT_EXTRA_FIRST;
	layer = extra % EVENT_LAYER_TABLES;
	extra /= EVENT_LAYER_TABLES;
	return (layer == meta->layer
			? TEXT_ALLOC_OBJECTS
			: TEXT_PYTHON_ALLOC_OBJECTS + (int)(layer * EXTRAS * PPROF_VALUES)) +
	       (int)(extra * PPROF_VALUES + value);
}

static int header_write(struct pprof_writer *writer)
{
	const struct snapshot_meta *meta = &writer->snapshot->meta;
	static const int units[PPROF_VALUES] = {TEXT_COUNT, TEXT_BYTES};
	ValueType values[VALUES], *types[VALUES];
	ValueType period = PERFTOOLS__PROFILES__VALUE_TYPE__INIT;
	Profile piece = PERFTOOLS__PROFILES__PROFILE__INIT;
	size_t count = 0;

	for (int layer = -1; layer < SNAPSHOT_LAYERS; layer++) {
		if (layer >= 0 && !snapshot_has_extra(meta, (uint32_t)layer))
			continue;
		for (size_t i = 0; i < PPROF_VALUES; i++, count++) {
			perftools__profiles__value_type__init(&values[count]);
			values[count].type = text_index(value_text(meta, layer, i));
			values[count].unit = text_index(units[i]);
			types[count] = &values[count];
		}
	}
	piece.n_sample_type = count;
	piece.sample_type = types;
	piece.time_nanos = (int64_t)meta->taken_realtime_ns;
	piece.duration_nanos = (int64_t)meta->duration_ns;
	piece.default_sample_type = text_index(TEXT_SPACE);
	period.type = text_index(TEXT_PERIOD);
	period.unit = text_index(TEXT_BYTES);
	piece.period_type = &period;
	piece.period = (int64_t)meta->sample_bytes ?: !snapshot_is_estimated(meta);
	return pprof_piece_write(writer, &piece);
}

static int string_write(struct pprof_writer *writer, const char *text)
{
	char *escaped = malloc(UTF8_ESCAPED(strlen(text)));
	Profile piece = PERFTOOLS__PROFILES__PROFILE__INIT;

	if (!escaped)
		return -ENOMEM;
	utf8_escape(escaped, text);
	piece.n_string_table = 1;
	piece.string_table = &escaped;
	int err = pprof_piece_write(writer, &piece);
	writer->string_count++;
	free(escaped);
	return err;
}

/* Our strings. */
static int texts_write(struct pprof_writer *writer)
{
	const struct snapshot *snapshot = writer->snapshot;
	int err = string_write(writer, "");

	for (int i = 0; !err && i < TEXTS; i++)
		err = string_write(writer,
				   i >= TEXT_LIFETIMES && i <= TEXT_LIFETIMES_LAST
					   ? snapshot_lifetime_name((uint32_t)(i - TEXT_LIFETIMES))
				   : i == TEXT_TASK ? writer->label_key
				   : texts[i]       ? texts[i]
						    : snapshot->meta.name);
	for (int i = 0; !err && i < WINDOW_TEXTS && snapshot->meta.windows.count; i++)
		err = string_write(writer, window_texts[i]);
	writer->more_base = writer->string_count;
	for (int i = 0; !err && i < MORE_TEXTS && snapshot->process_count; i++)
		err = string_write(writer, more_texts[i]);
	for (size_t i = 0; !err && i < snapshot->process_count; i++)
		err = string_write(writer, snapshot->processes[i].name)
			      ?: string_write(writer, snapshot->processes[i].container);
	return err;
}

static int strings_write(struct pprof_writer *writer)
{
	uint32_t count = strings_count(writer->snapshot->strings);
	int err = 0;

	writer->snapshot_base = writer->string_count;
	for (uint32_t i = 1; !err && i < count; i++)
		err = string_write(writer, strings_get(writer->snapshot->strings, i));
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

	writer->deviation_base = writer->string_count;
	for (size_t i = 0; !err && i < snapshot->estimate_count; i++)
		err = deviations_write(writer, &snapshot->estimates[i]);
	return err;
}

static int meta_write(struct pprof_writer *writer)
{
	Profile piece = PERFTOOLS__PROFILES__PROFILE__INIT;
	struct buffer lines = {0};
	int err = pprof_meta_append(writer->snapshot, &lines) ?: buffer_append(&lines, "", 1);

	err = err ?: string_write(writer, (const char *)lines.data);
	piece.keep_frames = writer->string_count - 1;
	err = err ?: pprof_piece_write(writer, &piece);
	buffer_free(&lines);
	return err;
}

static int comment_write(struct pprof_writer *writer, const char *text)
{
	Profile piece = PERFTOOLS__PROFILES__PROFILE__INIT;
	int64_t index = writer->string_count;
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

	writer->thread_base = writer->string_count;
	for (size_t i = 0; !err && i < snapshot->thread_count; i++)
		err = string_write(writer, snapshot->threads[i].name)
			      ?: id_map_put(&writer->threads, snapshot->threads[i].tid,
					    (uint32_t)i);
	return err;
}

/* --- pprof write samples ---------------------------------------------------------------------- */

#define LABELS_MAX 16

/* The labels of a sample; its message points to them. */
struct labels {
	Label items[LABELS_MAX], *pointers[LABELS_MAX];
	size_t count;
};

/* Of a string of the snapshot. */
static uint64_t text_hash(const struct pprof_writer *writer, uint32_t id)
{
	const char *text = strings_get(writer->snapshot->strings, id);
	uint64_t hash = writer->seed;

	for (; *text; text++)
		hash = hash_u64(hash + (unsigned char)*text);
	return hash;
}

/* The id of a new entry, which has the next number. 0, -ENOMEM, -EOVERFLOW. */
static int id_make(const struct pprof_writer *writer, struct ids *ids, uint32_t number,
		   uint64_t hash, uint64_t *id)
{
	int err = array_reserve(&ids->items, &ids->capacity, number, 1, sizeof(*ids->items));

	*id = number + 1;
	if (writer->unpacked)
		for (*id = hash % HASH_IDS + 1; id_map_find(&ids->taken, *id) != ID_MAP_NONE;)
			*id += HASH_IDS;
	if (!err && writer->unpacked)
		err = id_map_put(&ids->taken, *id, 0);
	if (!err)
		ids->items[number] = *id;
	return err;
}

static int function_write(struct pprof_writer *writer, const struct snapshot_frame *frame,
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
	err = id_make(writer, &writer->function_ids, *index,
		      text_hash(writer, frame->filename) ^
			      hash_u64(text_hash(writer, frame->function)),
		      &function.id);
	if (err)
		return err;
	/*
	 * system_name stays empty: if it equals the name, pprof removes what looks like a C++
	 * template argument, and nothing is left of "<module>".
	 */
	function.name = string_index(writer, frame->function);
	function.filename = string_index(writer, frame->filename);
	piece.n_function = 1;
	piece.function = functions;
	return pprof_piece_write(writer, &piece);
}

/* The number of a key, which is added if it is new: then *is_new is 1. 0, -ENOMEM. */
static int number_find(struct id_map *map, uint64_t key, uint32_t *number, int *is_new)
{
	*number = id_map_find(map, key);
	*is_new = *number == ID_MAP_NONE;
	if (!*is_new)
		return 0;
	*number = (uint32_t)map->count;
	return id_map_put(map, key, *number);
}

static int line_set(struct pprof_writer *writer, const struct snapshot_frame *frame, Line *line,
		    uint32_t *place)
{
	uint32_t function;
	int is_new, err = function_write(writer, frame, &function);

	if (err)
		return err;
	perftools__profiles__line__init(line);
	line->function_id = writer->function_ids.items[function];
	line->line = frame->line;
	return number_find(&writer->places,
			   (uint64_t)function << 32 | (frame->native ? 1u << 31 : 0) | frame->line,
			   place, &is_new);
}

/* Notes what a location of `count` frames lacks. */
static void mapping_note(struct pprof_writer *writer, const struct snapshot_frame *frames,
			 uint32_t count)
{
	struct mapping_use *use = &writer->mappings[frames[0].native];
	const struct snapshot_binary *binary = snapshot_binary(writer->snapshot, &frames[0]);

	use->used = true;
	for (uint32_t i = 0; i < count; i++) {
		const char *function = strings_get(writer->snapshot->strings, frames[i].function);
		const char *file = strings_get(writer->snapshot->strings, frames[i].filename);

		use->lacks_lines |= !frames[i].line;
		use->lacks_functions |=
			frames[i].native && (function[0] == '[' || !strncmp(function, "0x", 2));
		use->lacks_files |=
			frames[i].native &&
			(file[0] == '[' || (binary && frames[i].filename == binary->path));
	}
}

static int mapping_write(struct pprof_writer *writer, uint16_t native)
{
	const struct snapshot_frame frame = {.native = native};
	const struct snapshot_binary *binary = snapshot_binary(writer->snapshot, &frame);
	const struct mapping_use *use = &writer->mappings[native];
	Mapping mapping = PERFTOOLS__PROFILES__MAPPING__INIT, *mappings[] = {&mapping};
	Profile piece = PERFTOOLS__PROFILES__PROFILE__INIT;

	mapping.id = PPROF_MAPPING + native;
	mapping.filename = text_index(native ? TEXT_NATIVE : TEXT_NAME);
	if (binary) {
		mapping.memory_start = binary->start;
		mapping.memory_limit = binary->limit;
		mapping.file_offset = binary->offset;
		mapping.filename = string_index(writer, binary->path);
		mapping.build_id = string_index(writer, binary->build_id);
	}
	mapping.has_functions = !use->lacks_functions;
	mapping.has_filenames = !use->lacks_files;
	mapping.has_line_numbers = !use->lacks_lines;
	/* What inlines a function is known from where its lines are. */
	mapping.has_inline_frames = native && !use->lacks_lines;
	piece.n_mapping = 1;
	piece.mapping = mappings;
	return pprof_piece_write(writer, &piece);
}

/* The first one is the program's, used or not: tools take the first for the main one. */
static int mappings_write(struct pprof_writer *writer)
{
	int err = mapping_write(writer, 0);

	for (size_t i = 1; !err && i <= SNAPSHOT_NATIVE + writer->snapshot->binary_count; i++)
		if (writer->mappings[i].used)
			err = mapping_write(writer, (uint16_t)i);
	return err;
}

/* What distinguishes the locations of a mapping from the same ones of others. */
static uint64_t mapping_hash(const struct pprof_writer *writer, const struct snapshot_frame *frame)
{
	const struct snapshot_binary *binary = snapshot_binary(writer->snapshot, frame);

	if (!binary)
		return frame->native;
	return text_hash(writer, binary->path) ^ hash_u64(text_hash(writer, binary->build_id));
}

/*
 * Where the chain of a location of that mapping begins: in *before. Those of Python, and those of
 * no binary, are kept apart by their frames.
 */
static int chain_begin(struct pprof_writer *writer, const struct snapshot_frame *frame,
		       uint64_t *before)
{
	uint32_t number;
	int is_new, err = 0;

	*before = 0;
	if (frame->native <= SNAPSHOT_NATIVE)
		return 0;
	err = number_find(&writer->locations, LOCATION_BINARY - frame->native, &number, &is_new);
	*before = (uint64_t)number + 1;
	return err;
}

/* Writes the location of `count` frames, if it is new. */
static int location_write(struct pprof_writer *writer, const struct snapshot_frame *frames,
			  uint32_t count, uint64_t *id)
{
	Line lines[PPROF_LINES_MAX], *pointers[PPROF_LINES_MAX];
	Location location = PERFTOOLS__PROFILES__LOCATION__INIT, *locations[] = {&location};
	Profile piece = PERFTOOLS__PROFILES__PROFILE__INIT;
	uint64_t before, hash = writer->seed + mapping_hash(writer, &frames[0]), offset;
	uint32_t number = 0;
	int is_new = 0, err = chain_begin(writer, &frames[0], &before);

	for (uint32_t i = 0; !err && i < count; i++) {
		uint32_t place;

		pointers[i] = &lines[i];
		err = line_set(writer, &frames[i], &lines[i], &place);
		if (!err)
			err = number_find(&writer->locations,
					  before << 32 | place |
						  (i + 1 < count ? LOCATION_MORE : 0),
					  &number, &is_new);
		before = (uint64_t)number + 1;
		if (!err)
			hash = hash_u64(hash + lines[i].function_id) + frames[i].line;
	}
	if (!err && is_new)
		err = id_make(writer, &writer->location_ids, number, hash_u64(hash), id);
	else if (!err)
		*id = writer->location_ids.items[number];
	if (err || !is_new)
		return err;
	location.id = *id;
	location.mapping_id = PPROF_MAPPING + frames[0].native;
	location.n_line = count;
	location.line = pointers;
	if (count == 1 && pprof_is_unnamed(writer->snapshot, &frames[0], &offset)) {
		const struct snapshot_binary *binary = snapshot_binary(writer->snapshot, frames);

		location.address = binary->start + (offset - binary->offset);
		location.n_line = 0;
	}
	mapping_note(writer, frames, count);
	piece.n_location = 1;
	piece.location = locations;
	return pprof_piece_write(writer, &piece);
}

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

/* The error is for people; it follows from the deviations. */
static void estimate_labels_set(const struct pprof_writer *writer,
				const struct snapshot_trace *trace, struct labels *labels)
{
	struct estimate estimate = {0};

	if (!trace->estimate)
		return;
	label_add(labels, text_index(TEXTS + WINDOW_DEVIATIONS))->str =
		writer->deviation_base + (int64_t)trace->estimate - 1;
	estimate_add_trace(&estimate, writer->snapshot, trace);
	Label *error = label_add(labels, text_index(TEXTS + WINDOW_ERROR));
	error->num = (int64_t)estimate_size_error(&estimate);
	error->num_unit = text_index(TEXT_BYTES);
}

/* Older than the trace are the blocks of a layer of their own. */
static void age_label_set(const struct snapshot_trace *trace, struct labels *labels)
{
	if (trace->age == AGE_UNKNOWN || trace->age == AGE_BEFORE)
		return;
	Label *age = label_add(labels, text_index(TEXT_AGE));

	age->num = trace->age;
	age->num_unit = text_index(TEXT_MILLISECONDS);
}

static void labels_set(const struct pprof_writer *writer, const struct snapshot_trace *trace,
		       struct labels *labels)
{
	const struct snapshot_meta *process = snapshot_process(writer->snapshot, trace->process);
	uint32_t total = writer->snapshot->tracebacks[trace->traceback].total;
	int64_t more = writer->more_base,
		names = more + MORE_TEXTS + MORE_PER_PROCESS * (int64_t)trace->process;
	Label *bytes = label_add(labels, text_index(TEXT_BYTES));

	bytes->num = (int64_t)trace->bytes;
	bytes->num_unit = text_index(TEXT_BYTES);
	label_add(labels, text_index(TEXT_DOMAIN))->num = trace->domain;
	label_add(labels, text_index(TEXT_PID))->num = process->pid;
	if (total != SNAPSHOT_TOTAL_UNKNOWN)
		label_add(labels, text_index(TEXT_TOTAL))->num = total;
	if (trace->flags & SNAPSHOT_ROUNDED)
		label_add(labels, text_index(TEXT_ROUNDED))->num = 1;
	if (trace->flags & SNAPSHOT_INHERITED)
		label_add(labels, text_index(TEXT_INHERITED))->num = 1;
	if (trace->weight)
		label_add(labels, text_index(TEXT_SELF_SAMPLED))->num = (int64_t)trace->count;
	estimate_labels_set(writer, trace, labels);
	if (!writer->snapshot->process_count)
		return;
	/* counted from 1, because pprof drops labels of 0 */
	label_add(labels, more + MORE_PROCESS)->num = (int64_t)trace->process + 1;
	label_text(labels, more + MORE_COMM, process->name, names);
	label_text(labels, more + MORE_CONTAINER, process->container, names + 1);
}

/* Tools join samples with the same labels, and ours are of one layer each. */
static void extra_labels_set(const struct pprof_writer *writer, const struct snapshot_trace *trace,
			     uint32_t layer, struct labels *labels)
{
	uint32_t name;

	if (layer >= SNAPSHOT_EXTRA(EXTRA_THREAD, 0)) {
		label_add(labels, text_index(TEXT_THREAD))->num = trace->thread;
		name = id_map_find(&writer->threads, trace->thread);
		if (name != ID_MAP_NONE)
			label_add(labels, text_index(TEXT_THREAD_NAME))->str =
				writer->thread_base + name;
		if (trace->task)
			label_add(labels, text_index(TEXT_TASK))->str =
				string_index(writer, trace->task);
	} else if (layer >= SNAPSHOT_EXTRA(EXTRA_PEAK, 0)) {
		label_add(labels, text_index(TEXT_AT_PEAK))->num = 1;
	} else if (layer >= SNAPSHOT_EXTRA(EXTRA_FREED, 0)) {
		label_add(labels, text_index(TEXT_LIFETIME))->str =
			text_index(TEXT_LIFETIMES + (int)(trace->flags >> SNAPSHOT_LIFETIME_SHIFT));
	} else if (layer >= SNAPSHOT_EXTRA(EXTRA_ALLOCATED, 0)) {
		label_add(labels, text_index(TEXT_ALLOCATED))->num = 1;
	} else {
		age_label_set(trace, labels);
	}
}

/* position: the index of the layer among those of the file; the first layer is 0. */
static int sample_write(struct pprof_writer *writer, const struct snapshot_trace *trace,
			unsigned int position, uint32_t layer)
{
	const struct snapshot_traceback *traceback =
		&writer->snapshot->tracebacks[trace->traceback];
	Sample sample = PERFTOOLS__PROFILES__SAMPLE__INIT, *samples[] = {&sample};
	Profile piece = PERFTOOLS__PROFILES__PROFILE__INIT;
	int64_t values[VALUES] = {0};
	struct labels labels = {.count = 0};
	uint64_t size = 0, count = 0;
	int whole = layer == EVENT_LAYER_MMAP || layer >= SNAPSHOT_EXTRA_FIRST;
	double chance = whole ? 1 : estimate_chance_of(writer->snapshot, trace);
	int err = estimate_trace_figures(chance, trace, &size, &count);

	for (uint32_t i = 0, count; !err && i < traceback->nframe; i += count) {
		const struct snapshot_frame *frames =
			&writer->snapshot->frames[traceback->first + i];

		count = pprof_location_frames(frames, traceback->nframe - i);
		err = location_write(writer, frames, count, &writer->ids[sample.n_location_id++]);
	}
	if (err)
		return err;
	values[position * PPROF_VALUES] = (int64_t)count;
	values[position * PPROF_VALUES + 1] = (int64_t)size;
	labels_set(writer, trace, &labels);
	extra_labels_set(writer, trace, layer, &labels);
	sample.location_id = writer->ids;
	sample.n_value = value_count(writer->snapshot);
	sample.value = values;
	sample.n_label = labels.count;
	sample.label = labels.pointers;
	piece.n_sample = 1;
	piece.sample = samples;
	return pprof_piece_write(writer, &piece);
}

/*
 * Writes the samples of all layers, with the locations and functions that they name, each before
 * its first use. The strings are written already. Errors as above; -EOVERFLOW.
 */
static int pprof_samples_write(struct pprof_writer *writer)
{
	const struct snapshot *snapshot = writer->snapshot;
	unsigned int position = 0;
	int err = 0;

	for (size_t i = 0; !err && i < snapshot->trace_count; i++)
		err = sample_write(writer, &snapshot->traces[i], 0, snapshot->meta.layer);
	for (uint32_t layer = 0; layer < SNAPSHOT_LAYERS; layer++) {
		if (!snapshot_has_extra(&snapshot->meta, layer))
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

static void ids_free(struct ids *ids)
{
	free(ids->items);
	id_map_free(&ids->taken);
}

static int profile_write(struct pprof_writer *writer)
{
	int err;

	pprof_label_key(&writer->snapshot->meta, writer->label_key);
	writer->ids = calloc(frames_longest(writer->snapshot), sizeof(*writer->ids));
	writer->mappings = calloc(SNAPSHOT_NATIVE + writer->snapshot->binary_count + 1,
				  sizeof(*writer->mappings));
	err = writer->ids && writer->mappings ? 0 : -ENOMEM;
	err = err ?: header_write(writer)
	       ?: texts_write(writer)
	       ?: strings_write(writer)
	       ?: estimates_write(writer)
	       ?: threads_write(writer)
	       ?: meta_write(writer)
	       ?: comments_write(writer)
	       ?: pprof_samples_write(writer)
	       ?: mappings_write(writer);
	buffer_free(&writer->packed);
	id_map_free(&writer->threads);
	id_map_free(&writer->functions);
	id_map_free(&writer->places);
	id_map_free(&writer->locations);
	ids_free(&writer->function_ids);
	ids_free(&writer->location_ids);
	free(writer->ids);
	free(writer->mappings);
	return err;
}

int pprof_write(const struct snapshot *snapshot, struct outfile *file)
{
	struct pprof_writer writer = {.snapshot = snapshot, .file = file};
	const int gzip = 16 + MAX_WBITS;

	if (deflateInit2(&writer.zlib, Z_DEFAULT_COMPRESSION, Z_DEFLATED, gzip, 8,
			 Z_DEFAULT_STRATEGY) != Z_OK)
		return -ENOMEM;
	int err = profile_write(&writer) ?: deflate_out(&writer, NULL, 0, Z_FINISH);
	deflateEnd(&writer.zlib);
	return err;
}

int pprof_save(const struct snapshot *snapshot, struct outfile *file)
{
	return outfile_end(file, pprof_write(snapshot, file));
}

int pprof_write_unpacked(const struct snapshot *snapshot, uint64_t seed, struct buffer *out)
{
	struct pprof_writer writer = {.snapshot = snapshot, .unpacked = out, .seed = seed};

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
