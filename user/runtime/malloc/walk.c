/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Model (malloc/malloc.c). The chunks of a heap follow each other without gaps. A chunk is
 *
 * 	{size of the chunk before it, if that is free; its own size | flags; …}
 *
 * and the flag PREV_INUSE says whether the chunk before it is allocated. So whether a chunk is free
 * is known from the one behind it, and a free chunk's size must also be there. The last chunk is
 * top; where a heap could not grow further, two chunks of less than the least size end it. Chunks
 * in fastbins and caches have the flag of an allocated chunk: the lists tell which are free. The
 * heaps are walked twice: for the caches, then with them.
 */
#include "runtime/malloc/walk.h"

#include <errno.h>
#include <stdlib.h>

#include "proc/memory.h"
#include "proc/process.h"
#include "runtime/malloc/glibc.h"
#include "runtime/malloc/reader.h"
#include "util/array.h"
#include "util/error.h"
#include "util/interrupt.h"
#include "util/sorted.h"

/* --- lists ------------------------------------------------------------------------------------ */

/*
 * Chunks that look allocated by their neighbours' headers, but are free: those in fastbins and in
 * threads' caches (tcache).
 */

/*
 * Model. A free block of such a list begins with the next pointer, at address a, which since 2.32
 * is stored as (a >> 12) ^ next. Fastbins link chunks, caches link what malloc() returned. A cache
 * is an allocated block
 *
 * 	{uint16_t counts[bins]; void *entries[bins]}
 *
 * of its thread's arena; nothing that can be found without the thread's TLS points to it. But no
 * other block has this form, with lists whose lengths are the counts and whose chunks have the
 * sizes of their bins. Since 2.42 a count is what the list still takes; bins from 64 on have chunks
 * of any size.
 */

struct glibc_listed {
	uint64_t address; /* of the chunk */
	uint32_t kind;    /* enum glibc_kind */
};

struct glibc_lists {
	struct glibc_listed *chunks;
	size_t count, capacity;
	uint64_t tcaches, cut;
	uint64_t steps; /* spent so far */
};

#define STEPS_MAX    (1u << 22) /* chunks that are looked at in all lists, with repeats */
#define STEPS_REREAD 16u        /* that another try of a list counts for */
#define TCACHE_BINS  76u
#define SMALL_BINS   64u
#define LENGTH_MAX   65535u /* counts are uint16_t */
#define TRIES        3
#define SHIFT        12

struct tcache {
	uint16_t counts[TCACHE_BINS];
	uint64_t entries[TCACHE_BINS];
};

static uint64_t next_reveal(const struct glibc *glibc, uint64_t at, uint64_t stored)
{
	return glibc->layout->safe_linking ? (at >> SHIFT) ^ stored : stored;
}

static uint64_t bin_bytes(unsigned int bin)
{
	return GLIBC_MIN_CHUNK + (uint64_t)bin * GLIBC_ALIGNMENT;
}

/* -EAGAIN: the limit of all steps is reached. */
static int put(struct glibc_lists *lists, uint64_t chunk, int kind)
{
	int err = lists->steps++ < STEPS_MAX ? 0 : -EAGAIN;

	err = err ?: ARRAY_GROW(lists->chunks, lists->capacity, lists->count);
	if (!err)
		lists->chunks[lists->count++] = (struct glibc_listed){chunk, (uint32_t)kind};
	return err;
}

/* A transient error of a list that changes, rather than the end of the process. */
static bool is_change(int err)
{
	return err == -EFAULT || err == -ENODATA || err == -EAGAIN;
}

/* Before another try: what is cached may be what changed. */
static void reread(struct glibc_lists *lists, struct glibc *glibc)
{
	reader_clear(glibc->reader);
	lists->steps += STEPS_REREAD;
}

/* bytes: the chunks' size. -EAGAIN: the list is inconsistent. */
static int fastbin_read(struct glibc_lists *lists, struct glibc *glibc, uint64_t chunk,
			uint64_t bytes)
{
	while (chunk) {
		uint64_t words[2]; /* size, next */

		if (chunk % GLIBC_ALIGNMENT)
			return -EAGAIN;
		int err = reader_read(glibc->reader, chunk + 8, words, sizeof(words), 0);
		if (!err && (words[0] & ~(uint64_t)GLIBC_SIZE_BITS) != bytes)
			err = -EAGAIN;
		err = err ?: put(lists, chunk, GLIBC_FAST);
		if (err)
			return err;
		chunk = next_reveal(glibc, chunk + GLIBC_HEADER, words[1]);
	}
	return 0;
}

