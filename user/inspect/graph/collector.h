/* SPDX-License-Identifier: Apache-2.0 */
/* The collectors of an image, and the objects on their lists. Pure. */
#pragma once

#include "inspect/graph/image.h"
#include "runtime/cpython/collector_state.h"

struct collector_source collector_source_of(const struct image *image); /* borrowed */
/* Adds what its lists tell: objects, frozen. */
void collector_objects_count(const struct collector *collector, const struct image *image,
			     struct collector_figures *out);

/*
 * Visits the objects that gc.freeze() has put aside, by address, until visit returns not 0, which
 * it returns. Without the GIL there are none.
 */
typedef int (*collector_fn)(void *context, uint64_t object);
int collector_each_frozen(const struct collector *collector, const struct image *image,
			  collector_fn visit, void *context);
/* The same for each of its lists: what ends one does not end the others. */
void collector_each_list(const struct collector *collector, const struct image *image,
			 collector_fn visit, void *context);
