/* SPDX-License-Identifier: Apache-2.0 */
/* What is appended to a map file that its process writes, and what of the file is read again. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "object/perfmap/follow.h"
#include "object/perfmap/missing.h"

static int file_make(const char *text)
{
	int fd = memfd_create("map", 0);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, strlen(text)), strlen(text));
	return fd;
}

static void entry_add(struct perfmap_table *table, uint64_t start, uint64_t bytes, const char *name)
{
	const struct perfmap_entry entry = {.time_ns = 1};

	assert_int_equal(perfmap_table_add(table, start, bytes, name, strlen(name), &entry), 0);
}

static struct perfmap_missing missing_of(const struct perfmap_table *table, const char *text)
{
	struct perfmap_missing missing = {0};
	int fd = file_make(text);

	assert_int_equal(perfmap_missing_find(&missing, table, fd, NULL), 0);
	assert_int_equal(buffer_append(&missing.text, "", 1), 0);
	close(fd);
	return missing;
}

static void test_missing(void **state)
{
	struct perfmap_table *table;
	struct perfmap_missing missing;
	(void)state;

	assert_int_equal(perfmap_table_new(&table), 0);
	entry_add(table, 0x100, 0x10, "there");
	entry_add(table, 0x200, 0x10, "two\nlines"); /* the file has its first */
	entry_add(table, 0x300, 0x20, "across");
	entry_add(table, 0x400, 0x10, "new");
	entry_add(table, 0x500, 0x10, "replaced");
	missing = missing_of(table, "500 10 old\n200 10 two\nlines\n310 8 own\n100 10 there\n");
	assert_string_equal((char *)missing.text.data, "400 10 new\n");
	assert_int_equal(missing.count, 1);
	assert_int_equal(missing.conflicts, 2);
	assert_false(missing.partial);
	buffer_free(&missing.text);
	/* A line that has no end yet is not there for perf. */
	missing = missing_of(table,
			     "500 10 replaced\n200 10 two\n300 20 across\n100 10 there\n400 10 n");
	assert_true(missing.partial);
	assert_string_equal((char *)missing.text.data, "\n400 10 new\n");
	buffer_free(&missing.text);
	perfmap_table_free(table);
}

/* Lines that we append are skipped, whatever the process appends before and after them. */
static void test_skip(void **state)
{
	static const char lines[] = "100 10 before\n200 10 ours\n300 10 after\n";
	struct perfmap_process *process;
	struct perfmap_follow *follow;
	struct perfmaps *maps;
	(void)state;

	assert_int_equal(perfmaps_new(&maps, NULL), 0);
	assert_int_equal(perfmaps_add(maps, 1, &process), 0);
	assert_int_equal(perfmap_follow_new(&follow, file_make(lines), 0, -1), 0);
	assert_int_equal(perfmap_follow_skip(follow, process, 14, 26), 0);
	assert_int_equal(follow->offset, 26);
	assert_int_equal(perfmap_follow_read(follow, process, UINT64_MAX), 0);
	assert_non_null(perfmap_table_find(process->table, 0x100));
	assert_null(perfmap_table_find(process->table, 0x200));
	assert_non_null(perfmap_table_find(process->table, 0x300));
	perfmap_follow_free(follow, -1);
	perfmaps_free(maps);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_missing),
		cmocka_unit_test(test_skip),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
