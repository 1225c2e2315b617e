/* SPDX-License-Identifier: Apache-2.0 */
#include "base/array.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int array_reserve(void *array, size_t *room, size_t count, size_t extra, size_t size)
{
	void *old;

	if (extra >= UINT32_MAX || count + extra >= UINT32_MAX)
		return -EOVERFLOW;
	if (count + extra <= *room)
		return 0;
	size_t grown = *room + *room / 2 + extra + 8;
	memcpy(&old, array, sizeof(old));
	void *data = reallocarray(old, grown, size);
	if (!data)
		return -ENOMEM;
	memcpy(array, &data, sizeof(data));
	*room = grown;
	/* cppcheck-suppress memleak ; the caller's pointer holds it */
	return 0;
}
