/* SPDX-License-Identifier: Apache-2.0 */
#include "inspect/dump/capture.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "inspect/dump/capture_again.h"
#include "inspect/dump/segments.h"
#include "proc/freeze.h"
#include "proc/memory.h"
#include "proc/threads.h"
#include "util/array.h"
#include "util/clock.h"
#include "util/error.h"

#define PAGE  4096u
#define PIECE ((uint64_t)SPACE_PAGES * PAGE) /* bytes asked about by one call */

/* Pages that cannot be read stay zero, and are counted. 0, -ESRCH, -EPERM. */
static int piece_copy(struct capture *capture, struct space *space, uint64_t address, uint8_t *to,
		      uint64_t bytes)
{
	int err = space_read(space, address, to, bytes);

	if (err != -EFAULT && err != -EIO && err != -ENOMEM)
		return err;
	for (uint64_t at = 0; at < bytes; at += PAGE) {
		err = space_read(space, address + at, to + at, PAGE);
		if (err == -ESRCH || err == -EPERM)
			return err;
		if (err) {
			memset(to + at, 0, PAGE);
			capture->image.bytes_lost += PAGE;
		}
	}
	return 0;
}

int piece_pages(struct space *space, uint64_t address, uint32_t pages, uint8_t exists[SPACE_PAGES],
		uint32_t *swapped)
{
	int err = space_pages(space, address, pages, exists);

	*swapped = 0;
	for (uint32_t page = 0; page < pages && !err; page++) {
		*swapped += exists[page] == SPACE_SWAPPED;
		exists[page] = exists[page] == SPACE_MEMORY || exists[page] == SPACE_FILE;
	}
	return err;
}

/*
 * How many pages the next piece has. Pieces end where huge pages of the copy do: those of which
 * nearly all is copied are filled with one fault.
 */
static uint32_t piece_length(const struct image_segment *segment, uint64_t from, uint8_t *to)
{
	uint64_t bytes = segment->end - segment->start - from;
	uint64_t most = HUGE_BYTES - (uintptr_t)to % HUGE_BYTES;

	return (uint32_t)((bytes < most ? bytes : most) / PAGE);
}

/* Whether a huge page takes at most an eighth more: an arena of pymalloc has holes at its ends. */
static int is_dense(const uint8_t *exists, uint32_t pages)
{
	uint32_t count = 0;

	for (uint32_t page = 0; page < pages; page++)
		count += exists[page];
	return pages == HUGE_BYTES / PAGE && count >= pages - pages / 8;
}

static uint32_t pages_left(const struct image_segment *segment, uint64_t from)
{
	uint64_t pages = (segment->end - segment->start - from) / PAGE;

	return pages < SPACE_PAGES ? (uint32_t)pages : SPACE_PAGES;
}

static int piece_read(struct capture *capture, struct space *space,
		      const struct image_segment *segment, uint64_t from, uint32_t pages,
		      uint8_t *to)
{
	uint8_t exists[SPACE_PAGES];
	uint32_t end, swapped;
	int err = piece_pages(space, segment->start + from, pages, exists, &swapped);

	if (err)
		return err;
	capture->image.bytes_swapped += (uint64_t)swapped * PAGE;
	if (is_dense(exists, pages))
		huge_advise(to, HUGE_BYTES);
	for (uint32_t page = 0; page < pages && !err; page = end) {
		for (end = page + 1; end < pages && exists[end] == exists[page]; end++)
			;
		if (exists[page])
			err = piece_copy(capture, space, segment->start + from + page * PAGE,
					 to + page * PAGE, (uint64_t)(end - page) * PAGE);
	}
	return err;
}

static int segments_copy(struct capture *capture, struct space *space)
{
	uint8_t *to = capture->memory;
	int err = 0;

	for (size_t i = 0; i < capture->image.count && !err; i++) {
		struct image_segment *segment = &capture->segments[i];
		uint64_t bytes = segment->end - segment->start;

		segment->bytes = to;
		for (uint64_t done = 0; done < bytes && !err;) {
			uint32_t pages = piece_length(segment, done, to + done);

			err = piece_read(capture, space, segment, done, pages, to + done);
			done += (uint64_t)pages * PAGE;
		}
		to += bytes;
	}
	return err;
}

