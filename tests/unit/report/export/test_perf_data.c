/* SPDX-License-Identifier: Apache-2.0 */
/* perf.data: events, mappings and samples of a snapshot. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <elfutils/libdw.h>
#include <elfutils/libdwelf.h>
#include <gelf.h>
#include <linux/perf_event.h>
#include <stdio.h>
#include <stdlib.h>

#include "perf_data_files.h"
#include "ranges.h"
#include "report/export/exporter.h"
#include "snapshots.h"
#include "util/buffer.h"

static void file_read(const char *path, struct buffer *out)
{
	FILE *file = fopen(path, "r");
	char chunk[4096];
	size_t bytes;

	assert_non_null(file);
	out->size = 0;
	while ((bytes = fread(chunk, 1, sizeof(chunk), file)))
		assert_int_equal(buffer_append(out, chunk, bytes), 0);
	fclose(file);
}

static void files_open(struct files *files)
{
	file_read(files->path, &files->data);
	file_read(files->image_path, &files->image_file);
	files->elf = elf_memory((char *)files->image_file.data, files->image_file.size);
	assert_non_null(files->elf);
	files->dwarf = dwarf_begin_elf(files->elf, DWARF_C_READ, NULL);
	assert_non_null(files->dwarf);
}

static uint64_t u64_at(const struct files *files, size_t at)
{
	uint64_t value;

	assert_uint_in_range(at, 0, files->data.size - sizeof(value));
	memcpy(&value, files->data.data + at, sizeof(value));
	return value;
}

/* The next record of the data section, NULL after the last. */
static const struct perf_event_header *record_next(const struct files *files, const void *last)
{
	const unsigned char *begin = files->data.data + u64_at(files, 40);
	const unsigned char *end = begin + u64_at(files, 48), *at = begin;

	if (last)
		at = (const unsigned char *)last + ((const struct perf_event_header *)last)->size;
	assert_true(at <= end && end <= files->data.data + files->data.size);
	if (at == end)
		return NULL;
	assert_true((size_t)(end - at) >= sizeof(struct perf_event_header));
	const struct perf_event_header *header = (const void *)at;
	assert_int_equal(header->size % 8, 0);
	assert_uint_in_range(header->size, sizeof(*header), end - at);
	return header;
}

static uint64_t field(const void *record, size_t offset)
{
	uint64_t value;

	memcpy(&value, (const char *)record + offset, sizeof(value));
	return value;
}

/* "symbol file:line" of an address in the mapped image. */
static void address_name(const struct files *files, uint64_t address, char *out, size_t capacity)
{
	uint64_t at = address - files->map_start + files->map_offset;
	const char *symbol_name = NULL;
	Elf_Scn *scn = NULL;
	GElf_Shdr header;
	Dwarf_Die cu;
	int line;

	assert_uint_in_range(address, files->map_start, files->map_start + files->map_length - 1);
	while ((scn = elf_nextscn(files->elf, scn))) {
		assert_non_null(gelf_getshdr(scn, &header));
		if (header.sh_type != SHT_SYMTAB)
			continue;
		for (int i = 1; (uint64_t)i < header.sh_size / header.sh_entsize; i++) {
			GElf_Sym symbol;

			assert_non_null(gelf_getsym(elf_getdata(scn, NULL), i, &symbol));
			if (at < symbol.st_value || at >= symbol.st_value + symbol.st_size)
				continue;
			assert_null(symbol_name);
			symbol_name = elf_strptr(files->elf, header.sh_link, symbol.st_name);
		}
	}
	assert_non_null(symbol_name);
	assert_non_null(dwarf_addrdie(files->dwarf, at, &cu));
	Dwarf_Line *row = dwarf_getsrc_die(&cu, at);
	assert_non_null(row);
	assert_int_equal(dwarf_lineno(row, &line), 0);
	snprintf(out, capacity, "%s %s:%u", symbol_name, dwarf_linesrc(row, NULL, NULL),
		 (unsigned int)line);
}

/*
 * Checks the header and the records before the samples: the mappings and the name of the process.
 * Returns the last of them.
 */
