/* SPDX-License-Identifier: Apache-2.0 */
#include "process/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "process/memory_view.h"
#include "process/pagemap.h"
#include "process/patience.h"
#include "tables/address_set.h"

#define LOOKS       2u /* at a page that seems swapped out: one that is being moved does, too */
#define ADDRESS_END (1ull << 63) /* above are the kernel's */

/*
 * Small reads go back to the same pages: for a few milliseconds pages that were there count as
 * there. One look at 64 pages takes as long as at one.
 */
#define SEEN_PAGES 64u
#define SEEN_COUNT 256u /* direct-mapped */
#define SEEN_NS    10000000ull

struct seen {
	uint64_t window; /* number of the pages, from 1 on; 0: none */
	uint64_t there;  /* a bit for each page */
	uint64_t time_ns;
};

struct space {
	pid_t pid;
	unsigned int users;
	int mem, pagemap; /* descriptors */
	int swap_in;
	struct view view;
	struct seen *seen;          /* SEEN_COUNT; NULL: no small read so far */
	struct address_set counted; /* pages in `missed` */
	struct space_missed missed;
};

/* 0; -ESRCH; -EPERM; -errno. */
static int mem_open(pid_t pid)
{
	char path[40];
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/mem", (int)pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd >= 0)
		return fd;
	return errno == ENOENT ? -ESRCH : errno == EACCES ? -EPERM : -errno;
}

/*
 * Reads pages that are there. fs/proc/base.c, mem_rw(): a read returns 0 once the process has no
 * memory any more, and fails with EIO, or is short, where nothing is mapped.
 */
static int mem_read(const struct space *space, uint64_t address, uint8_t *out, size_t bytes)
{
	while (bytes) {
		struct patience patience;
		int err = patience_begin(&patience, space->pid);
		ssize_t got;

		if (err)
			return err;
		got = pread(space->mem, out, bytes, (off_t)address);
		err = errno;
		patience_end(&patience);
		errno = err;
		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			return !got ? -ESRCH : errno == EIO ? -EFAULT : -errno;
		out += got;
		address += (uint64_t)got;
		bytes -= (size_t)got;
	}
	return 0;
}

/* Thousands of processes take more descriptors than most shells allow, and fewer than they may. */
static void limit_raise(int fd)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) || limit.rlim_cur == limit.rlim_max ||
	    (rlim_t)fd < limit.rlim_cur / 2)
		return;
	limit.rlim_cur = limit.rlim_max;
	setrlimit(RLIMIT_NOFILE, &limit);
}

int space_open(struct space **out, pid_t pid)
{
	struct space *space = calloc(1, sizeof(*space));
	int err = 0;

	if (!space)
		return -ENOMEM;
	*space = (struct space){
		.pid = pid, .users = 1, .mem = mem_open(pid), .pagemap = -1, .view.pid = pid};
	if (space->mem < 0)
		err = space->mem;
	else
		space->pagemap = pagemap_open(pid);
	if (!err && space->pagemap < 0)
		err = space->pagemap;
	if (err) {
		space_close(space);
		return err;
	}
	limit_raise(space->pagemap);
	*out = space;
	return 0;
}

struct space *space_share(struct space *space)
{
	if (space)
		space->users++;
	return space;
}

void space_close(struct space *space)
{
	if (!space || --space->users)
		return;
	view_drop(&space->view);
	free(space->seen);
	address_set_free(&space->counted);
	if (space->mem >= 0)
		close(space->mem);
	if (space->pagemap >= 0)
		close(space->pagemap);
	free(space);
}

pid_t space_pid(const struct space *space)
{
	return space->pid;
}

void space_rest(struct space *space)
{
	if (!space)
		return;
	view_drop(&space->view);
	free(space->seen);
	space->seen = NULL;
}

void space_swap_in(struct space *space, int on)
{
	space->swap_in = on;
}

struct space_missed space_missed(const struct space *space)
{
	return space ? space->missed : (struct space_missed){0};
}

int space_error(const struct space *space, int err)
{
	if (!err || !space || !space->missed.swapped || err == -ESRCH)
		return err;
	return error_set(-ENODATA,
			 "%" PRIu64 " KiB of its memory that had to be read are swapped out, and "
			 "reading brings them back: --swap-in allows it",
			 space->missed.swapped >> 10);
}

