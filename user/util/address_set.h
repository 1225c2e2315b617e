/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A set of block addresses, multiples of 16: one bit per address, in pages of 8 KiB that each cover
 * 1 MiB of address space and are found by hashing. It takes less than 1 % of the heap that it
 * describes. All zeros is the empty set; account may be set.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct address_page {
	uint64_t number; /* address >> 20, plus 1; 0: free slot */
	uint64_t *bits;
};

struct account;

struct address_set {
	struct address_page *pages;
	size_t capacity; /* power of two */
	size_t used;
	struct account *account; /* borrowed; NULL: none */
};

/*
 * 0, -ENOMEM, -EDQUOT, or -E2BIG beyond 2^17 pages (128 GiB of heap): the target chooses the
 * addresses.
 */
int address_set_add(struct address_set *set, uint64_t address);
void address_set_remove(struct address_set *set, uint64_t address);
bool address_set_has(const struct address_set *set, uint64_t address);
size_t address_set_memory(const struct address_set *set);
/* Copies a set. out must be empty and may have an account. 0; -ENOMEM, -EDQUOT: out stays empty. */
int address_set_copy(struct address_set *out, const struct address_set *from);
/* Leaves the empty set. */
void address_set_free(struct address_set *set);