static const struct perf_event_header *process_check(struct files *files, const char *event)
{
	const struct perf_event_header *record = record_next(files, NULL);
	const void *build_id;
	uint32_t mapper, bits = 0;

	assert_memory_equal(files->data.data, "PERFILE2", 8);
	assert_int_equal(u64_at(files, 8), 104);
	assert_int_equal(u64_at(files, 16), u64_at(files, 32)); /* one attribute */
	for (int i = 0; i < 64; i++)
		bits += u64_at(files, 72) >> i & 1;
	/* The features: each is complete, and the last one is at the end of the file. */
	size_t table = u64_at(files, 40) + u64_at(files, 48), end = table + (size_t)bits * 16;
	for (uint32_t i = 0; i < bits; i++) {
		assert_int_equal(u64_at(files, table + (size_t)i * 16), end);
		end += u64_at(files, table + (size_t)i * 16 + 8);
	}
	assert_int_equal(end, files->data.size);
	assert_non_null(memmem(files->data.data + table, end - table, event, strlen(event) + 1));

	assert_int_equal(record->type, PERF_RECORD_MMAP2);
	assert_true(record->misc & PERF_RECORD_MISC_MMAP_BUILD_ID);
	mapper = (uint32_t)field(record, 8);
	files->map_start = field(record, 16);
	files->map_length = field(record, 24);
	files->map_offset = field(record, 32);
	assert_int_equal(((const uint8_t *)record)[40],
			 dwelf_elf_gnu_build_id(files->elf, &build_id));
	assert_memory_equal((const char *)record + 44, build_id, ((const uint8_t *)record)[40]);
	assert_string_equal((const char *)record + 72, files->image_path);

	record = record_next(files, record);
	assert_int_equal(record->type, PERF_RECORD_FORK);
	assert_int_equal((uint32_t)field(record, 8), 4711);
	assert_int_equal(field(record, 8) >> 32, mapper);
	record = record_next(files, record);
	assert_int_equal(record->type, PERF_RECORD_COMM);
	assert_int_equal((uint32_t)field(record, 8), 4711);
	assert_string_equal((const char *)record + 16, "a-program-with-a-long-\\x0aname");
	return record;
}

/*
 * The next sample: its period, and its frames as address_name() formats them, separated by
 * newlines.
 */
static const struct perf_event_header *sample_check(const struct files *files, const void *last,
						    uint64_t period, const char *chain)
{
	const struct perf_event_header *record = record_next(files, last);
	char found[4096] = "", name[1024];

	assert_non_null(record);
	assert_int_equal(record->type, PERF_RECORD_SAMPLE);
	assert_int_equal(field(record, 16), 4711ull << 32 | 4711);
	assert_int_equal(field(record, 24), TAKEN_NS);
	assert_int_equal(field(record, 32), period);
	uint64_t n = field(record, 40);
	assert_int_equal(record->size, 48 + n * 8);
	assert_true(field(record, 48) == (uint64_t)PERF_CONTEXT_USER);
	assert_int_equal(field(record, 8), field(record, 56));
	for (uint64_t i = 1; i < n; i++) {
		address_name(files, field(record, 48 + i * 8), name, sizeof(name));
		snprintf(found + strlen(found), sizeof(found) - strlen(found), "%s%s",
			 i > 1 ? "\n" : "", name);
	}
	assert_string_equal(found, chain);
	return record;
}

static void work_check(struct files *files, const char *event, const uint64_t periods[3])
{
	const struct perf_event_header *record = process_check(files, event);

	record = sample_check(files, record, periods[0],
			      "py::f:/b.py /b.py:7\npy::f:/b.py /b.py:9\npy::f:/b.py /b.py:7\n"
			      "py::<module>:/a.py /a.py:4000000000");
	record = sample_check(files, record, periods[1],
			      "py::f:/a.py /a.py:1\npy::<module>:/a.py /a.py:1");
	record = sample_check(files, record, periods[2], "py::<unknown>:<unknown> <unknown>:0");
	assert_null(record_next(files, record));
}

static void test_samples(void **state)
{
	struct files *files = *state;
	struct snapshot *snapshot = work_make();

	assert_int_equal(snapshot_export(files, snapshot, 0), 0);
	files_open(files);
	work_check(files, "live-bytes", (const uint64_t[]){300, 10, 0});
	files_close(files);
	assert_int_equal(snapshot_export(files, snapshot, 1), 0);
	files_open(files);
	work_check(files, "live-blocks", (const uint64_t[]){3, 1, 5});
	files_close(files);
	strcpy(snapshot->meta.mode, "growth");
	assert_int_equal(snapshot_export(files, snapshot, 0), 0);
	files_open(files);
	work_check(files, "growth-bytes", (const uint64_t[]){300, 10, 0});
	snapshot_free(snapshot);
}

