/* SPDX-License-Identifier: Apache-2.0 */
#include "util/address_set.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "util/account.h"
#include "util/hash.h"

#define PAGE_SHIFT 20
#define PAGE_WORDS ((1u << PAGE_SHIFT) / 16 / 64)
#define MAX_PAGES  (1u << 17)
#define PAGE_BYTES (PAGE_WORDS * sizeof(uint64_t))

/* Allocates count zeroed elements of bytes each and charges them. 0, -ENOMEM, -EDQUOT. */
static int zeros_new(struct account *account, void *out, size_t count, size_t bytes)
{
	int err = account_charge(account, count * bytes);

	if (err)
		return err;
	void *zeros = calloc(count, bytes);
	if (!zeros) {
		account_uncharge(account, count * bytes);
		return -ENOMEM;
	}
	memcpy(out, &zeros, sizeof(zeros));
	/* cppcheck-suppress memleak ; the caller's pointer holds it */
	return 0;
}

static struct address_page *page_slot(const struct address_set *set, uint64_t number)
{
	size_t i = hash_u64(number) & (set->capacity - 1);

	while (set->pages[i].number && set->pages[i].number != number)
		i = (i + 1) & (set->capacity - 1);
	return &set->pages[i];
}

static int set_grow(struct address_set *set)
{
	struct address_set bigger = {.capacity = set->capacity ? set->capacity * 2 : 64,
				     .account = set->account};
	int err = set->used >= MAX_PAGES ? -E2BIG
					 : zeros_new(set->account, &bigger.pages, bigger.capacity,
						     sizeof(*bigger.pages));

	if (err)
		return err;
	for (size_t i = 0; i < set->capacity; i++)
		if (set->pages[i].number)
			*page_slot(&bigger, set->pages[i].number) = set->pages[i];
	bigger.used = set->used;
	free(set->pages);
	account_uncharge(set->account, set->capacity * sizeof(*set->pages));
	*set = bigger;
	return 0;
}

/* The word that holds the address's bit, and its mask; NULL when its page does not exist. */
static uint64_t *word_find(const struct address_set *set, uint64_t address, uint64_t *mask)
{
	uint32_t bit = (address & ((1u << PAGE_SHIFT) - 1)) / 16;

	if (!set->capacity)
		return NULL;
	const struct address_page *page = page_slot(set, (address >> PAGE_SHIFT) + 1);
	*mask = 1ull << bit % 64;
	return page->number ? &page->bits[bit / 64] : NULL;
}

int address_set_add(struct address_set *set, uint64_t address)
{
	uint64_t mask, *word = word_find(set, address, &mask);

	if (!word) {
		int err = set->used * 2 >= set->capacity ? set_grow(set) : 0;

		if (err)
			return err;
		struct address_page *page = page_slot(set, (address >> PAGE_SHIFT) + 1);
		err = zeros_new(set->account, &page->bits, 1, PAGE_BYTES);
		if (err)
			return err;
		page->number = (address >> PAGE_SHIFT) + 1;
		set->used++;
		word = word_find(set, address, &mask);
	}
	*word |= mask;
	return 0;
}

void address_set_remove(struct address_set *set, uint64_t address)
{
	uint64_t mask, *word = word_find(set, address, &mask);

	if (word)
		*word &= ~mask;
}

bool address_set_has(const struct address_set *set, uint64_t address)
{
	uint64_t mask, *word = word_find(set, address, &mask);

	return word && *word & mask;
}

size_t address_set_memory(const struct address_set *set)
{
	return set->capacity * sizeof(*set->pages) + set->used * PAGE_BYTES;
}

int address_set_copy(struct address_set *out, const struct address_set *from)
{
	struct address_set copy = {.account = out->account};
	int err = from->capacity ? zeros_new(copy.account, &copy.pages, from->capacity,
					     sizeof(*copy.pages))
				 : 0;

	copy.capacity = err ? 0 : from->capacity;
	for (size_t i = 0; i < copy.capacity && !err; i++) {
		if (!from->pages[i].number)
			continue;
		err = zeros_new(copy.account, &copy.pages[i].bits, 1, PAGE_BYTES);
		if (err)
			break;
		copy.pages[i].number = from->pages[i].number;
		memcpy(copy.pages[i].bits, from->pages[i].bits, PAGE_BYTES);
		copy.used++;
	}
	if (err)
		address_set_free(&copy);
	*out = copy;
	return err;
}

void address_set_free(struct address_set *set)
{
	for (size_t i = 0; i < set->capacity; i++)
		free(set->pages[i].bits);
	free(set->pages);
	account_uncharge(set->account, address_set_memory(set));
	*set = (struct address_set){.account = set->account};
}
