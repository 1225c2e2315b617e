/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Model. jemalloc maps memory for its own structures in blocks that are aligned to 2 MiB and begin
 * with {bytes, next block, what is left}. In them are the tables of the tree, but the first, and
 * the structures of extents. The first table is a variable of the file that jemalloc is in, which
 * has no exported name. But its words lead to tables in blocks, which lead to extents that say of
 * which page they are: nothing else does so at every index.
 */
#include "runtime/malloc/jemalloc_tree.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "proc/memory.h"
#include "util/array.h"
#include "util/clock.h"
#include "util/sorted.h"
#include "util/word.h"

#define PAGE          JEMALLOC_PAGE
#define TRIES         3
#define BLOCKS_MAX    65536u
#define PROBES_MAX    (1u << 20) /* places in 2 TiB that a block may be at */
#define LEAVES_MAX    65536u
#define FIND_AGAIN_NS 1000000000ull
#define FIND_SHARE    10u   /* the search takes at most one in so many parts of the time */
#define SAMPLES       64u   /* entries of a table that are tried */
#define PROOF         1024u /* extents that are looked at */
#define FRESH_BYTES   (64u << 10)
#define PIECE_PAGES   64u
#define PIECE_STEP    (PIECE_PAGES - 1) /* pieces overlap by more than a table of sizes has */

/* --- blocks ----------------------------------------------------------------------------------- */

static bool is_anonymous(const struct process_map *map)
{
	return map->writable && map->readable && !map->inode && !map->shared &&
	       (!map->path[0] || !strncmp(map->path, "[anon:", strlen("[anon:")));
}

/* A block may have been changed while its head was read. */
static int block_look(struct space *space, uint64_t address, struct jemalloc_block *block)
{
	uint8_t head[JEMALLOC_BLOCK_HEAD];

	for (int i = 0; i < TRIES; i++) {
		int err = space_read(space, address, head, sizeof(head));

		if (err)
			return space_is_fatal(err) ? err : -ENOENT;
		if (jemalloc_block_read(head, address, block))
			return 0;
		if (!u64_at(head) || u64_at(head) % PAGE)
			break;
	}
	return -ENOENT;
}

/* The kernel merges maps that are adjacent, so a block may begin anywhere in one. */
static int map_search(struct jemalloc_blocks *blocks, struct space *space,
		      const struct process_map *map, uint64_t end, unsigned int *left)
{
	uint64_t at = (map->start + JEMALLOC_BLOCK_ALIGN - 1) & ~(JEMALLOC_BLOCK_ALIGN - 1);

	while (at < map->end && *left && blocks->count < BLOCKS_MAX) {
		struct jemalloc_block block;
		int err = block_look(space, at, &block);

		--*left;
		if (!err && block.end > end)
			err = -ENOENT;
		if (space_is_fatal(err))
			return err;
		at += JEMALLOC_BLOCK_ALIGN;
		if (err)
			continue;
		err = ARRAY_GROW(blocks->items, blocks->capacity, blocks->count);
		if (err)
			return -ENOMEM;
		blocks->items[blocks->count++] = block;
		at = (block.end + JEMALLOC_BLOCK_ALIGN - 1) & ~(JEMALLOC_BLOCK_ALIGN - 1);
	}
	return 0;
}

static int blocks_find(struct jemalloc_blocks *blocks, struct space *space,
		       const struct process_maps *maps)
{
	unsigned int left = PROBES_MAX;
	int err = 0;

	blocks->count = 0;
	for (size_t i = 0; i < maps->count && !err; i++) {
		size_t last = i;

		if (!is_anonymous(&maps->entries[i]))
			continue;
		/* Attributes of memory (madvise) divide a block into several maps. */
		while (last + 1 < maps->count && is_anonymous(&maps->entries[last + 1]) &&
		       maps->entries[last + 1].start == maps->entries[last].end)
			last++;
		err = map_search(blocks, space, &maps->entries[i], maps->entries[last].end, &left);
	}
	return err;
}

/* Reads the heads again: 0; -ENOENT: one is a block no longer. */
static int blocks_refresh(struct jemalloc_blocks *blocks, struct space *space)
{
	int err = 0;

	for (size_t i = 0; i < blocks->count && !err; i++)
		err = block_look(space, blocks->items[i].start, &blocks->items[i]);
	return err;
}

