/* SPDX-License-Identifier: Apache-2.0 */
/* Reading a heap without bringing back what of it is swapped out. */
#ifndef TRACER_HEAP_HEAP_GUARD_H
#define TRACER_HEAP_HEAP_GUARD_H

#include "process/swap_guard.h"
#include "python/runtime.h"

/*
 * From now on memory of the process that is swapped out is not read. What leads to the heaps, and
 * the interpreter's variables with its types, is read once before, so that they are found although
 * it was swapped out. 0; errors of
 * swap_guard_open(). The caller closes the guard after the runtime.
 */
int heap_guard(struct python_runtime *runtime, struct swap_guard *guard);

#endif
