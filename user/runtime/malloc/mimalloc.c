/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Model (include/mimalloc/types.h). A segment, 32 MiB and aligned to it unless it holds one huge
 * block, is divided into slices of 64 KiB. It begins with the descriptions of all slices; that of a
 * page's first slice describes the page; slices that no page has are described as pages without a
 * block size. Blocks that other threads returned to the page's heap (thread_delayed_free) still
 * count as used in their page (mimalloc_pages.h).
 *
 * No variable is needed: segments are looked for at the addresses that they can have. The cookies
 * of all differ from their addresses by the same bits, which are in a variable of the file that the
 * allocator is in, and the slices of each add up to it. A layout is proven if with it pages reserve
 * as many blocks as fit. (CPython without the GIL has segments of another layout;
 * runtime/cpython/heap_segments.c reads them by the threads that own them.)
 */
#include "runtime/malloc/mimalloc.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "proc/memory.h"
#include "runtime/malloc/mimalloc_pages.h"
#include "runtime/malloc/reader.h"
#include "runtime/malloc/runs.h"
#include "runtime/malloc/statics.h"
#include "util/array.h"
#include "util/error.h"
#include "util/interrupt.h"
#include "util/sorted.h"
#include "util/word.h"

#define SLICE         65536u
#define SEGMENT       (1ull << 25)
#define SLICES        (SEGMENT / SLICE)
#define HEAD_MAX      49536u /* bytes of a segment's descriptions */
#define KIND_HUGE     1u
#define HUGE_BLOCK    (1ull << 31) /* a size of 32 bits that stands for all larger ones */
#define PAGE_BYTES    (8 * SLICE)  /* of a page with more than one block */
#define FLAGS         3u           /* in thread_free */
#define PROBES_OPEN   4096u
#define SEGMENTS_MAX  (1u << 17) /* 4 TiB */
#define HEAPS_MAX     65536u
#define RETURNED_MAX  (1u << 22)
#define SECRETS_MAX   8u
#define TRIES         4
#define PAGES_PROVING 64u

/* Offsets, from DWARF of the releases. */
struct mimalloc_layout {
	const char *version;
	uint32_t head; /* bytes of a segment's descriptions */
	uint32_t used, cookie, count, info, kind, entries, thread, slices; /* in it */
	uint32_t page; /* bytes of a page's description */
	/* in it; block_bytes: of the size of a block, 4, or 8 and then `used` has 2 */
	uint32_t block, block_bytes, local, used_blocks, thread_free, heap;
	uint32_t start;       /* where its first block is; 0: it follows from the size */
	uint32_t delayed;     /* in a heap */
	uint32_t first_bytes; /* in front of blocks up to 1 KiB; 0: some blocks */
	bool keeps;           /* a collection keeps pages of segments that have others in use */
};

static const struct mimalloc_layout layouts[] = {
	{"2.0", 41304, 208, 216, 224, 232, 240, 248,  256, 264, 80,
	 28,    4,     32,  24,  40,  48,  0,   2840, 384, true},
	{"2.1", 41304, 208, 216, 224, 232, 240, 248,  256, 264, 80,
	 28,    4,     32,  24,  40,  48,  0,   2840, 0,   true},
	{"2.1", 49512, 208, 216, 224, 232, 240, 248, 256, 264,  96,
	 40,    8,     24,  32,  56,  64,  48,  8,   0,   false},
	{"2.2 to 2.4", 49536, 216, 224, 248, 256, 264, 272, 280, 288,  96,
	 40,           8,     24,  32,  56,  64,  48,  8,   0,   false},
};

/* The same in all of them. */
#define PAGE_COUNT    0u
#define PAGE_OFFSET   4u
#define PAGE_CAPACITY 10u
#define PAGE_RESERVED 12u
#define PAGE_FREE     16u

struct mimalloc {
	struct space *space; /* shared */
	struct malloc_reader *reader;
	const struct mimalloc_layout *layout;
	uint64_t secret;   /* a cookie ^ its address */
	uint64_t variable; /* address of it in the file */
};

