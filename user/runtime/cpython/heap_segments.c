/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Model (Include/internal/mimalloc/). A segment, 32 MiB unless it holds one huge block, is divided
 * into slices of 64 KiB. It begins with the descriptions of all slices; that of a page's first
 * slice describes the page. A page holds blocks of one size. Its first `capacity` blocks were
 * handed out at least once; those on its lists free, local_free and thread_free are free. Blocks on
 * the last one still count as used:
 *
 *	capacity - |free| - |local_free| = used
 *
 * A page that violates this was read during a change: it is read again, and counted as unreadable
 * if that does not help. So is a segment that is none: the cookies of all segments differ from
 * their addresses by the same bits, and a page reserves as many blocks as fit.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "proc/memory.h"
#include "runtime/cpython/heap_walker.h"
#include "util/array.h"
#include "util/cleanup.h"
#include "util/error.h"
#include "util/sorted.h"

/* A block that another thread freed and that its owner has not taken back yet. */
struct heap_returned {
	uint64_t address, next; /* next: its first word while it is on that list */
};

/* What the threads' states lead to. */
struct heap_segments {
	uint64_t *addresses; /* sorted, each once */
	size_t count, capacity;
	struct heap_returned *returned; /* sorted */
	size_t returned_count, returned_capacity;
	uint64_t *waiting; /* sorted: blocks to be freed once no thread reads them any more */
	size_t waiting_count, waiting_capacity;
	int cut; /* 1: lists were too long: segments may be missing */
};

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
static bool are_heaps(const struct free_threaded_offsets *at, const uint8_t *bytes,
		      uint64_t address)
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
		return space_is_fatal(err) ? err : 0;
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
		err = err ?: returned_follow(finding, u64_at(heap + at->heap_delayed));
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
		err = err ?: pool_follow(finding);
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

/* As heap_segments_read(); the caller frees with heap_segments_free(), also after a failure. */
static int heap_segments_find(struct heap_segments *segments, struct heap_walker *walker,
			      const struct heap_head *heads, uint32_t count)
{
	_cleanup_free_ struct segments_finding *finding = malloc(sizeof(*finding));
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
	return err;
}

static void heap_segments_free(struct heap_segments *segments)
{
	free(segments->addresses);
	free(segments->returned);
	free(segments->waiting);
	*segments = (struct heap_segments){0};
}

#define TRIES         6
#define SLICE         65536u
#define SEGMENT_BYTES (1ull << 25)
#define PAGE_BYTES    (8 * SLICE) /* of a page with more than one block */
#define MAX_BLOCKS    (PAGE_BYTES / 8)
#define MAX_SEGMENT   (1u << 17)   /* bytes of a segment's descriptions */
#define HUGE_BLOCK    (1ull << 31) /* the size of a block as large or larger */
#define HUGE          1u           /* mi_segment_kind_t */
#define PREFIX        4096u        /* what is read of a block that is alone in its page */
#define UNREAD_STEP   16u
#define FLAGS         3u /* in thread_free */

struct segment_page {
	uint64_t start, end; /* of its memory */
	uint64_t blocks;     /* address of its first block */
	uint64_t block_bytes;
	uint32_t capacity, used;
	uint64_t lists[3];
};

struct segment_walk {
	struct heap_walker *walker;
	const struct free_threaded_offsets *at;
	struct heap_segments found;
	uint64_t secret; /* a cookie ^ its address */
	int has_secret;
	uint64_t address; /* of the segment */
	uint8_t descriptions[MAX_SEGMENT];
	uint8_t content[PAGE_BYTES];
	uint8_t state[MAX_BLOCKS]; /* enum heap_block, by number */
};

static uint32_t u16_at(const uint8_t *bytes)
{
	uint16_t value;

	memcpy(&value, bytes, sizeof(value));
	return value;
}

/* Small blocks do not begin at the start of a slice. */
static uint64_t first_block(uint64_t block_bytes)
{
	return block_bytes <= 64 ? 3 * block_bytes : block_bytes <= 512 ? block_bytes : 0;
}

