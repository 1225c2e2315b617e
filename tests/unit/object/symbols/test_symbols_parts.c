/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "large_elf.h"
#include "object/symbols/cache.h"
#include "object/symbols/demangle.h"
#include "object/symbols/worker.h"
#include "sanitized.h"
#include "util/spans.h"

static uint64_t value_at(const struct spans *spans, uint64_t address)
{
	const struct address_span *span = spans_find(spans, address);

	return span ? span->value : 0;
}

static int span_add(struct spans *spans, uint64_t start, uint64_t end, uint64_t rank,
		    uint64_t value)
{
	return spans_add(spans, &(struct address_span){
					.start = start, .end = end, .rank = rank, .value = value});
}

static void the_innermost_span_is_found(void **state)
{
	struct spans spans = {0};

	(void)state;
	assert_null(spans_find(&spans, 5));
	assert_int_equal(span_add(&spans, 10, 100, 0, 1), 0);
	assert_int_equal(span_add(&spans, 20, 30, 0, 2), 0);
	assert_int_equal(span_add(&spans, 22, 24, 0, 3), 0);
	assert_int_equal(span_add(&spans, 10, 12, 0, 4), 0);
	assert_int_equal(span_add(&spans, 200, 300, 0, 5), 0);
	assert_int_equal(span_add(&spans, 50, 50, 0, 6), 0); /* an empty range */
	assert_int_equal(span_add(&spans, 60, 40, 0, 7), 0);
	assert_int_equal(spans_sort(&spans), 0);
	assert_int_equal(value_at(&spans, 9), 0);
	assert_int_equal(value_at(&spans, 10), 4);
	assert_int_equal(value_at(&spans, 12), 1);
	assert_int_equal(value_at(&spans, 21), 2);
	assert_int_equal(value_at(&spans, 23), 3);
	assert_int_equal(value_at(&spans, 24), 2);
	assert_int_equal(value_at(&spans, 99), 1);
	assert_int_equal(value_at(&spans, 50), 1);
	assert_int_equal(value_at(&spans, 100), 0);
	assert_int_equal(value_at(&spans, 299), 5);
	assert_int_equal(value_at(&spans, 300), 0);
	assert_int_equal(value_at(&spans, UINT64_MAX), 0);
	spans_free(&spans);
}

/*
 * The result according to the documentation: of the spans that cover the address the one with the
 * last start, then with the highest rank, then the shortest.
 */
static uint64_t value_expected(const struct address_span *all, size_t count, uint64_t address)
{
	const struct address_span *best = NULL;

	for (size_t i = 0; i < count; i++) {
		const struct address_span *span = &all[i];

		if (address < span->start || address >= span->end)
			continue;
		if (!best || span->start > best->start ||
		    (span->start == best->start &&
		     (span->rank > best->rank ||
		      (span->rank == best->rank && span->end < best->end))))
			best = span;
	}
	return best ? best->value : 0;
}

static void spans_lie_in_any_way(void **state)
{
	struct address_span all[12];
	unsigned int seed = 1;

	(void)state;
	for (int round = 0; round < 5000; round++) {
		struct spans spans = {0};
		size_t count = (size_t)(rand_r(&seed) % 12);

		for (size_t i = 0; i < count; i++) {
			uint64_t start = (uint64_t)(rand_r(&seed) % 20);

			/* Only identical ranges are equal by these rules. */
			all[i] = (struct address_span){
				start, start + (uint64_t)(rand_r(&seed) % 20), i + 1, i / 2};
			assert_int_equal(spans_add(&spans, &all[i]), 0);
		}
		assert_int_equal(spans_sort(&spans), 0);
		assert_true(spans.count <= 2 * count);
		for (uint64_t address = 0; address < 42; address++) {
			uint64_t found = value_at(&spans, address);
			uint64_t expected = value_expected(all, count, address);

			if (found != expected) /* the same range twice */
				assert_true(found && expected &&
					    all[found - 1].start == all[expected - 1].start &&
					    all[found - 1].end == all[expected - 1].end &&
					    all[found - 1].rank == all[expected - 1].rank);
		}
		spans_free(&spans);
	}
}

