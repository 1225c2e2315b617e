/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranges of addresses that may overlap, each with a value; of those that cover an address the one that begins last is
 * found, which is the innermost where they are nested. Pure. Zero-initialise.
 */
#ifndef TRACER_SYMBOLS_SPANS_H
#define TRACER_SYMBOLS_SPANS_H

#include <stddef.h>
#include <stdint.h>

struct span {
	uint64_t start, end; /* end is the first address behind it */
	uint64_t reach;      /* the furthest end of this one and of all that start before it */
	uint64_t value;
};

struct spans {
	struct span *entries;
	size_t count, room;
};

int spans_add(struct spans *spans, uint64_t start, uint64_t end, uint64_t value); /* 0, -ENOMEM, -EOVERFLOW */
/* To be called once, between the last spans_add() and the first spans_find(). */
void spans_sort(struct spans *spans);
/* NULL: none covers it. */
const struct span *spans_find(const struct spans *spans, uint64_t address);
void spans_free(struct spans *spans);

#endif
