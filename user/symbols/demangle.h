/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names of C++ and Rust functions (legacy and v0) as their programmers wrote them, by libiberty.
 *
 * libiberty bounds its recursion, but a name of some hundred bytes may stand for more text than
 * there is time to write: this is called in the worker process alone (symbols/worker.h), which may
 * be killed.
 */
#ifndef TRACER_SYMBOLS_DEMANGLE_H
#define TRACER_SYMBOLS_DEMANGLE_H

#include <stddef.h>

#define DEMANGLE_MAX 1024u /* bytes of a result, with the NUL; what is longer ends in "..." */

/* 1: the name looks like one that demangle() would change. Cheap. */
int demangle_wanted(const char *name);
/* The demangled name, or the name itself if it is not mangled; both cut. Returns the length. */
size_t demangle(const char *name, char out[DEMANGLE_MAX]);

#endif
