/* SPDX-License-Identifier: Apache-2.0 */
#include "proc/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

#include "proc/pagemap.h"
#include "proc/patience.h"
#include "proc/process.h"
#include "util/address_set.h"
#include "util/clock.h"
#include "util/descriptor.h"
#include "util/error.h"

/* --- memory view ------------------------------------------------------------------------------ */

/* What the addresses of a process belong to, and the files mapped there. */

enum view_kind {
	VIEW_NONE,    /* not mapped, not readable, a device, the kernel's own ("[vvar]") */
	VIEW_PRIVATE, /* private memory without a file */
	VIEW_FILE,    /* a private mapping of a file */
	VIEW_SHARED,  /* shared memory, a shared mapping of a file */
};

struct view_range {
	uint64_t start, end;
	uint8_t kind; /* enum view_kind */
};

#define VIEW_FILES 4u

/* All zeros but the pid: nothing is known. */
struct memory_view {
	pid_t pid;
	struct view_range *ranges; /* by address, neighbours of a kind are one */
	size_t count;
	uint64_t read_ns;     /* when they were read; 0: never */
	unsigned int renewed; /* how often before they were a second old */
	/* files that were read last */
	struct view_file {
		uint64_t start, end, offset;
		int fd; /* -1: it is not to be read */
	} files[VIEW_FILES];
	unsigned int file_count, file_next;
};

static void view_drop(struct memory_view *view);

#define PAGE       4096u
#define AGE_NS     1000000000ull
#define RENEWALS   32u /* within that time: a target may map and unmap as fast as it can */
#define ZERO_FILE  "/dev/zero"
#define SHARED_DIR "/dev/shm/"

static int starts(const char *text, const char *with)
{
	return !strncmp(text, with, strlen(with));
}

/* Files below /sys are registers of devices, too (PCI's resource0). */
static bool is_device(const char *path)
{
	return starts(path, "/sys/") ||
	       (starts(path, "/dev/") && !starts(path, SHARED_DIR) && !starts(path, ZERO_FILE));
}

static enum view_kind kind_of(const struct process_map *map)
{
	if (!map->readable)
		return VIEW_NONE;
	if (map->inode)
		return is_device(map->path)           ? VIEW_NONE
		       : map->shared                  ? VIEW_SHARED
		       : starts(map->path, ZERO_FILE) ? VIEW_PRIVATE
						      : VIEW_FILE;
	if (map->path[0] == '[' && !starts(map->path, "[heap]") && !starts(map->path, "[stack") &&
	    !starts(map->path, "[anon"))
		return VIEW_NONE;
	return map->shared ? VIEW_SHARED : VIEW_PRIVATE;
}

static int view_read(struct memory_view *view, uint64_t now_ns)
{
	struct view_range *ranges;
	struct process_maps maps;
	size_t count = 0;
	int err = process_maps_read(view->pid, &maps);

	if (err)
		return err;
	ranges = calloc(maps.count + 1, sizeof(*ranges));
	for (size_t i = 0; ranges && i < maps.count; i++) {
		const struct process_map *map = &maps.entries[i];
		enum view_kind kind = kind_of(map);

		if (count && ranges[count - 1].end == map->start && ranges[count - 1].kind == kind)
			ranges[count - 1].end = map->end;
		else if (kind != VIEW_NONE)
			ranges[count++] = (struct view_range){map->start, map->end, kind};
	}
	process_maps_free(&maps);
	if (!ranges)
		return -ENOMEM;
	/* Files may be mapped elsewhere now. */
	view_drop(view);
	view->ranges = ranges;
	view->count = count;
	view->read_ns = now_ns;
	return 0;
}

static int view_renew(struct memory_view *view)
{
	uint64_t now_ns = clock_ns(CLOCK_MONOTONIC_COARSE);
	unsigned int renewed = now_ns - view->read_ns < AGE_NS ? view->renewed + 1 : 0;
	int err = view_read(view, now_ns);

	/* We may have lost the right to read them since. */
	if (err == -EPERM && view->read_ns)
		err = 0;
	view->read_ns = now_ns;
	view->renewed = renewed;
	return err;
}

static struct view_range range_at(const struct memory_view *view, uint64_t address)
{
	size_t low = 0, high = view->count;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (view->ranges[middle].end <= address)
			low = middle + 1;
		else
			high = middle;
	}
	if (low == view->count)
		return (struct view_range){address, UINT64_MAX, VIEW_NONE};
	if (view->ranges[low].start > address)
		return (struct view_range){address, view->ranges[low].start, VIEW_NONE};
	return view->ranges[low];
}

/*
 * The range that address is in; of addresses without a map, kind VIEW_NONE and the end. exists: a
 * page is there, so it must be in a map: if it is in none that is known, they are read again. 0;
 * errors of process_maps_read().
 */
static int view_find(struct memory_view *view, uint64_t address, int exists, struct view_range *out)
{
	int err = 0;

	if (!view->read_ns || clock_ns(CLOCK_MONOTONIC_COARSE) - view->read_ns > AGE_NS)
		err = view_renew(view);
	if (!err)
		*out = range_at(view, address);
	if (!err && exists && out->kind == VIEW_NONE && view->renewed < RENEWALS) {
		err = view_renew(view);
		*out = err ? *out : range_at(view, address);
	}
	return err;
}