/* 0; -ESRCH; -EPERM; -ENOMEM. The caller releases the lists, also on failure. */
static int glibc_lists_fastbins(struct glibc_lists *lists, struct glibc *glibc)
{
	struct glibc_arena_offsets offsets = glibc_arena_offsets(glibc->layout);
	unsigned int bins = glibc->layout->fastbins;

	for (size_t i = 0; i < glibc->arena_count * bins; i++) {
		uint64_t at = glibc->arenas[i / bins].address + offsets.fastbins + i % bins * 8;
		size_t before = lists->count;
		uint64_t first;
		int err = -EAGAIN;

		/* A list that stays inconsistent keeps what was found of it. */
		for (int try = 0; try < TRIES && is_change(err); try++) {
			lists->count = before;
			if (try)
				reread(lists, glibc);
			err = reader_u64(glibc->reader, at, &first)
				      ?: fastbin_read(lists, glibc, first,
						      bin_bytes((unsigned int)(i % bins)));
		}
		if (err && !is_change(err))
			return err;
		lists->cut += err != 0;
	}
	return 0;
}

/* length: of the list, 0: unknown. The same errors. */
static int entries_read(struct glibc_lists *lists, struct glibc *glibc, uint64_t block,
			unsigned int bin, uint32_t length)
{
	uint32_t count = 0;

	for (; block; count++) {
		uint64_t words[3], bytes; /* size, next, key */

		if (block % GLIBC_ALIGNMENT || count == LENGTH_MAX)
			return -EAGAIN;
		int err = reader_read(glibc->reader, block - 8, words, sizeof(words), 0);
		if (err)
			return err;
		bytes = words[0] & ~(uint64_t)GLIBC_SIZE_BITS;
		if (words[0] & GLIBC_IS_MMAPPED || !words[2] ||
		    (bin < SMALL_BINS ? bytes != bin_bytes(bin)
				      : bytes <= bin_bytes(SMALL_BINS - 1)))
			return -EAGAIN;
		err = put(lists, block - GLIBC_HEADER, GLIBC_TCACHE);
		if (err)
			return err;
		block = next_reveal(glibc, block, words[1]);
	}
	return length && count != length ? -EAGAIN : 0;
}

static int tcache_load(struct glibc *glibc, uint64_t chunk, struct tcache *tcache)
{
	uint32_t bins = glibc->layout->tcache_bins;
	uint64_t at = chunk + GLIBC_HEADER;
	int err = reader_read(glibc->reader, at, tcache->counts, bins * 2, 0);

	return err ?: reader_read(glibc->reader, at + bins * 2, tcache->entries, bins * 8, 0);
}

static int tcache_read(struct glibc_lists *lists, struct glibc *glibc, uint64_t chunk)
{
	struct tcache tcache;
	int err = tcache_load(glibc, chunk, &tcache);

	for (unsigned int i = 0; i < glibc->layout->tcache_bins && !err; i++) {
		/* Before 2.42, the count is 0 exactly if there is no entry. */
		uint32_t length = glibc->layout->tcache_slots ? 0 : tcache.counts[i];

		if (!glibc->layout->tcache_slots && !length != !tcache.entries[i])
			return -EAGAIN;
		if (tcache.entries[i] % GLIBC_ALIGNMENT)
			return -EAGAIN;
		err = entries_read(lists, glibc, tcache.entries[i], i, length);
	}
	return err;
}

/* Most blocks of this size are no caches: this looks at their first entries only. */
static int is_tcache(struct glibc *glibc, uint64_t chunk)
{
	struct tcache tcache;
	int err = tcache_load(glibc, chunk, &tcache);

	for (unsigned int i = 0; i < glibc->layout->tcache_bins && !err; i++)
		if (tcache.entries[i] % GLIBC_ALIGNMENT || tcache.entries[i] >> 47 ||
		    (!glibc->layout->tcache_slots && !tcache.counts[i] != !tcache.entries[i]))
			return 0;
	return err ? (is_change(err) ? 0 : err) : 1;
}

/*
 * Adds the blocks of a cache, if the allocated chunk at this address is one: all counts, addresses
 * and sizes must agree. 1 it is, and it holds blocks; 0; -ESRCH; -EPERM; -ENOMEM.
 */
