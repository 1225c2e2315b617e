/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Model of mimalloc 3 (include/mimalloc/types.h). A map of two levels has for each slice of 64 KiB
 * the page that it belongs to:
 *
 *	map:	{tables of 8,192 slices each}, and behind it the first table
 *	page:	{lists of free blocks; used, capacity, reserved:16; size of a block; where the
 *		 first one is; …; memory}
 *	memory:	{arena; first slice, slices:32; kind} or {address; bytes; kind}
 *	arena:	{memory, …; slices, slices of its own structures, …}
 *
 * The order differs between releases, and a page has the address of its first block, or its
 * distance from the page's description. The map is a hidden variable. It is found by its first
 * table. It and a layout are proven if the pages that it leads to have that slice, and reserve as
 * many blocks as fit. (Offsets of 3.6 were found in a process, by what must hold there.)
 */
#include "runtime/malloc/mimalloc3.h"

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

#define PAGE           SPACE_PAGE
#define SLICE          65536u
#define TABLE_SLICES   8192u
#define TABLE_BYTES    (TABLE_SLICES * 8u)
#define MAP_BITS_LEAST 10u /* of the number of tables */
#define MAP_BITS_MOST  18u
#define PAGE_BYTES     (64ull * SLICE) /* of a page with more than one block */
#define HEAD_BYTES     128u            /* of a page's description that are read */
#define ARENA_BYTES    64u
#define ARENA_LEAST    (32ull << 20)
#define ARENA_SLICES   (1u << 24) /* 1 TiB */
#define ARENAS_MAX     4096u
#define KINDS_OS       3u  /* in front of that of arenas: mappings */
#define PROOFS_MAX     64u /* of what looks like the map */
#define PAGES_PROVING  1024u
#define ASKED_PAGES    4096u
#define LOOKS_LEAST    (1u << 20)
#define TRIES          4

enum mimalloc3_first { FIRST_ADDRESS, FIRST_WORDS, FIRST_BYTES };

/* Offsets. */
struct mimalloc3_layout {
	const char *version;
	uint32_t map; /* from where the variable points to */
	uint32_t free, local, thread_free, used, capacity, reserved, block, memory; /* in a page */
	uint32_t first;                                                             /* block */
	enum mimalloc3_first first_is;
	uint32_t kind;   /* of memory in an arena */
	uint32_t base;   /* in an arena: where its slices begin; 0: with itself */
	uint32_t slices; /* in an arena */
};

static const struct mimalloc3_layout layouts[] = {
	{"3.6", 80, 16, 24, 64, 40, 56, 58, 32, 104, 48, FIRST_BYTES, 6, 40, 48},
	{"3.4", 0, 8, 24, 32, 16, 18, 20, 40, 88, 48, FIRST_WORDS, 7, 0, 40},
	{"3.2 or 3.3", 0, 8, 24, 32, 16, 18, 20, 40, 96, 48, FIRST_ADDRESS, 7, 0, 40},
	{"3.0 or 3.1", 0, 8, 24, 32, 16, 18, 20, 40, 96, 48, FIRST_ADDRESS, 7, 0, 32},
};

struct mimalloc3 {
	struct space *space; /* shared */
	struct malloc_reader *reader;
	const struct mimalloc3_layout *layout;
	uint64_t variable;               /* address of the pointer to the map */
	uint64_t map, tables;            /* its address, the number of its tables */
	const struct process_maps *maps; /* while it is searched for */
	uint32_t proofs;
};

struct mimalloc3_arena {
	uint64_t at;                  /* its own address */
	uint64_t start, end, own_end; /* own_end: of its structures */
};

struct mimalloc3_walk {
	struct mimalloc3 *mimalloc;
	struct mimalloc_pages pages;
	struct mimalloc3_arena *arenas; /* by address */
	size_t arena_count, arena_capacity, arena_next;
	uint64_t end;                          /* of the last page: slices before are known */
	uint64_t last;                         /* its description */
	uint64_t left;                         /* looks at pages that may still be taken */
	uint64_t unread;                       /* description of a page that could not be read */
	uint64_t count, fitting, wrong, stale; /* pages */
};

