/* SPDX-License-Identifier: Apache-2.0 */
/* The division of resident memory, and the tree that adds up. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "inspect/rss/account.h"
#include "inspect/rss/large.h"
#include "inspect/rss/smaps.h"
#include "inspect/rss/tree.h"
#include "util/array.h"

#define BASE 0x10000000ull
#define PAGE MEMORY_PAGE

static struct memory_map *map_add(struct memory_account *account, uint64_t start, uint64_t pages,
				  uint64_t resident, enum memory_source source, const char *name)
{
	struct memory_map *map;

	assert_int_equal(array_reserve(&account->maps, &account->map_capacity, account->map_count,
				       1, sizeof(*map)),
			 0);
	map = &account->maps[account->map_count++];
	*map = (struct memory_map){.start = start,
				   .end = start + pages * PAGE,
				   .source = source,
				   .name = strdup(name),
				   .rss = resident * PAGE};
	return map;
}

static const struct memory_allocators no_allocators = {.unread = ""};

/* Pages 0, 2 and 3 of 4 are resident. */
static void account_make(struct memory_account *account)
{
	struct memory_map *map = map_add(account, BASE, 4, 3, MEMORY_ANONYMOUS, "");

	map->pages = calloc(1, sizeof(*map->pages));
	map->pages[0] = 0xd;
	map_add(account, BASE + 4 * PAGE, 2, 2, MEMORY_ANONYMOUS, "");
	map = map_add(account, BASE + 8 * PAGE, 4, 2, MEMORY_FILE, "/lib/a.so");
	map->private_dirty = map->anonymous = PAGE;
	map->shared_clean = PAGE;
}

static void test_resident(void **state)
{
	struct memory_account account = {0};

	(void)state;
	account_make(&account);
	assert_int_equal(memory_resident(&account, BASE, BASE + 4 * PAGE), 3 * PAGE);
	assert_int_equal(memory_resident(&account, BASE + 100, BASE + PAGE + 100), PAGE - 100);
	/* over the border of two maps, and beyond the last */
	assert_int_equal(memory_resident(&account, BASE + 3 * PAGE + 1, BASE + 4 * PAGE + 1), PAGE);
	assert_int_equal(memory_resident(&account, BASE + 5 * PAGE, BASE + 7 * PAGE), PAGE);
	assert_int_equal(memory_resident(&account, 0, BASE), 0);
	assert_int_equal(memory_resident(&account, BASE + 100 * PAGE, UINT64_MAX), 0);
	assert_null(memory_map_at(&account, BASE + 7 * PAGE));
	assert_ptr_equal(memory_map_at(&account, BASE + 4 * PAGE), &account.maps[1]);
	memory_account_free(&account);
}

/* Regions do not overlap, and are taken once from start to end, whatever ends are named. */
static void test_regions(void **state)
{
	struct memory_account account = {0};
	struct memory_region region, other;

	(void)state;
	account_make(&account);
	assert_int_equal(memory_region_open(&account, BASE, BASE + 3 * PAGE, &region), 0);
	assert_int_equal(memory_region_open(&account, BASE + 2 * PAGE, BASE + 4 * PAGE, &other),
			 -EEXIST);
	assert_int_equal(memory_region_open(&account, BASE - PAGE, BASE + 1, &other), -EEXIST);
	assert_int_equal(memory_region_open(&account, BASE, BASE, &other), -EINVAL);
	assert_int_equal(memory_region_open(&account, BASE + 3 * PAGE, BASE + 4 * PAGE, &other), 0);
	memory_region_take(&region, BASE + 96, MEMORY_USED, 2);
	memory_region_take(&region, BASE + 32, MEMORY_TOP, 1); /* backwards: nothing */
	memory_region_take(&region, UINT64_MAX, MEMORY_BINS, 1);
	memory_region_take(&region, UINT64_MAX, MEMORY_TOP, 1);
	assert_int_equal(account.sums[MEMORY_USED].size, 96);
	assert_int_equal(account.sums[MEMORY_USED].count, 2);
	assert_int_equal(account.sums[MEMORY_BINS].size, 2 * PAGE - 96);
	assert_int_equal(account.sums[MEMORY_BINS].virtual, 3 * PAGE - 96);
	assert_int_equal(account.sums[MEMORY_TOP].virtual, 0);
	memory_account_free(&account);
}

static int64_t check_sums(const struct memory_node *node)
{
	int64_t sum = 0, own = 0;

	for (size_t i = 0; i < node->child_count; i++) {
		sum += check_sums(&node->children[i]);
		own += node->children[i].own;
	}
	if (node->child_count) {
		assert_int_equal(sum, node->size);
		assert_int_equal(own, node->own);
	}
	return node->size;
}

static void check_tree(uint64_t rss, int64_t changed)
{
	struct memory_account account = {0};
	struct memory_region region;
	struct memory_node root;
	const struct memory_node *node;

	account_make(&account);
	assert_int_equal(memory_region_open(&account, BASE, BASE + 3 * PAGE, &region), 0);
	memory_region_take(&region, BASE + 96, MEMORY_USED, 2);
	memory_region_take(&region, region.end, MEMORY_BINS, 1);
	assert_int_equal(memory_tree_build(&root, &account,
					   &(struct smaps_totals){.rss = rss, .own = PAGE}, 5,
					   &no_allocators),
			 0);
	assert_int_equal(root.size, rss);
	assert_string_equal(root.name, "rss");
	check_sums(&root);
	node = memory_node_child(&root, "changed while read");
	assert_int_equal(node ? node->size : 0, changed);
	node = memory_node_child(&root, "malloc");
	assert_int_equal(node->size, 2 * PAGE);
	assert_int_equal(node->trimmable, 5);
	assert_int_equal(memory_node_child(&root, "other anonymous memory")->size, 3 * PAGE);
	node = memory_node_child(memory_node_child(&root, "files"), "/lib/a.so");
	assert_int_equal(node->size, 2 * PAGE);
	assert_int_equal(memory_node_child(node, "private, dirty")->size, PAGE);
	memory_node_free(&root);
	memory_account_free(&account);
}

