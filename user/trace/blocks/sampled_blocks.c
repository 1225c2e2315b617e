/* SPDX-License-Identifier: Apache-2.0 */
#include "trace/blocks/sampled_blocks.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "util/account.h"
#include "util/hash.h"

#define CAPACITY_MIN 1024u
/* grows beyond 3/4 */
#define FULL_OF 4u
#define FULL    3u

static size_t slot_of(const struct sampled_blocks *sampled_blocks, uint64_t address)
{
	size_t mask = sampled_blocks->capacity - 1, i = hash_u64(address) & mask;

	while (sampled_blocks->slots[i].address && sampled_blocks->slots[i].address != address)
		i = (i + 1) & mask;
	return i;
}

/* Moves everything into a table of that capacity. */
static int capacity_set(struct sampled_blocks *sampled_blocks, size_t capacity)
{
	struct sampled_blocks other = {.capacity = capacity, .account = sampled_blocks->account};
	int err = account_charge(other.account, capacity * sizeof(*other.slots));

	if (err)
		return err;
	other.slots = calloc(capacity, sizeof(*other.slots));
	if (!other.slots) {
		account_uncharge(other.account, capacity * sizeof(*other.slots));
		return -ENOMEM;
	}
	for (size_t i = 0; i < sampled_blocks->capacity; i++)
		if (sampled_blocks->slots[i].address)
			other.slots[slot_of(&other, sampled_blocks->slots[i].address)] =
				sampled_blocks->slots[i];
	other.count = sampled_blocks->count;
	sampled_blocks_free(sampled_blocks);
	*sampled_blocks = other;
	return 0;
}

int sampled_blocks_put(struct sampled_blocks *sampled_blocks,
		       const struct sampled_block *sampled_block)
{
	struct sampled_block *known = sampled_blocks_find(sampled_blocks, sampled_block->address);
	int err = 0;

	if (!sampled_block->address)
		return -EINVAL;
	if (known) {
		*known = *sampled_block;
		return 0;
	}
	if (sampled_blocks->count >= SAMPLED_BLOCKS_MAX)
		return -EDQUOT;
	if (!sampled_blocks->capacity)
		err = capacity_set(sampled_blocks, CAPACITY_MIN);
	else if ((sampled_blocks->count + 1) * FULL_OF > sampled_blocks->capacity * FULL)
		err = capacity_set(sampled_blocks, sampled_blocks->capacity * 2);
	if (err)
		return err;
	sampled_blocks->slots[slot_of(sampled_blocks, sampled_block->address)] = *sampled_block;
	sampled_blocks->count++;
	return 0;
}

struct sampled_block *sampled_blocks_find(const struct sampled_blocks *sampled_blocks,
					  uint64_t address)
{
	struct sampled_block *found;

	if (!sampled_blocks->count || !address)
		return NULL;
	found = &sampled_blocks->slots[slot_of(sampled_blocks, address)];
	return found->address ? found : NULL;
}

/* Closes the gap: a later entry of the same run moves there if its own place is before the gap. */
static void slot_clear(struct sampled_blocks *sampled_blocks, size_t gap)
{
	size_t mask = sampled_blocks->capacity - 1;

	for (size_t i = (gap + 1) & mask; sampled_blocks->slots[i].address; i = (i + 1) & mask) {
		size_t home = hash_u64(sampled_blocks->slots[i].address) & mask;

		if (((i - home) & mask) < ((i - gap) & mask))
			continue;
		sampled_blocks->slots[gap] = sampled_blocks->slots[i];
		gap = i;
	}
	sampled_blocks->slots[gap] = (struct sampled_block){0};
	sampled_blocks->count--;
}

int sampled_blocks_remove(struct sampled_blocks *sampled_blocks, uint64_t address)
{
	struct sampled_block *found = sampled_blocks_find(sampled_blocks, address);

	if (!found)
		return 0;
	slot_clear(sampled_blocks, (size_t)(found - sampled_blocks->slots));
	return 1;
}

const struct sampled_block *sampled_blocks_next(const struct sampled_blocks *sampled_blocks,
						size_t *cursor)
{
	while (*cursor < sampled_blocks->capacity) {
		const struct sampled_block *sampled_block = &sampled_blocks->slots[(*cursor)++];

		if (sampled_block->address)
			return sampled_block;
	}
	return NULL;
}

int sampled_blocks_copy(struct sampled_blocks *out, const struct sampled_blocks *from)
{
	int err = from->capacity ? capacity_set(out, from->capacity) : 0;

	if (err || !from->capacity)
		return err;
	memcpy(out->slots, from->slots, from->capacity * sizeof(*out->slots));
	out->count = from->count;
	return 0;
}

void sampled_blocks_free(struct sampled_blocks *sampled_blocks)
{
	free(sampled_blocks->slots);
	account_uncharge(sampled_blocks->account,
			 sampled_blocks->capacity * sizeof(*sampled_blocks->slots));
	*sampled_blocks = (struct sampled_blocks){.account = sampled_blocks->account};
}