static uint32_t u16_at(const uint8_t *bytes)
{
	return bytes[0] | (uint32_t)bytes[1] << 8;
}

/* --- the map ---------------------------------------------------------------------------------- */

/* Takes a slice and its page. Returns non-zero to stop. */
typedef int (*slice_fn)(struct mimalloc3_walk *walk, uint64_t slice, uint64_t page);

typedef int (*word_fn)(struct mimalloc3_walk *walk, uint64_t number, uint64_t word, slice_fn visit);

/* Shows the words of a table that are not 0. */
static int words_walk(struct mimalloc3_walk *walk, uint64_t table, uint64_t count, uint64_t first,
		      word_fn look, slice_fn visit)
{
	const struct mimalloc3 *mimalloc = walk->mimalloc;
	uint64_t words[PAGE / 8];
	uint8_t pages[SPACE_PAGES] = {0};
	int err = 0;

	for (uint64_t i = 0; i < count && !err; i += ARRAY_SIZE(words)) {
		uint64_t at = i * 8 / PAGE;

		if (at % SPACE_PAGES == 0)
			err = space_pages(mimalloc->space, table + at * PAGE,
					  lesser((count * 8 + PAGE - 1) / PAGE - at, SPACE_PAGES),
					  pages);
		if (err)
			return space_is_fatal(err) ? err : 0;
		if (pages[at % SPACE_PAGES] != SPACE_MEMORY)
			continue;
		err = space_read(mimalloc->space, table + i * 8, words, sizeof(words));
		if (err) {
			walk->pages.runs.totals->cut++;
			err = space_is_fatal(err) ? err : 0;
			continue;
		}
		for (size_t n = 0; n < ARRAY_SIZE(words) && i + n < count && !err; n++)
			err = words[n] ? look(walk, first + i + n, words[n], visit) : 0;
	}
	return err;
}

static int given_up(void)
{
	return error_set(-ENOTSUP, "its map has more pages than the process has memory for");
}

static int slice_look(struct mimalloc3_walk *walk, uint64_t number, uint64_t word, slice_fn visit)
{
	uint64_t slice = number * SLICE;

	if (slice < walk->end || word == walk->last || word % 8 || word >> 47)
		return 0;
	if (!walk->left--)
		return given_up();
	if (++walk->count % ASKED_PAGES == 0 && interrupt_pending())
		return error_set(-EINTR, "the walk of mimalloc's heap was ended by a signal");
	return visit(walk, slice, word);
}

static int table_look(struct mimalloc3_walk *walk, uint64_t number, uint64_t word, slice_fn visit)
{
	if (word % 8 || word >> 47)
		return 0;
	if (walk->left < TABLE_BYTES / PAGE)
		return given_up();
	walk->left -= TABLE_BYTES / PAGE;
	return words_walk(walk, word, TABLE_SLICES, number * TABLE_SLICES, slice_look, visit);
}

/* A page has memory in its first slice; entries of pages that were freed may stay. */
static uint64_t looks_limit(pid_t pid)
{
	uint64_t bytes;

	return process_own_bytes_read(pid, &bytes) ? UINT64_MAX : bytes / PAGE + LOOKS_LEAST;
}

/* Shows the first slice of each page, by address. */
static int map_walk(struct mimalloc3_walk *walk, slice_fn visit)
{
	walk->end = walk->last = 0;
	walk->left = looks_limit(space_pid(walk->mimalloc->space));
	return words_walk(walk, walk->mimalloc->map, walk->mimalloc->tables, 0, table_look, visit);
}

/* --- pages ------------------------------------------------------------------------------------ */

/* Where the slices of an arena begin. */
static int base_read(const struct mimalloc3 *mimalloc, uint64_t arena, uint64_t *base)
{
	*base = arena;
	return mimalloc->layout->base
		       ? reader_u64(mimalloc->reader, arena + mimalloc->layout->base, base)
		       : 0;
}