static int missed_count(struct space *space, uint64_t address, enum space_page what)
{
	uint64_t page = address & ~(uint64_t)(SPACE_PAGE - 1);
	int err;

	if (address_set_has(&space->counted, page))
		return 0;
	err = address_set_add(&space->counted, page);
	/* Beyond the limit of the set a page may be counted twice. */
	if (err && err != -E2BIG)
		return err;
	*(what == SPACE_SWAPPED ? &space->missed.swapped : &space->missed.absent) += SPACE_PAGE;
	return 0;
}

static enum space_page page_judge(const struct space *space, uint64_t entry,
				  const struct view_range *range)
{
	if (range->kind == VIEW_NONE)
		return SPACE_NONE;
	/* Of shared memory, a page that is no file's is a device's. */
	if (entry & PAGEMAP_PRESENT)
		return range->kind == VIEW_SHARED && !(entry & PAGEMAP_FILE) ? SPACE_NONE
									     : SPACE_MEMORY;
	if (entry & PAGEMAP_SWAPPED)
		return space->swap_in ? SPACE_MEMORY : SPACE_SWAPPED;
	return range->kind == VIEW_PRIVATE ? SPACE_ZERO
	       : range->kind == VIEW_FILE  ? SPACE_FILE
					   : SPACE_ABSENT;
}

/* Reads the pages' words; zeros behind the end of the address space. 0; -ESRCH; -errno. */
static int entries_read(const struct space *space, uint64_t address, size_t pages,
			uint64_t *entries)
{
	int swapped = 1;

	for (unsigned int look = 0; look < LOOKS && swapped; look++) {
		struct patience patience;
		int err = patience_begin(&patience, space->pid);
		ssize_t got;
		uint8_t byte;

		if (err)
			return err;
		got = pagemap_read(space->pagemap, address, entries, pages);
		patience_end(&patience);
		if (got < 0)
			return (int)got;
		if (!got && mem_read(space, address, &byte, 1) == -ESRCH)
			return -ESRCH;
		memset(entries + got, 0, (pages - (size_t)got) * sizeof(*entries));
		swapped = 0;
		for (size_t i = 0; i < pages; i++)
			swapped |= (entries[i] & PAGEMAP_SWAPPED) != 0;
	}
	return 0;
}

int space_pages(struct space *space, uint64_t address, size_t pages, uint8_t *what)
{
	uint64_t entries[SPACE_PAGES], at = address & ~(uint64_t)(SPACE_PAGE - 1);
	struct view_range range = {0};
	int err;

	if (!space)
		return -ESRCH;
	if (pages > SPACE_PAGES)
		return -EINVAL;
	err = entries_read(space, at, pages, entries);
	for (size_t i = 0; i < pages && !err; i++, at += SPACE_PAGE) {
		int exists = (entries[i] & (PAGEMAP_PRESENT | PAGEMAP_SWAPPED)) != 0;

		if (at >= range.end || at < range.start || (exists && range.kind == VIEW_NONE))
			err = view_find(&space->view, at, exists, &range);
		what[i] = err ? SPACE_NONE : (uint8_t)page_judge(space, entries[i], &range);
	}
	return err;
}

/* Reads a run of pages of one kind, or parts of its first and last one. */
static int run_read(struct space *space, enum space_page what, uint64_t address, uint8_t *out,
		    size_t bytes)
{
	int err = 0;

	switch (what) {
	case SPACE_ZERO:
		memset(out, 0, bytes);
		return 0;
	case SPACE_MEMORY:
		return mem_read(space, address, out, bytes);
	case SPACE_NONE:
		return -EFAULT;
	default:
		break;
	}
	while (bytes && (!err || err == -EFAULT)) {
		size_t left = SPACE_PAGE - address % SPACE_PAGE,
		       piece = left < bytes ? left : bytes;
		int failed = what == SPACE_FILE ? view_file_read(&space->view, address, out, piece)
						: -EFAULT;

		if (failed)
			err = failed == -EFAULT ? missed_count(space, address, what) ?: failed
						: failed;
		address += piece;
		out += piece;
		bytes -= piece;
	}
	return err;
}

