/* SPDX-License-Identifier: Apache-2.0 */
#include "inspect/rss/sharing.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "proc/pagemap.h"
#include "proc/process.h"
#include "util/array.h"
#include "util/cleanup.h"
#include "util/descriptor.h"
#include "util/error.h"
#include "util/sorted.h"

#define MAP_BYTES_MAX (1ull << 36) /* of a map: looked at */
#define PAGES_MAX     (1u << 25)   /* shared pages of all processes: 512 MiB of ours */
#define COUNTS        512u         /* of kpagecount, read at once */

struct sharing_files {
	pid_t pids[SHARING_PROCESSES];
	int pagemaps[SHARING_PROCESSES]; /* -1: gone */
	size_t count;
	int counts; /* kpagecount; -1: not to be had */
};

/* A page that is mapped more than once, of a process. */
struct shared_page {
	uint64_t number : 55, is_file : 1, process : 8;
};

struct sharing_pages {
	struct shared_page *items;
	size_t count, capacity;
	uint64_t *entries; /* PAGEMAP_PIECE */
	size_t process;    /* whose pages are added */
	struct sharing *out;
};

int sharing_open(struct sharing_files **out, const pid_t *pids, size_t count)
{
	if (count > SHARING_PROCESSES)
		return error_set(-E2BIG, "of more than %u processes", SHARING_PROCESSES);
	struct sharing_files *files = calloc(1, sizeof(*files));
	if (!files)
		return -ENOMEM;
	for (size_t i = 0; i < count; i++) {
		int fd = pagemap_open(pids[i]);

		files->pids[i] = pids[i];
		files->pagemaps[i] = fd < 0 ? -1 : fd;
	}
	files->count = count;
	files->counts = open("/proc/kpagecount", O_RDONLY | O_CLOEXEC);
	*out = files;
	return 0;
}

void sharing_close(struct sharing_files *files)
{
	if (!files)
		return;
	for (size_t i = 0; i < files->count; i++)
		descriptor_close(files->pagemaps[i]);
	descriptor_close(files->counts);
	free(files);
}

static int entry_add(struct sharing_pages *pages, uint64_t entry)
{
	if ((entry & (PAGEMAP_PRESENT | PAGEMAP_SWAPPED | PAGEMAP_OWN)) != PAGEMAP_PRESENT)
		return 0;
	if (!(entry & PAGEMAP_NUMBER)) {
		pages->out->is_hidden = true;
		return 0;
	}
	if (pages->count == PAGES_MAX) {
		pages->out->left_out += PAGEMAP_PAGE;
		return 0;
	}
	int err = ARRAY_GROW(pages->items, pages->capacity, pages->count);
	if (!err)
		pages->items[pages->count++] = (struct shared_page){
			entry & PAGEMAP_NUMBER, (entry & PAGEMAP_FILE) != 0, pages->process & 0xff};
	return err;
}

static int entries_add(void *context, uint64_t address, const uint64_t *entries, size_t count)
{
	int err = 0;

	(void)address;
	for (size_t i = 0; i < count && !err; i++)
		err = entry_add(context, entries[i]);
	return err;
}

/* A process that ends meanwhile has no further pages. */
static int map_pages_read(struct sharing_pages *pages, int pagemap, const struct process_map *map)
{
	uint64_t end = lesser(map->end, map->start + MAP_BYTES_MAX);

	/* The kernel's own map at the end of the address space has no page tables. */
	if (map->start >> 63)
		return 0;
	pages->out->left_out += map->end - end;
	int err = pagemap_each(pagemap, map->start, end, pages->entries, entries_add, pages);
	return err == -ENOMEM ? err : 0;
}

static int process_pages_read(struct sharing_pages *pages, const struct sharing_files *files,
			      size_t process)
{
	struct process_maps maps;
	int err = 0;

	if (files->pagemaps[process] < 0 || process_maps_read(files->pids[process], &maps))
		return 0;
	pages->process = process;
	for (size_t i = 0; i < maps.count && !err; i++)
		err = map_pages_read(pages, files->pagemaps[process], &maps.entries[i]);
	process_maps_free(&maps);
	return err;
}

