/* SPDX-License-Identifier: Apache-2.0 */
#include "inspect/dump/capture.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "inspect/dump/segments.h"
#include "proc/freeze.h"
#include "proc/memory.h"
#include "proc/threads.h"
#include "util/array.h"
#include "util/clock.h"
#include "util/error.h"

/*
 * A copy of a process that runs on has pages of different moments, over the whole time of the
 * copying. What changes is mostly the same all the time: all pages are read a second time and
 * compared, then those that differed are read a few times more. The last of these times is short,
 * and it is the moment that the copy is of. Where it is not short, since something else had the
 * processor, pages that had not differed may have changed meanwhile: it begins again.
 */

#define PAGE      4096u
#define PIECE     (256u << 10) /* bytes read at once */
#define ROUNDS    3u           /* of the pages that change */
#define PASSES    3u           /* over all pages, where the tracer waited */
#define WAITED_NS 50000000ull  /* so much of a pass, and more than half of it */

struct again {
	struct capture *capture;
	struct space *space;
	uint8_t *piece;
	uint64_t *changed; /* pages of the copy, a bit each */
	uint64_t count;
};

/* Errors that mean that a page is not there any more: its copy stays as it is. */
static int is_gone(int err)
{
	return err == -EFAULT || err == -EIO;
}

static void page_compare(struct again *again, uint8_t *copy, const uint8_t *now)
{
	uint64_t page = (uint64_t)(copy - again->capture->memory) / PAGE;

	if (!memcmp(copy, now, PAGE))
		return;
	memcpy(copy, now, PAGE);
	again->count += !(again->changed[page / 64] >> page % 64 & 1);
	again->changed[page / 64] |= 1ull << page % 64;
}

/* Reads pages that follow each other, at most a piece of them. */
static int pages_compare(struct again *again, uint64_t address, uint8_t *copy, uint64_t bytes)
{
	int err = space_read(again->space, address, again->piece, bytes);

	if (err)
		return is_gone(err) ? 0 : err;
	for (uint64_t at = 0; at < bytes; at += PAGE)
		page_compare(again, copy + at, again->piece + at);
	return 0;
}

/*
 * Which pages of a piece are copied: exists[i] is 1 for those that have content. Pages without are
 * zero in the copy, as those are that cannot be read. *swapped: how many are left out, since they
 * are swapped out. 0; errors of space_pages().
 */
static int piece_pages(struct space *space, uint64_t address, uint32_t pages,
		       uint8_t exists[SPACE_PAGES], uint32_t *swapped)
{
	int err = space_pages(space, address, pages, exists);

	*swapped = 0;
	for (uint32_t page = 0; page < pages && !err; page++) {
		*swapped += exists[page] == SPACE_SWAPPED;
		exists[page] = exists[page] == SPACE_MEMORY || exists[page] == SPACE_FILE;
	}
	return err;
}

static int segment_compare(struct again *again, const struct image_segment *segment)
{
	uint8_t exists[SPACE_PAGES];
	uint64_t bytes = segment->end - segment->start;
	uint32_t end, pages, swapped;
	int err = 0;

	for (uint64_t from = 0; from < bytes && !err; from += (uint64_t)pages * PAGE) {
		pages = (uint32_t)((bytes - from < PIECE ? bytes - from : PIECE) / PAGE);
		err = piece_pages(again->space, segment->start + from, pages, exists, &swapped);
		for (uint32_t page = 0; page < pages && !err; page = end) {
			uint64_t at = from + (uint64_t)page * PAGE;

			for (end = page + 1; end < pages && exists[end] == exists[page]; end++)
				;
			if (exists[page])
				err = pages_compare(again, segment->start + at,
						    (uint8_t *)segment->bytes + at,
						    (uint64_t)(end - page) * PAGE);
		}
	}
	return err;
}

/* The first page from `page` on that has changed (want 1) or not; `end`: none before it. */
static uint64_t page_next(const struct again *again, uint64_t page, uint64_t end, uint64_t want)
{
	while (page < end && (again->changed[page / 64] >> page % 64 & 1) != want)
		page += want && !again->changed[page / 64] ? 64 - page % 64 : 1;
	return page < end ? page : end;
}

/* Reads the pages that have changed as fast as possible; those that are gone stay as they are. */
static int changed_read(struct again *again)
{
	const struct image *image = &again->capture->image;
	int err = 0;

	for (size_t i = 0; i < image->count && !err; i++) {
		const struct image_segment *segment = &image->segments[i];
		uint64_t first = (uint64_t)(segment->bytes - again->capture->memory) / PAGE;
		uint64_t last = first + (segment->end - segment->start) / PAGE, end;

		for (uint64_t at = page_next(again, first, last, 1); at < last && !err;
		     at = page_next(again, end, last, 1)) {
			end = page_next(again, at, last, 0);
			err = space_read(again->space, segment->start + (at - first) * PAGE,
					 again->capture->memory + at * PAGE, (end - at) * PAGE);
			err = is_gone(err) ? 0 : err;
		}
	}
	return err;
}

/* One pass over all pages, then those that change: run_ns: as threads_run_ns() before it. */
static int pass_run(struct again *again, uint64_t run_ns)
{
	const struct capture *capture = again->capture;
	pid_t pid = space_pid(again->space);
	int err = 0;

	for (size_t i = 0; i < capture->image.count && !err; i++)
		err = segment_compare(again, &capture->segments[i]);
	for (unsigned int i = 0; i < ROUNDS && !err && again->count; i++) {
		uint64_t now_ns = threads_run_ns(pid);

		if (now_ns && now_ns == run_ns)
			break;
		run_ns = now_ns;
		err = changed_read(again);
	}
	return err;
}

static int passes_run(struct again *again, uint64_t run_ns)
{
	int err = 0, waited = 1;

	for (unsigned int i = 0; i < PASSES && !err && waited; i++) {
		uint64_t began_ns = clock_ns(CLOCK_MONOTONIC), all_ns, waited_ns;
		uint64_t cpu_ns = clock_ns(CLOCK_THREAD_CPUTIME_ID);

		err = pass_run(again, run_ns);
		cpu_ns = clock_ns(CLOCK_THREAD_CPUTIME_ID) - cpu_ns;
		all_ns = clock_ns(CLOCK_MONOTONIC) - began_ns;
		waited_ns = all_ns > cpu_ns ? all_ns - cpu_ns : 0;
		waited = waited_ns > WAITED_NS && waited_ns > all_ns / 2;
	}
	return err;
}

/*
 * Copies again what has changed since the process had run for run_ns (threads_run_ns()), if it has
 * run since. 0; -ESRCH; -EPERM; -ENOMEM.
 */
static int capture_again(struct capture *capture, struct space *space, uint64_t run_ns)
{
	struct again again = {.capture = capture, .space = space};
	uint64_t now_ns = threads_run_ns(space_pid(space));

	if (now_ns && now_ns == run_ns)
		return 0;
	capture->image.ran = 1;
	capture->image.segments = capture->segments;
	again.piece = malloc(PIECE);
	again.changed = calloc(capture->memory_bytes / PAGE / 64 + 1, sizeof(uint64_t));
	int err = again.piece && again.changed ? passes_run(&again, now_ns) : -ENOMEM;
	capture->image.bytes_changed = again.count * PAGE;
	free(again.piece);
	free(again.changed);
	return err;
}

#define PIECE_ASKED ((uint64_t)SPACE_PAGES * PAGE) /* bytes asked about by one call */

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
		     done += PIECE_ASKED) {
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
