/* SPDX-License-Identifier: Apache-2.0 */
/* A sorted array: regions are large and few, and most changes are near one of its ends. */
#include "trace/blocks/regions.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "util/array.h"
#include "util/sorted.h"

void regions_free(struct regions *regions)
{
	ARRAY_RELEASE(regions->account, regions, items, capacity);
	regions->count = 0;
}

int regions_copy(struct regions *out, const struct regions *from)
{
	int err = ARRAY_COPY(out->account, out, from, items, count, capacity);

	if (err)
		return err;
	out->count = from->count;
	return 0;
}

/* Index of the first region that ends after address. */
static size_t region_index(const struct regions *regions, uint64_t address)
{
	return SORTED_ABOVE(regions->items, regions->count, end, address);
}

const struct region *regions_find(const struct regions *regions, uint64_t address)
{
	size_t index = region_index(regions, address);

	return index < regions->count && regions->items[index].start <= address
		       ? &regions->items[index]
		       : NULL;
}

/*
 * Replaces [start, end) by middle; NULL: by nothing. Regions that cross its edges keep the part
 * outside.
 */
static int range_replace(struct regions *regions, uint64_t start, uint64_t end,
			 const struct region *middle)
{
	size_t first = region_index(regions, start), last = first, count = 0;
	struct region pieces[3];

	while (last < regions->count && regions->items[last].start < end)
		last++;
	if (last > first && regions->items[first].start < start) {
		pieces[count] = regions->items[first];
		pieces[count++].end = start;
	}
	if (middle)
		pieces[count++] = *middle;
	if (last > first && regions->items[last - 1].end > end) {
		pieces[count] = regions->items[last - 1];
		pieces[count++].start = end;
	}
	if (regions->count - (last - first) + count > REGIONS_MAX)
		return -ENOSPC;
	int err = ARRAY_RESERVE(regions->account, regions, items, count, capacity, 2);
	if (err)
		return err;
	if (regions->count > last)
		memmove(regions->items + first + count, regions->items + last,
			(regions->count - last) * sizeof(*regions->items));
	memcpy(regions->items + first, pieces, count * sizeof(*pieces));
	regions->count = regions->count - (last - first) + count;
	return 0;
}

int regions_set(struct regions *regions, const struct region *region)
{
	return range_replace(regions, region->start, region->end, region);
}

int regions_clear(struct regions *regions, uint64_t start, uint64_t end)
{
	return range_replace(regions, start, end, NULL);
}

int regions_protect(struct regions *regions, const struct region *region)
{
	uint64_t at = region->start;
	int err = 0;

	while (!err && at < region->end) {
		size_t index = region_index(regions, at);

		if (index == regions->count || regions->items[index].start >= region->end)
			break;
		const struct region *known = &regions->items[index];
		struct region part = *region;

		if (known->start > part.start)
			part.start = known->start;
		if (known->end < part.end)
			part.end = known->end;
		at = part.end;
		if (known->accessible != part.accessible)
			err = range_replace(regions, part.start, part.end, &part);
	}
	return err;
}