static void test_tree(void **state)
{
	(void)state;
	check_tree(7 * PAGE, 0);
	check_tree(9 * PAGE, 2 * PAGE);
	check_tree(6 * PAGE, -(int64_t)PAGE);
}

/* A file map whose parts are not its rss, and a number of names without bound. */
static void test_lying_maps(void **state)
{
	struct memory_account account = {0};
	struct memory_node root;
	char name[32];

	(void)state;
	map_add(&account, BASE, 4, 3, MEMORY_FILE, "/a")->private_dirty = 1ull << 60;
	map_add(&account, BASE + 4 * PAGE, 4, 3, MEMORY_FILE, "/b");
	for (unsigned int i = 0; i < 10000; i++) {
		snprintf(name, sizeof(name), "[anon:%u]", i);
		map_add(&account, BASE + (8 + i) * PAGE, 1, 1, MEMORY_ANONYMOUS, name);
	}
	assert_int_equal(
		memory_tree_build(&root, &account,
				  &(struct smaps_totals){.rss = 10006 * PAGE, .own = 3 * PAGE}, 0,
				  &no_allocators),
		0);
	check_sums(&root);
	assert_null(memory_node_child(&root, "changed while read"));
	assert_true(root.child_count < 5000);
	memory_node_free(&root);
	memory_account_free(&account);
}

/* Of a shared map the dirty bit is the page's: nothing of it is the process's own. */
static void test_shared_map(void **state)
{
	struct memory_account account = {0};
	struct memory_node root;
	const struct memory_node *node;
	struct memory_map *map = map_add(&account, BASE, 4, 4, MEMORY_FILE, "/a");

	(void)state;
	map->shared = 1;
	map->private_dirty = 3 * PAGE;
	map->shared_clean = PAGE;
	/* A private map whose file another process has just written. */
	map = map_add(&account, BASE + 8 * PAGE, 4, 3, MEMORY_FILE, "/b");
	map->private_dirty = 3 * PAGE;
	map->anonymous = PAGE;
	assert_int_equal(memory_tree_build(&root, &account,
					   &(struct smaps_totals){.rss = 7 * PAGE, .own = 6 * PAGE},
					   0, &no_allocators),
			 0);
	check_sums(&root);
	node = memory_node_child(memory_node_child(&root, "files"), "/a");
	assert_null(memory_node_child(node, "private, dirty"));
	assert_int_equal(memory_node_child(node, "page cache, dirty")->size, 3 * PAGE);
	assert_int_equal(memory_node_child(node, "page cache, clean")->size, PAGE);
	node = memory_node_child(memory_node_child(&root, "files"), "/b");
	assert_int_equal(memory_node_child(node, "private, dirty")->size, PAGE);
	assert_int_equal(memory_node_child(node, "page cache, dirty")->size, 2 * PAGE);
	memory_node_free(&root);
	memory_account_free(&account);
}

static void test_sources(void **state)
{
	(void)state;
	assert_int_equal(smaps_source("", 0), MEMORY_ANONYMOUS);
	assert_int_equal(smaps_source("[anon: glibc: malloc]", 0), MEMORY_ANONYMOUS);
	assert_int_equal(smaps_source("[heap]", 0), MEMORY_BREAK);
	assert_int_equal(smaps_source("[stack]", 0), MEMORY_STACK);
	assert_int_equal(smaps_source("[vdso]", 0), MEMORY_KERNEL);
	assert_int_equal(smaps_source("/memfd:x (deleted)", 9), MEMORY_SHARED);
	assert_int_equal(smaps_source("/dev/zero (deleted)", 9), MEMORY_SHARED);
	assert_int_equal(smaps_source("/usr/lib/libc.so.6", 9), MEMORY_FILE);
}

/* References to a block, and to what is behind an object's headers in it. */
static void test_large(void **state)
{
	const uint64_t words[] = {BASE + 0x1000, BASE + 0x1008 /* in it */, 3, BASE + 0x5010 + 32,
				  UINT64_MAX,    BASE + 0x9000 - 16};
	struct memory_large large = {0};

	(void)state;
	assert_int_equal(memory_large_add(&large, BASE + 0x9000, 600, 1), 0);
	assert_int_equal(memory_large_add(&large, BASE + 0x1000, 600, 0), 0);
	assert_int_equal(memory_large_add(&large, BASE + 0x5010, 600, 0), 0);
	assert_int_equal(memory_large_sort(&large), 0);
	assert_int_equal(memory_large_search(&large, (const uint8_t *)words, sizeof(words)), 0);
	assert_true(memory_large_find(&large, BASE + 0x1000)->python);
	assert_true(memory_large_find(&large, BASE + 0x5010)->python);
	assert_false(memory_large_find(&large, BASE + 0x9000)->python);
	assert_null(memory_large_find(&large, BASE + 0x1010));
	assert_int_equal(large.queued, 2);
	memory_large_free(&large);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_resident),   cmocka_unit_test(test_regions),
		cmocka_unit_test(test_tree),       cmocka_unit_test(test_lying_maps),
		cmocka_unit_test(test_shared_map), cmocka_unit_test(test_sources),
		cmocka_unit_test(test_large),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
