/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where a thread keeps its current greenlet (ABI_LABEL_GREENLET). greenlet 2.0 and later has a
 * pointer in the thread-local storage of its extension module, to a structure that begins with the
 * thread's main and current greenlet. greenlet publishes neither place nor layout. So they are
 * found in a thread that has switched greenlets, and taken only if both are greenlets by their
 * types.
 */
#pragma once

#include "runtime/cpython/labels.h"

/*
 * Sets what out->label has of greenlets, and in out->codes the code of libraries that calls a
 * greenlet's function. 0; -EAGAIN: no thread has switched greenlets yet (error_set); -ENOTSUP: its
 * greenlet or machine is none that is known (error_set); -ENOMEM.
 */
int greenlets_place(const struct python_runtime *runtime, struct label_found *out);
