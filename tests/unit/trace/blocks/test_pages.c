/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "trace/blocks/pages.h"

#define AREA (8ull * EVENT_PAGES_AREA) /* an area's address */
#define RUNS 8u

static int fault(struct pages *pages, uint64_t page, uint32_t stack)
{
	const struct event_fault event = {.address = AREA + page * EVENT_PAGES_UNIT,
					  .bytes = EVENT_PAGES_UNIT};

	return pages_fault(pages, &event, stack);
}

struct walk {
	struct event_pages head;
	struct event_page_run runs[RUNS];
};

static void run_add(struct walk *walk, uint64_t page, uint32_t count, uint32_t is_file)
{
	walk->runs[walk->head.count++] = (struct event_page_run){
		.address = AREA + page * EVENT_PAGES_UNIT, .count = count, .is_file = is_file};
}

/* Feeds the walk as one record, and empties it. */
static int walk_feed(struct pages *pages, struct walk *walk, uint32_t flags, int sampled)
{
	walk->head.flags = flags;
	walk->head.header.size =
		(uint32_t)(sizeof(walk->head) + walk->head.count * sizeof(walk->runs[0]));
	int err = pages_walk(pages, &walk->head, sampled);
	*walk = (struct walk){0};
	return err;
}

#define WHOLE (EVENT_PAGES_FIRST | EVENT_PAGES_LAST)

/* The pages of that stack in that state. */
static size_t count(const struct pages *pages, uint32_t stack, unsigned int state)
{
	struct page_run run;
	size_t sum = 0;

	for (size_t cursor = 0; pages_next(pages, &cursor, &run);)
		if (run.stack == stack && (run.bits & PAGE_STATE) == state)
			sum += run.count;
	return sum;
}

static size_t count_bits(const struct pages *pages, uint8_t bits)
{
	struct page_run run;
	size_t sum = 0;

	for (size_t cursor = 0; pages_next(pages, &cursor, &run);)
		sum += run.bits & bits ? run.count : 0;
	return sum;
}

/* What is resident before there is any fault is older, until it is released and touched again. */
static void test_before(void **state)
{
	struct pages pages = {0};
	struct walk walk = {0};
	(void)state;

	run_add(&walk, 0, 10, 0);
	assert_int_equal(walk_feed(&pages, &walk, WHOLE, 0), 0);
	assert_int_equal(count(&pages, 0, PAGE_BEFORE), 10);
	assert_int_equal(pages.before_bytes, 10 * EVENT_PAGES_UNIT);
	assert_int_equal(fault(&pages, 100, 7), 0);
	run_add(&walk, 0, 4, 0);
	run_add(&walk, 100, 1, 0);
	assert_int_equal(walk_feed(&pages, &walk, WHOLE, 0), 0);
	assert_int_equal(count(&pages, 0, PAGE_BEFORE), 4);
	assert_int_equal(count(&pages, 7, PAGE_FAULTED), 1);
	assert_int_equal(pages.before_bytes, 10 * EVENT_PAGES_UNIT);
	assert_int_equal(fault(&pages, 9, 8), 0); /* it was released meanwhile */
	assert_int_equal(fault(&pages, 0, 8), 0); /* it was not */
	assert_int_equal(count(&pages, 8, PAGE_FAULTED), 2);
	assert_int_equal(count_bits(&pages, PAGE_AGAIN), 1);
	pages_free(&pages);
}

/* A page belongs to the stack of its last fault; a released one to none. */
static void test_release(void **state)
{
	struct pages pages = {0};
	struct walk walk = {0};
	(void)state;

	assert_int_equal(walk_feed(&pages, &walk, WHOLE, 0), 0);
	for (uint64_t page = 0; page < 20; page++)
		assert_int_equal(fault(&pages, page, 3), 0);
	assert_int_equal(fault(&pages, 5, 4), 0);
	run_add(&walk, 0, 8, 0);
	assert_int_equal(walk_feed(&pages, &walk, WHOLE, 0), 0);
	assert_int_equal(count(&pages, 3, PAGE_FAULTED), 7);
	assert_int_equal(count(&pages, 4, PAGE_FAULTED), 1);
	pages_free(&pages);
}

/* The kernel maps a file's pages around the one that was touched, within 64 KiB. */
static void test_around(void **state)
{
	struct pages pages = {0};
	struct walk walk = {0};
	(void)state;

	assert_int_equal(walk_feed(&pages, &walk, WHOLE, 0), 0);
	assert_int_equal(fault(&pages, 20, 1), 0);
	assert_int_equal(fault(&pages, 30, 2), 0);
	run_add(&walk, 16, 18, 1); /* 16 to 33 */
	assert_int_equal(walk_feed(&pages, &walk, WHOLE, 0), 0);
	assert_int_equal(count(&pages, 1, PAGE_BROUGHT), 9);    /* 16 to 25 */
	assert_int_equal(count(&pages, 2, PAGE_BROUGHT), 5);    /* 26 to 31 */
	assert_int_equal(count(&pages, 0, PAGE_UNREPORTED), 2); /* 32, 33 */
	assert_int_equal(count_bits(&pages, PAGE_FILE), 18);
	pages_free(&pages);
}