/* The same snapshot gives the same files. A different function gives a different build-id. */
static void test_build_id(void **state)
{
	struct files *files = *state;
	struct snapshot *snapshot = work_make();
	struct buffer data = {0}, image = {0};
	const void *id;
	char first[20];

	assert_int_equal(snapshot_export(files, snapshot, 0), 0);
	file_read(files->path, &data);
	file_read(files->image_path, &image);
	assert_int_equal(snapshot_export(files, snapshot, 0), 0);
	files_open(files);
	assert_int_equal(files->data.size, data.size);
	assert_memory_equal(files->data.data, data.data, data.size);
	assert_int_equal(files->image_file.size, image.size);
	assert_memory_equal(files->image_file.data, image.data, image.size);
	assert_int_equal(dwelf_elf_gnu_build_id(files->elf, &id), sizeof(first));
	memcpy(first, id, sizeof(first));
	files_close(files);
	snapshot->frames[0].line++;
	assert_int_equal(snapshot_export(files, snapshot, 0), 0);
	files_open(files);
	assert_int_equal(dwelf_elf_gnu_build_id(files->elf, &id), sizeof(first));
	assert_memory_not_equal(first, id, sizeof(first));
	buffer_free(&data);
	buffer_free(&image);
	snapshot_free(snapshot);
}

/* perf report shows them as "Total Lost Samples". */
static void test_lost(void **state)
{
	struct files *files = *state;
	struct snapshot *snapshot = work_make();

	snapshot->meta.loss[LOSS_FREE] = 42;
	assert_int_equal(snapshot_export(files, snapshot, 0), 0);
	files_open(files);
	const struct perf_event_header *record =
		record_next(files, process_check(files, "live-bytes"));
	assert_int_equal(record->type, PERF_RECORD_LOST_SAMPLES);
	assert_int_equal(field(record, 8), 42);
	assert_int_equal(record_next(files, record)->type, PERF_RECORD_SAMPLE);
	snapshot_free(snapshot);
}

static void test_empty(void **state)
{
	struct files *files = *state;
	struct builder builder;

	assert_int_equal(builder_begin(&builder), 0);
	struct snapshot *snapshot = snapshot_make(&builder);
	assert_int_equal(snapshot_export(files, snapshot, 0), 0);
	files_open(files);
	assert_null(record_next(files, process_check(files, "live-bytes")));
	snapshot_free(snapshot);
}

/* More frames than a record can hold: the most recent ones are kept. */
static void test_long_traceback(void **state)
{
	enum { FRAMES_OF_IT = 9000 };
	struct files *files = *state;
	struct snapshot_frame *frames = calloc(FRAMES_OF_IT, sizeof(*frames));
	struct snapshot_trace trace = {.bytes = 1, .count = 1};
	const struct perf_event_header *record;
	struct builder builder;
	char name[64], wanted[64];

	assert_int_equal(builder_begin(&builder), 0);
	for (uint32_t i = 0; i < FRAMES_OF_IT; i++)
		frames[i].line = i;
	assert_int_equal(
		builder_traceback(&builder, frames, FRAMES_OF_IT, FRAMES_OF_IT, &trace.traceback),
		0);
	assert_int_equal(builder_trace(&builder, &trace), 0);
	struct snapshot *snapshot = snapshot_make(&builder);
	assert_int_equal(snapshot_export(files, snapshot, 0), 0);
	files_open(files);
	record = record_next(files, process_check(files, "live-bytes"));
	uint64_t n = field(record, 40);
	assert_uint_in_range(n, 8000, 8192);
	for (uint64_t i = 1; i < n; i += 500) {
		address_name(files, field(record, 48 + i * 8), name, sizeof(name));
		snprintf(wanted, sizeof(wanted), " <unknown>:%u", (unsigned int)i - 1);
		assert_string_equal(strchr(name, ' '), wanted);
	}
	free(frames);
	snapshot_free(snapshot);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
		TEST(test_samples), TEST(test_build_id),       TEST(test_empty),
		TEST(test_lost),    TEST(test_long_traceback),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