int jemalloc_blocks_look(struct jemalloc_blocks *blocks, struct space *space,
			 const struct process_maps *maps, bool anew)
{
	uint64_t began = clock_ns(CLOCK_MONOTONIC), now;
	int err = -ENOENT;

	if (!anew && began < blocks->until)
		err = blocks_refresh(blocks, space);
	if (err != -ENOENT)
		return err;
	err = blocks_find(blocks, space, maps);
	now = clock_ns(CLOCK_MONOTONIC);
	blocks->until = now + FIND_AGAIN_NS + FIND_SHARE * (now - began);
	return err;
}

static bool blocks_have(const struct jemalloc_blocks *blocks, uint64_t address, uint64_t bytes)
{
	size_t next = SORTED_ABOVE(blocks->items, blocks->count, start, address);
	const struct jemalloc_block *block = next ? &blocks->items[next - 1] : NULL;

	return block && address < block->used_end && bytes <= block->used_end - address;
}

/* --- tables ----------------------------------------------------------------------------------- */

static void table_open(struct jemalloc_table *table, struct space *space,
		       const struct jemalloc_layout *layout, unsigned int level, uint64_t address)
{
	table->space = space;
	table->address = address;
	table->count = 1ull << layout->index_bits;
	table->entry_bytes = level == layout->levels - 1 ? layout->element_bytes : 8;
	table->known_count = 0;
	table->page = 0;
	table->swapped = 0;
}

/* Reads a page of the table. 1; 0: it is not resident; -ESRCH; -EPERM; -ENOMEM. */
static int table_load(struct jemalloc_table *table, uint64_t page)
{
	uint64_t end = table->address + table->count * table->entry_bytes;
	int err = 0;

	if (page - table->known >= table->known_count * PAGE) {
		table->known = page;
		table->known_count = lesser((end - page + PAGE - 1) / PAGE, SPACE_PAGES);
		err = space_pages(table->space, page, table->known_count, table->pages);
		if (err)
			table->known_count = 0;
	}
	table->page = 0;
	if (!err && table->pages[(page - table->known) / PAGE] == SPACE_SWAPPED)
		table->swapped++;
	if (err || table->pages[(page - table->known) / PAGE] != SPACE_MEMORY)
		return space_is_fatal(err) ? err : 0;
	err = space_read(table->space, page, table->bytes, PAGE);
	if (err)
		return space_is_fatal(err) ? err : 0;
	table->page = page;
	return 1;
}

/* The first entry from *index on that is not zero. 1, and *bytes is it; 0; errors as above. */
static int table_next(struct jemalloc_table *table, uint64_t *index, const uint8_t **bytes)
{
	while (*index < table->count) {
		uint64_t at = table->address + *index * table->entry_bytes;
		uint64_t page = at & ~(PAGE - 1);
		int got = page == table->page ? 1 : table_load(table, page);

		if (got < 0)
			return got;
		for (; got && *index < table->count && at < page + PAGE;
		     at += table->entry_bytes, ++*index) {
			*bytes = table->bytes + (at - page);
			if (u64_at(*bytes))
				return 1;
		}
		if (!got)
			*index += (page + PAGE - at + table->entry_bytes - 1) / table->entry_bytes;
	}
	return 0;
}

/* --- search ----------------------------------------------------------------------------------- */

struct tree_search {
	struct jemalloc_tree *tree;
	struct malloc_reader *reader;
	struct space *space;
	const struct jemalloc_blocks *blocks;
	struct jemalloc_table tables[JEMALLOC_LEVELS_MAX];
	uint64_t start, end; /* of the data */
	uint8_t piece[PIECE_PAGES * JEMALLOC_PAGE];
};

static uint64_t index_of(const struct jemalloc_layout *layout, unsigned int level, uint64_t address)
{
	return address >> jemalloc_table_shift(layout, level) & ((1ull << layout->index_bits) - 1);
}

/* Is the entry of the last table that of an extent? 1, and *address is its page; 0; -errno. */
static int element_sample(struct tree_search *search, const uint8_t *bytes, uint64_t *address)
{
	const struct jemalloc_tree *tree = search->tree;
	struct jemalloc_element element = jemalloc_element_read(tree->layout, bytes);
	uint8_t words[JEMALLOC_EXTENT_BYTES];
	struct jemalloc_extent extent;

	if (!blocks_have(search->blocks, element.extent, sizeof(words)))
		return 0;
	int err = reader_read(search->reader, element.extent, words, sizeof(words), 0);
	if (err)
		return space_is_fatal(err) ? err : 0;
	jemalloc_extent_read(tree->layout, words, &extent);
	*address = extent.start;
	return jemalloc_extent_fits(&extent, &element, extent.start, &tree->sizes);
}

