/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Verifies that the running interpreter has the assumed layout. The layout of its version, or its
 * own debug offsets, is checked against its memory: interpreters point to threads and these back to
 * them, a thread id is the address of the thread's storage, frames point to code objects and these
 * to strings. A table that is wrong in one field gives wrong lines, and nothing else would detect
 * it.
 */
#pragma once

#include "runtime/cpython/runtime.h"

/*
 * Reads the process's memory at most 20,000 times, which takes 30 ms. 0: everything that exists by
 * now agrees (less can be proven before an interpreter starts, or while no Python code runs);
 * -ENOTSUP: error_set() names the field that could not be proven; -ESRCH; -EPERM.
 */
int layout_prove(const struct python_runtime *runtime);

/*
 * 3.13+: reads the interpreter's own offsets, a constant, from the file; vaddr is that of
 * _PyRuntime. Memory is the second choice: while the dynamic loader maps the file, other parts of
 * it are briefly at this address. 0; -EFAULT (error_set).
 */
int layout_offsets_read(const struct python_runtime *runtime, uint64_t vaddr,
			uint8_t bytes[OFFSETS_DEBUG_BYTES]);

/*
 * Refuses a runtime of an unknown version: -ENOTSUP. The message says what does not fit the layout
 * of the newest known version.
 */
int layout_refuse(struct python_runtime *runtime, uint64_t vaddr);
