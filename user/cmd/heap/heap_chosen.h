/* SPDX-License-Identifier: Apache-2.0 */
/* The objects that an argument of tracer heap means: those of a type, or one. */
#pragma once

#include <stdbool.h>

#include "cmd/heap/heap_choice.h"

struct chosen {
	const struct graph *graph;
	uint8_t *types; /* by type: whether it is meant; NULL: the object */
	uint32_t object;
};

/*
 * what: an address, or a type's name, whole or from one of its dots on. 0; -ENOENT: there is no
 * such object (error_set names a similar type); -ENOMEM. The caller frees with chosen_free(), also
 * after a failure.
 */
int chosen_find(const struct heap_graph *heap, const char *what, struct chosen *out);
void chosen_free(struct chosen *chosen);
/* Whether an object is meant; context is the struct chosen. */
bool is_chosen(void *context, uint32_t object);
/* Whether what is the type's name, whole or from one of its dots on. */
bool chosen_type_is(const struct graph *graph, const struct type *type, const char *what);
