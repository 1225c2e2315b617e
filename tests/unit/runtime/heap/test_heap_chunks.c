/* SPDX-License-Identifier: Apache-2.0 */
/* What is passed on of the blocks that allocators show. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "abi/events.h"
#include "runtime/heap/heap_chunks.h"
#include "runtime/malloc/allocator.h"

/* An allocator that has these runs. */
struct heap {
	struct allocator_run runs[4];
	size_t count;
};

static int heap_walk(void *state, const struct process_maps *maps, allocator_run_fn visit,
		     void *context, struct allocator_totals *totals)
{
	const struct heap *heap = state;
	int stop = 0;

	(void)totals;
	assert_true(maps->count > 0);
	for (size_t i = 0; i < heap->count && !stop; i++)
		stop = visit(&heap->runs[i], context);
	return stop;
}

static uint64_t heap_returned(void *state, uint64_t address, uint64_t bytes)
{
	(void)state;
	return address + bytes / 2;
}

static const struct allocator_type chunks = {.walk = heap_walk};
static const struct allocator_type classes = {.walk = heap_walk, .has_classes = true};
static const struct allocator_type inner = {
	.walk = heap_walk, .has_classes = true, .is_inner = true};
static const struct allocator_type within = {.walk = heap_walk, .returned = heap_returned};

struct seen {
	struct event_chunk chunks[16];
	size_t count;
	uint32_t flags;
};

static int record_take(void *context, const void *record, size_t size)
{
	const struct event_census_chunks *event = record;
	struct seen *seen = context;

	assert_int_equal(event->header.size, size);
	assert_int_equal(event->header.tgid, getpid());
	assert_true(seen->count + event->count <= 16);
	memcpy(seen->chunks + seen->count, event->chunks, event->count * sizeof(event->chunks[0]));
	seen->count += event->count;
	seen->flags = event->flags;
	return 0;
}

static int read_all(const struct allocator *items, size_t count,
		    const struct heap_chunks_opts *more, struct seen *seen, uint64_t *used)
{
	struct heap_chunks_opts opts = *more;
	struct allocators allocators = {.pid = getpid(), .count = count};

	memcpy(allocators.items, items, count * sizeof(*items));
	*seen = (struct seen){0};
	opts.record = record_take;
	opts.context = seen;
	return heap_chunks_read(&allocators, &opts, used);
}

static void assert_chunk(const struct seen *seen, size_t i, uint64_t address, uint32_t units,
			 uint32_t unread)
{
	assert_int_equal(seen->chunks[i].address, address);
	assert_int_equal(seen->chunks[i].units, units);
	assert_int_equal(seen->chunks[i].unread, unread);
}

/* Chunks of glibc's: a block is 8 bytes less than its chunk. */
static void test_units(void **state)
{
	struct heap heap = {{{0x1010, 24, 1, ALLOCATOR_USED},
			     {0x1030, 40, 1, ALLOCATOR_FREE},
			     {0x1060, 1000, 1, ALLOCATOR_USED},
			     {0x2000, 0x1000 - 8, 1, ALLOCATOR_UNKNOWN}},
			    4};
	struct seen seen;
	uint64_t used;

	(void)state;
	const struct allocator item = {.type = &chunks, .state = &heap};
	assert_int_equal(read_all(&item, 1, &(struct heap_chunks_opts){0}, &seen, &used), 0);
	assert_int_equal(seen.count, 3);
	assert_chunk(&seen, 0, 0x1010, 2, 0);
	assert_chunk(&seen, 1, 0x1060, 63, 0);
	assert_chunk(&seen, 2, 0x2000, 256, 1);
	assert_int_equal(seen.flags, EVENT_CHUNKS_FIRST | EVENT_CHUNKS_LAST);
	assert_int_equal(used, 0); /* something is unread */
	heap.count = 3;
	assert_int_equal(
		read_all(&item, 1, &(struct heap_chunks_opts){.least_bytes = 513}, &seen, &used),
		0);
	assert_int_equal(used, 2);
	assert_int_equal(seen.count, 1);
}

/* Blocks of classes follow each other without a gap; those of two allocators are put in order. */
static void test_classes(void **state)
{
	struct heap first = {{{0x8000, 8, 3, ALLOCATOR_USED}, {0x9000, 16, 2, ALLOCATOR_USED}}, 2};
	struct heap second = {{{0x4000, 4096, 1, ALLOCATOR_USED},
			       {0x8010, 16, 1, ALLOCATOR_USED},
			       {0x9000, 4096, 1, ALLOCATOR_UNKNOWN}},
			      3};
	const struct allocator items[] = {{.type = &classes, .state = &first},
					  {.type = &within, .state = &second}};
	struct seen seen;
	uint64_t used;

	(void)state;
	assert_int_equal(read_all(items, 2, &(struct heap_chunks_opts){0}, &seen, &used), 0);
	assert_int_equal(seen.flags, EVENT_CHUNKS_FIRST | EVENT_CHUNKS_LAST | EVENT_CHUNKS_CLASSES);
	assert_chunk(&seen, 0, 0x4800, 257, 0);
	assert_chunk(&seen, 1, 0x8000, 2, 0);
	assert_chunk(&seen, 2, 0x8008, 2, 0);
	assert_chunk(&seen, 3, 0x8010, 2, 0);
	assert_chunk(&seen, 4, 0x8018, 2, 0);
	assert_int_equal(seen.chunks[5].address, 0x9000);
	assert_true(seen.count >= 6 && seen.count <= 7);
}

/* Of addresses within a block the one that was returned last. */
static void test_inner(void **state)
{
	static const struct heap_chunk_seen known[] = {
		{0x4010, 5}, {0x4100, 7}, {0x4180, 6}, {0x4240, 0}, {0x4300, 9}};
	struct heap heap = {{{0x4000, 0x200, 1, ALLOCATOR_USED},
			     {0x4200, 0x100, 1, ALLOCATOR_USED},
			     {0x4300, 0x100, 1, ALLOCATOR_FREE},
			     {0x4400, 0x100, 1, ALLOCATOR_USED}},
			    4};
	const struct allocator item = {.type = &inner, .state = &heap};
	struct seen seen;

	(void)state;
	assert_int_equal(read_all(&item, 1,
				  &(struct heap_chunks_opts){.seen = known, .seen_count = 5}, &seen,
				  NULL),
			 0);
	assert_int_equal(seen.count, 3);
	assert_chunk(&seen, 0, 0x4100, 33, 0);
	assert_chunk(&seen, 1, 0x4240, 17, 0);
	assert_chunk(&seen, 2, 0x4400, 17, 0);
}

/* No process has as many blocks as a hostile one claims. */
static void test_limit(void **state)
{
	struct heap heap = {{{0x4000, 8, 1ull << 40, ALLOCATOR_USED}}, 1};
	const struct allocator item = {.type = &classes, .state = &heap};
	const struct heap_chunks_opts opts = {.least_bytes = 64};
	struct seen seen;

	(void)state;
	assert_int_equal(read_all(&item, 1, &opts, &seen, NULL), -ENOTSUP);
	assert_int_equal(seen.count, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_units),
		cmocka_unit_test(test_classes),
		cmocka_unit_test(test_inner),
		cmocka_unit_test(test_limit),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