/*
 * Searches a table for an entry that leads to an extent whose address has the indexes by which it
 * was found. 1, and *address is the extent's; 0; -errno.
 */
static int table_sample(struct tree_search *search, unsigned int level, uint64_t at,
			uint64_t *address)
{
	const struct jemalloc_layout *layout = search->tree->layout;
	struct jemalloc_table *table = &search->tables[level];
	const uint8_t *bytes;
	uint64_t index = 0;
	int got = 1;

	if (!blocks_have(search->blocks, at, jemalloc_table_bytes(layout, level)))
		return 0;
	table_open(table, search->space, layout, level, at);
	for (unsigned int i = 0; i < SAMPLES && got > 0; i++, index++) {
		got = table_next(table, &index, &bytes);
		if (got <= 0)
			break;
		int is = level == layout->levels - 1
				 ? element_sample(search, bytes, address)
				 : table_sample(search, level + 1, u64_at(bytes), address);
		if (is < 0)
			return is;
		if (is && index_of(layout, level, *address) == index)
			return 1;
	}
	return got < 0 ? got : 0;
}

/* Do the extents of a tree prove its layout? 1; 0; -errno. */
static int tree_prove(struct tree_search *search)
{
	struct jemalloc_cursor *cursor = calloc(1, sizeof(*cursor));
	struct jemalloc_extent extent;
	uint64_t active = 0;
	int got;

	if (!cursor)
		return -ENOMEM;
	got = jemalloc_cursor_open(cursor, search->tree, search->reader, search->space,
				   search->blocks)
		      ?: 1;
	while (got > 0 && cursor->good + cursor->failed < PROOF) {
		got = jemalloc_cursor_next(cursor, &extent);
		active += got > 0 && extent.state == JEMALLOC_ACTIVE;
		if (got > 0 && extent.state == JEMALLOC_ACTIVE && !extent.slab)
			jemalloc_large_bytes(&extent, &search->tree->sizes, &search->tree->pad);
	}
	if (got >= 0 || got == -EAGAIN)
		got = got >= 0 && active && cursor->failed <= cursor->good / 4;
	jemalloc_cursor_close(cursor);
	free(cursor);
	return got;
}

/* A word of the data, at this address: an entry of a tree's first table? 1; 0; -errno. */
static int word_look(struct tree_search *search, uint64_t at, uint64_t word)
{
	const struct jemalloc_layout *layout;
	int is = 0;

	if (!blocks_have(search->blocks, word, 1))
		return 0;
	for (size_t i = 0; !is && (layout = jemalloc_layout_at(i)); i++) {
		uint64_t address, root;

		search->tree->layout = layout;
		is = table_sample(search, 1, word, &address);
		if (is <= 0)
			continue;
		root = at - index_of(layout, 0, address) * 8;
		search->tree->root = root;
		is = root >= search->start && root < search->end &&
		     jemalloc_table_bytes(layout, 0) <= search->end - root;
		is = is ? tree_prove(search) : 0;
	}
	return is;
}

/* Returns 1 to stop, or -errno. */
typedef int (*piece_fn)(struct tree_search *search, uint64_t address, size_t bytes);

static int sizes_look(struct tree_search *search, uint64_t address, size_t bytes)
{
	(void)address;
	return !jemalloc_sizes_find(search->piece, bytes, &search->tree->sizes);
}

static int words_look(struct tree_search *search, uint64_t address, size_t bytes)
{
	int got = 0;

	for (size_t i = 0; i < bytes && !got; i += 8)
		got = word_look(search, address + i, u64_at(search->piece + i));
	return got;
}

/* Reads the resident pages of the data in pieces. 1: one stopped it; 0; -errno. */
static int data_visit(struct tree_search *search, piece_fn visit)
{
	uint8_t pages[PIECE_PAGES];
	int got = 0;

	for (uint64_t at = search->start; at < search->end && !got; at += PIECE_STEP * PAGE) {
		size_t count = lesser((search->end - at) / PAGE, PIECE_PAGES), first = 0, last;
		int err = space_pages(search->space, at, count, pages);

		if (err)
			return space_is_fatal(err) ? err : 0;
		for (; first < count && !got; first = last + 1) {
			for (last = first; last < count && pages[last] == SPACE_MEMORY;)
				last++;
			if (last == first)
				continue;
			err = space_read(search->space, at + first * PAGE, search->piece,
					 (last - first) * PAGE);
			if (space_is_fatal(err))
				return err;
			got = err ? 0 : visit(search, at + first * PAGE, (last - first) * PAGE);
		}
	}
	return got;
}