/* A block that another thread returned to a heap. */
struct mimalloc_returned {
	uint64_t address, next;
};

struct mimalloc_walk {
	struct mimalloc *mimalloc;
	struct mimalloc_pages pages;
	uint64_t *segments, *heaps; /* by address */
	size_t segment_count, segment_capacity, heap_count, heap_capacity;
	struct mimalloc_returned *returned; /* by address */
	size_t returned_count, returned_capacity;
	uint64_t address; /* of the segment */
	uint8_t *head;    /* HEAD_MAX */
	/* what is free in the segment: slices without a page, and pages without a block in use */
	enum allocator_kind slices_kind, pages_kind;
};

static uint32_t u16_at(const uint8_t *bytes)
{
	return bytes[0] | (uint32_t)bytes[1] << 8;
}

/* --- segments --------------------------------------------------------------------------------- */

/* Bytes of the segment whose head this is, by its sizes; 0: it is none. */
static uint64_t segment_bytes(const struct mimalloc_layout *at, const uint8_t *head)
{
	uint64_t info = u64_at(head + at->info), count = u64_at(head + at->count);
	uint64_t entries = u64_at(head + at->entries);
	bool is_huge = u32_at(head + at->kind) == KIND_HUGE;

	if (info != (at->head + SLICE - 1) / SLICE || info >= entries || entries > SLICES ||
	    entries > count || count > 1u << 24 || (!is_huge && count != SLICES))
		return 0;
	return count * SLICE;
}

/* The slice with that number, as its segment describes it; the number of slices, 0: damaged. */
static uint64_t slice_describe(const struct mimalloc_layout *at, const uint8_t *head,
			       uint64_t address, uint64_t number, struct mimalloc_page *page)
{
	const uint8_t *slice = head + at->slices + number * at->page;
	uint64_t count = u32_at(slice + PAGE_COUNT), left = u64_at(head + at->count) - number;
	uint64_t bytes =
		at->block_bytes == 8 ? u64_at(slice + at->block) : u32_at(slice + at->block);

	*page = (struct mimalloc_page){
		.start = address + number * SLICE,
		.block_bytes = bytes,
		.capacity = u16_at(slice + PAGE_CAPACITY),
		.reserved = u16_at(slice + PAGE_RESERVED),
		.used = at->block_bytes == 8 ? u16_at(slice + at->used_blocks)
					     : u32_at(slice + at->used_blocks),
		.lists = {u64_at(slice + PAGE_FREE), u64_at(slice + at->local),
			  u64_at(slice + at->thread_free) & ~(uint64_t)FLAGS},
		.heap = u64_at(slice + at->heap)};
	if (!count || count > left || u32_at(slice + PAGE_OFFSET))
		return 0;
	page->end = page->start + count * SLICE;
	page->blocks = page->start;
	if (at->start)
		page->blocks = u64_at(slice + at->start);
	else if (at->first_bytes)
		page->blocks += bytes <= 1024 ? at->first_bytes : 0;
	else
		page->blocks += bytes <= 64 ? 3 * bytes : bytes <= 512 ? bytes : 0;
	if (at->block_bytes == 4 && bytes == HUGE_BLOCK)
		page->block_bytes = page->end - page->start;
	return count;
}

/* How many pages of a segment agree with a layout; 0: its slices do not add up. */
static uint32_t segment_prove(const struct mimalloc_layout *at, const uint8_t *head,
			      uint64_t address, uint32_t *wrong)
{
	uint64_t entries = u64_at(head + at->entries), i = 0, count;
	uint32_t fitting = 0;

	for (; i < entries; i += count) {
		struct mimalloc_page page;

		count = slice_describe(at, head, address, i, &page);
		if (!count)
			return 0;
		if (!i || !page.block_bytes || !page.capacity)
			continue;
		fitting += mimalloc_page_fits(&page, PAGE_BYTES);
		*wrong += !mimalloc_page_fits(&page, PAGE_BYTES);
	}
	return i == entries || u32_at(head + at->kind) == KIND_HUGE ? fitting : 0;
}