/* The memory that a page has. 0; -ENOENT: it does not have the slice; -errno. */
static int memory_parse(const struct mimalloc3 *mimalloc, const uint8_t *memory, uint64_t slice,
			struct mimalloc_page *page)
{
	uint32_t kind = u32_at(memory + 16), arena = mimalloc->layout->kind;
	uint64_t base = u64_at(memory), bytes = u64_at(memory + 8);
	int err;

	if (kind == arena) {
		err = base % 8 ? -EFAULT : base_read(mimalloc, base, &base);
		if (err)
			return space_is_fatal(err) ? err : -ENOENT;
		base += (uint64_t)u32_at(memory + 8) * SLICE;
		bytes = (uint64_t)u32_at(memory + 12) * SLICE;
	} else if (kind + KINDS_OS < arena || kind > arena) {
		return -ENOENT;
	}
	if (base > slice || base >> 47 || bytes >> 47 || slice - base >= bytes)
		return -ENOENT;
	page->start = base;
	page->end = base + bytes;
	return 0;
}

static uint64_t first_block(const struct mimalloc3_layout *layout, const uint8_t *head, uint64_t at)
{
	uint64_t first = u64_at(head + layout->first);

	return layout->first_is == FIRST_ADDRESS ? first
	       : layout->first_is == FIRST_BYTES ? at + first
						 : at + 8ull * u32_at(head + layout->first);
}

/*
 * Reads the page of the first slice that names it. 0; -EAGAIN: its sizes contradict each other;
 * -ENOENT: it does not have the slice any more: the map of 3.0 keeps such entries; -errno.
 */
static int page_read(const struct mimalloc3 *mimalloc, uint64_t slice, uint64_t at, int fresh,
		     struct mimalloc_page *page)
{
	const struct mimalloc3_layout *layout = mimalloc->layout;
	uint8_t head[HEAD_BYTES];
	int err = reader_read(mimalloc->reader, at, head, sizeof(head), fresh);

	if (err)
		return err;
	*page = (struct mimalloc_page){.blocks = first_block(layout, head, at),
				       .block_bytes = u64_at(head + layout->block),
				       .capacity = u16_at(head + layout->capacity),
				       .reserved = u16_at(head + layout->reserved),
				       .used = u16_at(head + layout->used),
				       .lists = {u64_at(head + layout->free),
						 u64_at(head + layout->local),
						 u64_at(head + layout->thread_free) & ~1ull},
				       .is_single = u16_at(head + layout->reserved) == 1};
	err = memory_parse(mimalloc, head + layout->memory, slice, page);
	/* A description in front of its blocks is in the first slice. */
	if (!err && at - page->start < page->end - page->start && slice != page->start)
		err = -ENOENT;
	if (!err && (!page->block_bytes || !mimalloc_page_fits(page, PAGE_BYTES)))
		err = -EAGAIN;
	return err;
}

static int arena_read(struct mimalloc3_walk *walk, uint64_t address)
{
	const struct mimalloc3 *mimalloc = walk->mimalloc;
	uint8_t bytes[ARENA_BYTES];
	uint64_t count, own, base;
	int err;

	for (size_t i = walk->arena_count; i--;)
		if (walk->arenas[i].at == address)
			return 0;
	err = reader_read(mimalloc->reader, address, bytes, sizeof(bytes), 0)
		      ?: base_read(mimalloc, address, &base);
	if (err || walk->arena_count == ARENAS_MAX)
		return space_is_fatal(err) ? err : 0;
	count = u64_at(bytes + mimalloc->layout->slices);
	own = u64_at(bytes + mimalloc->layout->slices + 8);
	if (count > ARENA_SLICES || own >= count || !own || base >> 47)
		return 0;
	err = ARRAY_GROW(walk->arenas, walk->arena_capacity, walk->arena_count);
	if (!err)
		walk->arenas[walk->arena_count++] = (struct mimalloc3_arena){
			address, base, base + count * SLICE, base + own * SLICE};
	return err;
}

