/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes the same objects as Snapshot.dump(), in its order. Repeated values are written once and
 * then taken from the memo, as pickle does with equal objects: file names, frames, tracebacks, and
 * traces of more than one block.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "report/export/exporter.h"
#include "report/tracemalloc/pickle.h"
#include "report/tracemalloc/tracemalloc.h"
#include "snapshot/estimate.h"
#include "util/buffer.h"
#include "util/error.h"
#include "util/id_map.h"
#include "util/utf8.h"

#define PROTOCOL   4
#define BATCH      1000         /* items between two APPENDS, pickle's own number */
#define BLOCKS_MAX (1ull << 28) /* a larger file has several GB, and no Python loads it */
#define NO_ENTRY   UINT32_MAX

struct pickle_writer {
	const struct snapshot *snapshot;
	enum tracemalloc_layout layout;
	struct outfile *file;
	uint32_t memo_count;
	uint32_t *texts, *tracebacks; /* memo entries; NO_ENTRY: not written yet */
	struct id_map frames;         /* file name << 32 | line -> memo entry */
	struct buffer text;
};

static int byte_write(struct pickle_writer *writer, unsigned char byte)
{
	return outfile_write(writer->file, &byte, 1);
}

/* Writes an instruction with a little-endian number of n bytes. */
static int code_write(struct pickle_writer *writer, unsigned char opcode, uint64_t number, size_t n)
{
	unsigned char out[1 + sizeof(number)] = {opcode};

	for (size_t i = 0; i < n; i++)
		out[1 + i] = (unsigned char)(number >> 8 * i);
	return outfile_write(writer->file, out, 1 + n);
}

static int number_write(struct pickle_writer *writer, uint64_t number)
{
	if (number <= UINT8_MAX)
		return code_write(writer, PICKLE_BININT1, number, 1);
	if (number <= UINT16_MAX)
		return code_write(writer, PICKLE_BININT2, number, 2);
	if (number <= INT32_MAX)
		return code_write(writer, PICKLE_BININT, number, 4);
	/*
	 * Two's complement: the top bit is clear, because a snapshot's bytes do not exceed
	 * INT64_MAX.
	 */
	unsigned char out[10] = {PICKLE_LONG1, 8};
	for (size_t i = 0; i < 8; i++)
		out[2 + i] = (unsigned char)(number >> 8 * i);
	return outfile_write(writer->file, out, sizeof(out));
}

static int memo_put(struct pickle_writer *writer, uint32_t *entry)
{
	if (writer->memo_count == NO_ENTRY)
		return -EOVERFLOW;
	*entry = writer->memo_count++;
	return byte_write(writer, PICKLE_MEMOIZE);
}

static int memo_get(struct pickle_writer *writer, uint32_t entry)
{
	return entry <= UINT8_MAX ? code_write(writer, PICKLE_BINGET, entry, 1)
				  : code_write(writer, PICKLE_LONG_BINGET, entry, 4);
}

static int text_write(struct pickle_writer *writer, const char *text)
{
	writer->text.size = 0;
	while (*text) {
		uint32_t c;
		size_t bytes = utf8_take(text, &c);
		/* A byte that is not UTF-8, as Python's surrogate for it. */
		const char surrogate[] = {(char)0xed, (char)(0x80 | (c >> 6 & 0x3f)),
					  (char)(0x80 | (c & 0x3f))};
		int lone = bytes == 1 && c >= 0x80;
		int err = buffer_append(&writer->text, lone ? surrogate : text,
					lone ? sizeof(surrogate) : bytes);

		if (err)
			return err;
		text += bytes;
	}
	int err = writer->text.size <= UINT8_MAX
			  ? code_write(writer, PICKLE_SHORT_BINUNICODE, writer->text.size, 1)
			  : code_write(writer, PICKLE_BINUNICODE, writer->text.size, 4);
	return err ?: outfile_write(writer->file, writer->text.data, writer->text.size);
}

