/* SPDX-License-Identifier: Apache-2.0 */
#include "util/array.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "util/account.h"

void huge_advise(void *data, size_t bytes)
{
	uintptr_t first = ((uintptr_t)data + HUGE_BYTES - 1) & ~(uintptr_t)(HUGE_BYTES - 1);
	uintptr_t end = ((uintptr_t)data + bytes) & ~(uintptr_t)(HUGE_BYTES - 1);

	if (end > first)
		madvise((void *)first, end - first, MADV_HUGEPAGE);
}

void *array_new(size_t count, size_t size)
{
	void *data = calloc(count + 1, size);

	if (data && count * size >= 2 * HUGE_BYTES)
		huge_advise(data, count * size);
	return data;
}

int array_reserve_in(struct account *account, void *array, size_t *capacity, size_t count,
		     size_t extra, size_t size)
{
	void *old;

	if (extra >= UINT32_MAX || count + extra >= UINT32_MAX)
		return -EOVERFLOW;
	if (count + extra <= *capacity)
		return 0;
	size_t grown = *capacity + *capacity / 2 + extra + 8;
	if (grown < count + extra)
		grown = count + extra;
	int err = account_resize(account, *capacity * size, grown * size);
	if (err)
		return err;
	memcpy(&old, array, sizeof(old));
	void *data = reallocarray(old, grown, size);
	if (!data) {
		account_uncharge(account, (grown - *capacity) * size);
		return -ENOMEM;
	}
	if (!count && grown * size >= 2 * HUGE_BYTES)
		huge_advise(data, grown * size);
	memcpy(array, &data, sizeof(data));
	*capacity = grown;
	/* cppcheck-suppress memleak ; the caller's pointer holds it */
	return 0;
}

int array_copy_in(struct account *account, void *array, size_t *capacity, const void *from,
		  size_t count, size_t size)
{
	void *data;
	int err = count ? array_reserve_in(account, array, capacity, 0, count, size) : 0;

	if (err || !count)
		return err;
	memcpy(&data, array, sizeof(data));
	memcpy(data, from, count * size);
	return 0;
}

int array_reserve(void *array, size_t *capacity, size_t count, size_t extra, size_t size)
{
	return array_reserve_in(NULL, array, capacity, count, extra, size);
}

void array_fit(struct account *account, void *array, size_t *capacity, size_t count, size_t size)
{
	void *old, *data;

	if (count == *capacity)
		return;
	if (!count) {
		array_release(account, array, capacity, size);
		return;
	}
	memcpy(&old, array, sizeof(old));
	data = reallocarray(old, count, size);
	if (!data)
		return;
	memcpy(array, &data, sizeof(data));
	account_uncharge(account, (*capacity - count) * size);
	*capacity = count;
	/* cppcheck-suppress memleak ; the caller's pointer holds it */
}

void array_release(struct account *account, void *array, size_t *capacity, size_t size)
{
	void *data;

	memcpy(&data, array, sizeof(data));
	free(data);
	account_uncharge(account, *capacity * size);
	data = NULL;
	memcpy(array, &data, sizeof(data));
	*capacity = 0;
}
