/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranges of addresses that may overlap, each with a value; of those that cover an address the one
 * that begins last is found, which is the innermost where they are nested. Sorting cuts them into
 * pieces that do not overlap, at most two for each, so that a look-up is a bisection however they
 * lie. Pure. Zero-initialise.
 */
#ifndef TRACER_BASE_SPANS_H
#define TRACER_BASE_SPANS_H

#include <stddef.h>
#include <stdint.h>

struct span {
	uint64_t start, end; /* end is the first address behind it */
	uint64_t value;
	/* of those that begin together the highest is found, and of equals the shortest */
	uint64_t rank;
};

struct spans {
	struct span *entries;
	size_t count, room;
};

/* 0, also of one that is empty and left out; -ENOMEM, -EOVERFLOW. */
int spans_add(struct spans *spans, const struct span *span);
/*
 * To be called once, between the last spans_add() and the first spans_find(). 0, -ENOMEM,
 * -EOVERFLOW: they are to be freed.
 */
int spans_sort(struct spans *spans);
/* A piece of what was added; NULL: none covers it. */
const struct span *spans_find(const struct spans *spans, uint64_t address);
void spans_free(struct spans *spans);

#endif
