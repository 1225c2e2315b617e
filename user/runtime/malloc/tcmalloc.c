/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Model (src/page_heap.h, span.h, central_freelist.h, thread_cache.h). All memory is divided into
 * spans of pages (8 KiB, unless it was built for others):
 *
 *	span:	{first page, pages, next, previous, free objects, reference count:16, class:8,
 *		 location:2, …}
 *
 * A span with a class holds objects of one size. Its list of free objects, and the reference count,
 * which counts all others, leave out what is cached: by threads, in a list for each class, and for
 * all threads, in chains between slots of the class's central list. A map of two levels leads from
 * the number of a page to its span; it knows the first and the last page of each.
 *
 * The variables are hidden. PageHeap is recognised by the heads of the lists of free spans, two for
 * each length up to 1 MiB: their number gives the size of a page. In front of them is the root of
 * the map. The sizes of the classes ascend to 256 KiB; each central list has the number of its
 * class; a thread's cache is what a variable points to that has the size of each class where its
 * lists are. The caches' links are at an offset that differs between releases.
 */
#include "runtime/malloc/tcmalloc.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proc/memory.h"
#include "runtime/malloc/reader.h"
#include "runtime/malloc/runs.h"
#include "runtime/malloc/statics.h"
#include "util/array.h"
#include "util/error.h"
#include "util/interrupt.h"
#include "util/sorted.h"
#include "util/word.h"

#define PAGE          SPACE_PAGE
#define ADDRESS_BITS  48u
#define STATICS_LEAST (512u << 10) /* of the root of the map alone */
#define SHIFT_LEAST   12u
#define SHIFT_MOST    18u
#define SPAN_BYTES    48u
#define SET_BYTES     48u /* std::set of large spans; there are two in front of the lists */
#define CLASSES       128u
#define CLASS_MOST    (256u << 10) /* bytes of the largest class */
#define CENTRAL_BYTES 1216u
#define CENTRAL_CLASS 8u
#define CENTRAL_EMPTY 16u   /* a head of a list */
#define CENTRAL_SLOTS 128u  /* {head, tail} */
#define CENTRAL_USED  1152u /* of the slots */
#define SLOTS_MAX     64u
#define LIST_BYTES    32u /* of a thread's cache: {first, length, …, size} */
#define LIST_SIZE     24u
#define CACHE_BYTES   4160u
#define CACHES_MAX    16384u
#define PROOFS_MAX    100000u    /* of what looks like a variable of it */
#define CACHED_MAX    (1u << 24) /* objects in all caches */
#define OBJECTS_MAX   (1u << 17) /* of a span */
#define VARIABLES_MAX 8u         /* that point to a thread's cache */
#define METADATA_GAP  (1u << 20)
#define TRIES         3
#define ASKED_SPANS   4096u
#define VERSION_WORDS "gperftools "

enum span_location { IN_USE, NORMAL, RETURNED };

static const uint32_t link_offsets[] = {4128, 4144}; /* of a cache: {next, previous} */

struct tcmalloc {
	struct space *space; /* shared */
	struct malloc_reader *reader;
	uint64_t heads;   /* address of the lists of free spans; 0: not found */
	uint64_t root;    /* of the page map */
	uint64_t central; /* of the central list of class 0; 0: not found */
	uint32_t page_shift, leaf_bits, root_bits;
	uint32_t class_count;                    /* the first is no class; 0: not found */
	uint32_t sizes[CLASSES], moved[CLASSES]; /* moved: objects of a chain */
	uint64_t variables[VARIABLES_MAX];
	uint32_t variable_count;
	uint32_t proofs;
};

struct tcmalloc_span {
	uint64_t at; /* its own address */
	uint64_t page, pages, objects;
	uint32_t references, class;
	enum span_location location;
};

/* An object in a cache: address << 8 | class. */
struct tcmalloc_walk {
	struct tcmalloc *tcmalloc;
	struct runs runs;
	const struct process_maps *maps;
	uint64_t *cached, *metadata; /* metadata: pages of structures */
	size_t cached_count, cached_capacity, metadata_count, metadata_capacity, metadata_next;
	uint64_t spans;
	uint8_t *state; /* of the objects of a span: enum allocator_kind, OBJECTS_MAX */
};

static bool is_pointer(uint64_t word)
{
	return word >= 65536 && word % 8 == 0 && !(word >> 47);
}

