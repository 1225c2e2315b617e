/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Address ranges that may overlap, each with a value. A look-up finds the span that begins last of
 * those that cover the address; where spans are nested this is the innermost. Sorting cuts the
 * spans into non-overlapping pieces, at most two per span, so that a look-up is always a binary
 * search. Pure. Zero-initialise.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct address_span {
	uint64_t start, end; /* end is exclusive */
	uint64_t value;
	/*
	 * among spans with the same start the highest rank is found, and among equal ranks the
	 * shortest
	 */
	uint64_t rank;
};

struct spans {
	struct address_span *entries;
	size_t count, capacity;
};

/* Copies *span; an empty span is ignored. 0, -ENOMEM, -EOVERFLOW. */
int spans_add(struct spans *spans, const struct address_span *span);
/*
 * Call once, between the last spans_add() and the first spans_find(). 0; -ENOMEM, -EOVERFLOW: free
 * the spans.
 */
int spans_sort(struct spans *spans);
/* The piece that covers the address; NULL: none. Borrowed until spans_free(). */
const struct address_span *spans_find(const struct spans *spans, uint64_t address);
void spans_free(struct spans *spans);
