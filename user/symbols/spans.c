/* SPDX-License-Identifier: Apache-2.0 */
#include "symbols/spans.h"

#include <stdlib.h>

#include "base/array.h"

int spans_add(struct spans *spans, uint64_t start, uint64_t end, uint64_t value)
{
	int err;

	if (start >= end)
		return 0;
	err = array_reserve(&spans->entries, &spans->room, spans->count, 1, sizeof(*spans->entries));
	if (!err)
		spans->entries[spans->count++] = (struct span){start, end, end, value};
	return err;
}

/* Of those that begin together the shortest comes last. */
static int compare_spans(const void *a, const void *b)
{
	const struct span *x = a, *y = b;

	if (x->start != y->start)
		return x->start < y->start ? -1 : 1;
	return x->end > y->end ? -1 : x->end < y->end;
}

void spans_sort(struct spans *spans)
{
	uint64_t reach = 0;

	if (spans->count)
		qsort(spans->entries, spans->count, sizeof(*spans->entries), compare_spans);
	for (size_t i = 0; i < spans->count; i++) {
		if (spans->entries[i].reach < reach)
			spans->entries[i].reach = reach;
		reach = spans->entries[i].reach;
	}
}

const struct span *spans_find(const struct spans *spans, uint64_t address)
{
	size_t low = 0, high;

	for (high = spans->count; low < high;) {
		size_t middle = low + (high - low) / 2;

		if (spans->entries[middle].start <= address)
			low = middle + 1;
		else
			high = middle;
	}
	while (low-- && spans->entries[low].reach > address)
		if (spans->entries[low].end > address)
			return &spans->entries[low];
	return NULL;
}

void spans_free(struct spans *spans)
{
	free(spans->entries);
	*spans = (struct spans){0};
}