/*
 * A million lookups behind a million spans that end before the address: this takes hours if each of
 * them is visited.
 */
static void short_spans_hide_no_long_one(void **state)
{
	enum { COUNT = 1000000 };
	struct spans spans = {0};

	(void)state;
	alarm(60);
	assert_int_equal(span_add(&spans, 0, 4 * COUNT, 0, 1), 0);
	for (uint64_t i = 0; i < COUNT; i++)
		assert_int_equal(span_add(&spans, i, i + 1, 0, 2), 0);
	assert_int_equal(spans_sort(&spans), 0);
	for (uint64_t i = 0; i < COUNT; i++)
		assert_int_equal(value_at(&spans, 2 * COUNT + i), 1);
	alarm(0);
	spans_free(&spans);
}

static void what_was_found_is_kept(void **state)
{
	const struct symbols_frame *found;
	struct cache cache = {0};

	(void)state;
	assert_int_equal(cache_find(&cache, 1, 0, &found), 0);
	for (uint32_t i = 0; i < 20000; i++) {
		struct symbols_frame frames[2] = {{.function = "f", .line = i},
						  {.function = "g", .line = i + 1}};

		assert_int_equal(cache_add(&cache, 1 + i % 7, i / 7, frames, 1 + i % 2), 0);
	}
	for (uint32_t i = 0; i < 20000; i++) {
		assert_int_equal(cache_find(&cache, 1 + i % 7, i / 7, &found), 1 + i % 2);
		assert_int_equal(found[i % 2].line, i + i % 2);
	}
	assert_int_equal(cache_find(&cache, 8, 0, &found), 0);
	assert_int_equal(cache_find(&cache, 1, 20000, &found), 0);
	assert_true(cache_memory(&cache) > 20000 * sizeof(*found));
	cache_free(&cache);
}

static void check_name(const char *mangled, const char *expected)
{
	char name[DEMANGLE_MAX];

	assert_int_equal(demangle(mangled, name), strlen(expected));
	assert_string_equal(name, expected);
}

static void names_are_as_their_programmers_wrote_them(void **state)
{
	char longest[40000], name[DEMANGLE_MAX];

	(void)state;
	check_name("main", "main");
	check_name("", "");
	check_name("_Znwm", "operator new(unsigned long)");
	check_name("_ZN4shop6BasketIiE3addEv", "shop::Basket<int>::add()");
	check_name("_ZN4shop3addEi.part.0", "shop::add(int) [clone .part.0]");
	check_name("_ZN5alloc7raw_vec11finish_grow17h0123456789abcdefE",
		   "alloc::raw_vec::finish_grow");
	check_name("_RNvMsa_NtCs3ssYzQotkvD_3std4pathNtB5_7PathBuf3new",
		   "<std::path::PathBuf>::new");
	check_name("_Zwrong", "_Zwrong");
	check_name("_R", "_R");
	assert_int_equal(demangle_wanted("_Znwm"), 1);
	assert_int_equal(demangle_wanted("_RNv"), 1);
	assert_int_equal(demangle_wanted("_init"), 0);
	assert_int_equal(demangle_wanted("_"), 0);

	memset(longest, 'x', sizeof(longest) - 1);
	longest[sizeof(longest) - 1] = '\0';
	assert_int_equal(demangle(longest, name), DEMANGLE_MAX - 1);
	assert_string_equal(name + DEMANGLE_MAX - 5, "x...");
	memcpy(longest, "_Z", 2); /* nested deeper than libiberty follows */
	memset(longest + 2, 'P', sizeof(longest) - 3);
	assert_int_equal(demangle(longest, name), DEMANGLE_MAX - 1);
}