static bool is_anonymous(const struct process_map *map)
{
	return map->writable && map->readable && !map->inode &&
	       (!map->path[0] || !strncmp(map->path, "[anon", 5));
}

/* Returns non-zero to stop. */
typedef int (*probe_fn)(uint64_t address, void *context);

/* Shows all addresses at which there can be a segment. */
static int addresses_probe(const struct process_maps *maps, uint32_t most, probe_fn probe,
			   void *context)
{
	int err = 0;

	for (size_t i = 0; i < maps->count && !err; i++) {
		const struct process_map *map = &maps->entries[i];
		uint64_t at = (map->start + SEGMENT - 1) / SEGMENT * SEGMENT;

		for (; is_anonymous(map) && at < map->end && map->end - at >= SLICE && most && !err;
		     at += SEGMENT, most--)
			err = probe(at, context);
	}
	return err;
}

struct mimalloc_finding {
	struct mimalloc *mimalloc;
	const struct mimalloc_layout *layout;
	uint8_t *head;
	uint64_t secrets[SECRETS_MAX];
	uint32_t counts[SECRETS_MAX], secret_count; /* counts: of segments */
	uint32_t fitting, wrong;                    /* pages */
};

static int segment_try(uint64_t address, void *context)
{
	struct mimalloc_finding *finding = context;
	const struct mimalloc_layout *at = finding->layout;
	uint32_t i = 0, fitting, wrong = 0;
	int err = reader_read(finding->mimalloc->reader, address, finding->head, at->head, 0);

	if (err || !segment_bytes(at, finding->head))
		return space_is_fatal(err) ? err : 0;
	uint64_t secret = u64_at(finding->head + at->cookie) ^ address;
	fitting = segment_prove(at, finding->head, address, &wrong);
	while (i < finding->secret_count && finding->secrets[i] != secret)
		i++;
	if (!fitting || i == SECRETS_MAX)
		return 0;
	finding->fitting += fitting;
	finding->wrong += wrong;
	finding->secrets[i] = secret;
	finding->counts[i]++;
	finding->secret_count += i == finding->secret_count;
	return 0;
}

static int secret_look(uint64_t address, const uint8_t *bytes, size_t size, void *context)
{
	const struct mimalloc_finding *finding = context;

	for (size_t at = 0; at + 8 <= size; at += 8) {
		if (u64_at(bytes + at) != finding->secrets[0])
			continue;
		finding->mimalloc->variable = address + at;
		return 1;
	}
	return 0;
}

/* Which file has the secret among its variables. 0; -ENOENT; -errno. */
static int secret_find(struct mimalloc_finding *finding, const struct process_maps *maps,
		       char version[ALLOCATOR_VERSION])
{
	struct statics statics;
	size_t at = 0;

	while (statics_next(maps, &at, &statics)) {
		int got = statics_search(finding->mimalloc->space, &statics, secret_look, finding);

		if (got > 0)
			mimalloc_version(finding->layout->version, &statics, version);
		if (got)
			return got < 0 ? got : 0;
	}
	return -ENOENT;
}

/* The secret of most segments comes first. */
static void secrets_order(struct mimalloc_finding *finding)
{
	for (uint32_t i = 1; i < finding->secret_count; i++)
		if (finding->counts[i] > finding->counts[0]) {
			finding->counts[0] = finding->counts[i];
			finding->secrets[0] = finding->secrets[i];
		}
}

