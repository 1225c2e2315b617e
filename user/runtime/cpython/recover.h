/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds the CPython runtime in a copy that has the interpreter's variables but not its file, which
 * has the constants and symbols: what a core file is without the files that were mapped. The layout
 * is one of those that are known, and is proven (layout.h). Names of static types are recovered.
 */
#pragma once

#include "runtime/cpython/runtime.h"

/*
 * As python_copy_find(), but out->file is NULL, and the names of types are put() into the copy. The
 * lower half of out->version_hex is 0 before 3.13. 0; -ENOENT: no variables of a known CPython
 * (error_set); -ENOTSUP: they are of one that is not known, or cannot be proven (error_set);
 * -ENOMEM.
 */
int python_copy_recover(const struct runtime_copy *copy, struct python_runtime *out);
/*
 * The array of arena objects and its length, variables of pymalloc's up to 3.11. data: a copy of
 * the interpreter's variables from address on. read: any memory. 0; -ENOENT: they are not there.
 */
int recover_arenas(const struct python_offsets *offsets, const struct memory_reader *read,
		   const uint8_t *data, uint64_t bytes, uint64_t address,
		   struct runtime_found *out);
