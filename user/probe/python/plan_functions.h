/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Probes on the functions of Python's allocators: the public ones (PyObject_Malloc), their
 * implementations (_PyObject_Malloc) and the debugging hooks (_PyMem_DebugMalloc).
 */
#pragma once

#include <stdbool.h>

#include "object/elf/elf_file.h"
#include "probe/python/plan.h"

#define PLAN_FUNCTIONS 4 /* of a domain: malloc, calloc, realloc, free */
extern const char *const plan_function_names[PLAN_FUNCTIONS]; /* "Malloc" … */

/* The domains of which all four implementations have a symbol. */
struct plan_named {
	bool raw, obj;
};
/* Where only some of the four have a symbol, the others are added to plan->missing. */
struct plan_named plan_functions_named(struct plan *plan, struct elf_file *file);

/*
 * Adds the sites of all three domains: in the implementations where they are named, otherwise in
 * the public functions. Describes the level. 0 or -ENOMEM.
 */
int plan_functions_add(struct plan *plan, struct elf_file *file, const struct plan_opts *opts,
		       struct plan_named named);
/*
 * The same for a build without the GIL, whose allocators are mimalloc's: the sites are in the
 * functions that the slots hold when the interpreter starts (plan_slots.h). Otherwise in the public
 * functions. 0 or -ENOMEM.
 */
int plan_slot_functions_add(struct plan *plan, struct elf_file *file);
/*
 * Adds the sites in the debugging hooks, which see the sizes that the program asked for. The hooks
 * are found by their symbols, otherwise by the code of PyMem_SetupDebugHooks(). Where they are not
 * found, the plan is not complete. 0 or -ENOMEM.
 */
int plan_hooks_add(struct plan *plan, struct elf_file *file);
/*
 * Sets plan->object_code to the range of the object allocator's implementations, which have
 * symbols. The range tells a large object's request from a raw request: both reach the raw
 * allocator, and only the caller differs.
 */
void plan_object_code_find(struct plan *plan, struct elf_file *file);
