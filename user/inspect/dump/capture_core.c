/* SPDX-License-Identifier: Apache-2.0 */
#include "inspect/dump/capture_core.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "inspect/dump/segments.h"
#include "proc/core/core_file.h"
#include "runtime/cpython/recover.h"
#include "util/clock.h"
#include "util/error.h"

#define PAGE   4096u
#define PIECE  (1u << 20)   /* bytes read at once */
#define SPARSE 64u          /* memory may be so much larger than the core on the disk, */
#define LEAST  (1ull << 30) /* and so many bytes more */

static int read_core(void *context, uint64_t address, void *out, size_t bytes)
{
	return core_read(context, address, out, bytes);
}

static int put_core(void *context, uint64_t address, const char *text)
{
	return core_put(context, address, text);
}

static int open_map(void *context, const struct process_map *map)
{
	return core_map_open(context, map);
}

/*
 * Memory that was never used is in no core, and reads as nothing. What may be code may as well be
 * constants.
 */
static void maps_settle(struct core_file *core)
{
	for (size_t i = 0; i < core->maps.count; i++) {
		if (!core->maps.entries[i].inode && !core->contents[i].meant)
			core->maps.entries[i].readable = 0;
		if (core->contents[i].guessed)
			core->maps.entries[i].executable = 0;
	}
}

static uint64_t stored_bytes(const struct core_file *core)
{
	uint64_t bytes = 0;

	for (size_t i = 0; i < core->maps.count; i++)
		bytes += core->contents[i].stored;
	return bytes < core->disk_bytes ? bytes : core->disk_bytes;
}

static int size_check(const struct capture *capture, const struct core_file *core, uint64_t most)
{
	uint64_t bytes = stored_bytes(core);

	if (most && bytes > most)
		return error_set(-EDQUOT,
				 "its memory of %" PRIu64 " MiB is more than the %" PRIu64
				 " MiB that may be used",
				 bytes >> 20, most >> 20);
	if (capture->memory_bytes > core->disk_bytes * SPARSE + LEAST)
		return error_set(-EINVAL,
				 "a corrupt core file: %" PRIu64 " MiB of memory in %" PRIu64
				 " MiB on the disk",
				 capture->memory_bytes >> 20, core->disk_bytes >> 20);
	return 0;
}

static bool page_is_zero(const uint8_t *page)
{
	static const uint8_t zero[PAGE];

	return !memcmp(page, zero, PAGE);
}

/* Pages that are zero are not written, so that they take no memory. */
static void piece_read(struct capture *capture, struct core_file *core, uint64_t address,
		       uint8_t *to, uint64_t bytes, uint8_t *piece)
{
	int whole = !core_read(core, address, piece, bytes);

	for (uint64_t at = 0; at < bytes; at += PAGE) {
		if (!whole && core_read(core, address + at, piece + at, PAGE)) {
			capture->image.bytes_lost += PAGE;
			continue;
		}
		if (page_is_zero(piece + at))
			continue;
		memcpy(to + at, piece + at, PAGE);
		capture->image.resident_bytes += PAGE;
	}
}

static int segments_read(struct capture *capture, struct core_file *core)
{
	uint8_t *piece = malloc(PIECE);

	if (!piece)
		return -ENOMEM;
	for (size_t i = 0; i < capture->image.count; i++) {
		struct image_segment *segment = &capture->segments[i];
		uint64_t bytes = segment->end - segment->start;

		uint8_t *to = (uint8_t *)segment->bytes;

		for (uint64_t done = 0; done < bytes; done += PIECE)
			piece_read(capture, core, segment->start + done, to + done,
				   bytes - done < PIECE ? bytes - done : PIECE, piece);
	}
	free(piece);
	return 0;
}

static int runtime_capture(struct capture *capture, struct core_file *core,
			   const struct python_runtime *runtime, uint64_t most)
{
	int err = capture_describe(&capture->image, runtime);

	err = err
	      ?: capture_segments(capture, &core->maps, &runtime->copy->memory)
	      ?: size_check(capture, core, most);
	return err
		?: capture_reserve(capture)
		?: heap_heads(runtime, capture->heads, &capture->image.head_count)
		?: segments_read(capture, core);
}

/* What is missing is the reason for what was not found. */
static int error_explain(const struct core_file *core, int err)
{
	char why[256];

	snprintf(why, sizeof(why), "%s", error_reason(err));
	if (err == -ENOMEM || err == -EDQUOT)
		return err;
	if (core->absent && !strncmp(why, core->absent, strlen(core->absent)))
		return error_set(core->absent_err, "%s: --sysroot names the folder that has it",
				 why);
	if (core->absent)
		return error_set(err,
				 "%s; %s, which it had mapped, %s: --sysroot names the folder "
				 "that has it",
				 why, core->absent,
				 core->absent_err == -ESTALE ? "is another file now"
							     : "cannot be opened");
	if (core->bytes_cut)
		return error_set(-EINVAL, "it was cut short, %" PRIu64 " bytes are missing: %s",
				 core->bytes_cut, why);
	return error_set(err, "%s", why);
}

/* What the interpreter's file would tell is sought in the core if that file is not at hand. */
static int runtime_find(struct core_file *core, const struct runtime_copy *copy,
			struct python_runtime *out)
{
	char why[256];
	int err = python_copy_find(copy, out);

	maps_settle(core);
	if (!err || err == -ENOMEM || !core->absent)
		return err;
	snprintf(why, sizeof(why), "%s", error_reason(err));
	if (!python_copy_recover(copy, out))
		return 0;
	return error_set(err, "%s", why);
}

static int core_capture(struct capture *capture, struct core_file *core, uint64_t most)
{
	const struct runtime_copy copy = {
		.maps = &core->maps,
		.executable = core->executable < core->maps.count
				      ? core->maps.entries[core->executable].path
				      : "",
		.open = open_map,
		.put = put_core,
		.memory = {read_core, core},
	};
	struct python_runtime runtime = {0};

	capture->heads = calloc(HEAP_INTERPRETERS, sizeof(*capture->heads));
	if (!capture->heads)
		return -ENOMEM;
	int err = runtime_find(core, &copy, &runtime)
			  ?: runtime_capture(capture, core, &runtime, most);
	python_runtime_close(&runtime);
	return err ? error_explain(core, err) : 0;
}

int capture_core(struct capture *out, const char *path, const char *sysroot, uint64_t most_bytes)
{
	struct capture capture = {0};
	uint64_t began = clock_ns(CLOCK_MONOTONIC);
	struct core_file core;
	struct stat stat;

	error_clear();
	int err = core_open(&core, path, sysroot);
	if (err)
		return err;
	err = core_capture(&capture, &core, most_bytes);
	capture.image.pid = core.pid;
	memcpy(capture.image.name, core.name, sizeof(capture.image.name));
	if (core.absent)
		snprintf(capture.image.absent, sizeof(capture.image.absent), "%s", core.absent);
	if (!err && !fstat(core.fd, &stat))
		capture.image.time_ns = timespec_ns(stat.st_mtim);
	core_close(&core);
	return capture_end(&capture, err, began, out);
}