/* Reads from at most SPACE_PAGES pages. */
static int piece_read(struct space *space, uint64_t address, uint8_t *out, size_t bytes)
{
	uint64_t base = address & ~(uint64_t)(SPACE_PAGE - 1), end = address + bytes, next;
	size_t pages = (end - base + SPACE_PAGE - 1) / SPACE_PAGE;
	uint8_t what[SPACE_PAGES];
	int err = space_pages(space, address, pages, what);

	for (size_t i = 0, last; i < pages && !err; i = last) {
		for (last = i + 1; last < pages && what[last] == what[i]; last++)
			;
		next = last < pages ? base + last * SPACE_PAGE : end;
		err = run_read(space, what[i], address, out, next - address);
		out += next - address;
		address = next;
	}
	return err;
}

/* Looks at the pages of a window. 0; errors of entries_read(). */
static int seen_look(struct space *space, struct seen *seen, uint64_t window, uint64_t now_ns)
{
	uint64_t entries[SEEN_PAGES];
	int err = entries_read(space, window * SEEN_PAGES * SPACE_PAGE, SEEN_PAGES, entries);

	*seen = (struct seen){.window = window + 1, .time_ns = now_ns};
	for (unsigned int i = 0; i < SEEN_PAGES && !err; i++)
		seen->there |= (uint64_t)((entries[i] & PAGEMAP_PRESENT) != 0) << i;
	return err;
}

/* 1: address is on a page of private memory that is there, by a look of just now. 0; -errno. */
static int is_there(struct space *space, uint64_t address)
{
	uint64_t page = address / SPACE_PAGE, window = page / SEEN_PAGES;
	uint64_t now_ns = clock_ns(CLOCK_MONOTONIC_COARSE);
	struct view_range range;
	struct seen *seen;
	int err = 0;

	if (!space->seen)
		space->seen = calloc(SEEN_COUNT, sizeof(*space->seen));
	if (!space->seen)
		return -ENOMEM;
	seen = &space->seen[window % SEEN_COUNT];
	if (seen->window != window + 1 || now_ns - seen->time_ns > SEEN_NS)
		err = seen_look(space, seen, window, now_ns);
	if (err || !(seen->there >> page % SEEN_PAGES & 1))
		return err;
	err = view_find(&space->view, address, 1, &range);
	return err ?: range.kind == VIEW_PRIVATE || range.kind == VIEW_FILE;
}

int space_read(struct space *space, uint64_t address, void *out, size_t bytes)
{
	const size_t most = (size_t)SPACE_PAGES * SPACE_PAGE;
	uint8_t *to = out;
	int err = 0;

	if (!space)
		return -ESRCH;
	if (bytes && (address >= ADDRESS_END || bytes > ADDRESS_END - address))
		return -EFAULT;
	if (bytes && bytes <= SPACE_PAGE - address % SPACE_PAGE) {
		int there = is_there(space, address);

		if (there)
			return there < 0 ? there : mem_read(space, address, out, bytes);
	}
	while (bytes && !err) {
		size_t left = most - address % SPACE_PAGE, piece = left < bytes ? left : bytes;

		err = piece_read(space, address, to, piece);
		address += piece;
		to += piece;
		bytes -= piece;
	}
	return err;
}

int space_read_u64(struct space *space, uint64_t address, uint64_t *out)
{
	return space_read(space, address, out, sizeof(*out));
}

/* Reads at most to the end of a page at a time: the next page may not be mapped. */
int space_read_text(struct space *space, uint64_t address, char *out, size_t bytes)
{
	size_t have = 0;
	int err = 0;

	while (!err && have < bytes - 1 && strnlen(out, have) == have) {
		size_t more = bytes - 1 - have, page = SPACE_PAGE - (address + have) % SPACE_PAGE;

		if (more > page)
			more = page;
		err = space_read(space, address + have, out + have, more);
		have += err ? 0 : more;
	}
	out[have] = 0;
	return err;
}

int memory_read(pid_t pid, uint64_t address, void *out, size_t bytes)
{
	struct space *space;
	int err = space_open(&space, pid);

	if (err)
		return err;
	err = space_read(space, address, out, bytes);
	space_close(space);
	return err;
}
