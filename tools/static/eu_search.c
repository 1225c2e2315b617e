/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What Debian 13's libelf.a and libdw.a (elfutils 0.192) need and lack: their search trees, which
 * that version put into a library of its own that is not installed. They are those of libc with a
 * lock, which is behind the root, and unused in Debian's build. Where libelf.a has them, these are
 * the same.
 */
#include <search.h>
#include <stddef.h>

/* The first member of elfutils' search_tree. */
struct search_tree {
	void *root;
};

typedef int compare_fn(const void *, const void *);
typedef void free_fn(void *);

void eu_search_tree_init(struct search_tree *tree);
void eu_search_tree_fini(struct search_tree *tree, free_fn *free_node);
void *eu_tsearch(const void *key, struct search_tree *tree, compare_fn *compare);
void *eu_tfind(const void *key, struct search_tree *tree, compare_fn *compare);
void *eu_tdelete(const void *key, struct search_tree *tree, compare_fn *compare);
void eu_tdestroy(struct search_tree *tree, free_fn *free_node);

void eu_search_tree_init(struct search_tree *tree)
{
	tree->root = NULL;
}

void eu_tdestroy(struct search_tree *tree, free_fn *free_node)
{
	tdestroy(tree->root, free_node);
	tree->root = NULL;
}

void eu_search_tree_fini(struct search_tree *tree, free_fn *free_node)
{
	eu_tdestroy(tree, free_node);
}

void *eu_tsearch(const void *key, struct search_tree *tree, compare_fn *compare)
{
	return tsearch(key, &tree->root, compare);
}

void *eu_tfind(const void *key, struct search_tree *tree, compare_fn *compare)
{
	return tfind(key, &tree->root, compare);
}

void *eu_tdelete(const void *key, struct search_tree *tree, compare_fn *compare)
{
	return tdelete(key, &tree->root, compare);
}
