/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Model (Include/internal/mimalloc/, pycore_tstate.h). The state of each thread holds four heaps
 * and then the data that they share; each heap has a queue of pages for each size class, and the
 * description of a page is in the segment that holds the page. When a thread ends, its segments go
 * to a pool of the interpreter, from which other threads take them.
 *
 * Where the heaps are in a thread's state differs by release. They are recognised: the first word
 * of each of the four is the address behind the last one.
 *
 * Two lists name blocks that are free although their pages do not say so, or will be: those that
 * another thread returned to a heap whose page was full, and those of which a reader without a lock
 * may still know (QSBR).
 */
#include <errno.h>
#include <stdlib.h>

#include "runtime/cpython/heap_walker.h"
#include "util/array.h"
#include "util/error.h"
#include "util/sorted.h"

#define HEAPS        4u
#define SEARCH_BYTES 2048u /* of a thread's state, before and after the table's offset */
#define MAX_THREADS  65536u
#define MAX_SEGMENTS (1u << 17) /* 4 TiB */
#define MAX_STEPS    (1u << 20) /* along all lists of a kind */
#define SEGMENT_MASK ((1ull << 25) - 1)
#define ADDRESS_BITS 47
#define LOWEST       65536u
/* struct _mem_work_chunk of obmalloc.c: {node, first and last item, items of {block, goal}} */
#define CHUNK_FIRST 16u
#define CHUNK_LAST  24u
#define CHUNK_ITEMS 32u
#define CHUNK_BYTES 4096u
#define ITEM_BYTES  16u
#define ITEM_TAG    7u

enum segments_list { LIST_PAGES, LIST_RETURNED, LIST_WAITING, LIST_ABANDONED, LISTS };

struct segments_finding {
	struct heap_walker *walker;
	const struct free_threaded_offsets *at;
	struct heap_segments *out;
	uint32_t steps[LISTS]; /* that are left */
	uint64_t pool;         /* of abandoned segments; 0: not known yet */
	uint32_t shift;        /* of the heaps' offset against the table's, as an unsigned number */
	int proven;
	uint8_t state[HEAP_THREAD_BYTES]; /* HEAPS heaps */
};

static int is_fatal(int err)
{
	return err == -ESRCH || err == -EPERM || err == -ENOMEM;
}

static int plausible(uint64_t address)
{
	return address >= LOWEST && address < 1ull << ADDRESS_BITS && !(address & 7);
}

/* 0 where nothing can be read; otherwise as the source. */
static uint64_t word(const struct segments_finding *finding, uint64_t address)
{
	uint64_t value;

	return heap_read_bytes(finding->walker, address, &value, sizeof(value)) ? 0 : value;
}

static int segment_add(struct segments_finding *finding, uint64_t address)
{
	struct heap_segments *out = finding->out;

	address &= ~SEGMENT_MASK;
	/* Pages of a queue are mostly of one segment. */
	if (!plausible(address) || out->count >= MAX_SEGMENTS ||
	    (out->count && out->addresses[out->count - 1] == address))
		return 0;
	int err = ARRAY_GROW(out->addresses, out->capacity, out->count);
	if (!err)
		out->addresses[out->count++] = address;
	return err;
}

static int queue_follow(struct segments_finding *finding, uint64_t page)
{
	int err = 0;

	for (; plausible(page) && finding->steps[LIST_PAGES] && !err;
	     finding->steps[LIST_PAGES]--) {
		err = segment_add(finding, page);
		page = word(finding, page + finding->at->page_next);
	}
	return err;
}

static int returned_follow(struct segments_finding *finding, uint64_t block)
{
	struct heap_segments *out = finding->out;
	int err = 0;

	for (; plausible(block) && finding->steps[LIST_RETURNED] && !err;
	     finding->steps[LIST_RETURNED]--) {
		uint64_t next = word(finding, block);

		err = ARRAY_GROW(out->returned, out->returned_capacity, out->returned_count);
		if (!err)
			out->returned[out->returned_count++] = (struct heap_returned){block, next};
		block = next;
	}
	return err;
}

