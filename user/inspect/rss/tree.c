/* SPDX-License-Identifier: Apache-2.0 */
#include "inspect/rss/tree.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "util/array.h"
#include "util/sorted.h"

#define NAME_BYTES   4200u
#define CHILDREN_MAX 4096u /* of a node; further ones are added up in one */

/* What a kind is called, and below which node it is. */
struct kind_name {
	const char *parent, *name; /* parent: below the group; NULL: directly in it */
};

static const struct kind_name kind_names[MEMORY_KINDS] = {
	[MEMORY_PY_LIVE] = {NULL, "live blocks"},
	[MEMORY_PY_WAITING] = {NULL, "to be freed once no thread reads them"},
	[MEMORY_PY_PINNED] = {NULL, "free blocks in pools in use"},
	[MEMORY_PY_HEADERS] = {NULL, "pool headers"},
	[MEMORY_PY_FREE_POOLS] = {NULL, "free pools"},
	[MEMORY_PY_UNREAD] = {NULL, "could not be read"},
	[MEMORY_USED_PYTHON] = {"in use", "large blocks of Python objects"},
	[MEMORY_USED] = {"in use", "other blocks"},
	[MEMORY_TCACHE] = {"free", "tcache"},
	[MEMORY_FASTBINS] = {"free", "fastbins"},
	[MEMORY_BINS] = {"free", "bins"},
	[MEMORY_TOP] = {"free", "top"},
	[MEMORY_OWN] = {NULL, "malloc's structures"},
	[MEMORY_UNREAD] = {NULL, "could not be read"},
	[MEMORY_MAPPED_PYTHON] = {"mapped blocks", "large blocks of Python objects"},
	[MEMORY_MAPPED] = {"mapped blocks", "other blocks"},
	[MEMORY_STACKS] = {NULL, "other threads"},
	[MEMORY_BSS] = {NULL, "zero-initialised data (.bss)"},
};

static const struct kind_name allocator_kind_names[MEMORY_ALLOCATOR_KINDS] = {
	[ALLOCATOR_USED] = {"in use", "other blocks"},
	[ALLOCATOR_CACHED] = {"free", "in caches"},
	[ALLOCATOR_FREE] = {"free", "in pages with blocks in use"},
	[ALLOCATOR_DIRTY] = {"free", "free pages"},
	[ALLOCATOR_MUZZY] = {"free", "free pages that the kernel may take"},
	[ALLOCATOR_RETAINED] = {"free", "pages returned to the kernel"},
	[ALLOCATOR_METADATA] = {NULL, "its structures"},
	[ALLOCATOR_UNKNOWN] = {NULL, "could not be read"},
	[MEMORY_ALLOCATOR_PYTHON] = {"in use", "large blocks of Python objects"},
};

void memory_node_free(struct memory_node *node)
{
	for (size_t i = 0; i < node->child_count; i++)
		memory_node_free(&node->children[i]);
	free(node->children);
	free(node->name);
	*node = (struct memory_node){0};
}

const struct memory_node *memory_node_child(const struct memory_node *node, const char *name)
{
	for (size_t i = 0; i < node->child_count; i++)
		if (!strcmp(node->children[i].name, name))
			return &node->children[i];
	return NULL;
}

/* The child of that name, made if there is none; NULL: no memory. Valid until the next of node. */
static struct memory_node *child(struct memory_node *node, const char *name)
{
	struct memory_node *found = (struct memory_node *)memory_node_child(node, name);

	if (!found && node->child_count >= CHILDREN_MAX) {
		name = "more";
		found = (struct memory_node *)memory_node_child(node, name);
	}
	if (found)
		return found;
	if (ARRAY_GROW(node->children, node->child_capacity, node->child_count))
		return NULL;
	found = &node->children[node->child_count];
	*found = (struct memory_node){.name = strdup(name)};
	if (!found->name)
		return NULL;
	node->child_count++;
	return found;
}

