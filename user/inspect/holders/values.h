/* SPDX-License-Identifier: Apache-2.0 */
/* Simple values of an image's objects as Python writes them. Pure. */
#pragma once

#include "inspect/graph/graph.h"
#include "util/buffer.h"

#define VALUES_TEXT 256u /* characters of a str or bytes that are written at most */

/* The characters of a compact str, or a bytes. */
struct values_text {
	const uint8_t *data; /* in the image */
	uint64_t length;
	unsigned int kind; /* bytes of a character */
};
/* 1: *out has it; 0: the object at address is none of these. */
int values_text(const struct graph *graph, uint64_t address, struct values_text *out);

/*
 * Appends the repr() of a str, an int of up to 60 bits, a bool or None at address. 1: written; 0:
 * it is another value, longer, or a text that is hidden, and nothing was appended; -ENOMEM.
 */
int values_repr(const struct graph *graph, uint64_t address, struct buffer *out);
/*
 * Appends the text of a str at address without quotes if it is an ASCII identifier. 1; 0: it is
 * none; -ENOMEM.
 */
int values_identifier(const struct graph *graph, uint64_t address, struct buffer *out);
/* The same for the qualified name of a function: "Shop.serve.<locals>.answer". */
int values_qualname(const struct graph *graph, uint64_t address, struct buffer *out);