static int chunk_read(struct segments_finding *finding, const uint8_t *chunk)
{
	struct heap_segments *out = finding->out;
	uint64_t first = u64_at(chunk + CHUNK_FIRST), last = u64_at(chunk + CHUNK_LAST);
	int err = 0;

	if (last > (CHUNK_BYTES - CHUNK_ITEMS) / ITEM_BYTES)
		return 0;
	for (; first < last && finding->steps[LIST_WAITING] && !err;
	     first++, finding->steps[LIST_WAITING]--) {
		err = ARRAY_GROW(out->waiting, out->waiting_capacity, out->waiting_count);
		if (!err)
			out->waiting[out->waiting_count++] =
				u64_at(chunk + CHUNK_ITEMS + first * ITEM_BYTES) &
				~(uint64_t)ITEM_TAG;
	}
	return err;
}

/* A list whose head is {next, previous}; a head that is not one is left alone. */
static int waiting_follow(struct segments_finding *finding, uint64_t head)
{
	uint64_t node = word(finding, head);
	uint8_t chunk[CHUNK_BYTES];
	int err = 0;

	for (int first = 1; finding->steps[LIST_WAITING] && node != head && plausible(node) && !err;
	     first = 0) {
		finding->steps[LIST_WAITING]--;
		if (heap_read_bytes(finding->walker, node, chunk, sizeof(chunk)) ||
		    (first && u64_at(chunk + 8) != head))
			return 0;
		err = chunk_read(finding, chunk);
		node = u64_at(chunk);
	}
	return err;
}

/* Whether these bytes, copied from address, are a thread's heaps, each with the same data. */
static int are_heaps(const struct free_threaded_offsets *at, const uint8_t *bytes, uint64_t address)
{
	uint64_t data = address + HEAPS * at->heap_bytes;

	for (unsigned int i = 0; i < HEAPS; i++)
		if (u64_at(bytes + i * at->heap_bytes) != data)
			return 0;
	return 1;
}

/* 1: the heaps of the thread are in finding->state; 0: it has none; -errno. */
static int heaps_read(struct segments_finding *finding, uint64_t tstate, uint32_t offset)
{
	uint32_t bytes = HEAPS * finding->at->heap_bytes;
	int err = heap_read_bytes(finding->walker, tstate + offset, finding->state, bytes);

	if (err)
		return is_fatal(err) ? err : 0;
	return are_heaps(finding->at, finding->state, tstate + offset);
}

/* Finds the offset nearest to the table's at which the heaps are. */
static int heaps_search(struct segments_finding *finding, uint64_t tstate)
{
	uint32_t guess = finding->at->tstate_heaps, distance = 0;
	int found = 0;

	for (; distance <= SEARCH_BYTES && !found; distance += 8) {
		if (distance < guess) {
			found = heaps_read(finding, tstate, guess - distance);
			finding->shift = 0u - distance;
		}
		if (!found) {
			found = heaps_read(finding, tstate, guess + distance);
			finding->shift = distance;
		}
	}
	return found;
}

static int heaps_follow(struct segments_finding *finding, uint64_t tstate, uint64_t heaps)
{
	const struct free_threaded_offsets *at = finding->at;
	int err = waiting_follow(finding, tstate + at->tstate_queue + finding->shift);

	for (unsigned int i = 0; i < HEAPS && !err; i++) {
		const uint8_t *heap = finding->state + i * at->heap_bytes;

		for (unsigned int j = 0; j < at->queue_count && !err; j++)
			err = queue_follow(finding,
					   u64_at(heap + at->heap_queues + j * at->queue_bytes));
		if (!err)
			err = returned_follow(finding, u64_at(heap + at->heap_delayed));
	}
	if (!finding->pool)
		finding->pool = word(finding, heaps + HEAPS * at->heap_bytes + at->tld_abandoned);
	return err;
}

