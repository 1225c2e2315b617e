/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * The mapping that an address is in, without the lock of the process's mappings: that lock is held
 * while a thread maps or unmaps memory, and while a tracer places a probe, for as long as that
 * process has no processor. From 6.1 on the mappings are in a tree whose nodes are freed by RCU,
 * and programs at uprobes run within an RCU section.
 *
 * What is read may be changing. So a mapping counts only if it is of this process and if its range
 * is the one that the tree has for it.
 */
#pragma once

#include "kernel.h"

#define TREE_DEPTH_MAX  8
#define TREE_NODE_BYTES 256

/* Bits of a reference to a node (lib/maple_tree.c). */
#define TREE_NODE_TYPE(entry) ((entry) >> 3 & 15)
#define TREE_NODE(entry)      ((entry) & ~(TREE_NODE_BYTES - 1ull))
#define TREE_LEAF             1
#define TREE_RANGES           2
#define TREE_RANGES_GAPS      3
#define TREE_INTERNAL         3ull /* bits that no pointer to a mapping has */

/* A node has a word for its parent, then so many last addresses, then one child more. */
#define TREE_PIVOTS      15u
#define TREE_PIVOTS_GAPS 9u

struct mapping_tree {
	const struct mm_struct *mm; /* of the running process */
	__u64 first, last;          /* the range of the child that was found */
	__u64 node[TREE_NODE_BYTES / 8];
};

/* The child of tree->node that address lies in, and its range. */
__noinline __u64 tree_child(struct mapping_tree *tree, __u64 address, __u32 pivots)
{
	__u32 i;

	if (!tree)
		return 0;
	for (i = 0; i < TREE_PIVOTS; i++) {
		__u64 pivot = tree->node[1 + i];

		/* An unused one is 0: the child has the rest of the node. */
		if (i >= pivots || (i && !pivot))
			break;
		if (pivot >= address) {
			if (pivot < tree->last)
				tree->last = pivot;
			break;
		}
		tree->first = pivot + 1;
	}
	return tree->node[(1 + pivots + i) & (TREE_NODE_BYTES / 8 - 1)];
}

/* The mapping of the running process that the tree has at address; 0: none. Sets its range. */
__noinline __u64 tree_find(struct mapping_tree *tree, __u64 address)
{
	const struct mm_struct *mm = NULL;
	__u64 entry;
	__u32 type;
	int i;

	if (!tree || !bpf_core_field_exists(mm->mm_mt))
		return 0;
	mm = tree->mm;
	entry = (__u64)BPF_CORE_READ(mm, mm_mt.ma_root);
	tree->first = 0;
	tree->last = -1ull;
	for (i = 0; i < TREE_DEPTH_MAX; i++) {
		type = TREE_NODE_TYPE(entry);
		if (type < TREE_LEAF || type > TREE_RANGES_GAPS ||
		    bpf_probe_read_kernel(tree->node, sizeof(tree->node), (void *)TREE_NODE(entry)))
			return 0;
		entry = tree_child(tree, address,
				   type == TREE_RANGES_GAPS ? TREE_PIVOTS_GAPS : TREE_PIVOTS);
		if (type == TREE_LEAF)
			return entry & TREE_INTERNAL ? 0 : entry;
	}
	return 0;
}

/*
 * Is it, after all else of it was read, still the mapping of the running process that the tree had?
 * When a mapping is changed its range changes first.
 */
static __always_inline int tree_still_has(const struct mapping_tree *tree,
					  const struct vm_area_struct *area)
{
	return BPF_CORE_READ(area, vm_mm) == tree->mm &&
	       BPF_CORE_READ(area, vm_start) == tree->first &&
	       BPF_CORE_READ(area, vm_end) - 1 == tree->last;
}
