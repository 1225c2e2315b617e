/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/malloc/jemalloc.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "proc/memory.h"
#include "runtime/malloc/jemalloc_caches.h"
#include "runtime/malloc/jemalloc_layout.h"
#include "runtime/malloc/jemalloc_tree.h"
#include "runtime/malloc/reader.h"
#include "runtime/malloc/runs.h"
#include "runtime/malloc/statics.h"
#include "util/array.h"
#include "util/error.h"
#include "util/interrupt.h"
#include "util/sorted.h"

#define COPIES_MAX    4u
#define TRIES         3
#define DATA_LEAST    (128u << 10) /* of zero-initialised data; the least first table has 256 KiB */
#define DATA_MAX      (1ull << 30)
#define RODATA_MAX    (64u << 20)
#define FAILED_MAX    1024u /* inconsistent extents, if they are more than the others */
#define ASKED_EXTENTS 4096u

struct jemalloc {
	struct space *space; /* shared */
	struct malloc_reader *reader;
	struct jemalloc_blocks blocks;
	struct jemalloc_tree trees[COPIES_MAX];
	size_t tree_count;
};

/* --- open ------------------------------------------------------------------------------------- */

static bool is_named(const struct process_map *map)
{
	const char *name = strrchr(map->path, '/');

	return name && !strncmp(name + 1, "libjemalloc", strlen("libjemalloc"));
}

/*
 * Is a map a file's writable data? *end: of the data, with the zero-initialised, which is anonymous
 * memory behind it.
 */
static bool is_data(const struct process_maps *maps, size_t number, uint64_t *end)
{
	const struct process_map *map = &maps->entries[number];
	const struct process_map *next = number + 1 < maps->count ? map + 1 : NULL;

	if (!map->inode || !map->writable || map->shared || !next || next->inode || next->path[0] ||
	    next->start != map->end || !next->writable)
		return false;
	*end = lesser(next->end, map->start + DATA_MAX);
	return next->end - next->start >= DATA_LEAST;
}

/* A reason why it is not even searched for: it costs a look at each 2 MiB of the memory. */
static int place_look(const struct process_maps *maps, bool *named)
{
	bool data = false;
	uint64_t end;

	*named = false;
	for (size_t i = 0; i < maps->count; i++) {
		*named |= is_named(&maps->entries[i]);
		data |= is_data(maps, i, &end);
	}
	return *named || data ? 0 : -ENOENT;
}

/* The version is told only: what it implies was proven. */
static void version_read(struct jemalloc *jemalloc, const struct process_map *map,
			 char version[ALLOCATOR_VERSION])
{
	size_t bytes;
	char *text;

	if (statics_constants(space_pid(jemalloc->space), map, RODATA_MAX, &text, &bytes))
		return;
	jemalloc_version_find(text, bytes, version);
	free(text);
}

static int trees_find(struct jemalloc *jemalloc, const struct process_maps *maps,
		      char version[ALLOCATOR_VERSION])
{
	for (size_t i = 0; i < maps->count && jemalloc->tree_count < COPIES_MAX; i++) {
		struct jemalloc_tree *tree = &jemalloc->trees[jemalloc->tree_count];
		uint64_t end;

		if (!is_data(maps, i, &end))
			continue;
		int err = jemalloc_tree_find(tree, jemalloc->reader, jemalloc->space,
					     &jemalloc->blocks, maps->entries[i].start, end);
		if (err && err != -ENOENT)
			return err;
		if (!err && !jemalloc->tree_count++)
			version_read(jemalloc, &maps->entries[i], version);
	}
	return jemalloc->tree_count ? 0 : -ENOENT;
}

static void jemalloc_close(void *state)
{
	struct jemalloc *jemalloc = state;

	reader_free(jemalloc->reader);
	space_close(jemalloc->space);
	free(jemalloc->blocks.items);
	free(jemalloc);
}

/* A process that begins to use it is asked again. */
static int copies_find(struct jemalloc *jemalloc, const struct process_maps *maps, bool named,
		       char version[ALLOCATOR_VERSION])
{
	int err = -ENOENT;

	for (int i = 0; i < TRIES && err == -ENOENT; i++) {
		reader_clear(jemalloc->reader);
		err = jemalloc_blocks_look(&jemalloc->blocks, jemalloc->space, maps, true);
		if (!err && !jemalloc->blocks.count && !named)
			return -ENOENT;
		err = err ?: trees_find(jemalloc, maps, version);
	}
	if (err == -ENOENT)
		return error_set(-ENOTSUP, "its structures are not those of jemalloc 5.2 or 5.3 "
					   "with pages of 4 KiB");
	return err;
}

static int jemalloc_open(void **state, struct space *space, const struct process_maps *maps,
			 char version[ALLOCATOR_VERSION])
{
	struct jemalloc *jemalloc;
	bool named;
	int err = place_look(maps, &named);

	version[0] = '\0';
	if (err)
		return err;
	jemalloc = calloc(1, sizeof(*jemalloc));
	if (!jemalloc)
		return -ENOMEM;
	jemalloc->space = space_share(space);
	err = reader_new(&jemalloc->reader, space) ?: copies_find(jemalloc, maps, named, version);
	if (err) {
		jemalloc_close(jemalloc);
		return err;
	}
	*state = jemalloc;
	return 0;
}

