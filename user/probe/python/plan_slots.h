/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The functions that the slots of Python's allocators hold when the interpreter starts, by the code
 * of the public functions, which call through them, and the file's data.
 */
#pragma once

#include <stdint.h>

#include "object/elf/elf_file.h"
#include "probe/python/plan_functions.h"

/*
 * public: "PyObject_", "PyMem_" or "PyMem_Raw". Fills in the vaddrs of malloc, calloc, realloc and
 * free. The file may be stripped. 0; -ENOENT: the code does not match the model; -ENOMEM.
 */
int plan_slots_find(struct elf_file *file, const char *public, uint64_t vaddrs[PLAN_FUNCTIONS]);