/* 0: it is proven; -ENOENT; -errno. */
static int layout_try(struct mimalloc *mimalloc, const struct mimalloc_layout *layout,
		      const struct process_maps *maps, char version[ALLOCATOR_VERSION])
{
	struct mimalloc_finding finding = {
		.mimalloc = mimalloc, .layout = layout, .head = malloc(HEAD_MAX)};
	int err =
		finding.head ? addresses_probe(maps, PROBES_OPEN, segment_try, &finding) : -ENOMEM;

	free(finding.head);
	/* Some pages may have been read while they changed. */
	if (!err && (!finding.fitting || finding.wrong > finding.fitting / 16))
		err = -ENOENT;
	if (err)
		return err;
	secrets_order(&finding);
	err = secret_find(&finding, maps, version);
	if (!err) {
		mimalloc->layout = layout;
		mimalloc->secret = finding.secrets[0];
	}
	return err;
}

static bool has_library(const struct process_maps *maps)
{
	struct statics statics;
	size_t at = 0;

	while (statics_next(maps, &at, &statics))
		if (strstr(statics_file_name(&statics), "libmimalloc"))
			return true;
	return false;
}

static void mimalloc_close(void *state)
{
	struct mimalloc *mimalloc = state;

	reader_free(mimalloc->reader);
	space_close(mimalloc->space);
	free(mimalloc);
}

static int mimalloc_open(void **state, struct space *space, const struct process_maps *maps,
			 char version[ALLOCATOR_VERSION])
{
	struct mimalloc *mimalloc = calloc(1, sizeof(*mimalloc));
	int err = mimalloc ? reader_new(&mimalloc->reader, space) : -ENOMEM;

	if (err) {
		free(mimalloc);
		return err;
	}
	mimalloc->space = space_share(space);
	err = -ENOENT;
	for (size_t i = 0; i < ARRAY_SIZE(layouts) && err == -ENOENT; i++)
		err = layout_try(mimalloc, &layouts[i], maps, version);
	if (err == -ENOENT && has_library(maps))
		err = error_set(-ENOTSUP, "no segments of mimalloc 2.0.9 to 2.4 were found");
	if (err) {
		mimalloc_close(mimalloc);
		return err;
	}
	*state = mimalloc;
	return 0;
}

/* --- walk ------------------------------------------------------------------------------------- */

static int key_add(uint64_t **keys, size_t *count, size_t *capacity, uint64_t key, size_t most)
{
	if (*count == most || (*count && (*keys)[*count - 1] == key))
		return 0;
	int err = array_reserve(keys, capacity, *count, 1, sizeof(**keys));
	if (!err)
		(*keys)[(*count)++] = key;
	return err;
}

/* Bytes of the segment at an address, whose head is read; 0: there is none; -errno. */
static int64_t segment_read(struct mimalloc_walk *walk, uint64_t address)
{
	const struct mimalloc_layout *at = walk->mimalloc->layout;
	int err = reader_read(walk->mimalloc->reader, address, walk->head, at->head, 0);

	walk->address = address;
	if (err)
		return space_is_fatal(err) ? err : 0;
	if ((u64_at(walk->head + at->cookie) ^ address) != walk->mimalloc->secret)
		return 0;
	return (int64_t)segment_bytes(at, walk->head);
}

/* Notes the segment at an address, and the heaps of its pages. */
static int segment_note(uint64_t address, void *context)
{
	struct mimalloc_walk *walk = context;
	const struct mimalloc_layout *at = walk->mimalloc->layout;
	int64_t bytes = segment_read(walk, address);
	int err = bytes < 0 ? (int)bytes : 0;

	if (bytes <= 0)
		return err;
	if (interrupt_pending())
		return error_set(-EINTR, "the walk of mimalloc's heap was ended by a signal");
	err = key_add(&walk->segments, &walk->segment_count, &walk->segment_capacity, address,
		      SEGMENTS_MAX);
	for (uint64_t i = 1; i < u64_at(walk->head + at->entries) && !err; i++) {
		struct mimalloc_page page;

		if (slice_describe(at, walk->head, address, i, &page) && page.block_bytes &&
		    page.heap)
			err = key_add(&walk->heaps, &walk->heap_count, &walk->heap_capacity,
				      page.heap, SEGMENTS_MAX * 8);
	}
	return err;
}