/* --- where it is ------------------------------------------------------------------------------ */

/* A head of a list of spans is a span without pages. */
static bool is_head(const uint8_t *bytes)
{
	return !u64_at(bytes) && !u64_at(bytes + 8) && is_pointer(u64_at(bytes + 16)) &&
	       is_pointer(u64_at(bytes + 24)) && !u64_at(bytes + 32) && !u64_at(bytes + 40);
}

/* Of the page map that is in front of the heads, by the size of a page. */
static void map_place(struct tcmalloc *tcmalloc, uint32_t shift)
{
	uint32_t bits = ADDRESS_BITS - shift;

	tcmalloc->page_shift = shift;
	tcmalloc->leaf_bits = (bits + 1) / 2;
	tcmalloc->root_bits = bits - tcmalloc->leaf_bits;
	tcmalloc->root = tcmalloc->heads - 2ull * SET_BYTES - 8 - (8ull << tcmalloc->root_bits);
}

/* The list of a head leads to a span of so many pages, and that back to it. */
static bool head_is_linked(struct tcmalloc *tcmalloc, uint64_t head, const uint8_t *bytes,
			   uint64_t pages)
{
	uint64_t next = u64_at(bytes + 16), words[4];

	if (next == head || u64_at(bytes + 24) == head)
		return next == u64_at(bytes + 24);
	return !reader_read(tcmalloc->reader, next, words, sizeof(words), 0) && words[1] == pages &&
	       words[3] == head;
}

/*
 * How many heads follow each other. Two of each length lead to spans of it or to themselves: some
 * may change just now.
 */
static uint32_t heads_count(struct tcmalloc *tcmalloc, uint64_t address)
{
	uint32_t most = 2u << (20 - SHIFT_LEAST), count = 0, wrong = 0;
	uint8_t bytes[SPAN_BYTES];

	for (; count <= most; count++) {
		uint64_t head = address + (uint64_t)count * SPAN_BYTES;

		if (reader_read(tcmalloc->reader, head, bytes, sizeof(bytes), 0) || !is_head(bytes))
			break;
		wrong += !head_is_linked(tcmalloc, head, bytes, count / 2 + 1);
	}
	return wrong <= count / 8 ? count : 0;
}

/* A page heap has lists of free spans, a map in front of them, and its counters behind. */
static bool heads_prove(struct tcmalloc *tcmalloc, uint64_t address)
{
	uint32_t count = heads_count(tcmalloc, address), shift = SHIFT_LEAST;
	uint64_t counters[4], allocate;

	while (shift <= SHIFT_MOST && 2u << (20 - shift) != count)
		shift++;
	if (shift > SHIFT_MOST)
		return false;
	tcmalloc->heads = address;
	map_place(tcmalloc, shift);
	/* {system, free, unmapped, committed}; in front of the sets a function. */
	bool is = !reader_read(tcmalloc->reader, address + (uint64_t)count * SPAN_BYTES, counters,
			       sizeof(counters), 0) &&
		  !reader_u64(tcmalloc->reader, address - 2ull * SET_BYTES - 8, &allocate) &&
		  allocate && !(allocate >> 47) && counters[0] && counters[1] <= counters[0] &&
		  counters[2] <= counters[0] && counters[0] % (1ull << shift) == 0;
	if (!is)
		tcmalloc->heads = 0;
	return is;
}

/* The sizes of classes: int 0, 8 or 16, ascending to 256 KiB, then zeros; the moves before them. */
static void sizes_look(struct tcmalloc *tcmalloc, const uint8_t *bytes, size_t at, size_t size)
{
	uint32_t last = 0, count = 1;

	if (tcmalloc->class_count || at < CLASSES * 4 || at + CLASSES * 4 > size ||
	    u32_at(bytes + at) || (u32_at(bytes + at + 4) != 8 && u32_at(bytes + at + 4) != 16))
		return;
	for (; count < CLASSES && last < CLASS_MOST; count++) {
		uint32_t next = u32_at(bytes + at + (size_t)count * 4);

		if (next <= last || next > CLASS_MOST || next % 8)
			return;
		last = next;
	}
	if (last != CLASS_MOST || count < 16)
		return;
	for (uint32_t i = 0; i < count; i++) {
		tcmalloc->sizes[i] = u32_at(bytes + at + (size_t)i * 4);
		tcmalloc->moved[i] = u32_at(bytes + at - CLASSES * 4 + (size_t)i * 4);
	}
	tcmalloc->class_count = count;
}

