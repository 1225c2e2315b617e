/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where pymalloc's heaps are: static variables up to 3.11 (heap_symbols.h), from 3.12 on a
 * structure of each interpreter. Where the interpreter's state has it differs between releases of
 * one minor version, and nothing in the file says it. So the table's offset is only the first
 * guess: it is proven in the running process, and looked for there if the proof fails.
 */
#ifndef TRACER_PYTHON_HEAP_PLACE_H
#define TRACER_PYTHON_HEAP_PLACE_H

#include <stdint.h>

#include "python/heap_symbols.h"
#include "python/runtime.h"

#define HEAP_INTERPRETERS 1024u      /* of a process at most, and so of heads */
#define HEAP_ARENAS       (1u << 20) /* of a heap at most: 1 TiB */

/*
 * Do these bytes, copied from address, begin a structure of heaps (struct _obmalloc_state)? It
 * begins with a list of pools for each size class, and a list without a pool points to itself; the
 * array of arenas follows. bytes: offsets->mgmt_maxarenas and 4. Pure.
 */
int heap_place_is_state(const struct heap_offsets *offsets, const uint8_t *bytes, uint64_t address);

/*
 * The heads of all heaps, each once. 0, *count may be 0: no interpreter has its heap yet; -ENOTSUP
 * where they are could not be proven, error_set() names the field; -ESRCH; -EPERM; -EFAULT.
 */
int heap_place_heads(const struct python_runtime *runtime,
		     struct heap_head heads[HEAP_INTERPRETERS], uint32_t *count);

/*
 * For BPF: where it is and what it looks like. A process that has not got so far cannot be asked:
 * then the place is the table's, and BPF looks for itself. 0; -ENOTSUP, error_set() says why;
 * -errno.
 */
int heap_describe(const struct python_runtime *runtime, struct abi_heap *out);

#endif