/* Adds to a leaf at a path; NULL ends it. */
static int leaf_add(struct memory_node *node, const char *const path[],
		    const struct memory_sum *sum)
{
	for (size_t i = 0; node && path[i]; i++)
		node = child(node, path[i]);
	if (!node)
		return -ENOMEM;
	node->size += (int64_t)sum->size;
	node->own += (int64_t)sum->own;
	node->virtual += sum->virtual;
	node->count += sum->count;
	return 0;
}

static int kind_add(struct memory_node *root, const char *group, const struct kind_name *name,
		    const struct memory_sum *sum)
{
	const char *const path[] = {group, name->parent ? name->parent : name->name,
				    name->parent ? name->name : NULL, NULL};

	return sum->virtual ? leaf_add(root, path, sum) : 0;
}

/* What a purge returns of an allocator's free pages is what is resident of them. */
static int allocator_add(struct memory_node *root, const struct memory_account *account, size_t n,
			 const struct allocator_type *type)
{
	const struct memory_sum *sums = &account->sums[MEMORY_ALLOCATOR(n, 0)];
	int err = 0;

	for (size_t i = 0; i < MEMORY_ALLOCATOR_KINDS && !err; i++)
		err = kind_add(root, type->name, &allocator_kind_names[i], &sums[i]);
	struct memory_node *node = (struct memory_node *)memory_node_child(root, type->name);
	if (node) {
		node->purge = type->purge;
		node->trimmable = sums[ALLOCATOR_DIRTY].size + sums[ALLOCATOR_MUZZY].size;
	}
	return err;
}

static int kinds_add(struct memory_node *root, const struct memory_account *account,
		     const struct memory_allocators *allocators)
{
	int err = 0;

	for (unsigned int i = 0; i < MEMORY_KINDS && !err; i++)
		err = kind_add(root,
			       i <= MEMORY_PY_UNREAD ? "python"
			       : i <= MEMORY_MAPPED  ? "malloc"
			       : i == MEMORY_STACKS  ? "stacks"
						     : "files",
			       &kind_names[i], &account->sums[i]);
	for (size_t i = 0; i < allocators->count && !err; i++)
		err = allocator_add(root, account, i, allocators->items[i].type);
	return err;
}

/* Bytes of its own pages that no region has taken. */
static uint64_t rest_own(const struct memory_map *map)
{
	uint64_t own = map->private_clean + map->private_dirty;

	return lesser(own - lesser(own, map->taken_own), map->rss - map->taken);
}

/*
 * A map of a file has parts as smaps counts them, which are its rss. smaps calls a page private if
 * no other process maps it, and dirty if the page is: of a shared map neither says that the process
 * has a copy. Private_Dirty of a private map has its copies, and pages of the file that others
 * wrote.
 */
static int file_add(struct memory_node *root, const struct memory_map *map)
{
	uint64_t dirty = map->private_dirty, clean = map->private_clean;
	uint64_t own = map->shared ? 0 : lesser(dirty, map->anonymous);
	int is_cache = map->shared && map->source == MEMORY_FILE;
	int is_memory = map->source == MEMORY_SHARED;
	const struct {
		const char *name;
		uint64_t bytes, own;
	} parts[] = {
		{"private, dirty", own, own},
		{"private, clean", is_cache || is_memory ? 0 : clean, clean},
		{"mapped here only",
		 is_memory ? lesser(dirty - own, UINT64_MAX - clean) + clean : 0, UINT64_MAX},
		{"page cache, dirty",
		 is_memory ? 0 : dirty - own + (is_cache ? map->shared_dirty : 0), dirty - own},
		{"page cache, clean",
		 is_cache ? lesser(clean, UINT64_MAX - map->shared_clean) + map->shared_clean : 0,
		 clean},
		{"shared, dirty", is_cache ? 0 : map->shared_dirty, 0},
		{"shared, clean", is_cache ? 0 : map->shared_clean, 0},
		{"other", UINT64_MAX, UINT64_MAX}, /* none, unless the map changed meanwhile */
	};
	uint64_t left = map->rss - map->taken;
	uint64_t left_own = rest_own(map);
	int err = 0;

	for (size_t i = 0; i < ARRAY_SIZE(parts) && !err; i++) {
		const char *const path[] = {is_memory ? "shared memory" : "files", map->name,
					    parts[i].name, NULL};
		struct memory_sum sum = {.size = lesser(parts[i].bytes, left)};

		sum.own = lesser(lesser(parts[i].own, sum.size), left_own);
		left -= sum.size;
		left_own -= sum.own;
		if (sum.size)
			err = leaf_add(root, path, &sum);
	}
	return err;
}