/* The central list of class 1 is at the address; those of others follow it. */
static bool central_prove(struct tcmalloc *tcmalloc, uint64_t address)
{
	uint8_t bytes[CENTRAL_EMPTY + SPAN_BYTES];

	for (uint32_t i = 0; i < 16; i++)
		if (reader_read(tcmalloc->reader, address + (uint64_t)i * CENTRAL_BYTES, bytes,
				sizeof(bytes), 0) ||
		    u64_at(bytes + CENTRAL_CLASS) != i + 1 || !is_head(bytes + CENTRAL_EMPTY))
			return false;
	tcmalloc->central = address - CENTRAL_BYTES;
	return true;
}

/* Looks for what is found by its own form. */
static int forms_look(uint64_t address, const uint8_t *bytes, size_t size, void *state)
{
	struct tcmalloc *tcmalloc = state;

	for (size_t at = 0; at + 128 <= size; at += 8) {
		if (!tcmalloc->heads && is_head(bytes + at) && is_head(bytes + at + SPAN_BYTES) &&
		    tcmalloc->proofs++ < PROOFS_MAX && heads_prove(tcmalloc, address + at))
			at += 2 * SPAN_BYTES;
		else if (!tcmalloc->central && u64_at(bytes + at + CENTRAL_CLASS) == 1 &&
			 is_head(bytes + at + CENTRAL_EMPTY))
			central_prove(tcmalloc, address + at);
		/* The sizes may begin at half a word. */
		sizes_look(tcmalloc, bytes, at, size);
		sizes_look(tcmalloc, bytes, at + 4, size);
	}
	return 0;
}

/* 1: a thread's cache is at the address; 0; -errno. */
static int cache_check(struct tcmalloc *tcmalloc, uint64_t address)
{
	for (uint32_t i = 1; i < tcmalloc->class_count; i++) {
		uint32_t size;
		int err = reader_read(tcmalloc->reader,
				      address + (uint64_t)i * LIST_BYTES + LIST_SIZE, &size,
				      sizeof(size), 0);

		if (err)
			return space_is_fatal(err) ? err : 0;
		if (size != tcmalloc->sizes[i])
			return 0;
	}
	return 1;
}

static int variables_look(uint64_t address, const uint8_t *bytes, size_t size, void *state)
{
	struct tcmalloc *tcmalloc = state;
	uint32_t *count = &tcmalloc->variable_count;

	for (size_t at = 0; at + 8 <= size && *count < VARIABLES_MAX; at += 8) {
		uint64_t word = u64_at(bytes + at);
		int got = 0;

		if (is_pointer(word) && word % 64 == 0 && tcmalloc->proofs++ < PROOFS_MAX)
			got = cache_check(tcmalloc, word);
		if (got < 0)
			return got;
		if (got && (!*count || tcmalloc->variables[*count - 1] < address + at))
			tcmalloc->variables[(*count)++] = address + at;
	}
	return 0;
}

static void version_read(pid_t pid, const struct statics *statics, char version[ALLOCATOR_VERSION])
{
	size_t bytes;
	char *text, *at;

	if (statics_constants(pid, statics->file, STATICS_TEXT, &text, &bytes))
		return;
	at = memmem(text, bytes, VERSION_WORDS, strlen(VERSION_WORDS));
	if (at) {
		at += strlen(VERSION_WORDS);
		snprintf(version, ALLOCATOR_VERSION, "%.*s", (int)strspn(at, "0123456789."), at);
	}
	free(text);
}

/* Whether one file's variables are those of tcmalloc. 0; -ENOENT; -errno. */
static int file_look(struct tcmalloc *tcmalloc, const struct statics *statics)
{
	int err = statics_search(tcmalloc->space, statics, forms_look, tcmalloc);

	if (err)
		return err;
	if (!tcmalloc->heads)
		return -ENOENT;
	if (!tcmalloc->class_count || !tcmalloc->central)
		return error_set(-ENOTSUP, "its %s were not found",
				 tcmalloc->central ? "sizes of classes" : "central lists");
	err = statics_search(tcmalloc->space, statics, variables_look, tcmalloc);
	if (!err && !tcmalloc->variable_count)
		err = error_set(-ENOTSUP, "its threads' caches were not found");
	return err;
}

