/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The format of Chrome DevTools' heap snapshots, for its Memory panel and tools that read it. Nodes
 * are objects, named after their types; edges have the names of attributes and variables, and
 * numbers in place of keys: no content of a text is written.
 */
#pragma once

#include <stdio.h>

#include "inspect/holders/paths.h"

#define HEAPSNAPSHOT_NONE UINT32_MAX

struct heapsnapshot_frame {
	const char *function;
	const char *place; /* "FILE:LINE" */
};

struct heapsnapshot_stack {
	uint32_t parent; /* its caller, a smaller number; HEAPSNAPSHOT_NONE */
	uint32_t frame;
};

/* Which stack allocated each object. All borrowed. */
struct heapsnapshot_stacks {
	const struct heapsnapshot_frame *frames;
	size_t frame_count;
	const struct heapsnapshot_stack *stacks;
	size_t stack_count;
	const uint32_t *of; /* by object: a stack; HEAPSNAPSHOT_NONE: not known */
};

/* stacks: NULL: none is known. 0; -ENOMEM. Errors of writing are left in ferror(out). */
int heapsnapshot_write(const struct paths *paths, const struct heapsnapshot_stacks *stacks,
		       FILE *out);