static void check_worker(struct worker *worker)
{
	struct worker_frame frames[WORKER_FRAMES_MAX];

	assert_int_equal(worker_frames(worker, 0, 0, "_Znwm", UINT64_MAX, frames), 1);
	assert_string_equal(frames[0].function, "operator new(unsigned long)");
	assert_string_equal(frames[0].filename, "");
	assert_int_equal(frames[0].line, 0);
	assert_int_equal(worker_frames(worker, 0, 0, "", UINT64_MAX, frames), 0);
	assert_int_equal(worker_frames(worker, 99, 0x1000, "", UINT64_MAX, frames),
			 0); /* a file that it does not have */
}

static void a_worker_is_there_when_it_is_needed(void **state)
{
	struct worker_frame frames[WORKER_FRAMES_MAX];
	uint64_t first, second;
	struct worker *worker;
	int status, fd;
	pid_t child;

	(void)state;
	assert_int_equal(worker_new(&worker), 0);
	check_worker(worker);
	assert_int_equal(worker_generation(worker, &first), 0);

	/* A fork starts its own worker, and does not affect ours. */
	child = fork();
	if (!child) {
		check_worker(worker);
		worker_free(worker);
		_exit(0);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	check_worker(worker);
	assert_int_equal(worker_generation(worker, &second), 0);
	assert_true(first == second);

	/* The worker's end does not end this process. */
	worker_stop(worker);
	check_worker(worker);
	assert_int_equal(worker_generation(worker, &second), 0);
	assert_true(first != second);
	fd = dup(0);
	assert_int_equal(worker_open(worker, 1, fd, -1), 0); /* not an ELF file */
	assert_true(worker_frames(worker, 1, 0x1000, "_Znwm", UINT64_MAX, frames) < 0);
	check_worker(worker);
	assert_int_equal(worker_generation(worker, &first), 0);
	assert_true(first == second);
	close(fd);
	worker_free(worker);
	worker_free(NULL);
}

static uint64_t resident_bytes(pid_t pid)
{
	unsigned long long pages = 0, resident = 0;
	char name[64];
	FILE *file;

	snprintf(name, sizeof(name), "/proc/%d/statm", pid);
	file = fopen(name, "re");
	assert_non_null(file);
	assert_int_equal(fscanf(file, "%llu %llu", &pages, &resident), 2);
	fclose(file);
	return resident * (uint64_t)sysconf(_SC_PAGESIZE);
}

/*
 * With many files that have large tables the worker holds no more than its memory allows, and still
 * answers for each of them.
 */
static void few_symbols_are_held(void **state)
{
	enum { SYMBOLS = 1 << 18, FILES = 8, TABLE = SYMBOLS * 64 };
	struct worker *worker;
	const char *name;
	int fd = large_elf(SYMBOLS);

	(void)state;
	assert_int_equal(worker_new(&worker), 0);
	for (uint32_t i = 1; i <= FILES; i++)
		assert_int_equal(worker_open_tables(worker, i, fd, -1, TABLE), 0);
	for (uint32_t i = 0; i < 2 * FILES; i++) {
		uint64_t vaddr = LARGE_BASE + i * LARGE_STEP;

		assert_int_equal(worker_symbol(worker, i % FILES + 1, vaddr, UINT64_MAX, &name), 0);
		assert_int_equal(name[0], large_elf_name(vaddr));
		assert_int_equal(name[1], 0);
	}
	/* Two tables, and what malloc keeps; a sanitizer keeps all freed memory. */
	if (!SANITIZED)
		assert_true(resident_bytes(worker_pid(worker)) < 5 * TABLE);
	assert_int_equal(worker_symbol(worker, 1, 0, UINT64_MAX, &name), 0);
	assert_string_equal(name, "");
	assert_int_equal(worker_symbol(worker, 99, LARGE_BASE, UINT64_MAX, &name), 0);
	assert_string_equal(name, "");
	worker_free(worker);
	close(fd);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_innermost_span_is_found),
		cmocka_unit_test(spans_lie_in_any_way),
		cmocka_unit_test(short_spans_hide_no_long_one),
		cmocka_unit_test(what_was_found_is_kept),
		cmocka_unit_test(names_are_as_their_programmers_wrote_them),
		cmocka_unit_test(a_worker_is_there_when_it_is_needed),
		cmocka_unit_test(few_symbols_are_held),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