static bool is_named(const struct statics *statics)
{
	return strstr(statics_file_name(statics), "tcmalloc") != NULL;
}

/* Google's own names its memory, if the kernel can. */
static bool is_of_google(const struct process_maps *maps)
{
	for (size_t i = 0; i < maps->count; i++)
		if (!strncmp(maps->entries[i].path, "[anon:tcmalloc_region", 21))
			return true;
	return false;
}

static int tcmalloc_find(struct tcmalloc *tcmalloc, const struct process_maps *maps,
			 char version[ALLOCATOR_VERSION])
{
	struct statics statics;
	bool is_there = false;
	size_t at = 0;
	int err = -ENOENT;

	while (err == -ENOENT && statics_next(maps, &at, &statics)) {
		if (statics.end - statics.start < STATICS_LEAST)
			continue;
		is_there |= is_named(&statics);
		err = file_look(tcmalloc, &statics);
		if (!err)
			version_read(space_pid(tcmalloc->space), &statics, version);
	}
	if (err == -ENOENT && is_of_google(maps))
		err = error_set(-ENOTSUP, "it is Google's, of which only the size is known");
	else if (err == -ENOENT && is_there)
		err = error_set(-ENOTSUP, "its page heap is not that of gperftools 2.10 to 2.18");
	return err;
}

static void tcmalloc_close(void *state)
{
	struct tcmalloc *tcmalloc = state;

	reader_free(tcmalloc->reader);
	space_close(tcmalloc->space);
	free(tcmalloc);
}

static int tcmalloc_open(void **state, struct space *space, const struct process_maps *maps,
			 char version[ALLOCATOR_VERSION])
{
	struct tcmalloc *tcmalloc = calloc(1, sizeof(*tcmalloc));
	int err = tcmalloc ? reader_new(&tcmalloc->reader, space) : -ENOMEM;

	if (err) {
		free(tcmalloc);
		return err;
	}
	snprintf(version, ALLOCATOR_VERSION, "gperftools");
	tcmalloc->space = space_share(space);
	err = -ENOTSUP;
	for (int try = 0; try < TRIES && err == -ENOTSUP; try++) {
		reader_clear(tcmalloc->reader);
		err = tcmalloc_find(tcmalloc, maps, version);
	}
	if (err) {
		tcmalloc_close(tcmalloc);
		return err;
	}
	*state = tcmalloc;
	return 0;
}

/* --- caches ----------------------------------------------------------------------------------- */

static int metadata_add(struct tcmalloc_walk *walk, uint64_t address)
{
	uint64_t page = address / PAGE * PAGE;

	if (walk->metadata_count && walk->metadata[walk->metadata_count - 1] == page)
		return 0;
	int err = ARRAY_GROW(walk->metadata, walk->metadata_capacity, walk->metadata_count);
	if (!err)
		walk->metadata[walk->metadata_count++] = page;
	return err;
}

static int metadata_add_range(struct tcmalloc_walk *walk, uint64_t address, uint64_t bytes)
{
	int err = 0;

	for (uint64_t at = address; at < address + bytes && !err; at += PAGE)
		err = metadata_add(walk, at);
	return err ?: metadata_add(walk, address + bytes - 1);
}

static int cached_add(struct tcmalloc_walk *walk, uint64_t object, uint32_t class)
{
	int err = walk->cached_count < CACHED_MAX ? 0 : -EAGAIN;

	err = err ?: ARRAY_GROW(walk->cached, walk->cached_capacity, walk->cached_count);
	if (!err)
		walk->cached[walk->cached_count++] = object << 8 | class;
	return err;
}

/*
 * Adds the objects of a list that has `count`, and ends with `last` if that is not 0. -EAGAIN: it
 * is another list.
 */
static int list_follow(struct tcmalloc_walk *walk, uint64_t object, uint64_t last, uint32_t count,
		       uint32_t class, int fresh)
{
	uint32_t found = 0;

	for (; object; found++) {
		uint64_t next;

		if (found == count || !is_pointer(object))
			return -EAGAIN;
		int err = cached_add(walk, object, class);
		err = err
			      ?: reader_read(walk->tcmalloc->reader, object, &next, sizeof(next),
					     fresh);
		if (err)
			return err;
		object = object == last ? 0 : next;
	}
	return found == count ? 0 : -EAGAIN;
}

