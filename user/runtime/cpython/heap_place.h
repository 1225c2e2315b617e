/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Locates pymalloc's heaps: static variables up to 3.11, a structure per
 * interpreter from 3.12 on. Its offset in the interpreter state differs between releases of one
 * minor version, and nothing in the file records it. The offset of the table is therefore only a
 * first guess: it is verified in the running process, and searched there if it is wrong.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "runtime/cpython/heap.h"
#include "runtime/cpython/runtime.h"

#define HEAP_ARENAS (1u << 20) /* limit per heap: 1 TiB */

/*
 * Whether these bytes, copied from address, begin a struct _obmalloc_state. It begins with a list
 * of pools for each size class, and a list without a pool points to itself; the array of arenas
 * follows. bytes: offsets->mgmt_maxarenas and 4. Pure.
 */
bool heap_place_is_state(const struct heap_offsets *offsets, const uint8_t *bytes,
			 uint64_t address);

/*
 * Finds the heads of all heaps, each once. 0; *count is 0 if no interpreter has a heap yet;
 * -ENOTSUP: their location could not be verified, error_set() names the field; -ESRCH; -EPERM;
 * -EFAULT.
 */
int heap_place_heads(const struct python_runtime *runtime,
		     struct heap_head heads[HEAP_INTERPRETERS], uint32_t *count);

/*
 * Describes the heap's location and layout for BPF. If the process has not started its interpreter
 * yet, the location is that of the table, and BPF verifies it. 0; -ENOTSUP (error_set); -errno.
 */
int heap_describe(const struct python_runtime *runtime, struct abi_heap *out);
