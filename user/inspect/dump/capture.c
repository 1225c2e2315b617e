/* SPDX-License-Identifier: Apache-2.0 */
#include "inspect/dump/capture.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "inspect/dump/segments.h"
#include "inspect/dump/tables.h"
#include "proc/freeze.h"
#include "proc/memory.h"
#include "proc/threads.h"
#include "util/array.h"
#include "util/cleanup.h"
#include "util/clock.h"
#include "util/error.h"

/*
 * A copy of a process that runs on has pages of different moments, over the whole time of the
 * copying. What changes is mostly the same all the time: all pages are read a second time and
 * compared, then those that differed are read a few times more. The last of these times is short,
 * and it is the moment that the copy is of. Where it is not short, since something else had the
 * processor, pages that had not differed may have changed meanwhile: it begins again. Where it is
 * not short, since very much changes, only the pages that still do are read some times more.
 */

#define PAGE         4096u
#define PIECE        (256u << 10)   /* bytes read at once */
#define ROUNDS       3u             /* of the pages that change */
#define ROUND_NS     5000000ull     /* a round that takes longer is followed by NARROWS of those */
#define NARROWS      3u             /* that still change */
#define AHEAD        (PIECE / PAGE) /* pages behind changed ones that are looked at, too */
#define AHEAD_MOST   4096u          /* of a round */
#define STATUS_BYTES 8192u
#define PASSES       3u          /* over all pages, where the tracer waited */
#define WAITED_NS    50000000ull /* so much of a pass, and more than half of it */

struct again {
	struct capture *capture;
	struct space *space;
	uint8_t *piece;
	uint64_t *changed; /* pages of the copy, a bit each */
	uint64_t count;
};

/* Errors that mean that a page is not there any more: its copy stays as it is. */
static bool is_gone(int err)
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

/*
 * Reads pages again that follow each other, straight into the copy or, if only those are to be read
 * another time that still change, through the piece.
 */
static int changed_piece(struct again *again, uint64_t address, uint64_t page, uint64_t end,
			 bool narrow)
{
	uint8_t *copy = again->capture->memory + page * PAGE;
	int err = 0;

	if (!narrow) {
		err = space_read(again->space, address, copy, (end - page) * PAGE);
		return is_gone(err) ? 0 : err;
	}
	for (uint64_t at = page, to; at < end && !err; at = to) {
		to = end - at > PIECE / PAGE ? at + PIECE / PAGE : end;
		for (uint64_t i = at; i < to; i++)
			again->changed[i / 64] &= ~(1ull << i % 64);
		again->count -= to - at;
		err = pages_compare(again, address + (at - page) * PAGE,
				    again->capture->memory + at * PAGE, (to - at) * PAGE);
	}
	return err;
}

/*
 * Reads the pages that have changed as fast as possible, and some that follow them; those that are
 * gone stay as they are.
 */
static int changed_read(struct again *again, bool narrow)
{
	const struct image *image = &again->capture->image;
	uint64_t ahead = AHEAD_MOST;
	int err = 0;

	for (size_t i = 0; i < image->count && !err; i++) {
		const struct image_segment *segment = &image->segments[i];
		uint64_t first = (uint64_t)(segment->bytes - again->capture->memory) / PAGE;
		uint64_t last = first + (segment->end - segment->start) / PAGE, end;

		for (uint64_t at = page_next(again, first, last, 1); at < last && !err;
		     at = page_next(again, end, last, 1)) {
			end = page_next(again, at, last, 0);
			err = changed_piece(again, segment->start + (at - first) * PAGE, at, end,
					    narrow);
			if (err || ahead < AHEAD)
				continue;
			/* Memory that is being taken follows what was taken last. */
			uint64_t to =
				page_next(again, end, end + AHEAD < last ? end + AHEAD : last, 1);
			err = pages_compare(again, segment->start + (end - first) * PAGE,
					    again->capture->memory + end * PAGE, (to - end) * PAGE);
			ahead -= to - end;
			end = to;
		}
	}
	return err;
}

static int part_copy(void *context, const struct image_segment *part)
{
	return segment_compare(context, part);
}

/*
 * Copies memory that was mapped since the copying began: a table that grew lies there, and without
 * it all that it holds would seem to be held by nothing.
 */
static int new_copy(void *context)
{
	struct again *again = context;
	struct process_maps maps;
	int err = process_maps_read(space_pid(again->space), &maps);

	if (err)
		return err;
	err = capture_extend(again->capture, &maps, part_copy, again);
	process_maps_free(&maps);
	return err;
}