/* --- walk ------------------------------------------------------------------------------------- */

struct jemalloc_walk {
	struct jemalloc *jemalloc;
	struct jemalloc_cursor cursors[COPIES_MAX];
	struct jemalloc_extent next[COPIES_MAX]; /* bytes 0: there is none */
	size_t next_block;
	struct jemalloc_caches caches;
	size_t next_cached;
	struct runs runs;
	struct allocator_totals *totals;
	uint64_t extents;
	uint64_t swapped; /* reads that the reader left out before */
};

static bool is_cached(struct jemalloc_walk *walk, uint64_t address)
{
	const struct jemalloc_caches *caches = &walk->caches;

	while (walk->next_cached < caches->block_count &&
	       caches->blocks[walk->next_cached].address < address)
		walk->next_cached++;
	return walk->next_cached < caches->block_count &&
	       caches->blocks[walk->next_cached].address == address;
}

static enum allocator_kind block_kind(struct jemalloc_walk *walk,
				      const struct jemalloc_extent *extent, uint64_t block_bytes,
				      unsigned int number)
{
	if (extent->free_map[number / 64] >> number % 64 & 1)
		return ALLOCATOR_FREE;
	return is_cached(walk, extent->start + number * block_bytes) ? ALLOCATOR_CACHED
								     : ALLOCATOR_USED;
}

static int slab_visit(struct jemalloc_walk *walk, size_t copy, const struct jemalloc_extent *extent)
{
	uint64_t bytes = walk->jemalloc->trees[copy].sizes.bytes[extent->size_class];
	struct allocator_class *class = runs_class(walk->totals, bytes);
	unsigned int count = (unsigned int)(extent->bytes / bytes);
	uint8_t kinds[JEMALLOC_SLAB_BLOCKS];

	if (class) {
		class->slabs++;
		class->slab_bytes += extent->bytes;
	}
	for (unsigned int i = 0; i < count; i++)
		kinds[i] = (uint8_t)block_kind(walk, extent, bytes, i);
	return runs_put_blocks(&walk->runs, extent->start, bytes, kinds, count, class)
		       ?: runs_put(&walk->runs, extent->start + count * bytes,
				   extent->bytes - count * bytes, 1, ALLOCATOR_FREE);
}

/* The rest of its pages is not used. */
static int large_visit(struct jemalloc_walk *walk, size_t copy,
		       const struct jemalloc_extent *extent)
{
	struct jemalloc_tree *tree = &walk->jemalloc->trees[copy];
	uint64_t bytes = jemalloc_large_bytes(extent, &tree->sizes, &tree->pad);
	uint64_t end = extent->address + bytes;
	struct runs *runs = &walk->runs;

	return runs_put(runs, extent->start, extent->address - extent->start, 1, ALLOCATOR_FREE)
		       ?: runs_put(runs, extent->address, bytes, 1,
				   is_cached(walk, extent->address) ? ALLOCATOR_CACHED
								    : ALLOCATOR_USED)
		       ?: runs_put(runs, end, extent->start + extent->bytes - end, 1,
				   ALLOCATOR_FREE);
}

static int extent_visit(struct jemalloc_walk *walk, size_t copy,
			const struct jemalloc_extent *extent)
{
	static const enum allocator_kind kinds[] = {
		[JEMALLOC_DIRTY] = ALLOCATOR_DIRTY,
		[JEMALLOC_MUZZY] = ALLOCATOR_MUZZY,
		[JEMALLOC_RETAINED] = ALLOCATOR_RETAINED,
		[JEMALLOC_STATES] = ALLOCATOR_UNKNOWN,
	};

	/* Two copies claim it: that of the lower address has it. */
	if (extent->start < walk->runs.end) {
		walk->totals->cut++;
		return 0;
	}
	if (extent->state == JEMALLOC_ACTIVE)
		return extent->slab ? slab_visit(walk, copy, extent)
				    : large_visit(walk, copy, extent);
	return runs_put(&walk->runs, extent->start, extent->bytes, 1, kinds[extent->state]);
}

static int block_visit(struct jemalloc_walk *walk, const struct jemalloc_block *block)
{
	if (block->start < walk->runs.end) {
		walk->totals->cut++;
		return 0;
	}
	walk->totals->unused += block->end - block->used_end;
	return runs_put(&walk->runs, block->start, block->end - block->start, 1,
			ALLOCATOR_METADATA);
}

static int extent_take(struct jemalloc_walk *walk, size_t copy)
{
	struct jemalloc_cursor *cursor = &walk->cursors[copy];
	int got;

	walk->next[copy].bytes = 0;
	if (cursor->failed > FAILED_MAX && cursor->failed > cursor->good)
		return error_set(-ENOTSUP, "most of its extents are inconsistent");
	if (++walk->extents % ASKED_EXTENTS == 0 && interrupt_pending())
		return error_set(-EINTR, "the walk of jemalloc's heap was ended by a signal");
	got = jemalloc_cursor_next(cursor, &walk->next[copy]);
	if (!got)
		walk->next[copy].bytes = 0;
	return got < 0 ? got : 0;
}