/* 1: the slice with that number begins a page, *page has it; 0: it does not; -EAGAIN: damaged. */
static int page_describe(const struct segment_walk *walk, const uint8_t *slice, uint32_t number,
			 struct segment_page *page)
{
	const struct free_threaded_offsets *at = walk->at;
	uint64_t bytes = u32_at(slice + at->page_block), room;
	uint32_t slices = u32_at(slice + at->page_slices);

	if (!bytes || !slices || u32_at(slice + at->page_slice_offset))
		return 0;
	*page = (struct segment_page){
		.start = walk->address + (uint64_t)number * SLICE,
		.capacity = u16_at(slice + at->page_capacity),
		.used = u32_at(slice + at->page_used),
		.lists = {u64_at(slice + at->page_free), u64_at(slice + at->page_local),
			  u64_at(slice + at->page_thread) & ~(uint64_t)FLAGS}};
	room = (uint64_t)slices * SLICE;
	page->end = page->start + room;
	/* A page that was just taken has no blocks yet. */
	if (!page->capacity)
		return 0;
	page->blocks = page->start + first_block(bytes);
	room -= first_block(bytes);
	page->block_bytes = bytes < HUGE_BLOCK ? bytes : room;
	if (bytes % 8 || u16_at(slice + at->page_reserved) != room / page->block_bytes ||
	    page->capacity > room / page->block_bytes ||
	    (page->capacity > 1 && page->end - page->start > PAGE_BYTES))
		return -EAGAIN;
	return 1;
}

/* Marks the blocks of a list. The number of them; -EAGAIN: it is none. */
static int list_mark(struct segment_walk *walk, const struct segment_page *page, uint64_t block)
{
	int count = 0;

	while (block) {
		uint64_t at = block - page->blocks;

		if (at >= page->capacity * page->block_bytes || at % page->block_bytes ||
		    walk->state[at / page->block_bytes])
			return -EAGAIN;
		walk->state[at / page->block_bytes] = HEAP_BLOCK_FREE;
		count++;
		/* A block that is alone in its page may be read in part; its list ends with it. */
		block = u64_at(walk->content + at);
	}
	return count;
}

/* Blocks that were returned to the page's heap, as long as they are on its list. */
static void returned_mark(struct segment_walk *walk, const struct segment_page *page)
{
	const struct heap_segments *found = &walk->found;
	size_t i = SORTED_ABOVE(found->returned, found->returned_count, address, page->blocks - 1);

	for (; i < found->returned_count; i++) {
		uint64_t at = found->returned[i].address - page->blocks;

		if (at >= page->capacity * page->block_bytes)
			return;
		if (at % page->block_bytes == 0 &&
		    u64_at(walk->content + at) == found->returned[i].next)
			walk->state[at / page->block_bytes] = HEAP_BLOCK_FREE;
	}
}

static void waiting_mark(struct segment_walk *walk, const struct segment_page *page)
{
	const struct heap_segments *found = &walk->found;
	size_t i = keys_from(found->waiting, found->waiting_count, page->blocks);

	for (; i < found->waiting_count; i++) {
		uint64_t at = found->waiting[i] - page->blocks;

		if (at >= page->capacity * page->block_bytes)
			return;
		uint8_t *state = &walk->state[at / page->block_bytes];
		if (at % page->block_bytes == 0 && *state == HEAP_BLOCK_LIVE)
			*state = HEAP_BLOCK_WAITING;
	}
}

static uint64_t content_bytes(const struct segment_page *page)
{
	uint64_t bytes = page->capacity * page->block_bytes;

	return bytes <= PAGE_BYTES ? bytes : PREFIX;
}

/* 0: walk->state has the state of each block; -EAGAIN: the page is inconsistent; -errno. */
static int page_check(struct segment_walk *walk, const struct segment_page *page)
{
	int err = heap_read_bytes(walk->walker, page->blocks, walk->content, content_bytes(page));
	uint32_t free_count = 0;

	if (err)
		return err == -ESRCH || err == -EPERM ? err : -EAGAIN;
	memset(walk->state, 0, page->capacity);
	for (unsigned int i = 0; i < 3; i++) {
		int count = list_mark(walk, page, page->lists[i]);

		if (count < 0)
			return count;
		free_count += i < 2 ? (uint32_t)count : 0;
	}
	if (page->capacity - free_count != page->used)
		return -EAGAIN;
	returned_mark(walk, page);
	waiting_mark(walk, page);
	return 0;
}