/* The heaps of a thread that is just beginning or ending are empty. */
static int thread_follow(struct segments_finding *finding, uint64_t tstate)
{
	int found;

	if (!finding->proven)
		found = heaps_search(finding, tstate);
	else
		found = heaps_read(finding, tstate, finding->at->tstate_heaps + finding->shift);
	if (found <= 0)
		return found;
	finding->proven = 1;
	return heaps_follow(finding, tstate, tstate + finding->at->tstate_heaps + finding->shift);
}

static int pool_follow(struct segments_finding *finding)
{
	const struct free_threaded_offsets *at = finding->at;
	const uint32_t lists[] = {at->abandoned_visited, at->abandoned_list};
	int err = 0;

	for (unsigned int i = 0; i < 2 && plausible(finding->pool) && !err; i++) {
		/* The lower bits of the second list's head are a counter. */
		uint64_t segment = word(finding, finding->pool + lists[i]) & ~SEGMENT_MASK;

		for (; plausible(segment) && finding->steps[LIST_ABANDONED] && !err;
		     finding->steps[LIST_ABANDONED]--) {
			err = segment_add(finding, segment);
			segment = word(finding, segment + at->segment_next) & ~SEGMENT_MASK;
		}
	}
	return err;
}

/*
 * Segments go from threads to the pool and back: the pool is read after the threads, and the
 * threads once more if that showed any.
 */
static int interpreter_follow(struct segments_finding *finding, uint64_t interpreter)
{
	const struct abi_offsets *abi = &finding->walker->python->abi;
	int err = 0;

	finding->pool = 0;
	for (unsigned int pass = 0, more = 1; pass < 2 && more && !err; pass++) {
		uint64_t tstate = word(finding, interpreter + abi->interp_threads_head);

		for (unsigned int i = 0; i < MAX_THREADS && plausible(tstate) && !err; i++) {
			err = thread_follow(finding, tstate);
			tstate = word(finding, tstate + abi->tstate_next);
		}
		size_t before = finding->out->count;
		if (!err)
			err = pool_follow(finding);
		more = finding->out->count != before;
	}
	/* Blocks that threads left behind; the state's parts move together between releases. */
	return err ?: waiting_follow(finding, interpreter + finding->at->interp_queue);
}

static size_t words_sort(uint64_t *words, size_t count)
{
	size_t kept = 0;

	if (count)
		qsort(words, count, sizeof(*words), key_compare);
	for (size_t i = 0; i < count; i++)
		if (!kept || words[kept - 1] != words[i])
			words[kept++] = words[i];
	return kept;
}

static void returned_sort(struct heap_segments *out)
{
	if (out->returned_count) /* the address comes first in it */
		qsort(out->returned, out->returned_count, sizeof(*out->returned), key_compare);
}

int heap_segments_find(struct heap_segments *segments, struct heap_walker *walker,
		       const struct heap_head *heads, uint32_t count)
{
	struct segments_finding *finding = malloc(sizeof(*finding));
	int err = 0;

	*segments = (struct heap_segments){0};
	if (!finding)
		return -ENOMEM;
	finding->walker = walker;
	finding->at = &walker->python->free_threaded;
	finding->out = segments;
	for (unsigned int i = 0; i < LISTS; i++)
		finding->steps[i] = MAX_STEPS;
	finding->shift = 0;
	finding->proven = 0;
	for (uint32_t i = 0; i < count && !err; i++)
		err = interpreter_follow(finding, heads[i].arenas);
	if (!err && !finding->proven)
		err = error_set(-ENOTSUP,
				"the heaps of its threads are not near %u in their states",
				finding->at->tstate_heaps);
	segments->cut = !finding->steps[LIST_PAGES] || !finding->steps[LIST_ABANDONED];
	segments->count = words_sort(segments->addresses, segments->count);
	segments->waiting_count = words_sort(segments->waiting, segments->waiting_count);
	returned_sort(segments);
	free(finding);
	return err;
}

void heap_segments_free(struct heap_segments *segments)
{
	free(segments->addresses);
	free(segments->returned);
	free(segments->waiting);
	*segments = (struct heap_segments){0};
}