/* Blocks that wait in a heap to be freed by its thread. */
static int heap_read(struct mimalloc_walk *walk, uint64_t heap)
{
	struct malloc_reader *reader = walk->mimalloc->reader;
	uint64_t block, next;
	int err = reader_u64(reader, heap + walk->mimalloc->layout->delayed, &block);

	while (!err && block && walk->returned_count < RETURNED_MAX) {
		err = reader_u64(reader, block, &next)
			      ?: ARRAY_GROW(walk->returned, walk->returned_capacity,
					    walk->returned_count);
		if (!err)
			walk->returned[walk->returned_count++] =
				(struct mimalloc_returned){block, next};
		block = next;
	}
	return space_is_fatal(err) ? err : 0;
}

static int heaps_read(struct mimalloc_walk *walk)
{
	uint64_t last = 0;
	int err = 0;

	if (walk->heap_count)
		qsort(walk->heaps, walk->heap_count, sizeof(*walk->heaps), key_compare);
	for (size_t i = 0;
	     i < walk->heap_count && !err && walk->pages.runs.totals->caches < HEAPS_MAX; i++) {
		if (walk->heaps[i] == last)
			continue;
		last = walk->heaps[i];
		walk->pages.runs.totals->caches++;
		err = heap_read(walk, last);
	}
	SORT_BY(walk->returned, walk->returned_count, address);
	return err;
}

static void returned_mark(void *context, const struct mimalloc_page *page, uint8_t *states)
{
	const struct mimalloc_walk *walk = context;
	size_t i = SORTED_ABOVE(walk->returned, walk->returned_count, address, page->blocks - 1);

	for (; i < walk->returned_count; i++) {
		uint64_t at = walk->returned[i].address - page->blocks, next;

		if (at >= page->capacity * page->block_bytes)
			return;
		if (at % page->block_bytes == 0 &&
		    !reader_u64(walk->mimalloc->reader, walk->returned[i].address, &next) &&
		    next == walk->returned[i].next)
			states[at / page->block_bytes] = ALLOCATOR_FREE;
	}
}

/* Visits the slices from a number on that belong together; *count: so many. */
static int slices_visit(struct mimalloc_walk *walk, uint64_t number, uint64_t *count)
{
	const struct mimalloc_layout *at = walk->mimalloc->layout;
	uint64_t offset = at->slices + number * at->page;
	struct mimalloc_page page;
	int err = -EAGAIN;

	for (int try = 0; try < TRIES && err && !space_is_fatal(err); try++) {
		if (try && reader_read(walk->mimalloc->reader, walk->address + offset,
				       walk->head + offset, at->page, 1))
			break;
		*count = slice_describe(at, walk->head, walk->address, number, &page);
		if (!*count)
			continue;
		if (!page.block_bytes)
			return runs_put(&walk->pages.runs, page.start, page.end - page.start, 1,
					walk->slices_kind);
		/* Taken just now, or about to be returned. */
		if (!page.capacity)
			return runs_put(&walk->pages.runs, page.start, page.end - page.start, 1,
					ALLOCATOR_FREE);
		err = mimalloc_page_mark(&walk->pages, &page, try > 0);
	}
	if (space_is_fatal(err))
		return err;
	if (!err)
		return mimalloc_page_put(&walk->pages, &page, walk->pages_kind);
	walk->pages.runs.totals->cut++;
	*count = *count ?: 1;
	return runs_put(&walk->pages.runs, walk->address + number * SLICE, *count * SLICE, 1,
			ALLOCATOR_UNKNOWN);
}

/* Counts the segment's pages with and without blocks in use; what cannot be read is in use. */
static void pages_count(struct mimalloc_walk *walk, uint32_t *used, uint32_t *unused)
{
	const struct mimalloc_layout *at = walk->mimalloc->layout;
	uint64_t i = u64_at(walk->head + at->info), entries = u64_at(walk->head + at->entries),
		 count;

	*used = *unused = 0;
	for (; i < entries; i += count) {
		struct mimalloc_page page;
		bool is_page = true;

		count = slice_describe(at, walk->head, walk->address, i, &page);
		is_page = !count || (page.block_bytes && page.capacity);
		if (is_page && count && !mimalloc_page_mark(&walk->pages, &page, 0) &&
		    mimalloc_page_is_unused(&walk->pages, &page))
			++*unused;
		else
			*used += is_page;
		count = count ?: 1;
	}
}