static void piece_count(struct heap_walk *walk, const struct heap_pool *pool)
{
	for (uint32_t i = 0; i < pool->count; i++) {
		walk->blocks += pool->state[i] != HEAP_BLOCK_FREE;
		walk->bytes += pool->state[i] != HEAP_BLOCK_FREE ? pool->block_bytes : 0;
		walk->waiting_blocks += pool->state[i] == HEAP_BLOCK_WAITING;
		walk->waiting_bytes += pool->state[i] == HEAP_BLOCK_WAITING ? pool->block_bytes : 0;
	}
	walk->pools++;
}

/* The part of a segment that a page's pieces have in common. */
static struct heap_pool piece_begin(const struct segment_walk *walk,
				    const struct segment_page *page)
{
	uint64_t slices = u64_at(walk->descriptions + walk->at->segment_count);
	uint64_t info = u64_at(walk->descriptions + walk->at->segment_info);

	return (struct heap_pool){.arena = walk->address,
				  .arena_bytes = slices * SLICE,
				  .arena_head = info * SLICE,
				  .start = page->start,
				  .block_bytes = page->block_bytes};
}

static void page_visit(struct segment_walk *walk, const struct segment_page *page)
{
	struct heap_walker *walker = walk->walker;
	struct heap_pool piece = piece_begin(walk, page);
	uint64_t most = HEAP_PIECE_BYTES / page->block_bytes;
	uint64_t bytes = content_bytes(page);

	most = !most ? 1 : most > HEAP_PIECE_BLOCKS ? HEAP_PIECE_BLOCKS : most;
	for (uint32_t i = 0; i < page->capacity && !walker->stop; i += piece.count) {
		uint64_t at = i * page->block_bytes;

		piece.address = page->blocks + at;
		piece.count = page->capacity - i < most ? page->capacity - i : (uint32_t)most;
		piece.state = walk->state + i;
		piece.content = walk->content + at;
		piece.content_bytes = piece.count * page->block_bytes;
		if (piece.content_bytes > bytes - at)
			piece.content_bytes = bytes - at;
		piece.end = i + piece.count == page->capacity
				    ? page->end
				    : piece.address + piece.count * page->block_bytes;
		piece_count(walker->walk, &piece);
		walker->stop = walker->visit(&piece, walker->context);
		piece.start = piece.end;
	}
}

static void page_give_up(struct segment_walk *walk, const struct segment_page *page)
{
	struct heap_walker *walker = walk->walker;
	struct heap_pool piece = piece_begin(walk, page);

	piece.block_bytes = 0;
	memset(walk->state, 0, HEAP_PIECE_BLOCKS);
	for (uint64_t at = page->start; at < page->end && !walker->stop; at += HEAP_PIECE_BYTES) {
		piece.start = piece.address = at;
		piece.end = at + HEAP_PIECE_BYTES;
		piece.count = HEAP_PIECE_BYTES / UNREAD_STEP;
		piece.state = walk->state;
		walker->walk->pools_unreadable++;
		walker->stop = walker->visit(&piece, walker->context);
		if (page->end - page->start > PAGE_BYTES) {
			piece.end = page->end;
			return;
		}
	}
}