static int filename_write(struct pickle_writer *writer, uint32_t id)
{
	if (writer->texts[id] != NO_ENTRY)
		return memo_get(writer, writer->texts[id]);

	return text_write(writer, strings_get(writer->snapshot->strings, id))
		       ?: memo_put(writer, &writer->texts[id]);
}

static int frame_write(struct pickle_writer *writer, const struct snapshot_frame *frame)
{
	uint64_t key = (uint64_t)frame->filename << 32 | frame->line;
	uint32_t entry = id_map_find(&writer->frames, key);

	if (entry != ID_MAP_NONE)
		return memo_get(writer, entry);

	return filename_write(writer, frame->filename)
	       ?: number_write(writer, frame->line)
	       ?: byte_write(writer, PICKLE_TUPLE2)
	       ?: memo_put(writer, &entry)
	       ?: id_map_put(&writer->frames, key, entry);
}

static int traceback_write(struct pickle_writer *writer, uint32_t index)
{
	const struct snapshot_traceback *traceback = &writer->snapshot->tracebacks[index];

	if (writer->tracebacks[index] != NO_ENTRY)
		return memo_get(writer, writer->tracebacks[index]);
	int err = byte_write(writer, PICKLE_MARK);
	for (uint32_t i = 0; !err && i < traceback->nframe; i++)
		err = frame_write(writer, &writer->snapshot->frames[traceback->first + i]);
	err = err ?: byte_write(writer, PICKLE_TUPLE);
	return err ?: memo_put(writer, &writer->tracebacks[index]);
}

static int trace_write(struct pickle_writer *writer, const struct snapshot_trace *trace)
{
	uint32_t total = writer->snapshot->tracebacks[trace->traceback].total;
	int err = byte_write(writer, PICKLE_MARK)
	       ?: number_write(writer, trace->domain)
	       ?: number_write(writer, trace->bytes)
	       ?: traceback_write(writer, trace->traceback);

	if (!err && writer->layout == TRACEMALLOC_3_9)
		err = total == SNAPSHOT_TOTAL_UNKNOWN ? byte_write(writer, PICKLE_NONE)
						      : number_write(writer, total);
	return err ?: byte_write(writer, PICKLE_TUPLE);
}

static int list_write(struct pickle_writer *writer)
{
	const struct snapshot *snapshot = writer->snapshot;
	uint64_t items = 0;
	int err = byte_write(writer, PICKLE_EMPTY_LIST);

	for (size_t i = 0; !err && i < snapshot->trace_count; i++) {
		uint32_t entry = NO_ENTRY;

		for (uint64_t n = 0; !err && n < snapshot->traces[i].count; n++, items++) {
			if (items % BATCH == 0)
				err = byte_write(writer, PICKLE_MARK);
			if (!err)
				err = n ? memo_get(writer, entry)
					: trace_write(writer, &snapshot->traces[i]);
			if (!err && !n && snapshot->traces[i].count > 1)
				err = memo_put(writer, &entry);
			if (!err && items % BATCH == BATCH - 1)
				err = byte_write(writer, PICKLE_APPENDS);
		}
	}
	return err || items % BATCH == 0 ? err : byte_write(writer, PICKLE_APPENDS);
}

/* Writes a new object of one of the classes, with an empty dictionary. */
static int object_write(struct pickle_writer *writer, const char *class)
{
	static const unsigned char codes[] = {PICKLE_STACK_GLOBAL, PICKLE_EMPTY_TUPLE,
					      PICKLE_NEWOBJ, PICKLE_EMPTY_DICT};

	return text_write(writer, PICKLE_MODULE)
	       ?: text_write(writer, class)
	       ?: outfile_write(writer->file, codes, sizeof(codes));
}

