/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The names of classes with their modules, as their repr() has them, read from a running process.
 * Included by user/heap/ only.
 */
#ifndef TRACER_HEAP_CLASS_NAMES_H
#define TRACER_HEAP_CLASS_NAMES_H

#include "heap/heap_types.h"

struct class_names {
	const struct python_runtime *runtime;
	uint64_t reads;      /* how many more reads of memory are made */
	uint64_t module_key; /* address of the str '__module__'; 0: not known yet */
	uint64_t unknown;    /* classes whose module was not read, since no reads were left */
};

/* Sets type->full_name if it is not type->name. 0, -ENOMEM. */
int class_name_read(struct class_names *names, struct heap_type *type);

#endif