/*
 * What a collection returns of a segment. Up to 2.1.2 free slices wait to be returned until a page
 * is freed after their time has come: pages that a collection frees return them, and wait
 * themselves.
 */
static void kinds_choose(struct mimalloc_walk *walk, uint32_t unused)
{
	bool keeps = walk->mimalloc->layout->keeps;

	walk->slices_kind = keeps && !unused ? ALLOCATOR_FREE : ALLOCATOR_DIRTY;
	walk->pages_kind = keeps ? ALLOCATOR_FREE : ALLOCATOR_DIRTY;
}

static int segment_visit(struct mimalloc_walk *walk, uint64_t address)
{
	const struct mimalloc_layout *at = walk->mimalloc->layout;
	int64_t bytes = segment_read(walk, address);
	uint64_t info = u64_at(walk->head + at->info), entries = u64_at(walk->head + at->entries);
	uint32_t used, unused;

	/* It may be within the block of a huge one, or have been returned meanwhile. */
	if (bytes <= 0 || address < walk->pages.runs.end)
		return (int)(bytes < 0 ? bytes : 0);
	pages_count(walk, &used, &unused);
	/* It is free, and kept, or will be. */
	if (!used && (unused || !u64_at(walk->head + at->thread)))
		return runs_put(&walk->pages.runs, address, (uint64_t)bytes, 1, ALLOCATOR_DIRTY);
	kinds_choose(walk, unused);
	int err = runs_put(&walk->pages.runs, address, info * SLICE, 1, ALLOCATOR_METADATA);
	for (uint64_t i = info, count = 1; i < entries && !err; i += count)
		err = slices_visit(walk, i, &count);
	return err;
}

static int segments_visit(struct mimalloc_walk *walk, const struct process_maps *maps)
{
	int err = addresses_probe(maps, SEGMENTS_MAX, segment_note, walk) ?: heaps_read(walk);

	for (size_t i = 0; i < walk->segment_count && !err; i++)
		err = segment_visit(walk, walk->segments[i]);
	return err ?: runs_end(&walk->pages.runs);
}

static int mimalloc_walk(void *state, const struct process_maps *maps, allocator_run_fn visit,
			 void *context, struct allocator_totals *totals)
{
	struct mimalloc *mimalloc = state;
	struct mimalloc_walk walk = {
		.mimalloc = mimalloc,
		.pages = {.reader = mimalloc->reader,
			  .runs = {.visit = visit, .context = context, .totals = totals},
			  .states = malloc(MIMALLOC_BLOCKS_MAX),
			  .most = PAGE_BYTES,
			  .more = returned_mark,
			  .context = &walk},
		.head = malloc(HEAD_MAX)};
	uint64_t swapped = reader_swapped(mimalloc->reader);

	reader_clear(mimalloc->reader);
	int err = walk.head && walk.pages.states ? segments_visit(&walk, maps) : -ENOMEM;
	totals->swapped = reader_swapped(mimalloc->reader) - swapped;
	free(walk.head);
	free(walk.pages.states);
	free(walk.segments);
	free(walk.heaps);
	free(walk.returned);
	return err;
}

static bool mimalloc_has_variable(const void *state, uint64_t start, uint64_t end)
{
	const struct mimalloc *mimalloc = state;

	return mimalloc->variable >= start && mimalloc->variable < end;
}

const struct allocator_type mimalloc_allocator = {.name = "mimalloc",
						  .purge = "mi_collect(true) in each thread",
						  .open = mimalloc_open,
						  .close = mimalloc_close,
						  .walk = mimalloc_walk,
						  .has_variable = mimalloc_has_variable,
						  .has_classes = true,
						  .is_inner = true};