/* Notes the arena of a page. */
static int arena_note(struct mimalloc3_walk *walk, uint64_t slice, uint64_t at)
{
	const struct mimalloc3 *mimalloc = walk->mimalloc;
	uint8_t memory[24];
	int err = reader_read(mimalloc->reader, at + mimalloc->layout->memory, memory,
			      sizeof(memory), 0);

	(void)slice;
	walk->last = at;
	if (err || u32_at(memory + 16) != mimalloc->layout->kind)
		return space_is_fatal(err) ? err : 0;
	return arena_read(walk, u64_at(memory));
}

/* --- search ----------------------------------------------------------------------------------- */

static int page_try(struct mimalloc3_walk *walk, uint64_t slice, uint64_t at)
{
	struct mimalloc_page page;
	int err = page_read(walk->mimalloc, slice, at, 0, &page);

	walk->last = at;
	if (space_is_fatal(err))
		return err;
	walk->fitting += !err;
	walk->stale += err == -ENOENT;
	walk->wrong += err && err != -ENOENT;
	if (!err && page.used)
		walk->end = page.end;
	return walk->count == PAGES_PROVING;
}

/* Some pages may have been read while they changed. */
static bool is_fitting(const struct mimalloc3_walk *walk)
{
	return walk->fitting && walk->wrong <= walk->fitting / 16 && walk->stale <= walk->fitting;
}

/* 1: what the map leads to is as the layout says; 0; -errno. */
static int layout_try(struct mimalloc3 *mimalloc, const struct mimalloc3_layout *layout)
{
	struct allocator_totals *totals = calloc(1, sizeof(*totals));
	struct mimalloc3_walk walk = {.mimalloc = mimalloc, .pages.runs.totals = totals};
	int got = totals ? 0 : -ENOMEM;

	mimalloc->layout = layout;
	got = got ?: map_walk(&walk, page_try);
	/* The arena of some page tells two of them apart. */
	if (got >= 0)
		got = is_fitting(&walk) ? map_walk(&walk, arena_note) : 0;
	if (got >= 0)
		got = is_fitting(&walk) && walk.arena_count;
	free(walk.arenas);
	free(totals);
	return got;
}

/* The number of tables of a map, by where its first one is; 0: it is none. */
static uint64_t tables_of(uint64_t first, uint64_t word, uint64_t offset)
{
	uint64_t bytes = first - word - (offset ? PAGE : 0);

	return bytes >= 8ull << MAP_BITS_LEAST && bytes <= 8ull << MAP_BITS_MOST &&
			       !(bytes & (bytes - 1))
		       ? bytes / 8
		       : 0;
}

/* Whether a word of a file's data is the address of the map. 1; 0; -errno. */
static int word_look(struct mimalloc3 *mimalloc, uint64_t word)
{
	const struct process_maps *maps = mimalloc->maps;
	size_t i = SORTED_ABOVE(maps->entries, maps->count, end, word);
	int got = 0;

	if (i == maps->count || maps->entries[i].start > word || maps->entries[i].inode ||
	    !maps->entries[i].writable)
		return 0;
	for (size_t n = 0; n < ARRAY_SIZE(layouts) && !got; n++) {
		uint64_t first;
		int err = reader_u64(mimalloc->reader, word + layouts[n].map, &first);

		if (err)
			return space_is_fatal(err) ? err : 0;
		mimalloc->map = word + layouts[n].map;
		mimalloc->tables = tables_of(first, word, layouts[n].map);
		if (mimalloc->tables && mimalloc->proofs++ < PROOFS_MAX)
			got = layout_try(mimalloc, &layouts[n]);
	}
	return got;
}

static int words_look(uint64_t address, const uint8_t *bytes, size_t size, void *state)
{
	struct mimalloc3 *mimalloc = state;
	int got = 0;

	for (size_t at = 0; at + 8 <= size && !got; at += 8) {
		uint64_t word = u64_at(bytes + at);

		if (!word || word % PAGE || word >> 47)
			continue;
		got = word_look(mimalloc, word);
		if (got > 0)
			mimalloc->variable = address + at;
	}
	return got;
}