/* One pass over all pages, then those that change: run_ns: as threads_run_ns() before it. */
static int pass_run(struct again *again, uint64_t run_ns)
{
	const struct capture *capture = again->capture;
	pid_t pid = space_pid(again->space);
	uint64_t began_ns = clock_ns(CLOCK_MONOTONIC);
	int err = 0;

	for (size_t i = 0; i < capture->image.count && !err; i++)
		err = segment_compare(again, &capture->segments[i]);
	err = err ?: new_copy(again);
	for (unsigned int i = 0; i < ROUNDS && !err && again->count; i++) {
		uint64_t now_ns = threads_run_ns(pid);

		if (now_ns && now_ns == run_ns)
			break;
		run_ns = now_ns;
		began_ns = clock_ns(CLOCK_MONOTONIC);
		err = changed_read(again, 0) ?: new_copy(again);
	}
	for (unsigned int i = 0;
	     i < NARROWS && !err && clock_ns(CLOCK_MONOTONIC) - began_ns > ROUND_NS; i++) {
		began_ns = clock_ns(CLOCK_MONOTONIC);
		err = changed_read(again, 1) ?: new_copy(again);
	}
	return err;
}

static int passes_run(struct again *again, uint64_t run_ns, unsigned int most)
{
	int err = 0, waited = 1;

	for (unsigned int i = 0; i < most && !err && waited; i++) {
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
 * run since, in at most so many passes. 0; -ESRCH; -EPERM; -ENOMEM.
 */
static int capture_again(struct capture *capture, struct space *space, uint64_t run_ns,
			 unsigned int passes)
{
	struct again again = {.capture = capture, .space = space};
	uint64_t now_ns = threads_run_ns(space_pid(space));

	if (now_ns && now_ns == run_ns)
		return 0;
	capture->image.ran = 1;
	capture->image.segments = capture->segments;
	again.piece = malloc(PIECE);
	again.changed = calloc(capture->memory_mapped / PAGE / 64 + 1, sizeof(uint64_t));
	int err = again.piece && again.changed ? passes_run(&again, now_ns, passes) : -ENOMEM;
	unsigned int lost = 0;
	int mended = err ? 0 : tables_mend(capture, space, new_copy, &again, &lost);
	capture->torn = lost > 0;
	err = mended < 0 ? mended : err;
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
static bool is_dense(const uint8_t *exists, uint32_t pages)
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
	int err = 0;

	for (size_t i = 0; i < capture->image.count && !err; i++) {
		struct image_segment *segment = &capture->segments[i];
		uint64_t bytes = segment->end - segment->start;
		uint8_t *to = (uint8_t *)segment->bytes;

		for (uint64_t done = 0; done < bytes && !err;) {
			uint32_t pages = piece_length(segment, done, to + done);

			err = piece_read(capture, space, segment, done, pages, to + done);
			done += (uint64_t)pages * PAGE;
		}
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

static int process_read(void *context, uint64_t address, void *out, size_t bytes)
{
	return runtime_read(context, address, out, bytes);
}

/* The value of a line of /proc/PID/status in hexadecimal; 0: there is none. */
static uint64_t status_bits(const char *text, const char *name)
{
	const char *at = strstr(text, name);

	return at ? strtoull(at + strlen(name), NULL, 16) : 0;
}

/*
 * Is it being killed, or has it no memory any more? Then pages and maps were not there that the
 * copy was to have, and no error has told so: the kernel takes them before it ends the process.
 */
static bool is_ending(pid_t pid)
{
	_cleanup_(buffer_free) struct buffer text = {0};
	const uint64_t killed = 1ull << (SIGKILL - 1);

	if (process_file_read(pid, "status", STATUS_BYTES, &text) || buffer_append(&text, "", 1))
		return 1;
	const char *status = (const char *)text.data;
	return !strstr(status, "\nVmRSS:") || (status_bits(status, "\nSigPnd:") & killed) ||
	       (status_bits(status, "\nShdPnd:") & killed);
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
		err = capture_again(capture, runtime->space, run_ns, opts->hurried ? 1 : PASSES);
	capture->torn |= !opts->freeze && (err == -ESRCH || (!err && is_ending(runtime->pid)));
	/* All of it was read once: that is better than nothing. */
	err = err == -ESRCH && opts->hurried && capture->image.ran ? 0 : err;
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
		munmap(capture->memory, capture->memory_mapped);
	free(capture->segments);
	free(capture->heads);
	memset(capture, 0, sizeof(*capture));
}