static void file_add(struct memory_view *view, const struct process_map *map)
{
	struct view_file *file = &view->files[view->file_next];

	if (view->file_count > view->file_next && file->fd >= 0)
		close(file->fd);
	*file = (struct view_file){map->start, map->end, map->offset,
				   process_map_open(view->pid, map)};
	view->file_next = (view->file_next + 1) % VIEW_FILES;
	view->file_count += view->file_count < VIEW_FILES;
}

static const struct view_file *file_known(const struct memory_view *view, uint64_t address)
{
	for (unsigned int i = 0; i < view->file_count; i++)
		if (address >= view->files[i].start && address < view->files[i].end)
			return &view->files[i];
	return NULL;
}

static int file_find(struct memory_view *view, uint64_t address, const struct view_file **out)
{
	struct process_maps maps;

	*out = file_known(view, address);
	if (*out)
		return 0;
	int err = process_maps_read(view->pid, &maps);
	if (err)
		return err == -EPERM ? -EFAULT : err;
	for (size_t i = 0; i < maps.count; i++) {
		const struct process_map *map = &maps.entries[i];

		if (address >= map->start && address < map->end && kind_of(map) == VIEW_FILE)
			file_add(view, map);
	}
	process_maps_free(&maps);
	*out = file_known(view, address);
	return *out ? 0 : -EFAULT;
}

/*
 * Reads from the file that is mapped at address, up to the end of a page; what of it is behind the
 * file's end is zero. 0; -EFAULT: the page is behind it, or the file cannot be read; -ESRCH;
 * -ENOMEM.
 */
static int view_file_read(struct memory_view *view, uint64_t address, void *out, size_t bytes)
{
	const struct view_file *file;
	int err = file_find(view, address, &file);
	uint64_t page = address & ~(uint64_t)(PAGE - 1);
	uint8_t content[PAGE] = {0};

	if (err)
		return err;
	if (file->fd < 0 || bytes > PAGE - (address - page) ||
	    pread(file->fd, content, PAGE, (off_t)(file->offset + (page - file->start))) <= 0)
		return -EFAULT;
	memcpy(out, content + (address - page), bytes);
	return 0;
}

/* Forgets all. */
static void view_drop(struct memory_view *view)
{
	for (unsigned int i = 0; i < view->file_count; i++)
		descriptor_close(view->files[i].fd);
	free(view->ranges);
	*view = (struct memory_view){.pid = view->pid};
}

/* --- memory ----------------------------------------------------------------------------------- */

#define LOOKS       2u /* at a page that seems swapped out: one that is being moved does, too */
#define ADDRESS_END (1ull << 63) /* above are the kernel's */

/*
 * Small reads go back to the same pages: for a few milliseconds pages that were there count as
 * there. One look at 64 pages takes as long as at one.
 */
#define SEEN_PAGES 64u
#define SEEN_COUNT 256u /* direct-mapped */
#define SEEN_NS    10000000ull

struct memory_seen {
	uint64_t window; /* number of the pages, from 1 on; 0: none */
	uint64_t there;  /* a bit for each page */
	uint64_t time_ns;
};

struct space {
	pid_t pid;
	unsigned int users;
	int mem, pagemap; /* descriptors */
	int swap_in;
	struct memory_view view;
	struct memory_seen *seen;   /* SEEN_COUNT; NULL: no small read so far */
	struct address_set counted; /* pages in `missed` */
	struct space_missed missed;
};

/* 0; -ESRCH; -EPERM; -errno. */
static int mem_open(pid_t pid)
{
	char path[40];

	snprintf(path, sizeof(path), "/proc/%d/mem", (int)pid);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd >= 0)
		return fd;
	return errno == ENOENT ? -ESRCH : errno == EACCES ? -EPERM : error_errno();
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

		if (err)
			return err;
		ssize_t got = pread(space->mem, out, bytes, (off_t)address);
		err = errno;
		patience_end(&patience);
		errno = err;
		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			return !got ? -ESRCH : errno == EIO ? -EFAULT : error_errno();
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
	descriptor_close(space->mem);
	descriptor_close(space->pagemap);
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

	if (address_set_has(&space->counted, page))
		return 0;
	int err = address_set_add(&space->counted, page);
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
		uint8_t byte;

		if (err)
			return err;
		ssize_t got = pagemap_read(space->pagemap, address, entries, pages);
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

	if (!space)
		return -ESRCH;
	if (pages > SPACE_PAGES)
		return -EINVAL;
	int err = entries_read(space, at, pages, entries);
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
static int seen_look(struct space *space, struct memory_seen *seen, uint64_t window,
		     uint64_t now_ns)
{
	uint64_t entries[SEEN_PAGES];
	int err = entries_read(space, window * SEEN_PAGES * SPACE_PAGE, SEEN_PAGES, entries);

	*seen = (struct memory_seen){.window = window + 1, .time_ns = now_ns};
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
	int err = 0;

	if (!space->seen)
		space->seen = calloc(SEEN_COUNT, sizeof(*space->seen));
	if (!space->seen)
		return -ENOMEM;
	struct memory_seen *seen = &space->seen[window % SEEN_COUNT];
	if (seen->window != window + 1 || now_ns - seen->time_ns > SEEN_NS)
		err = seen_look(space, seen, window, now_ns);
	if (err || !(seen->there >> page % SEEN_PAGES & 1))
		return err;
	return view_find(&space->view, address, 1, &range)
		       ?: range.kind == VIEW_PRIVATE || range.kind == VIEW_FILE;
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
