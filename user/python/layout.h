/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Has the running interpreter the layout that is assumed of it? What is known of its version, or
 * what it says of itself, is held against what is in its memory: interpreters lead to threads and
 * these back to them, a thread's number is the address of its thread-local storage, frames lead to
 * code objects and these to strings. A table that is wrong by one field gives wrong lines, and
 * nothing else would tell.
 */
#ifndef TRACER_PYTHON_LAYOUT_H
#define TRACER_PYTHON_LAYOUT_H

#include "python/runtime.h"

/*
 * Reads the process's memory at most 20,000 times, whatever it holds: 30 ms. 0: what it has by now
 * agrees (one that has not started an interpreter, or runs no Python just now, has less that can be
 * proven); -ENOTSUP: error_set() names the field that could not be proven; -ESRCH; -EPERM.
 */
int layout_prove(const struct python_runtime *runtime);

#endif
