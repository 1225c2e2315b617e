/* SPDX-License-Identifier: Apache-2.0 */
/* A snapshot exported to perf.data in a temporary folder. */
#pragma once

#include <elfutils/libdw.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "report/export/exporter.h"
#include "report/export/perf_data_frames.h"
#include "snapshots.h"
#include "util/buffer.h"
#include "util/error.h"

#define FRAMES(...) ((const struct frame_text[]){__VA_ARGS__, {NULL, NULL, 0}})
#define TAKEN_NS    1700000000123456789ull

struct files {
	char directory[32], path[64], image_path[96];
	struct buffer data, image_file;
	Elf *elf;
	Dwarf *dwarf;
	uint64_t map_start, map_length, map_offset;
};

static inline int setup(void **state)
{
	struct files *files = calloc(1, sizeof(*files));

	strcpy(files->directory, "/tmp/test_perf.XXXXXX");
	if (!mkdtemp(files->directory))
		return -1;
	snprintf(files->path, sizeof(files->path), "%s/perf.data", files->directory);
	snprintf(files->image_path, sizeof(files->image_path), "%s.python", files->path);
	elf_version(EV_CURRENT);
	log_level = 0;
	*state = files;
	return 0;
}

static inline void files_close(struct files *files)
{
	dwarf_end(files->dwarf);
	elf_end(files->elf);
	buffer_free(&files->data);
	buffer_free(&files->image_file);
	files->dwarf = NULL;
	files->elf = NULL;
}

static inline int teardown(void **state)
{
	struct files *files = *state;

	files_close(files);
	unlink(files->path);
	unlink(files->image_path);
	if (rmdir(files->directory)) /* a temporary file was left */
		return -1;
	free(files);
	return 0;
}

static inline struct snapshot *snapshot_make(struct builder *builder)
{
	struct snapshot *snapshot = builder_finish(builder);

	snapshot->meta.pid = 4711;
	snapshot->meta.taken_realtime_ns = TAKEN_NS;
	strcpy(snapshot->meta.name, "a-program-with-a-long-\nname");
	return snapshot;
}

static inline int snapshot_export(struct files *files, const struct snapshot *snapshot, int counts)
{
	const struct export_opts opts = {.counts = counts};
	struct outfile *file;
	int err;

	assert_int_equal(outfile_open(&file, files->path, OUTFILE_ANY), 0);
	err = exporter_write(&export_perf, snapshot, NULL, &opts, file);
	if (err)
		outfile_discard(file);
	else
		assert_int_equal(outfile_commit(file), 0);
	return err;
}

/*
 * Functions with one name in two files, several lines of one function, a recursion, line numbers of
 * every size.
 */
static inline struct snapshot *work_make(void)
{
	struct builder builder;

	assert_int_equal(builder_begin(&builder), 0);
	assert_int_equal(snapshot_add(&builder,
				      FRAMES({"/b.py", "f", 7}, {"/b.py", "f", 9},
					     {"/b.py", "f", 7}, {"/a.py", "<module>", 4000000000u}),
				      4, 0, 100, 3),
			 0);
	assert_int_equal(snapshot_add(&builder, FRAMES({"/a.py", "f", 1}, {"/a.py", "<module>", 1}),
				      2, 0, 10, 1),
			 0);
	assert_int_equal(snapshot_add(&builder, FRAMES({"<unknown>", "<unknown>", 0}), 9, 1, 0, 5),
			 0);
	return snapshot_make(&builder);
}
