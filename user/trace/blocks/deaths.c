/* SPDX-License-Identifier: Apache-2.0 */
#include "trace/blocks/deaths.h"

#include "util/account.h"
#include "util/array.h"

uint32_t deaths_add(struct deaths *deaths, const struct death *death)
{
	if (deaths->count < DEATHS_MAX) {
		if (ARRAY_RESERVE(deaths->account, deaths, items, count, capacity, 1))
			return DEATHS_NONE;
		deaths->last = deaths->count++;
	} else {
		deaths->last = (deaths->last + 1) % DEATHS_MAX;
	}
	deaths->items[deaths->last] = *death;
	return (uint32_t)deaths->last;
}

void deaths_free(struct deaths *deaths)
{
	ARRAY_RELEASE(deaths->account, deaths, items, capacity);
	*deaths = (struct deaths){.account = deaths->account};
}