/* What a list of a cache, or a slot of a central list, has at an address. */
struct tcmalloc_list {
	uint64_t first, second; /* second: its length, or the last object */
};

/* Lists change while they are read: the last try counts, and what is wrong in it is told. */
static int list_read(struct tcmalloc_walk *walk, uint64_t address, uint32_t class, bool is_chain)
{
	size_t before = walk->cached_count;
	int err = -EAGAIN;

	for (int try = 0; try < TRIES && err && !space_is_fatal(err); try++) {
		struct tcmalloc_list list;

		walk->cached_count = before;
		err = reader_read(walk->tcmalloc->reader, address, &list, sizeof(list), try > 0);
		err = err
			      ?: list_follow(walk, list.first, is_chain ? list.second : 0,
					     is_chain ? walk->tcmalloc->moved[class]
						      : (uint32_t)list.second,
					     class, try > 0);
	}
	walk->runs.totals->cut += err != 0;
	return space_is_fatal(err) ? err : 0;
}

static int cache_read(struct tcmalloc_walk *walk, uint64_t cache)
{
	int err = metadata_add_range(walk, cache, CACHE_BYTES);

	for (uint32_t i = 1; i < walk->tcmalloc->class_count && !err; i++)
		err = list_read(walk, cache + (uint64_t)i * LIST_BYTES, i, false);
	walk->runs.totals->caches++;
	return err;
}

/* A neighbour of a cache in the list: 0: none; UINT64_MAX: what is there is no link. */
static uint64_t link_read(struct tcmalloc *tcmalloc, uint64_t cache, uint32_t offset)
{
	uint64_t to;

	if (reader_u64(tcmalloc->reader, cache + offset, &to))
		return UINT64_MAX;
	return !to || (is_pointer(to) && cache_check(tcmalloc, to) == 1) ? to : UINT64_MAX;
}

/*
 * Follows the links at an offset from a cache, backwards to the first one and then to the last. The
 * number of caches, 0: they are no links.
 */
static uint32_t links_follow(struct tcmalloc *tcmalloc, uint64_t cache, uint32_t offset,
			     uint64_t *first)
{
	uint32_t count = 0;
	uint64_t to = cache;

	for (; to && to != UINT64_MAX && count < CACHES_MAX; count++) {
		*first = to;
		to = link_read(tcmalloc, to, offset + 8);
	}
	if (to)
		return 0;
	for (count = 0, to = *first; to && to != UINT64_MAX && count < CACHES_MAX; count++)
		to = link_read(tcmalloc, to, offset);
	return to ? 0 : count;
}

/* The offset of the links is the one with which more caches are found. */
static uint64_t caches_find(struct tcmalloc *tcmalloc, uint32_t *offset, uint32_t *count)
{
	uint64_t first = 0;

	*count = 0;
	for (uint32_t i = 0; i < tcmalloc->variable_count; i++) {
		uint64_t cache, begin = 0;

		if (reader_u64(tcmalloc->reader, tcmalloc->variables[i], &cache) ||
		    !is_pointer(cache) || cache_check(tcmalloc, cache) != 1)
			continue;
		for (size_t n = 0; n < ARRAY_SIZE(link_offsets); n++) {
			uint32_t found = links_follow(tcmalloc, cache, link_offsets[n], &begin);

			if (found <= *count)
				continue;
			*count = found;
			*offset = link_offsets[n];
			first = begin;
		}
	}
	return first;
}

static int caches_read(struct tcmalloc_walk *walk)
{
	struct tcmalloc *tcmalloc = walk->tcmalloc;
	uint32_t offset = 0, count = 0;
	uint64_t cache = 0;
	int err = 0;

	for (int try = 0; try < TRIES && !cache; try++) {
		reader_clear(tcmalloc->reader);
		cache = caches_find(tcmalloc, &offset, &count);
	}
	walk->runs.totals->cut += !cache;
	for (; cache && cache != UINT64_MAX && count-- && !err;
	     cache = link_read(tcmalloc, cache, offset))
		err = cache_read(walk, cache);
	return err;
}