/* The page's description is read again after a failure. 0; -ESRCH; -EPERM. */
static int page_read(struct segment_walk *walk, uint32_t number, uint32_t slices)
{
	const struct free_threaded_offsets *at = walk->at;
	uint64_t offset = at->segment_slices + (uint64_t)number * at->page_bytes;
	uint8_t *slice = walk->descriptions + offset;
	struct segment_page page;
	int err;

	for (int i = 0; i < TRIES; i++) {
		if (i) {
			err = heap_read_bytes(walk->walker, walk->address + offset, slice,
					      at->page_bytes);
			if (err)
				return err == -EFAULT ? 0 : err;
		}
		err = page_describe(walk, slice, number, &page);
		if (!err)
			return 0;
		if (err > 0)
			err = page_check(walk, &page);
		if (!err) {
			page_visit(walk, &page);
			return 0;
		}
		if (err != -EAGAIN)
			return err;
	}
	page = (struct segment_page){.start = walk->address + (uint64_t)number * SLICE};
	page.end = page.start + (uint64_t)slices * SLICE;
	page_give_up(walk, &page);
	return 0;
}

/* Whether what was read is a segment's: its sizes, and its cookie, agree with the others. */
static bool is_segment(struct segment_walk *walk)
{
	const struct free_threaded_offsets *at = walk->at;
	const uint8_t *bytes = walk->descriptions;
	uint64_t info = u64_at(bytes + at->segment_info), count = u64_at(bytes + at->segment_count);
	uint64_t entries = u64_at(bytes + at->segment_entries);
	uint64_t secret = u64_at(bytes + at->segment_cookie) ^ walk->address;

	if (info != (at->segment_bytes + SLICE - 1) / SLICE || info >= entries ||
	    entries > SEGMENT_BYTES / SLICE || entries > count || count > 1u << 24 ||
	    (u32_at(bytes + at->segment_kind) != HUGE && count != SEGMENT_BYTES / SLICE))
		return 0;
	if (!walk->has_secret)
		walk->secret = secret;
	walk->has_secret = 1;
	return walk->secret == secret;
}

static int segment_read(struct segment_walk *walk)
{
	const struct free_threaded_offsets *at = walk->at;
	const uint8_t *bytes = walk->descriptions;
	int err =
		heap_read_bytes(walk->walker, walk->address, walk->descriptions, at->segment_bytes);

	if (err && err != -EFAULT)
		return err;
	/* It may have been given back meanwhile. */
	if (err || !is_segment(walk)) {
		walk->walker->walk->arenas_lost++;
		return 0;
	}
	walk->walker->walk->arenas++;
	uint64_t entries = u64_at(bytes + at->segment_entries);
	uint64_t count = u64_at(bytes + at->segment_count);
	err = 0;
	for (uint64_t i = u64_at(bytes + at->segment_info); i < entries && !err;) {
		uint64_t slices =
			u32_at(bytes + at->segment_slices + i * at->page_bytes + at->page_slices);

		/* Damaged, or an inner slice of a page that has just begun or ended. */
		if (!slices || slices > count - i)
			slices = 1;
		err = page_read(walk, (uint32_t)i, (uint32_t)slices);
		if (walk->walker->stop)
			break;
		i += slices;
	}
	return err;
}

static int layout_check(const struct free_threaded_offsets *at)
{
	uint64_t slices = at->segment_slices + SEGMENT_BYTES / SLICE * (uint64_t)at->page_bytes;

	return at->segment_bytes && at->segment_bytes <= MAX_SEGMENT &&
			       slices <= at->segment_bytes &&
			       4 * at->heap_bytes <= HEAP_THREAD_BYTES
		       ? 0
		       : error_set(-ENOTSUP, "the layout of its heap is not known");
}

int heap_segments_read(struct heap_walker *walker, const struct heap_head *heads, uint32_t count)
{
	_cleanup_free_ struct segment_walk *walk = calloc(1, sizeof(*walk));

	if (!walk)
		return -ENOMEM;
	walk->walker = walker;
	walk->at = &walker->python->free_threaded;
	walker->walk->is_mimalloc = 1;
	int err = layout_check(walk->at) ?: heap_segments_find(&walk->found, walker, heads, count);
	walker->walk->arenas_lost += (unsigned int)walk->found.cut;
	for (size_t i = 0; i < walk->found.count && !err && !walker->stop; i++) {
		walk->address = walk->found.addresses[i];
		err = segment_read(walk);
	}
	if (!err && !walker->walk->arenas)
		err = error_set(-ENODATA, "its threads have no heap yet");
	heap_segments_free(&walk->found);
	return err;
}
