/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which native functions are not the program's own: wrappers of allocators (zmalloc, palloc,
 * operator new), the insides of the standard libraries of C, C++ and Rust, and what calls main or a
 * thread's first function. Only names decide, so the answer does not depend on the machine.
 */
#pragma once

#include <stdbool.h>

#include "snapshot/frames/short_name.h"

enum library_part {
	LIBRARY_NOT, /* the program's own */
	LIBRARY_INSIDE,
	LIBRARY_ALLOCATOR, /* calls nothing but itself and other allocators */
};

/*
 * name: the function's short name (short_name.h), without which a function of C++ or Rust is not
 * recognised; form: as short_name() returned it with that name.
 */
enum library_part library_function(const char *name, enum short_name_form form);
/* file: of a source or, where that is not known, of the executable or library. */
bool library_has_file(const char *file);
