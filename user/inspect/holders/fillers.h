/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which code can add to containers of a heap: found by reading the code objects that are in it, not
 * by watching. Pure.
 */
#pragma once

#include "inspect/holders/paths.h"
#include "util/strings.h"

#define FILLERS_ROWS 32u

/* The objects whose path has the shape, such as `example`. */
struct filler_row {
	uint64_t shape;
	uint32_t example;
};

struct filler {
	uint32_t row;
	uint32_t score;              /* the lower, the likelier */
	uint32_t filename, function; /* in names */
	uint32_t line;
	int calls; /* of the function, whose results are kept, from any place */
};

/*
 * The lines that can add to the containers of at most FILLERS_ROWS rows, by row, the likeliest
 * first. Where better ones are known, those that only have the name in common are left out. None,
 * if the version's instructions are not known. 0, -ENOMEM. The caller frees *out.
 */
int fillers_find(const struct paths *paths, const struct filler_row *rows, size_t row_count,
		 struct strings *names, struct filler **out, size_t *count);