/* How often the kernel has mapped pages, by number; asked in the order of the numbers. */
struct page_counts {
	int fd;
	uint64_t first, counts[COUNTS];
	size_t count;
};

/* 0: it is not known, or the page is the one of zeros, which is nobody's. */
static uint64_t page_count(struct page_counts *counts, uint64_t number)
{
	if (number - counts->first >= counts->count) {
		ssize_t got = pread(counts->fd, counts->counts, sizeof(counts->counts),
				    (off_t)(number * sizeof(counts->counts[0])));

		counts->first = number;
		counts->count = got > 0 ? (size_t)got / sizeof(counts->counts[0]) : 0;
	}
	return number - counts->first < counts->count ? counts->counts[number - counts->first] : 0;
}

static struct sharing_set *set_find(struct sharing *out, const struct sharing_set *set)
{
	for (size_t i = 0; i < out->count; i++)
		if (!memcmp(out->sets[i].members, set->members, sizeof(set->members)))
			return &out->sets[i];
	if (out->count == SHARING_SETS) {
		out->sets[SHARING_SETS] = (struct sharing_set){0};
		out->has_rest = true;
		out->count++;
	} else if (out->count < SHARING_SETS) {
		out->sets[out->count] = *set;
		return &out->sets[out->count++];
	}
	return &out->sets[SHARING_SETS];
}

static void set_add(struct sharing *out, const struct sharing_set *page)
{
	struct sharing_set *set = set_find(out, page);

	set->anonymous += page->anonymous;
	set->file += page->file;
	set->outside += page->outside;
}

/*
 * Adds a page that some of the processes have; returns how many entries it takes. Two that took the
 * looks at different moments may disagree: a page that only one has is private by now.
 */
static size_t page_add(const struct sharing_pages *pages, size_t first, struct page_counts *counts,
		       struct sharing_set *set)
{
	const struct shared_page *page = &pages->items[first];
	uint64_t mapped = page_count(counts, page->number), bytes = PAGEMAP_PAGE;
	size_t last = first;

	*set = (struct sharing_set){0};
	for (; last < pages->count && pages->items[last].number == page->number; last++) {
		size_t process = pages->items[last].process;
		uint64_t bit = 1ull << process % 64;

		set->count += !(set->members[process / 64] & bit);
		set->members[process / 64] |= bit;
	}
	bytes = counts->fd >= 0 && !mapped ? 0 : bytes;
	set->anonymous = page->is_file ? 0 : bytes;
	set->file = page->is_file ? bytes : 0;
	set->outside = mapped > last - first ? bytes : 0;
	return last - first;
}

static void sets_make(const struct sharing_pages *pages, int counts_fd, struct sharing *out)
{
	struct page_counts counts = {.fd = counts_fd};
	struct sharing_set set;

	for (size_t i = 0; i < pages->count;) {
		i += page_add(pages, i, &counts, &set);
		if (set.anonymous + set.file)
			set_add(out, &set);
	}
}

static int page_compare(const void *a, const void *b)
{
	const struct shared_page *x = a, *y = b;

	return CMP(x->number, y->number);
}

static int set_compare(const void *a, const void *b)
{
	const struct sharing_set *x = a, *y = b;

	return CMP(y->anonymous + y->file, x->anonymous + x->file)
		       ?: memcmp(x->members, y->members, sizeof(x->members));
}

int sharing_read(struct sharing_files *files, struct sharing *out)
{
	struct sharing_pages pages = {.out = out};
	int err = 0;

	*out = (struct sharing){.is_hidden = files->counts < 0};
	pages.entries = calloc(PAGEMAP_PIECE, sizeof(*pages.entries));
	if (!pages.entries)
		return -ENOMEM;
	for (size_t i = 0; i < files->count && !err && !out->is_hidden; i++)
		err = process_pages_read(&pages, files, i);
	if (!err && !out->is_hidden) {
		qsort(pages.items, pages.count, sizeof(*pages.items), page_compare);
		sets_make(&pages, files->counts, out);
		qsort(out->sets, lesser(out->count, SHARING_SETS), sizeof(*out->sets), set_compare);
	}
	free(pages.items);
	free(pages.entries);
	return err;
}