/* Anonymous pages come together only if all of the 64 KiB are there. */
static void test_anonymous_around(void **state)
{
	struct pages pages = {0};
	struct walk walk = {0};
	(void)state;

	assert_int_equal(walk_feed(&pages, &walk, WHOLE, 0), 0);
	assert_int_equal(fault(&pages, 3, 1), 0);
	assert_int_equal(fault(&pages, 20, 2), 0);
	run_add(&walk, 0, 31, 0);
	assert_int_equal(walk_feed(&pages, &walk, WHOLE, 0), 0);
	assert_int_equal(count(&pages, 1, PAGE_BROUGHT), 15);
	assert_int_equal(count(&pages, 2, PAGE_FAULTED), 1);
	assert_int_equal(count(&pages, 0, PAGE_UNREPORTED), 14);
	/* In a sample its neighbours may have had faults of their own. */
	assert_int_equal(fault(&pages, 35, 3), 0);
	run_add(&walk, 0, 48, 0);
	assert_int_equal(walk_feed(&pages, &walk, WHOLE, 1), 0);
	assert_int_equal(count(&pages, 3, PAGE_BROUGHT), 0);
	pages_free(&pages);
}

/* A huge page is its first toucher's as a whole, where the map has such. */
static void test_huge(void **state)
{
	struct pages pages = {0};
	struct walk walk = {0};
	(void)state;

	assert_int_equal(walk_feed(&pages, &walk, WHOLE, 0), 0);
	assert_int_equal(fault(&pages, 100, 1), 0);
	assert_int_equal(fault(&pages, PAGES_OF_AREA + 7, 2), 0);
	run_add(&walk, 0, PAGES_OF_AREA, 0);
	run_add(&walk, PAGES_OF_AREA, PAGES_OF_AREA - 1, 0); /* not whole */
	assert_int_equal(walk_feed(&pages, &walk, WHOLE | EVENT_PAGES_HUGE, 0), 0);
	assert_int_equal(count(&pages, 1, PAGE_BROUGHT), PAGES_OF_AREA - 1);
	assert_int_equal(count_bits(&pages, PAGE_HUGE), PAGES_OF_AREA);
	assert_int_equal(count(&pages, 2, PAGE_BROUGHT), 15);
	pages_free(&pages);
}

/* A fault may be reported after a walk has shown what it brought: the next one says whose it is */
static void test_late_fault(void **state)
{
	struct pages pages = {0};
	struct walk walk = {0};
	(void)state;

	assert_int_equal(walk_feed(&pages, &walk, WHOLE, 0), 0);
	run_add(&walk, 0, 16, 1);
	run_add(&walk, 64, 16, 1);
	assert_int_equal(walk_feed(&pages, &walk, WHOLE, 0), 0);
	assert_int_equal(count(&pages, 0, PAGE_UNREPORTED), 32);
	assert_int_equal(fault(&pages, 2, 1), 0);
	run_add(&walk, 0, 16, 1);
	run_add(&walk, 64, 16, 1);
	assert_int_equal(walk_feed(&pages, &walk, WHOLE, 0), 0);
	assert_int_equal(count(&pages, 1, PAGE_BROUGHT), 15);
	assert_int_equal(count(&pages, 0, PAGE_UNFAULTED), 16);
	/* Later it is too late: a fault there is that of a page alone. */
	assert_int_equal(fault(&pages, 64, 2), 0);
	run_add(&walk, 64, 16, 1);
	assert_int_equal(walk_feed(&pages, &walk, WHOLE, 0), 0);
	assert_int_equal(count(&pages, 0, PAGE_UNFAULTED), 15);
	pages_free(&pages);
}

/* Runs may cross areas, and a walk may have several records. */
static void test_records(void **state)
{
	struct pages pages = {0};
	struct walk walk = {0};
	(void)state;

	run_add(&walk, 500, 600, 0);
	assert_int_equal(walk_feed(&pages, &walk, EVENT_PAGES_FIRST, 0), 0);
	run_add(&walk, 2000, 1, 0);
	assert_int_equal(walk_feed(&pages, &walk, 0, 0), 0);
	assert_int_equal(walk_feed(&pages, &walk, EVENT_PAGES_LAST, 0), 0);
	assert_int_equal(count(&pages, 0, PAGE_BEFORE), 601);
	/* One without a beginning is ignored. */
	assert_int_equal(walk_feed(&pages, &walk, EVENT_PAGES_LAST, 0), 0);
	assert_int_equal(count(&pages, 0, PAGE_BEFORE), 601);
	pages_free(&pages);
}

static void test_fork(void **state)
{
	struct pages pages = {0}, child = {0};
	struct walk walk = {0};
	(void)state;

	run_add(&walk, 0, 2, 0);
	assert_int_equal(walk_feed(&pages, &walk, WHOLE, 0), 0);
	assert_int_equal(fault(&pages, 9, 1), 0);
	assert_int_equal(pages_inherit(&child, &pages), 0);
	assert_int_equal(count_bits(&child, PAGE_INHERITED), 3);
	assert_int_equal(fault(&child, 9, 2), 0);
	assert_int_equal(count_bits(&child, PAGE_INHERITED), 2);
	assert_int_equal(count_bits(&child, PAGE_AGAIN), 1);
	assert_int_equal(count(&pages, 1, PAGE_FAULTED), 1);
	pages_free(&pages);
	pages_free(&child);
}