int jemalloc_tree_find(struct jemalloc_tree *out, struct malloc_reader *reader, struct space *space,
		       const struct jemalloc_blocks *blocks, uint64_t start, uint64_t end)
{
	struct tree_search *search = calloc(1, sizeof(*search));
	struct jemalloc_tree tree = {0};
	int got;

	if (!search)
		return -ENOMEM;
	search->tree = &tree;
	search->reader = reader;
	search->space = space;
	search->blocks = blocks;
	search->start = start;
	search->end = end;
	got = data_visit(search, sizes_look);
	if (got > 0)
		got = data_visit(search, words_look);
	free(search);
	if (got > 0)
		*out = tree;
	return got > 0 ? 0 : got ?: -ENOENT;
}

/* --- cursor ----------------------------------------------------------------------------------- */

static int leaf_add(struct jemalloc_cursor *cursor, uint64_t first, uint64_t table)
{
	if (cursor->leaf_count == LEAVES_MAX)
		return -EAGAIN;
	if (ARRAY_GROW(cursor->leaves, cursor->leaf_capacity, cursor->leaf_count))
		return -ENOMEM;
	cursor->leaves[cursor->leaf_count++] = (struct jemalloc_leaf){first, table};
	return 0;
}

/* Adds the tables below one. -EAGAIN: an entry leads to no table. */
static int leaves_list(struct jemalloc_cursor *cursor, struct space *space,
		       const struct jemalloc_blocks *blocks, unsigned int level, uint64_t at,
		       uint64_t first)
{
	const struct jemalloc_layout *layout = cursor->tree->layout;
	unsigned int shift = jemalloc_table_shift(layout, level);
	struct jemalloc_table *table = calloc(1, sizeof(*table));
	const uint8_t *bytes;
	uint64_t index = 0;
	int err = 0, got = 1;

	if (!table)
		return -ENOMEM;
	table_open(table, space, layout, level, at);
	for (; !err; index++) {
		got = table_next(table, &index, &bytes);
		if (got <= 0)
			break;
		uint64_t below = u64_at(bytes), address = first + (index << shift);

		if (address >> JEMALLOC_ADDRESS_BITS ||
		    !blocks_have(blocks, below, jemalloc_table_bytes(layout, level + 1)))
			err = -EAGAIN;
		else if (level + 2 == layout->levels)
			err = leaf_add(cursor, address, below);
		else
			err = leaves_list(cursor, space, blocks, level + 1, below, address);
	}
	cursor->table.swapped += table->swapped;
	free(table);
	return err ?: got < 0 ? got : 0;
}

/* No table is in two places. */
static int leaves_check(const struct jemalloc_cursor *cursor)
{
	uint64_t bytes =
		jemalloc_table_bytes(cursor->tree->layout, cursor->tree->layout->levels - 1);
	struct jemalloc_leaf *leaves = calloc(cursor->leaf_count + 1, sizeof(*leaves));
	int err = 0;

	if (!leaves)
		return -ENOMEM;
	memcpy(leaves, cursor->leaves, cursor->leaf_count * sizeof(*leaves));
	SORT_BY(leaves, cursor->leaf_count, table);
	for (size_t i = 1; i < cursor->leaf_count && !err; i++)
		err = leaves[i].table - leaves[i - 1].table < bytes ? -EAGAIN : 0;
	free(leaves);
	return err;
}

int jemalloc_cursor_open(struct jemalloc_cursor *cursor, struct jemalloc_tree *tree,
			 struct malloc_reader *reader, struct space *space,
			 const struct jemalloc_blocks *blocks)
{
	*cursor = (struct jemalloc_cursor){.tree = tree, .reader = reader};
	cursor->table.space = space;
	int err = leaves_list(cursor, space, blocks, 0, tree->root, 0);

	err = err ?: cursor->leaf_count ? err : -EAGAIN;
	return err ?: leaves_check(cursor);
}

void jemalloc_cursor_close(struct jemalloc_cursor *cursor)
{
	free(cursor->leaves);
	cursor->leaves = NULL;
	cursor->leaf_count = cursor->leaf_capacity = 0;
}