static int central_read(struct tcmalloc_walk *walk)
{
	struct tcmalloc *tcmalloc = walk->tcmalloc;
	int err = 0;

	for (uint32_t i = 1; i < tcmalloc->class_count && !err; i++) {
		uint64_t list = tcmalloc->central + (uint64_t)i * CENTRAL_BYTES;
		uint32_t used;

		err = reader_read(tcmalloc->reader, list + CENTRAL_USED, &used, sizeof(used), 0);
		if (err || used > SLOTS_MAX) {
			walk->runs.totals->cut++;
			err = space_is_fatal(err) ? err : 0;
			continue;
		}
		for (uint32_t n = 0; n < used && !err; n++)
			err = list_read(walk, list + CENTRAL_SLOTS + n * 16ull, i, true);
	}
	return err;
}

static size_t keys_sort(uint64_t *keys, size_t count)
{
	size_t kept = 0;

	if (count)
		qsort(keys, count, sizeof(*keys), key_compare);
	for (size_t i = 0; i < count; i++)
		if (!kept || keys[kept - 1] != keys[i])
			keys[kept++] = keys[i];
	return kept;
}

/* --- spans ------------------------------------------------------------------------------------ */

/* What the page map's leaves are shown to; pages ascend. Returns non-zero to stop. */
typedef int (*map_fn)(struct tcmalloc_walk *walk, uint64_t page, uint64_t span);

static int leaf_walk(struct tcmalloc_walk *walk, uint64_t leaf, uint64_t first, map_fn look)
{
	const struct tcmalloc *tcmalloc = walk->tcmalloc;
	uint64_t words[PAGE / 8], count = 1ull << tcmalloc->leaf_bits;
	uint8_t pages[SPACE_PAGES] = {0};
	int err = 0;

	for (uint64_t i = 0; i < count && !err; i += ARRAY_SIZE(words)) {
		uint64_t at = i * 8 / PAGE;

		if (at % SPACE_PAGES == 0)
			err = space_pages(tcmalloc->space, leaf + at * PAGE, SPACE_PAGES, pages);
		if (err || pages[at % SPACE_PAGES] == SPACE_ZERO)
			continue;
		err = reader_read(tcmalloc->reader, leaf + i * 8, words, sizeof(words), 0);
		if (err) {
			walk->runs.totals->cut++;
			err = space_is_fatal(err) ? err : 0;
			continue;
		}
		for (size_t n = 0; n < ARRAY_SIZE(words) && !err; n++)
			if (is_pointer(words[n]))
				err = look(walk, first + i + n, words[n]);
	}
	return err;
}

/* Shows all pages that the map has. */
static int map_walk(struct tcmalloc_walk *walk, map_fn look)
{
	const struct tcmalloc *tcmalloc = walk->tcmalloc;
	uint64_t count = 1ull << tcmalloc->root_bits;
	int err = 0;

	for (uint64_t i = 0; i < count && !err; i++) {
		uint64_t leaf;

		err = reader_u64(tcmalloc->reader, tcmalloc->root + i * 8, &leaf);
		if (!err && is_pointer(leaf))
			err = leaf_walk(walk, leaf, i << tcmalloc->leaf_bits, look);
		if (err < 0 && !space_is_fatal(err)) {
			walk->runs.totals->cut++;
			err = 0;
		}
	}
	return err;
}

static int metadata_look(struct tcmalloc_walk *walk, uint64_t page, uint64_t span)
{
	(void)page;
	return metadata_add(walk, span);
}

static int leaves_add(struct tcmalloc_walk *walk)
{
	const struct tcmalloc *tcmalloc = walk->tcmalloc;
	int err = 0;

	for (uint64_t i = 0; i < 1ull << tcmalloc->root_bits && !err; i++) {
		uint64_t leaf;

		if (!reader_u64(tcmalloc->reader, tcmalloc->root + i * 8, &leaf) &&
		    is_pointer(leaf))
			err = metadata_add_range(walk, leaf, 8ull << tcmalloc->leaf_bits);
	}
	return err;
}

/* Two pages of structures are one map's: what is between them is, too, if no span is. */
static bool is_between(const struct tcmalloc_walk *walk, uint64_t from, uint64_t to)
{
	const struct process_maps *maps = walk->maps;
	size_t i = SORTED_ABOVE(maps->entries, maps->count, end, from);

	return to - from <= METADATA_GAP && i < maps->count && maps->entries[i].start <= from &&
	       to <= maps->entries[i].end;
}

