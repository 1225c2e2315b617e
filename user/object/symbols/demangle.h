/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Demangles names of C++ and Rust functions (legacy and v0), by libiberty.
 *
 * libiberty limits its recursion, but a name of a few hundred bytes may expand to more text than
 * can be written in acceptable time. Call it only in the worker process (object/symbols/worker.h),
 * which may be killed.
 */
#pragma once

#include <stddef.h>

#define DEMANGLE_MAX 1024u /* bytes of a result, with the NUL; a longer one ends in "..." */

/* 1: demangle() probably changes the name. Cheap. */
int demangle_wanted(const char *name);
/* The demangled name, or the name itself if it is not mangled; both cut. Returns the length. */
size_t demangle(const char *name, char out[DEMANGLE_MAX]);
