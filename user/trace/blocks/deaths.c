/* SPDX-License-Identifier: Apache-2.0 */
#include "trace/blocks/deaths.h"

#include "util/account.h"
#include "util/array.h"

uint32_t deaths_add(struct deaths *deaths, const struct death *death)
{
	if (deaths->count < DEATHS_MAX) {
		if (array_reserve_in(deaths->account, &deaths->items, &deaths->capacity,
				     deaths->count, 1, sizeof(*deaths->items)))
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
	array_release(deaths->account, &deaths->items, &deaths->capacity, sizeof(*deaths->items));
	*deaths = (struct deaths){.account = deaths->account};
}