/* Visits structures up to an address. */
static int metadata_put(struct tcmalloc_walk *walk, uint64_t limit)
{
	struct runs *runs = &walk->runs;
	int stop = 0;

	for (; walk->metadata_next < walk->metadata_count && !stop; walk->metadata_next++) {
		uint64_t start = walk->metadata[walk->metadata_next], end = start + PAGE;

		if (start >= limit)
			break;
		if (start < runs->end)
			continue; /* a structure of another moment */
		if (runs->last.count && runs->last.kind == ALLOCATOR_METADATA &&
		    is_between(walk, runs->end, end))
			start = runs->end;
		stop = runs_put(runs, start, end - start, 1, ALLOCATOR_METADATA);
	}
	return stop;
}

/* 0; -EAGAIN: it is no span that begins at this page. */
static int span_read(struct tcmalloc *tcmalloc, uint64_t page, uint64_t at, int fresh,
		     struct tcmalloc_span *out)
{
	uint64_t words[SPAN_BYTES / 8];
	int err = reader_read(tcmalloc->reader, at, words, sizeof(words), fresh);

	if (err)
		return err;
	*out = (struct tcmalloc_span){.at = at,
				      .page = words[0],
				      .pages = words[1],
				      .objects = words[4],
				      .references = words[5] & 0xffff,
				      .class = words[5] >> 16 & 0xff,
				      .location = (enum span_location)(words[5] >> 24 & 3)};
	return out->page == page && out->pages &&
			       out->pages <= (1ull << (47 - tcmalloc->page_shift)) - page &&
			       out->location <= RETURNED && out->class < tcmalloc->class_count
		       ? 0
		       : -EAGAIN;
}

/* Marks the span's own free objects. 0: they and the reference count are all that it has. */
static int objects_mark(struct tcmalloc_walk *walk, const struct tcmalloc_span *span,
			uint64_t start, uint32_t count, int fresh)
{
	uint64_t size = walk->tcmalloc->sizes[span->class], object = span->objects;
	uint32_t found = 0;

	memset(walk->state, ALLOCATOR_USED, count);
	while (object) {
		uint64_t number = (object - start) / size;

		if (object < start || number >= count || (object - start) % size ||
		    walk->state[number] != ALLOCATOR_USED)
			return -EAGAIN;
		walk->state[number] = ALLOCATOR_FREE;
		found++;
		int err =
			reader_read(walk->tcmalloc->reader, object, &object, sizeof(object), fresh);
		if (err)
			return err;
	}
	return found + span->references == count ? 0 : -EAGAIN;
}

static void cached_mark(struct tcmalloc_walk *walk, const struct tcmalloc_span *span,
			uint64_t start, uint32_t count)
{
	uint64_t size = walk->tcmalloc->sizes[span->class];
	size_t i = keys_from(walk->cached, walk->cached_count, start << 8);

	for (; i < walk->cached_count; i++) {
		uint64_t at = (walk->cached[i] >> 8) - start;

		if (at >= count * size)
			return;
		if (at % size == 0 && (walk->cached[i] & 0xff) == span->class &&
		    walk->state[at / size] == ALLOCATOR_USED)
			walk->state[at / size] = ALLOCATOR_CACHED;
	}
}

static int objects_put(struct tcmalloc_walk *walk, const struct tcmalloc_span *span, uint64_t start,
		       uint32_t count)
{
	uint64_t bytes = span->pages << walk->tcmalloc->page_shift;
	uint64_t size = walk->tcmalloc->sizes[span->class];
	struct allocator_class *class = runs_class(walk->runs.totals, size);
	int stop = runs_put_blocks(&walk->runs, start, size, walk->state, count, class);

	if (class) {
		class->slabs++;
		class->slab_bytes += bytes;
	}
	return stop
		       ?: runs_put(&walk->runs, start + count * size, bytes - count * size, 1,
				   ALLOCATOR_FREE);
}