static bool is_named(const struct statics *statics)
{
	return strstr(statics_file_name(statics), "libmimalloc") != NULL;
}

/* All that tells at little cost: its library, or memory that may be an arena. */
static bool is_likely(const struct process_maps *maps)
{
	for (size_t i = 0; i < maps->count; i++) {
		const struct process_map *map = &maps->entries[i];

		if (!map->inode && map->end - map->start >= ARENA_LEAST / 2)
			return true;
	}
	return false;
}

static int map_find(struct mimalloc3 *mimalloc, const struct process_maps *maps,
		    char version[ALLOCATOR_VERSION])
{
	bool has_library = false;
	struct statics statics;
	size_t at = 0;

	mimalloc->maps = maps;
	while (statics_next(maps, &at, &statics)) {
		int got;

		has_library |= is_named(&statics);
		if (!is_named(&statics) && !is_likely(maps))
			continue;
		got = statics_search(mimalloc->space, &statics, words_look, mimalloc);
		if (got > 0)
			mimalloc_version(mimalloc->layout->version, &statics, version);
		if (got)
			return got < 0 ? got : 0;
	}
	return has_library ? error_set(-ENOTSUP, "no pages of mimalloc 2.0.9 to 2.4 or 3.0 to 3.6 "
						 "were found")
			   : -ENOENT;
}

static void mimalloc3_close(void *state)
{
	struct mimalloc3 *mimalloc = state;

	reader_free(mimalloc->reader);
	space_close(mimalloc->space);
	free(mimalloc);
}

static int mimalloc3_open(void **state, struct space *space, const struct process_maps *maps,
			  char version[ALLOCATOR_VERSION])
{
	struct mimalloc3 *mimalloc = calloc(1, sizeof(*mimalloc));
	int err = mimalloc ? reader_new(&mimalloc->reader, space) : -ENOMEM;

	if (err) {
		free(mimalloc);
		return err;
	}
	mimalloc->space = space_share(space);
	err = map_find(mimalloc, maps, version);
	mimalloc->maps = NULL;
	if (err) {
		mimalloc3_close(mimalloc);
		return err;
	}
	*state = mimalloc;
	return 0;
}

/* --- walk ------------------------------------------------------------------------------------- */

/* Is a slice that has no page one of small structures? It says itself which of the arena it is. */
static bool is_own(const struct mimalloc3_walk *walk, const struct mimalloc3_arena *arena,
		   uint64_t slice)
{
	uint8_t bytes[32]; /* {next, memory} */

	return !reader_read(walk->mimalloc->reader, slice, bytes, sizeof(bytes), 0) &&
	       u64_at(bytes + 8) == arena->at &&
	       u32_at(bytes + 16) == (slice - arena->start) / SLICE &&
	       u32_at(bytes + 24) == walk->mimalloc->layout->kind;
}

/* Visits slices that no page has. What is not looked at any more counts as free. */
static int slices_put(struct mimalloc3_walk *walk, const struct mimalloc3_arena *arena, uint64_t at,
		      uint64_t end)
{
	struct runs *runs = &walk->pages.runs;
	int stop = 0;

	for (; at < end && walk->left && !stop; at += SLICE, walk->left--)
		stop = runs_put(runs, at, SLICE, 1,
				is_own(walk, arena, at) ? ALLOCATOR_METADATA : ALLOCATOR_DIRTY);
	return stop || at >= end ? stop
				 : runs_put(runs, at, SLICE, (end - at) / SLICE, ALLOCATOR_DIRTY);
}

/* Visits what arenas have in front of an address beside pages. */
static int arenas_put(struct mimalloc3_walk *walk, uint64_t limit)
{
	struct runs *runs = &walk->pages.runs;
	int stop = 0;

	for (; walk->arena_next < walk->arena_count && !stop; walk->arena_next++) {
		const struct mimalloc3_arena *arena = &walk->arenas[walk->arena_next];
		uint64_t at = arena->start > runs->end ? arena->start : runs->end;

		if (arena->start >= limit)
			break;
		if (at < arena->own_end) {
			stop = runs_put(runs, at, arena->own_end - at, 1, ALLOCATOR_METADATA);
			at = arena->own_end;
		}
		stop = stop ?: slices_put(walk, arena, at, lesser(arena->end, limit));
		if (limit < arena->end)
			break;
	}
	return stop;
}