static int glibc_lists_tcache(struct glibc_lists *lists, struct glibc *glibc, uint64_t chunk)
{
	size_t before = lists->count;
	int plausible = is_tcache(glibc, chunk), err = -EAGAIN;

	if (plausible <= 0)
		return plausible;
	for (int try = 0; try < TRIES && is_change(err); try++) {
		lists->count = before;
		if (try)
			reread(lists, glibc);
		err = tcache_read(lists, glibc, chunk);
	}
	if (err) {
		lists->count = before;
		return is_change(err) ? 0 : err;
	}
	lists->tcaches += lists->count > before;
	return lists->count > before;
}

/* By address, each once. */
static void glibc_lists_sort(struct glibc_lists *lists)
{
	size_t kept = 0;

	SORT_BY(lists->chunks, lists->count, address);
	for (size_t i = 0; i < lists->count; i++)
		if (!kept || lists->chunks[kept - 1].address != lists->chunks[i].address)
			lists->chunks[kept++] = lists->chunks[i];
	lists->count = kept;
}

static void glibc_lists_free(struct glibc_lists *lists)
{
	free(lists->chunks);
	*lists = (struct glibc_lists){0};
}

/* --- walk ------------------------------------------------------------------------------------- */

#define TRIES            3
#define WALK_LEAST_BYTES (64ull << 20)
#define ASKED_CHUNKS     4096u /* between two looks whether we are asked to end */

struct walker {
	struct glibc *glibc;
	struct glibc_lists lists;
	struct glibc_totals totals;
	uint32_t tcache_bytes; /* size of the chunk that a cache is */
	int finding;           /* first walk: caches are searched, nothing is visited */
	size_t listed;         /* the first of lists that is not below the walk */
	glibc_chunk_fn visit;
	void *context;
	int stop;
	uint64_t left; /* chunks that may still be read */
};

struct walk_header {
	uint64_t before, size;
};

static uint64_t size_of(const struct walk_header *header)
{
	return header->size & ~(uint64_t)GLIBC_SIZE_BITS;
}

static int emit(struct walker *walker, uint32_t heap, uint64_t address, uint64_t end, int kind)
{
	struct glibc_chunk chunk = {address, end - address, (enum glibc_kind)kind, heap};

	if (walker->finding || end == address)
		return 0;
	walker->totals.bytes[kind] += chunk.bytes;
	walker->totals.counts[kind]++;
	walker->stop = walker->visit ? walker->visit(&chunk, walker->context) : 0;
	return walker->stop;
}

/*
 * Reads the chunk at `at` and the one behind it. 1: *bytes and *kind are set; 0: it is the end of
 * the heap's chunks; -EAGAIN: inconsistent; other errors of reader_read().
 */
static int chunk_look(struct walker *walker, const struct glibc_heap *heap, uint64_t at, int fresh,
		      uint64_t *bytes, int *kind)
{
	struct malloc_reader *reader = walker->glibc->reader;
	struct walk_header header, behind;
	int err = reader_read(reader, at, &header, sizeof(header), fresh);

	if (err)
		return err;
	*bytes = size_of(&header);
	/* Two chunks without content end a heap that could not grow. */
	if (*bytes <= GLIBC_HEADER && heap->end - at <= 4 * GLIBC_HEADER)
		return 0;
	if (*bytes < GLIBC_MIN_CHUNK || *bytes % GLIBC_ALIGNMENT || *bytes > heap->end - at ||
	    header.size & GLIBC_IS_MMAPPED)
		return -EAGAIN;
	if (heap->end - at - *bytes < GLIBC_HEADER)
		return *bytes == heap->end - at ? (*kind = GLIBC_USED, 1) : -EAGAIN;
	err = reader_read(reader, at + *bytes, &behind, sizeof(behind), fresh);
	if (err)
		return err;
	if (behind.size & GLIBC_PREV_INUSE) {
		*kind = GLIBC_USED;
		return 1;
	}
	*kind = GLIBC_BIN;
	return behind.before == *bytes ? 1 : -EAGAIN;
}

static int chunk_read(struct walker *walker, const struct glibc_heap *heap, uint64_t at,
		      uint64_t *bytes, int *kind)
{
	int got = -EAGAIN;

	for (int i = 0; i < TRIES && got < 0 && got != -ESRCH && got != -EPERM; i++)
		got = chunk_look(walker, heap, at, i > 0, bytes, kind);
	return got;
}

