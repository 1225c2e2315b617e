/* SPDX-License-Identifier: Apache-2.0 */
#include "util/spans.h"

#include <stdlib.h>

#include "util/array.h"
#include "util/sorted.h"

int spans_add(struct spans *spans, const struct address_span *span)
{
	if (span->start >= span->end)
		return 0;
	int err = ARRAY_GROW(spans->entries, spans->capacity, spans->count);
	if (!err)
		spans->entries[spans->count++] = *span;
	return err;
}

/* Sorts the span that takes precedence last. */
static int compare_spans(const void *a, const void *b)
{
	const struct address_span *x = a, *y = b;

	return CMP(x->start, y->start)
		?: CMP(x->rank, y->rank)
		?: CMP(y->end, x->end)
		?: CMP(x->value, y->value);
}

/*
 * A stack of the spans that have begun. The top one takes precedence; those below it continue where
 * it ends, if they reach further.
 */
struct open {
	struct address_span *spans;
	size_t count;
	uint64_t done; /* all pieces before this address are made */
};

static int pieces_make(struct open *open, uint64_t until, struct spans *out)
{
	int err = 0;

	while (open->count && !err) {
		struct address_span piece = open->spans[open->count - 1];
		uint64_t end = piece.end;

		piece.start = open->done;
		piece.end = end < until ? end : until;
		err = spans_add(out, &piece);
		if (piece.start < piece.end)
			open->done = piece.end;
		if (end > until)
			break;
		open->count--;
	}
	open->done = until;
	return err;
}

int spans_sort(struct spans *spans)
{
	/*
	 * The stack holds at most as many spans as were visited, so it reuses the start of the
	 * array.
	 */
	struct open open = {.spans = spans->entries};
	struct spans pieces = {0};
	int err = 0;

	if (spans->count)
		qsort(spans->entries, spans->count, sizeof(*spans->entries), compare_spans);
	for (size_t i = 0; i < spans->count && !err; i++) {
		struct address_span next = spans->entries[i];

		err = pieces_make(&open, next.start, &pieces);
		open.spans[open.count++] = next;
	}
	err = err ?: pieces_make(&open, UINT64_MAX, &pieces);
	spans_free(spans);
	if (err)
		spans_free(&pieces);
	*spans = pieces;
	return err;
}

const struct address_span *spans_find(const struct spans *spans, uint64_t address)
{
	size_t above = SORTED_ABOVE(spans->entries, spans->count, start, address);

	return above && spans->entries[above - 1].end > address ? &spans->entries[above - 1] : NULL;
}

void spans_free(struct spans *spans)
{
	free(spans->entries);
	*spans = (struct spans){0};
}
