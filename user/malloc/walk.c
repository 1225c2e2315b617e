/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Model (malloc/malloc.c). The chunks of a heap follow each other without gaps. A chunk is
 *
 * 	{size of the chunk before it, if that is free; its own size | flags; …}
 *
 * and the flag PREV_INUSE says whether the chunk before it is allocated. So whether a chunk is free
 * is known from the one behind it, and a free chunk's size must also be there. The last chunk is
 * top; where a heap could not grow further, two chunks of less than the least size end it. Chunks
 * in fastbins and caches have the flag of an allocated chunk: lists.h finds them. The heaps are
 * walked twice: for the caches, then with them.
 */
#include "malloc/walk.h"

#include <errno.h>
#include <string.h>

#include "base/error.h"
#include "base/interrupt.h"
#include "malloc/lists.h"
#include "malloc/reader.h"
#include "process/memory.h"
#include "process/process.h"

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

struct header {
	uint64_t before, size;
};

static uint64_t size_of(const struct header *header)
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
	struct reader *reader = walker->glibc->reader;
	struct header header, behind;
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
	int err;

	err = glibc_lists_fastbins(&walker.lists, glibc);
	if (!err)
		err = heaps_walk(&walker);
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