/* A span of objects, which is read again if it is inconsistent. */
static int objects_visit(struct tcmalloc_walk *walk, struct tcmalloc_span span)
{
	uint32_t shift = walk->tcmalloc->page_shift;
	uint64_t start = span.page << shift, bytes = span.pages << shift;
	uint64_t count = bytes / walk->tcmalloc->sizes[span.class];
	int err = -EAGAIN;

	for (int try = 0; try < TRIES && err && !space_is_fatal(err); try++) {
		struct tcmalloc_span now = span;

		if (try)
			err = span_read(walk->tcmalloc, span.page, span.at, 1, &now);
		if (count > OBJECTS_MAX || now.class != span.class || now.pages != span.pages)
			break;
		err = objects_mark(walk, &now, start, (uint32_t)count, try > 0);
	}
	if (space_is_fatal(err))
		return err;
	walk->runs.totals->cut += err != 0;
	if (err && err != -EAGAIN)
		return runs_put(&walk->runs, start, bytes, 1, ALLOCATOR_UNKNOWN);
	if (count > OBJECTS_MAX)
		return runs_put(&walk->runs, start, bytes, 1, ALLOCATOR_UNKNOWN);
	cached_mark(walk, &span, start, (uint32_t)count);
	return objects_put(walk, &span, start, (uint32_t)count);
}

static int span_look(struct tcmalloc_walk *walk, uint64_t page, uint64_t at)
{
	struct tcmalloc *tcmalloc = walk->tcmalloc;
	uint64_t start = page << tcmalloc->page_shift;
	struct tcmalloc_span span;

	if (walk->spans++ % ASKED_SPANS == 0 && interrupt_pending())
		return error_set(-EINTR, "the walk of tcmalloc's heap was ended by a signal");
	/* Pages within a span lead to it, or to one of before. */
	if (start < walk->runs.end && walk->runs.last.kind != ALLOCATOR_METADATA)
		return 0;
	int err = span_read(tcmalloc, page, at, 0, &span);
	if (err)
		return space_is_fatal(err) ? err : 0;
	err = metadata_put(walk, start);
	if (err || start < walk->runs.end)
		return err;
	if (span.location == IN_USE && span.class)
		return objects_visit(walk, span);
	return runs_put(&walk->runs, start, span.pages << tcmalloc->page_shift, 1,
			span.location == NORMAL     ? ALLOCATOR_DIRTY
			: span.location == RETURNED ? ALLOCATOR_RETAINED
						    : ALLOCATOR_USED);
}

static int tcmalloc_visit(struct tcmalloc_walk *walk)
{
	/* What leaves a central list after caches were read counts as used: these come last. */
	int err = leaves_add(walk)
		  ?: map_walk(walk, metadata_look)
		  ?: caches_read(walk)
		  ?: central_read(walk);

	if (err)
		return err;
	walk->cached_count = keys_sort(walk->cached, walk->cached_count);
	walk->metadata_count = keys_sort(walk->metadata, walk->metadata_count);
	return map_walk(walk, span_look) ?: metadata_put(walk, UINT64_MAX) ?: runs_end(&walk->runs);
}

static int tcmalloc_walk(void *state, const struct process_maps *maps, allocator_run_fn visit,
			 void *context, struct allocator_totals *totals)
{
	struct tcmalloc *tcmalloc = state;
	struct tcmalloc_walk walk = {.tcmalloc = tcmalloc,
				     .runs = {.visit = visit, .context = context, .totals = totals},
				     .maps = maps,
				     .state = malloc(OBJECTS_MAX)};
	uint64_t swapped = reader_swapped(tcmalloc->reader), system;
	int err = walk.state ? 0 : -ENOMEM;

	reader_clear(tcmalloc->reader);
	if (!err && reader_u64(tcmalloc->reader, tcmalloc->root, &system))
		err = error_set(-ENOTSUP, "its variables cannot be read any more");
	err = err ?: tcmalloc_visit(&walk);
	totals->swapped = reader_swapped(tcmalloc->reader) - swapped;
	free(walk.cached);
	free(walk.metadata);
	free(walk.state);
	return err;
}

static bool tcmalloc_has_variable(const void *state, uint64_t start, uint64_t end)
{
	const struct tcmalloc *tcmalloc = state;

	return tcmalloc->root >= start && tcmalloc->root < end;
}

const struct allocator_type tcmalloc_allocator = {.name = "tcmalloc",
						  .purge = "MallocExtension::ReleaseFreeMemory()",
						  .open = tcmalloc_open,
						  .close = tcmalloc_close,
						  .walk = tcmalloc_walk,
						  .has_variable = tcmalloc_has_variable,
						  .has_classes = true};
