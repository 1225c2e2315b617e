/* SPDX-License-Identifier: Apache-2.0 */
#include "probe/coverage.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/hash.h"
#include "python/heap.h"

/*
 * A set of block addresses: a bit per 16 bytes in pages of 1 MiB of address space, 8 KiB each, found by hashing.
 * Less than 1 % of the heap that it describes.
 */
#define PAGE_SHIFT 20
#define PAGE_WORDS ((1u << PAGE_SHIFT) / 16 / 64)

struct page {
	uint64_t number; /* address >> PAGE_SHIFT, plus 1; 0: free slot */
	uint64_t *bits;
};

struct address_set {
	struct page *pages;
	size_t capacity; /* power of two */
	size_t used;
};

/*
 * Readings after the first. In a busy heap an address lives, dies and lives again, and can look unseen in one or two
 * of them by chance.
 */
#define ROUNDS 4

struct coverage {
	const struct python_runtime *runtime;
	struct address_set old;
	uint64_t old_large;
};

static struct page *set_slot(const struct address_set *set, uint64_t number)
{
	size_t i = hash_u64(number) & (set->capacity - 1);

	while (set->pages[i].number && set->pages[i].number != number)
		i = (i + 1) & (set->capacity - 1);
	return &set->pages[i];
}

static int set_grow(struct address_set *set)
{
	struct address_set bigger = {.capacity = set->capacity ? set->capacity * 2 : 64};

	bigger.pages = calloc(bigger.capacity, sizeof(*bigger.pages));
	if (!bigger.pages)
		return -ENOMEM;
	for (size_t i = 0; i < set->capacity; i++)
		if (set->pages[i].number)
			*set_slot(&bigger, set->pages[i].number) = set->pages[i];
	bigger.used = set->used;
	free(set->pages);
	*set = bigger;
	return 0;
}

static int set_add(struct address_set *set, uint64_t address)
{
	uint64_t number = (address >> PAGE_SHIFT) + 1;
	uint32_t bit = (address & ((1u << PAGE_SHIFT) - 1)) / 16;
	struct page *page;

	if (set->used * 2 >= set->capacity && set_grow(set))
		return -ENOMEM;
	page = set_slot(set, number);
	if (!page->number) {
		page->bits = calloc(PAGE_WORDS, sizeof(*page->bits));
		if (!page->bits)
			return -ENOMEM;
		page->number = number;
		set->used++;
	}
	page->bits[bit / 64] |= 1ull << bit % 64;
	return 0;
}

static int set_has(const struct address_set *set, uint64_t address)
{
	uint32_t bit = (address & ((1u << PAGE_SHIFT) - 1)) / 16;
	const struct page *page;

	if (!set->capacity)
		return 0;
	page = set_slot(set, (address >> PAGE_SHIFT) + 1);
	return page->number && page->bits[bit / 64] >> bit % 64 & 1;
}

static void set_free(struct address_set *set)
{
	for (size_t i = 0; i < set->capacity; i++)
		free(set->pages[i].bits);
	free(set->pages);
	memset(set, 0, sizeof(*set));
}

static int visit_old(uint64_t address, uint32_t bytes, const uint8_t *content, void *context)
{
	(void)bytes;
	(void)content;
	return set_add(context, address);
}

int coverage_new(struct coverage **out, const struct python_runtime *runtime, int from_start)
{
	struct coverage *coverage = calloc(1, sizeof(*coverage));
	struct heap_reading reading;
	int err = 0;

	if (!coverage)
		return -ENOMEM;
	coverage->runtime = runtime;
	if (!from_start)
		err = heap_read(runtime, visit_old, &coverage->old, &reading);
	/* A library that was loaded this moment: there is nothing old. */
	if (err == -EAGAIN) {
		from_start = 1;
		err = 0;
	}
	if (err) {
		coverage_free(coverage);
		return err;
	}
	coverage->old_large = from_start ? 0 : reading.raw_blocks;
	*out = coverage;
	return 0;
}

void coverage_free(struct coverage *coverage)
{
	if (!coverage)
		return;
	set_free(&coverage->old);
	free(coverage);
}

struct measure {
	struct coverage *coverage;
	coverage_knows_fn knows;
	void *context;
	struct event_coverage_counts *counts;
	struct address_set doubtful;          /* on the heap in every reading so far, never in the table */
	struct address_set still;             /* the same, as the reading under way finds it */
	uint64_t unseen_blocks, unseen_bytes; /* of those */
};

static int visit_first(uint64_t address, uint32_t bytes, const uint8_t *content, void *context)
{
	struct measure *measure = context;
	struct event_coverage_counts *counts = measure->counts;

	(void)content;
	if (set_has(&measure->coverage->old, address)) {
		counts->old_blocks++;
		counts->old_bytes += bytes;
		return 0;
	}
	if (!measure->knows(measure->context, address))
		return set_add(&measure->doubtful, address);
	counts->new_blocks++;
	counts->new_bytes += bytes;
	counts->seen_blocks++;
	counts->seen_bytes += bytes;
	return 0;
}

/* A doubtful block again: gone (it does not count), known by now, or doubtful still. */
static int visit_again(uint64_t address, uint32_t bytes, const uint8_t *content, void *context)
{
	struct measure *measure = context;
	struct event_coverage_counts *counts = measure->counts;

	(void)content;
	if (!set_has(&measure->doubtful, address))
		return 0;
	if (!measure->knows(measure->context, address)) {
		measure->unseen_blocks++;
		measure->unseen_bytes += bytes;
		return set_add(&measure->still, address);
	}
	counts->new_blocks++;
	counts->new_bytes += bytes;
	counts->seen_blocks++;
	counts->seen_bytes += bytes;
	return 0;
}

int coverage_measure(struct coverage *coverage, coverage_knows_fn knows, coverage_refresh_fn refresh,
		     void *context, struct event_coverage *record, uint64_t *elapsed_ns)
{
	struct measure measure = {
		.coverage = coverage, .knows = knows, .context = context, .counts = &record->counts};
	uint64_t start = clock_ns(CLOCK_MONOTONIC);
	struct heap_reading reading;
	int err;

	memset(record, 0, sizeof(*record));
	record->header.type = EVENT_COVERAGE;
	record->header.size = sizeof(*record);
	refresh(context);
	err = heap_read(coverage->runtime, visit_first, &measure, &reading);
	refresh(context);
	for (int round = 0; !err && measure.doubtful.used && round < ROUNDS; round++) {
		measure.unseen_blocks = measure.unseen_bytes = 0;
		err = heap_read(coverage->runtime, visit_again, &measure, &reading);
		refresh(context);
		set_free(&measure.doubtful);
		measure.doubtful = measure.still;
		memset(&measure.still, 0, sizeof(measure.still));
	}
	set_free(&measure.doubtful);
	record->counts.new_blocks += measure.unseen_blocks;
	record->counts.new_bytes += measure.unseen_bytes;
	if (!err && reading.raw_blocks > coverage->old_large)
		record->counts.large_new = reading.raw_blocks - coverage->old_large;
	*elapsed_ns = clock_ns(CLOCK_MONOTONIC) - start;
	return err;
}