/* The kind of a chunk that its neighbour calls used. Heaps and lists are in order of address. */
static int listed_kind(struct walker *walker, uint64_t at)
{
	const struct glibc_lists *lists = &walker->lists;

	while (walker->listed < lists->count && lists->chunks[walker->listed].address < at)
		walker->listed++;
	if (walker->listed < lists->count && lists->chunks[walker->listed].address == at)
		return (int)lists->chunks[walker->listed].kind;
	return GLIBC_USED;
}

/* A used chunk may be a thread's cache, or in one. */
static int used_look(struct walker *walker, uint64_t at, uint64_t bytes, int *kind)
{
	int got = 0;

	if (!walker->finding)
		*kind = listed_kind(walker, at);
	else if (bytes == walker->tcache_bytes)
		got = glibc_lists_tcache(&walker->lists, walker->glibc, at);
	return got < 0 ? got : 0;
}

static int given_up(void)
{
	return error_set(-ENOTSUP,
			 "its malloc's heaps claim more memory than the process has: the walk of "
			 "them was given up");
}

/*
 * How many chunks both walks may read. malloc's heaps are the process's own memory, of which a page
 * that was never written to has no chunk. What the kernel counts is not exact, and the heaps grow
 * meanwhile.
 */
static uint64_t chunks_limit(pid_t pid)
{
	uint64_t bytes;

	if (process_own_bytes_read(pid, &bytes))
		return UINT64_MAX;
	return 2 * (bytes + bytes / 4 + WALK_LEAST_BYTES) / GLIBC_MIN_CHUNK;
}

static int heap_walk(struct walker *walker, uint32_t number)
{
	const struct glibc_heap *heap = &walker->glibc->heaps[number];
	const struct glibc_arena *arena = &walker->glibc->arenas[heap->arena];
	uint64_t at = heap->first, bytes = 0;
	int kind = GLIBC_USED, got = 1;

	if (emit(walker, number, heap->start, heap->first, GLIBC_OWN))
		return 0;
	while (at < heap->end && at != arena->top && !walker->stop) {
		if (!walker->left--)
			return given_up();
		if (walker->left % ASKED_CHUNKS == 0 && interrupt_pending())
			return error_set(-EINTR,
					 "the walk of malloc's heaps was ended by a signal");
		got = chunk_read(walker, heap, at, &bytes, &kind);
		if (got == -ESRCH || got == -EPERM)
			return got;
		if (got <= 0)
			break;
		if (kind == GLIBC_USED) {
			int err = used_look(walker, at, bytes, &kind);

			if (err)
				return err;
		}
		emit(walker, number, at, at + bytes, kind);
		at += bytes;
	}
	if (walker->stop || at >= heap->end)
		return 0;
	if (at == arena->top && arena->top_bytes <= heap->end - at) {
		emit(walker, number, at, at + arena->top_bytes, GLIBC_TOP);
		at += arena->top_bytes;
		got = 0;
	}
	if (!walker->stop)
		emit(walker, number, at, heap->end, got < 0 ? GLIBC_UNKNOWN : GLIBC_OWN);
	return 0;
}

static int heaps_walk(struct walker *walker)
{
	int err = 0;

	for (uint32_t i = 0; i < walker->glibc->heap_count && !err && !walker->stop; i++)
		err = heap_walk(walker, i);
	return err;
}

int glibc_walk(struct glibc *glibc, glibc_chunk_fn visit, void *context, struct glibc_totals *out)
{
	struct walker walker = {.glibc = glibc,
				.tcache_bytes = glibc_tcache_chunk_bytes(glibc->layout),
				.finding = 1,
				.visit = visit,
				.context = context,
				.left = chunks_limit(space_pid(glibc->space))};

	int err = glibc_lists_fastbins(&walker.lists, glibc) ?: heaps_walk(&walker);
	if (!err) {
		glibc_lists_sort(&walker.lists);
		walker.finding = 0;
		err = heaps_walk(&walker);
	}
	walker.totals.tcaches = walker.lists.tcaches;
	walker.totals.cut = walker.lists.cut;
	walker.totals.swapped = reader_swapped(glibc->reader);
	glibc_lists_free(&walker.lists);
	if (!err)
		*out = walker.totals;
	return err;
}
