/* SPDX-License-Identifier: Apache-2.0 */
#include "trace/blocks/block_owners.h"

#include "util/array.h"

static uint64_t key_of(uint32_t tid, uint32_t task)
{
	return (uint64_t)task << 32 | tid;
}

int block_owners_copy(struct block_owners *out, const struct block_owners *from)
{
	struct account *account = out->index.account;
	int err = id_map_copy(&out->index, &from->index)
			?: ARRAY_COPY(account, out, from, items, count, capacity)
			?: ARRAY_COPY(account, out, from, unused, unused_count, unused_capacity);

	if (err) {
		block_owners_free(out);
		return err;
	}
	out->count = from->count;
	out->unused_count = from->unused_count;
	out->added = from->added;
	out->kept = from->kept;
	return 0;
}

void block_owners_free(struct block_owners *owners)
{
	struct account *account = owners->index.account;

	ARRAY_RELEASE(account, owners, items, capacity);
	ARRAY_RELEASE(account, owners, unused, unused_capacity);
	id_map_free(&owners->index);
	owners->count = owners->unused_count = 0;
}

/* Adds OWNER_NONE first. 0, -ENOMEM, -EDQUOT. */
static int item_add(struct block_owners *owners, struct block_owner owner, uint32_t *index)
{
	size_t extra = owners->count ? 1 : 2;
	int err = ARRAY_RESERVE(owners->index.account, owners, items, count, capacity, extra);

	if (err)
		return err;
	if (!owners->count)
		owners->items[owners->count++] = (struct block_owner){0};
	*index = (uint32_t)owners->count;
	err = id_map_put(&owners->index, key_of(owner.tid, owner.task), *index);
	if (!err)
		owners->items[owners->count++] = owner;
	return err;
}

uint32_t block_owners_find(struct block_owners *owners, uint32_t tid, uint32_t task)
{
	const struct block_owner owner = {.tid = tid, .task = task};
	uint32_t index = id_map_find(&owners->index, key_of(tid, task));

	if (index != ID_MAP_NONE)
		return index;
	owners->added++;
	if (owners->unused_count) {
		index = owners->unused[owners->unused_count - 1];
		if (id_map_put(&owners->index, key_of(tid, task), index))
			return OWNER_NONE;
		owners->unused_count--;
		owners->items[index] = owner;
		return index;
	}
	if (owners->count > OWNERS_MAX || item_add(owners, owner, &index))
		return OWNER_NONE;
	return index;
}

bool block_owners_are_many(const struct block_owners *owners)
{
	/* Dropping takes a pass over all blocks. */
	return owners->added >= (owners->kept > OWNERS_FEW ? owners->kept : OWNERS_FEW);
}

void block_owners_keep(struct block_owners *owners, const uint64_t *used)
{
	size_t count = owners->count;

	owners->added = owners->kept = 0;
	for (size_t i = 0; i < count; i++)
		owners->kept += used[i / 64] >> i % 64 & 1;
	if (array_reserve_in(owners->index.account, &owners->unused, &owners->unused_capacity, 0,
			     count, sizeof(*owners->unused)))
		return;
	owners->unused_count = 0;
	for (size_t i = 1; i < count; i++) {
		if (used[i / 64] >> i % 64 & 1)
			continue;
		/* It may have been dropped before, and another one may have its numbers now. */
		if (id_map_find(&owners->index,
				key_of(owners->items[i].tid, owners->items[i].task)) == i)
			id_map_remove(&owners->index,
				      key_of(owners->items[i].tid, owners->items[i].task));
		owners->unused[owners->unused_count++] = (uint32_t)i;
	}
}

const struct block_owner *block_owners_get(const struct block_owners *owners, uint32_t index)
{
	static const struct block_owner none;

	return index < owners->count ? &owners->items[index] : &none;
}