/* 0 and the element of a page as it is now; -ENOENT: no table has it. */
static int element_look(struct jemalloc_cursor *cursor, uint64_t page, int fresh,
			struct jemalloc_element *out)
{
	const struct jemalloc_layout *layout = cursor->tree->layout;
	const struct jemalloc_table *table = &cursor->table;
	size_t next = SORTED_ABOVE(cursor->leaves, cursor->leaf_count, first, page);
	uint8_t bytes[16];
	uint64_t at;

	if (!next || (page - cursor->leaves[next - 1].first) >> 12 >> layout->index_bits)
		return -ENOENT;
	at = cursor->leaves[next - 1].table +
	     (page - cursor->leaves[next - 1].first) / PAGE * layout->element_bytes;
	if (!fresh && at - table->page < PAGE) {
		*out = jemalloc_element_read(layout, table->bytes + (at - table->page));
		return 0;
	}
	int err = reader_read(cursor->reader, at, bytes, layout->element_bytes, fresh);
	if (!err)
		*out = jemalloc_element_read(layout, bytes);
	return err;
}

/* 0; -ENOENT: the page has no element any more; -EAGAIN: inconsistent; other errors. */
static int extent_try(struct jemalloc_cursor *cursor, uint64_t page, int fresh,
		      struct jemalloc_extent *out)
{
	struct jemalloc_element element, last;
	uint8_t words[JEMALLOC_EXTENT_BYTES];
	int err = element_look(cursor, page, fresh, &element);

	if (err)
		return err;
	if (!element.extent)
		return -ENOENT;
	err = reader_read(cursor->reader, element.extent, words, sizeof(words), fresh);
	if (err)
		return err;
	jemalloc_extent_read(cursor->tree->layout, words, out);
	if (out->start != page || !out->bytes ||
	    out->bytes > (1ull << JEMALLOC_ADDRESS_BITS) - page ||
	    element_look(cursor, page + out->bytes - PAGE, fresh, &last) ||
	    last.extent != element.extent) {
		out->bytes = 0;
		return -EAGAIN;
	}
	if (!jemalloc_extent_fits(out, &element, page, &cursor->tree->sizes))
		return -EAGAIN;
	/* Without a size it is free: on its way into a list or out of one, or in a cache. */
	if (out->state == JEMALLOC_ACTIVE && out->size_class == cursor->tree->sizes.count)
		out->state = JEMALLOC_DIRTY;
	return 0;
}

/* 1; 0: there is none; -ESRCH; -EPERM; -ENOMEM. */
static int extent_look(struct jemalloc_cursor *cursor, uint64_t page, struct jemalloc_extent *out)
{
	int err = -EAGAIN;

	*out = (struct jemalloc_extent){0};
	for (int i = 0; i < TRIES && err && err != -ENOENT && !space_is_fatal(err); i++)
		err = extent_try(cursor, page, i > 0, out);
	/* What was read before may have been divided since: in a large one much would be missed. */
	if (!err && out->bytes >= FRESH_BYTES)
		err = extent_try(cursor, page, 1, out);
	if (err == -ENOENT || space_is_fatal(err))
		return err == -ENOENT ? 0 : err;
	cursor->good += !err;
	cursor->failed += err != 0;
	if (err) {
		out->start = page;
		out->bytes = out->bytes ?: PAGE;
		out->state = JEMALLOC_STATES;
	}
	return 1;
}

int jemalloc_cursor_next(struct jemalloc_cursor *cursor, struct jemalloc_extent *out)
{
	const struct jemalloc_layout *layout = cursor->tree->layout;
	struct jemalloc_table *table = &cursor->table;

	for (; cursor->leaf < cursor->leaf_count; cursor->leaf++) {
		const struct jemalloc_leaf *leaf = &cursor->leaves[cursor->leaf];
		uint64_t index = cursor->at > leaf->first ? (cursor->at - leaf->first) / PAGE : 0;
		const uint8_t *bytes;
		int got;

		if (table->address != leaf->table) {
			uint64_t swapped = table->swapped;

			table_open(table, table->space, layout, layout->levels - 1, leaf->table);
			table->swapped = swapped;
		}
		for (; (got = table_next(table, &index, &bytes)) > 0; index++) {
			if (!jemalloc_element_read(layout, bytes).extent)
				continue;
			got = extent_look(cursor, leaf->first + index * PAGE, out);
			if (got < 0)
				return got;
			if (!got)
				continue;
			cursor->at = out->start + out->bytes;
			return 1;
		}
		if (got < 0)
			return got;
	}
	return 0;
}