/* *bytes: of the pages that have content. */
static int content_count(const struct capture *capture, struct space *space, uint64_t *bytes)
{
	uint8_t exists[SPACE_PAGES];
	uint32_t swapped;
	int err = 0;

	*bytes = 0;
	for (size_t i = 0; i < capture->image.count; i++) {
		const struct image_segment *segment = &capture->segments[i];

		for (uint64_t done = 0; done < segment->end - segment->start && !err;
		     done += PIECE) {
			uint32_t pages = pages_left(segment, done);

			err = piece_pages(space, segment->start + done, pages, exists, &swapped);
			for (uint32_t page = 0; page < pages && !err; page++)
				*bytes += exists[page] ? PAGE : 0;
		}
	}
	return err;
}

static int memory_map(struct capture *capture, struct space *space, uint64_t most)
{
	int err = content_count(capture, space, &capture->image.resident_bytes);

	if (err)
		return err;
	if (most && capture->image.resident_bytes > most)
		return error_set(-EDQUOT,
				 "its memory of %" PRIu64 " MiB is more than the %" PRIu64
				 " MiB that may be copied",
				 capture->image.resident_bytes >> 20, most >> 20);
	return capture_reserve(capture);
}

int capture_reserve(struct capture *capture)
{
	void *memory = mmap(NULL, capture->memory_bytes + PAGE, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (memory == MAP_FAILED)
		return -ENOMEM;
	capture->memory = memory;
	return 0;
}

static int process_read(void *context, uint64_t address, void *out, size_t bytes)
{
	return runtime_read(context, address, out, bytes);
}

static int memory_copy(struct capture *capture, const struct python_runtime *runtime,
		       const struct capture_opts *opts)
{
	struct process_maps maps = {0};
	struct memory_reader memory = {process_read, (void *)runtime};
	struct freeze *freeze = NULL;
	int err = opts->freeze ? freeze_begin(&freeze, runtime->pid) : 0;
	uint64_t run_ns = opts->freeze ? 0 : threads_run_ns(runtime->pid);

	if (err)
		return err;
	err = process_maps_read(runtime->pid, &maps)
	      ?: capture_segments(capture, &maps, &memory)
	      ?: memory_map(capture, runtime->space, opts->most_bytes)
	      ?: heap_heads(runtime, capture->heads, &capture->image.head_count)
	      ?: segments_copy(capture, runtime->space);
	if (!err && !opts->freeze)
		err = capture_again(capture, runtime->space, run_ns);
	capture->image.frozen_ns = freeze_end(freeze);
	process_maps_free(&maps);
	return err;
}

int capture_take(struct capture *out, const struct python_runtime *runtime,
		 const struct process_info *info, const struct capture_opts *opts)
{
	struct capture capture = {0};
	uint64_t began = clock_ns(CLOCK_MONOTONIC);

	error_clear();
	capture.heads = calloc(HEAP_INTERPRETERS, sizeof(*capture.heads));
	if (!capture.heads)
		return -ENOMEM;
	capture.image.pid = (uint32_t)info->pid;
	memcpy(capture.image.name, info->name, sizeof(capture.image.name));
	int err = capture_describe(&capture.image, runtime) ?: memory_copy(&capture, runtime, opts);
	capture.image.time_ns = clock_ns(CLOCK_REALTIME);
	capture.copied_ns = clock_ns(CLOCK_MONOTONIC);
	return capture_end(&capture, err, began, out);
}

void capture_free(struct capture *capture)
{
	if (capture->memory)
		munmap(capture->memory, capture->memory_bytes + PAGE);
	free(capture->segments);
	free(capture->heads);
	memset(capture, 0, sizeof(*capture));
}
