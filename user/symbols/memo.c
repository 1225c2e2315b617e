/* SPDX-License-Identifier: Apache-2.0 */
#include "symbols/memo.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/account.h"
#include "base/array.h"
#include "base/hash.h"

#define CAPACITY_MIN 1024u

/* Its slot, or the free one where it belongs. */
static struct memo_place *place_find(struct memo_place *places, size_t capacity, uint32_t file,
				     uint64_t offset)
{
	size_t slot = hash_u64(offset ^ (uint64_t)file << 40) & (capacity - 1);

	while (places[slot].file && (places[slot].file != file || places[slot].offset != offset))
		slot = (slot + 1) & (capacity - 1);
	return &places[slot];
}

uint32_t memo_find(const struct memo *memo, uint32_t file, uint64_t offset,
		   const struct symbols_frame **frames)
{
	const struct memo_place *place;

	if (!memo->capacity)
		return 0;
	place = place_find(memo->places, memo->capacity, file, offset);
	*frames = memo->frames + place->first;
	return place->count;
}

static int memo_grow(struct memo *memo)
{
	size_t capacity = memo->capacity ? 2 * memo->capacity : CAPACITY_MIN;
	struct memo_place *places;
	int err = account_charge(memo->account, capacity * sizeof(*places));

	if (err)
		return err;
	places = calloc(capacity, sizeof(*places));
	if (!places) {
		account_uncharge(memo->account, capacity * sizeof(*places));
		return -ENOMEM;
	}
	for (size_t i = 0; i < memo->capacity; i++)
		if (memo->places[i].file)
			*place_find(places, capacity, memo->places[i].file,
				    memo->places[i].offset) = memo->places[i];
	free(memo->places);
	account_uncharge(memo->account, memo->capacity * sizeof(*places));
	memo->places = places;
	memo->capacity = capacity;
	return 0;
}

int memo_add(struct memo *memo, uint32_t file, uint64_t offset, const struct symbols_frame frames[],
	     uint32_t count)
{
	struct memo_place *place;
	int err = 0;

	if (2 * (memo->used + 1) > memo->capacity)
		err = memo_grow(memo);
	if (!err)
		err = array_reserve_in(memo->account, &memo->frames, &memo->frame_room,
				       memo->frame_count, count, sizeof(*memo->frames));
	if (err)
		return err;
	place = place_find(memo->places, memo->capacity, file, offset);
	*place = (struct memo_place){
		.offset = offset, .file = file, .count = count, .first = memo->frame_count};
	memcpy(memo->frames + memo->frame_count, frames, count * sizeof(*frames));
	memo->frame_count += count;
	memo->used++;
	return 0;
}

void memo_free(struct memo *memo)
{
	account_uncharge(memo->account, memo_memory(memo));
	free(memo->places);
	free(memo->frames);
	*memo = (struct memo){.account = memo->account};
}

size_t memo_memory(const struct memo *memo)
{
	return memo->capacity * sizeof(*memo->places) + memo->frame_room * sizeof(*memo->frames);
}