static int snapshot_write(struct pickle_writer *writer)
{
	static const unsigned char set_build[] = {PICKLE_SETITEM, PICKLE_BUILD};
	static const unsigned char end[] = {PICKLE_SETITEMS, PICKLE_BUILD, PICKLE_STOP};
	int err = code_write(writer, PICKLE_PROTO, PROTOCOL, 1)
	       ?: object_write(writer, PICKLE_SNAPSHOT)
	       ?: byte_write(writer, PICKLE_MARK);

	if (!err)
		err = text_write(writer, "traces");
	err = err ?: object_write(writer, PICKLE_TRACES);
	if (!err)
		err = text_write(writer, "_traces");
	err = err ?: list_write(writer);
	err = err ?: outfile_write(writer->file, set_build, sizeof(set_build));
	if (!err)
		err = text_write(writer, "traceback_limit");
	err = err ?: number_write(writer, writer->snapshot->meta.traceback_limit);
	return err ?: outfile_write(writer->file, end, sizeof(end));
}

static int blocks_check(const struct snapshot *snapshot)
{
	uint64_t blocks = 0;

	for (size_t i = 0; i < snapshot->trace_count; i++)
		if (__builtin_add_overflow(blocks, snapshot->traces[i].count, &blocks) ||
		    blocks > BLOCKS_MAX)
			return error_set(-EFBIG,
					 "more than %llu blocks: tracemalloc's files list each one "
					 "separately",
					 BLOCKS_MAX);
	return 0;
}

static uint32_t *entries_new(size_t count)
{
	uint32_t *entries = malloc((count ? count : 1) * sizeof(*entries));

	if (entries)
		memset(entries, 0xff, count * sizeof(*entries));
	return entries;
}

enum tracemalloc_layout tracemalloc_layout_of(const struct snapshot *snapshot)
{
	const struct snapshot_meta *meta = &snapshot->meta;

	if (meta->python_version)
		return meta->python_version < 0x03090000 ? TRACEMALLOC_3_8 : TRACEMALLOC_3_9;
	return snapshot->traceback_count && snapshot->tracebacks[0].total == SNAPSHOT_TOTAL_UNKNOWN
		       ? TRACEMALLOC_3_8
		       : TRACEMALLOC_3_9;
}

int tracemalloc_write(const struct snapshot *snapshot, enum tracemalloc_layout layout,
		      struct outfile *file)
{
	struct pickle_writer writer = {.snapshot = snapshot, .layout = layout, .file = file};
	int err = blocks_check(snapshot);

	if (err)
		return err;
	writer.texts = entries_new(strings_count(snapshot->strings));
	writer.tracebacks = entries_new(snapshot->traceback_count);
	err = writer.texts && writer.tracebacks ? snapshot_write(&writer) : -ENOMEM;
	free(writer.texts);
	free(writer.tracebacks);
	id_map_free(&writer.frames);
	buffer_free(&writer.text);
	return err;
}

static int tracemalloc_export(const struct snapshot *snapshot, const struct export_opts *opts,
			      struct outfile *file)
{
	enum tracemalloc_layout layout = tracemalloc_layout_of(snapshot);

	if (snapshot->process_count)
		log_info("tracemalloc's files know no processes: the blocks of all %zu are written "
			 "as those of one; --pid PID picks one",
			 snapshot->process_count);
	if (opts->python_version)
		layout = opts->python_version < 0x03090000 ? TRACEMALLOC_3_8 : TRACEMALLOC_3_9;
	if (!snapshot_is_sample(&snapshot->meta))
		return tracemalloc_write(snapshot, layout, file);
	/* tracemalloc knows no estimates: the file has as many blocks as the sample stands for. */
	struct snapshot *all;
	int err = estimate_snapshot(snapshot, &all);
	if (err)
		return err;
	err = tracemalloc_write(all, layout, file);
	snapshot_free(all);
	return err;
}

const struct exporter export_tracemalloc = {
	.name = "tracemalloc",
	.help = "what Python's tracemalloc.Snapshot.load() reads",
	.write = tracemalloc_export,
};
