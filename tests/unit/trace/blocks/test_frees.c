/* SPDX-License-Identifier: Apache-2.0 */
/* Frees in windows, and what the next walk says of them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "trace/blocks/frees.h"
#include "util/account.h"

#define AT    0x55550000010ull
#define UNITS 7u

static struct life like_of(uint32_t stack, uint32_t window, uint64_t lived_ns)
{
	return (struct life){.stack = stack, .window = window, .lived_ns = lived_ns};
}

/* A complete walk, of one chunk. */
static void walk(struct chunk_table *chunks, uint64_t address, uint32_t units)
{
	struct chunk *chunk;

	chunk_table_begin(chunks, 0);
	assert_int_equal(chunk_table_show(chunks, address, units, &chunk), 0);
	chunk_table_end(chunks);
}

/* One count of those that lived about as long; the walk is asked about each. */
static void test_lives(void **state)
{
	struct frees frees = {0};
	struct deaths deaths = {0};
	struct chunk_table chunks = {0};
	struct life brief = like_of(1, 3, 1000), longer = like_of(1, 3, 2 * LIFE_AGE_NS),
		    other = like_of(2, 3, 500), later = like_of(1, 4, 500);
	(void)state;

	frees_life(&frees, &brief, AT, UNITS);
	frees_life(&frees, &brief, AT + 0x100, UNITS);
	frees_life(&frees, &longer, AT, UNITS + 1);
	frees_life(&frees, &other, AT, UNITS);
	frees_life(&frees, &later, AT, UNITS);
	assert_int_equal(frees.life_count, 4);
	assert_int_equal(frees.lives[0].count, 2);
	assert_int_equal(frees.lives[0].lived_ns, 2000);
	walk(&chunks, AT, UNITS);
	frees_walked(&frees, &chunks, &deaths);
	for (size_t i = 0; i < 4; i++)
		assert_int_equal(frees.lives[i].asked, frees.lives[i].count);
	/* Only a chunk of the same size is taken for the one that was there. */
	assert_int_equal(frees.lives[0].hidden, 1);
	assert_int_equal(frees.lives[1].hidden, 0);
	assert_int_equal(frees.lives[2].hidden, 1);
	assert_int_equal(frees.lives[3].hidden, 1);
	/* Each is asked about once. */
	frees_walked(&frees, &chunks, &deaths);
	assert_int_equal(frees.lives[0].hidden, 1);
	frees_halve(&frees);
	assert_int_equal(frees.lives[0].window, 1);
	assert_int_equal(frees.lives[3].window, 2);
	chunk_table_free(&chunks);
	frees_free(&frees);
	assert_int_equal(frees.life_count, 0);
}

/* A capture may claim any times. */
static void test_any_age(void **state)
{
	struct frees frees = {0};
	const struct life longest = like_of(1, 3, UINT64_MAX),
			  longer = like_of(1, 3, LIFE_AGE_NS << LIFE_AGES);
	(void)state;

	frees_life(&frees, &longest, AT, UNITS);
	frees_life(&frees, &longer, AT, UNITS);
	assert_int_equal(frees.life_count, 1);
	assert_int_equal(frees.lives[0].count, 2);
	frees_free(&frees);
}

static void test_deaths(void **state)
{
	struct frees frees = {0};
	struct deaths deaths = {0};
	struct chunk_table chunks = {0};
	uint32_t place = deaths_add(&deaths, &(struct death){.window = 2});
	uint32_t again = deaths_add(&deaths, &(struct death){.window = 3});
	(void)state;

	frees_death(&frees, place, 2, AT, UNITS);
	/* The ring has gone round: another one is there now. */
	frees_death(&frees, again, 2, AT, UNITS);
	frees_death(&frees, DEATHS_NONE, 2, AT, UNITS);
	assert_int_equal(frees.count, 2);
	walk(&chunks, AT, UNITS);
	frees_walked(&frees, &chunks, &deaths);
	assert_int_equal(deaths.items[place].hidden, 1);
	assert_int_equal(deaths.items[again].hidden, 0);
	chunk_table_free(&chunks);
	frees_free(&frees);
	deaths_free(&deaths);
}

/* Beyond the limit a walk is not asked, and the ring of lives goes round. */
static void test_many(void **state)
{
	struct frees frees = {0};
	(void)state;

	for (uint32_t i = 0; i < LIVES_MAX + 2; i++) {
		const struct life life = like_of(i, 0, 1);

		frees_life(&frees, &life, AT, UNITS);
	}
	assert_int_equal(frees.count, FREES_MAX);
	assert_int_equal(frees.life_count, LIVES_MAX);
	assert_int_equal(frees.lives[1].stack, LIVES_MAX + 1);
	assert_int_equal(frees.lives[1].asked, 0);
	assert_int_equal(frees.lives[2].asked, 1);
	frees_free(&frees);
}

static void test_no_memory(void **state)
{
	struct account account = {.limit = 1};
	struct frees frees = {.account = &account, .index.account = &account};
	const struct life life = like_of(1, 1, 1);
	(void)state;

	frees_life(&frees, &life, AT, UNITS);
	frees_death(&frees, 0, 1, AT, UNITS);
	assert_int_equal(frees.life_count, 0);
	assert_int_equal(frees.count, 0);
	frees_free(&frees);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_lives),     cmocka_unit_test(test_any_age),
		cmocka_unit_test(test_deaths),    cmocka_unit_test(test_many),
		cmocka_unit_test(test_no_memory),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