/* Where the part of a map goes that no region has taken. */
static int rest_add(struct memory_node *root, const struct memory_map *map, const char *allocator,
		    int64_t rest)
{
	const struct memory_sum sum = {.size = (uint64_t)rest, .own = rest_own(map)};
	char name[NAME_BYTES];
	const char *path[] = {NULL, NULL, NULL};

	switch (map->source) {
	case MEMORY_FILE:
	case MEMORY_SHARED:
		return file_add(root, map);
	case MEMORY_STACK:
		path[0] = "stacks";
		path[1] = "first thread";
		break;
	case MEMORY_BREAK:
		path[0] = allocator[0] ? name : "program break";
		snprintf(name, sizeof(name), "mapped by %s", allocator);
		break;
	case MEMORY_KERNEL:
		path[0] = map->name;
		break;
	case MEMORY_ANONYMOUS:
		path[0] = map->name[0] || allocator[0] ? name : "other anonymous memory";
		snprintf(name, sizeof(name), "mapped by %s", map->name[0] ? map->name : allocator);
		break;
	}
	return leaf_add(root, path, &sum);
}

static int node_compare(const void *a, const void *b)
{
	const struct memory_node *x = a, *y = b;

	return CMP(y->size, x->size) ?: strcmp(x->name, y->name);
}

/*
 * Sums from the leaves up; sorts children, the largest first. A virtual size is not known if that
 * of a child is not; the things of different groups are not counted together.
 */
static void finish(struct memory_node *node, int depth)
{
	int has_virtual = 1;

	for (size_t i = 0; i < node->child_count; i++) {
		const struct memory_node *part = &node->children[i];

		finish(&node->children[i], depth + 1);
		node->size += part->size;
		node->own += part->own;
		node->virtual += part->virtual;
		node->count += depth > 1 ? part->count : 0;
		has_virtual &= part->virtual != 0;
	}
	if (!has_virtual)
		node->virtual = 0;
	if (node->child_count)
		qsort(node->children, node->child_count, sizeof(*node->children), node_compare);
}

int memory_tree_build(struct memory_node *root, const struct memory_account *account,
		      const struct smaps_totals *totals, uint64_t trimmable,
		      const struct memory_allocators *allocators)
{
	struct memory_node tree = {.name = strdup("rss")}, *malloc_node;
	int64_t unexplained = (int64_t)totals->rss;
	int64_t unexplained_own = (int64_t)totals->own;
	int err = tree.name ? kinds_add(&tree, account, allocators) : -ENOMEM;

	for (unsigned int i = 0; i < MEMORY_KINDS_ALL; i++) {
		unexplained -= (int64_t)account->sums[i].size;
		unexplained_own -= (int64_t)account->sums[i].own;
	}
	for (size_t i = 0; i < account->map_count && !err; i++) {
		const struct memory_map *map = &account->maps[i];
		int64_t rest = (int64_t)(map->rss - map->taken);

		if (rest <= 0)
			continue;
		unexplained -= rest;
		unexplained_own -= (int64_t)rest_own(map);
		err = rest_add(&tree, map, allocators->unread, rest);
	}
	if (!err && (unexplained || unexplained_own)) {
		struct memory_node *node = child(&tree, "changed while read");

		err = node ? 0 : -ENOMEM;
		if (node) {
			node->size = unexplained;
			node->own = unexplained_own;
		}
	}
	if (err) {
		memory_node_free(&tree);
		return err;
	}
	malloc_node = (struct memory_node *)memory_node_child(&tree, "malloc");
	if (malloc_node) {
		malloc_node->purge = "malloc_trim(0)";
		malloc_node->trimmable = trimmable;
	}
	finish(&tree, 0);
	*root = tree;
	return 0;
}