static size_t all_faulted(const struct pages *pages)
{
	return count(pages, 1, PAGE_FAULTED);
}

/* A smaller sample has some of the faults of a larger one, with all that they have brought. */
static void test_thin(void **state)
{
	struct pages pages = {0};
	struct walk walk = {0};
	size_t half, quarter;
	(void)state;

	assert_int_equal(walk_feed(&pages, &walk, WHOLE, 0), 0);
	for (uint64_t page = 0; page < 256; page++)
		assert_int_equal(fault(&pages, page * PAGES_OF_AREA, 1), 0);
	pages_thin(&pages, 1ull << 32);
	assert_int_equal(all_faulted(&pages), 256);
	pages_thin(&pages, 1ull << 31);
	half = all_faulted(&pages);
	assert_in_range(half, 80, 176);
	pages_thin(&pages, 1ull << 31);
	assert_int_equal(all_faulted(&pages), half);
	pages_thin(&pages, 1ull << 30);
	quarter = all_faulted(&pages);
	assert_in_range(quarter, 24, half - 1);
	/* Huge pages: those of the faults that are left. */
	run_add(&walk, 0, 256 * PAGES_OF_AREA, 0);
	assert_int_equal(walk_feed(&pages, &walk, WHOLE | EVENT_PAGES_HUGE, 1), 0);
	assert_int_equal(count(&pages, 1, PAGE_BROUGHT), quarter * (PAGES_OF_AREA - 1));
	pages_thin(&pages, 0);
	assert_int_equal(all_faulted(&pages), 0);
	run_add(&walk, 0, 256 * PAGES_OF_AREA, 0);
	assert_int_equal(walk_feed(&pages, &walk, WHOLE | EVENT_PAGES_HUGE, 1), 0);
	assert_int_equal(count(&pages, 1, PAGE_BROUGHT), 0);
	pages_free(&pages);
}

/* Records of a capture may say anything. */
static void test_hostile(void **state)
{
	struct pages pages = {0};
	struct walk walk = {0};
	struct event_fault event = {.address = AREA + 1, .bytes = EVENT_PAGES_UNIT};
	(void)state;

	assert_int_equal(pages_fault(&pages, &event, 1), -EBADMSG);
	event = (struct event_fault){.address = AREA, .bytes = 0};
	assert_int_equal(pages_fault(&pages, &event, 1), -EBADMSG);
	event = (struct event_fault){.address = 0, .bytes = 1ull << 40};
	assert_int_equal(pages_fault(&pages, &event, 1), -EBADMSG);
	run_add(&walk, 5, 2, 0);
	run_add(&walk, 6, 2, 0);
	assert_int_equal(walk_feed(&pages, &walk, WHOLE, 0), -EBADMSG);
	run_add(&walk, 5, 0, 0);
	assert_int_equal(walk_feed(&pages, &walk, WHOLE, 0), -EBADMSG);
	walk.runs[0] = (struct event_page_run){.address = -4096ull, .count = 2};
	walk.head.count = 1;
	assert_int_equal(walk_feed(&pages, &walk, WHOLE, 0), -EBADMSG);
	walk.head.count = 1;
	walk.head.flags = WHOLE;
	walk.head.header.size = sizeof(walk.head); /* shorter than its runs */
	assert_int_equal(pages_walk(&pages, &walk.head, 0), -EBADMSG);
	pages_free(&pages);
}

/* Without memory for more, pages are not kept; what was known stays. */
static void test_memory(void **state)
{
	struct account account = {.limit = 64 << 10};
	struct pages pages = {.numbers.account = &account};
	struct walk walk = {0};
	int err = 0;
	(void)state;

	assert_int_equal(walk_feed(&pages, &walk, WHOLE, 0), 0);
	assert_int_equal(fault(&pages, 0, 1), 0);
	for (uint64_t page = 0; !err; page += PAGES_OF_AREA)
		err = fault(&pages, page, 1);
	assert_int_equal(err, -EDQUOT);
	size_t known = count(&pages, 1, PAGE_FAULTED);
	assert_true(known > 1);
	run_add(&walk, 0, 1u << 30, 0);
	assert_int_equal(walk_feed(&pages, &walk, WHOLE, 0), -EDQUOT);
	assert_int_equal(count(&pages, 1, PAGE_FAULTED), known);
	pages_free(&pages);
	assert_int_equal(account.used, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_before),  cmocka_unit_test(test_release),
		cmocka_unit_test(test_around),  cmocka_unit_test(test_anonymous_around),
		cmocka_unit_test(test_huge),    cmocka_unit_test(test_late_fault),
		cmocka_unit_test(test_records), cmocka_unit_test(test_fork),
		cmocka_unit_test(test_thin),    cmocka_unit_test(test_hostile),
		cmocka_unit_test(test_memory),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