/* Extents of all copies and blocks of their own, in order of address. */
static int walk_all(struct jemalloc_walk *walk)
{
	const struct jemalloc *jemalloc = walk->jemalloc;
	int err = 0;

	for (size_t i = 0; i < jemalloc->tree_count && !err; i++)
		err = extent_take(walk, i);
	while (!err) {
		const struct jemalloc_block *block =
			walk->next_block < jemalloc->blocks.count
				? &jemalloc->blocks.items[walk->next_block]
				: NULL;
		uint64_t lowest = block ? block->start : UINT64_MAX;
		size_t copy = COPIES_MAX;

		for (size_t i = 0; i < jemalloc->tree_count; i++)
			if (walk->next[i].bytes && walk->next[i].start < lowest) {
				lowest = walk->next[i].start;
				copy = i;
			}
		if (lowest == UINT64_MAX)
			break;
		if (copy == COPIES_MAX) {
			walk->next_block++;
			err = block_visit(walk, block);
		} else {
			err = extent_visit(walk, copy, &walk->next[copy])
				      ?: extent_take(walk, copy);
		}
	}
	return err;
}

/* Copies of one layout have their arenas in the same blocks, which are searched once. */
static bool is_first_like(const struct jemalloc *jemalloc, size_t copy)
{
	for (size_t i = 0; i < copy; i++)
		if (jemalloc->trees[i].layout->minor == jemalloc->trees[copy].layout->minor)
			return false;
	return true;
}

/* The upper tables and the caches. -EAGAIN: inconsistent. */
static int walk_begin(struct jemalloc_walk *walk, const struct process_maps *maps, bool anew)
{
	struct jemalloc *jemalloc = walk->jemalloc;
	struct jemalloc_caches *caches = &walk->caches;
	int err;

	reader_clear(jemalloc->reader);
	caches->block_count = caches->count = caches->cut = 0;
	err = jemalloc_blocks_look(&jemalloc->blocks, jemalloc->space, maps, anew);
	for (size_t i = 0; i < jemalloc->tree_count && !err; i++) {
		const struct jemalloc_tree *tree = &jemalloc->trees[i];

		jemalloc_cursor_close(&walk->cursors[i]);
		err = jemalloc_cursor_open(&walk->cursors[i], &jemalloc->trees[i], jemalloc->reader,
					   jemalloc->space, &jemalloc->blocks);
		if (!err && is_first_like(jemalloc, i))
			err = jemalloc_caches_read(caches, tree, jemalloc->reader, jemalloc->space,
						   &jemalloc->blocks);
	}
	jemalloc_caches_sort(caches);
	return err;
}

static void walk_end(struct jemalloc_walk *walk)
{
	struct allocator_totals *totals = walk->totals;

	totals->caches += walk->caches.count;
	totals->cut += walk->caches.cut;
	totals->swapped += reader_swapped(walk->jemalloc->reader) - walk->swapped;
	for (size_t i = 0; i < walk->jemalloc->tree_count; i++) {
		totals->cut += walk->cursors[i].failed + walk->cursors[i].table.swapped;
		totals->swapped += walk->cursors[i].table.swapped;
	}
}

static int jemalloc_walk(void *state, const struct process_maps *maps, allocator_run_fn visit,
			 void *context, struct allocator_totals *totals)
{
	struct jemalloc_walk *walk = calloc(1, sizeof(*walk));
	int err = walk ? -EAGAIN : -ENOMEM;

	if (!walk)
		return err;
	walk->jemalloc = state;
	walk->runs = (struct runs){.visit = visit, .context = context, .totals = totals};
	walk->totals = totals;
	walk->swapped = reader_swapped(walk->jemalloc->reader);
	for (int i = 0; i < TRIES && err == -EAGAIN; i++)
		err = walk_begin(walk, maps, i > 0);
	if (err == -EAGAIN)
		err = error_set(-ENOTSUP, "the tables of its extents are inconsistent");
	err = err ?: walk_all(walk) ?: runs_end(&walk->runs);
	if (!err)
		walk_end(walk);
	for (size_t i = 0; i < walk->jemalloc->tree_count; i++)
		jemalloc_cursor_close(&walk->cursors[i]);
	free(walk->caches.blocks);
	free(walk);
	return err;
}

static bool jemalloc_has_variable(const void *state, uint64_t start, uint64_t end)
{
	const struct jemalloc *jemalloc = state;

	for (size_t i = 0; i < jemalloc->tree_count; i++)
		if (jemalloc->trees[i].root >= start && jemalloc->trees[i].root < end)
			return true;
	return false;
}

const struct allocator_type jemalloc_allocator = {
	.name = "jemalloc",
	.purge = "mallctl(\"arena.4096.purge\")",
	.open = jemalloc_open,
	.close = jemalloc_close,
	.walk = jemalloc_walk,
	.has_variable = jemalloc_has_variable,
	.has_classes = true,
};
