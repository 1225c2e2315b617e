/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A copy of a process that runs on has pages of different moments, over the whole time of the
 * copying. What changes is mostly the same all the time: all pages are read a second time and
 * compared, then those that differed are read a few times more. The last of these times is short,
 * and it is the moment that the copy is of. Where it is not short, since something else had the
 * processor, pages that had not differed may have changed meanwhile: it begins again.
 */
#include "inspect/dump/capture_again.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "proc/memory.h"
#include "proc/threads.h"
#include "util/clock.h"

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

int capture_again(struct capture *capture, struct space *space, uint64_t run_ns)
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
