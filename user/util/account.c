/* SPDX-License-Identifier: Apache-2.0 */
#include "util/account.h"

#include <errno.h>

#define FILE_FLOOR (64ull << 20) /* bytes that any file may use */

uint64_t account_left(const struct account *account)
{
	return account->limit > account->used ? account->limit - account->used : 0;
}

static bool has_capacity(const struct account *account, size_t bytes)
{
	const struct account *parent = account->parent;
	uint64_t used, left;

	if (__builtin_add_overflow(account->used, bytes, &used))
		return 0;
	if (account->limit && used > account->limit)
		return 0;
	if (!parent || !parent->limit || used <= account->floor)
		return 1; /* subject to the parent's own limit */
	left = account_left(parent);
	left = left > parent->reserve ? left - parent->reserve : 0;
	return left >= bytes && (!account->share || used / account->share <= left - bytes);
}

int account_charge(struct account *account, size_t bytes)
{
	int capacity = 1;

	for (const struct account *at = account; at && capacity; at = at->parent)
		capacity = has_capacity(at, bytes);
	for (struct account *at = account; at && !capacity; at = at->parent)
		at->refused++;
	if (!capacity)
		return -EDQUOT;
	for (struct account *at = account; at; at = at->parent)
		at->used += bytes;
	return 0;
}

void account_uncharge(struct account *account, size_t bytes)
{
	for (struct account *at = account; at; at = at->parent)
		at->used -= bytes;
}

int account_resize(struct account *account, size_t old, size_t new)
{
	if (new > old)
		return account_charge(account, new - old);
	account_uncharge(account, old - new);
	return 0;
}

void account_clear(struct account *account)
{
	if (account)
		account_uncharge(account, account->used);
}

bool account_is_full(int err)
{
	return err == -EDQUOT || err == -ENOMEM;
}

uint64_t account_file_limit(uint64_t bytes, uint32_t ratio)
{
	return bytes < (UINT64_MAX - FILE_FLOOR) / ratio ? FILE_FLOOR + ratio * bytes : UINT64_MAX;
}
