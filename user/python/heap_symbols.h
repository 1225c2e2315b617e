/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where pymalloc keeps its heap up to 3.11, when it is in static variables: the part of heap_read()
 * that looks into the file.
 */
#ifndef TRACER_PYTHON_HEAP_SYMBOLS_H
#define TRACER_PYTHON_HEAP_SYMBOLS_H

#include <stddef.h>
#include <stdint.h>

#include "python/runtime.h"

/* The addresses of a heap's variables: in the target, or as the file has them where it is said. */
struct heap_head {
	uint64_t arenas, maxarenas;
	uint64_t raw_blocks; /* the count of blocks passed on to the raw allocator */
	int raw_is_total;    /* 3.8: it counts pymalloc's blocks too */
};

/*
 * Decodes the machine code of _Py_GetAllocatedBlocks() of 3.9 to 3.11, pure: *out gets the vaddrs
 * of the variables that it reads. vaddr is that of the code, which is the whole function or its hot
 * part. 0; -ENOTSUP: it is something else, error_set() says what was not understood; -ENOMEM.
 */
int heap_symbols_decode(const uint8_t *code, size_t bytes, uint64_t vaddr, struct heap_head *out);

/*
 * The variables' addresses in the target: from their symbols, else from the code. 0; -ENOTSUP when
 * neither tells, error_set() says why; -ENOEXEC; -ENOMEM.
 */
int heap_symbols_find(const struct python_runtime *runtime, struct heap_head *out);

#endif