/* A slice of a page that could not be read. */
static int slice_give_up(struct mimalloc3_walk *walk, uint64_t slice, uint64_t at)
{
	/* Other slices name it, too. */
	walk->last = 0;
	walk->unread = at;
	walk->end = slice + SLICE;
	return arenas_put(walk, slice)
		       ?: runs_put(&walk->pages.runs, slice, SLICE, 1, ALLOCATOR_UNKNOWN);
}

/* A page that changes is read again. */
static int page_visit(struct mimalloc3_walk *walk, uint64_t slice, uint64_t at)
{
	struct mimalloc_page page;
	int err = -EAGAIN;

	if (at == walk->unread)
		return slice_give_up(walk, slice, at);
	walk->last = at;
	for (int try = 0; try < TRIES && err && !space_is_fatal(err); try++) {
		err = page_read(walk->mimalloc, slice, at, try > 0, &page);
		/* Its slices are free, or other pages': the map of 3.0 keeps it. */
		if (!err && !page.used)
			err = -ENOENT;
		err = err ?: mimalloc_page_mark(&walk->pages, &page, try > 0);
	}
	if (space_is_fatal(err) || err == -ENOENT)
		return err == -ENOENT ? 0 : err;
	if (!err && page.start < walk->pages.runs.end)
		page.start = walk->pages.runs.end;
	if (err || page.blocks < page.start) {
		walk->pages.runs.totals->cut++;
		return slice_give_up(walk, slice, at);
	}
	walk->end = page.end;
	return arenas_put(walk, page.start)
		       ?: mimalloc_page_put(&walk->pages, &page, ALLOCATOR_DIRTY);
}

static int heap_visit(struct mimalloc3_walk *walk)
{
	int err = map_walk(walk, arena_note);

	if (err)
		return err;
	SORT_BY(walk->arenas, walk->arena_count, start);
	return map_walk(walk, page_visit)
		       ?: arenas_put(walk, UINT64_MAX)
		       ?: runs_end(&walk->pages.runs);
}

static int mimalloc3_walk(void *state, const struct process_maps *maps, allocator_run_fn visit,
			  void *context, struct allocator_totals *totals)
{
	struct mimalloc3 *mimalloc = state;
	struct mimalloc3_walk walk = {
		.mimalloc = mimalloc,
		.pages = {.reader = mimalloc->reader,
			  .runs = {.visit = visit, .context = context, .totals = totals},
			  .states = malloc(MIMALLOC_BLOCKS_MAX),
			  .most = PAGE_BYTES}};
	uint64_t swapped = reader_swapped(mimalloc->reader), first;
	int err = walk.pages.states ? 0 : -ENOMEM;

	(void)maps;
	reader_clear(mimalloc->reader);
	if (!err && reader_u64(mimalloc->reader, mimalloc->map, &first))
		err = error_set(-ENOTSUP, "its map of pages cannot be read any more");
	err = err ?: heap_visit(&walk);
	totals->swapped = reader_swapped(mimalloc->reader) - swapped;
	free(walk.pages.states);
	free(walk.arenas);
	return err;
}

static bool mimalloc3_has_variable(const void *state, uint64_t start, uint64_t end)
{
	const struct mimalloc3 *mimalloc = state;

	return mimalloc->variable >= start && mimalloc->variable < end;
}

const struct allocator_type mimalloc3_allocator = {.name = "mimalloc",
						   .purge = "mi_collect(true) in each thread",
						   .open = mimalloc3_open,
						   .close = mimalloc3_close,
						   .walk = mimalloc3_walk,
						   .has_variable = mimalloc3_has_variable,
						   .has_classes = true,
						   .is_inner = true};
