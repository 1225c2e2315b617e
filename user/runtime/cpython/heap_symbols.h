/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds pymalloc's static variables, which hold its heap up to 3.11: the part of heap_read() that
 * reads the file.
 */
#pragma once

#include <stdint.h>

#include "runtime/cpython/runtime.h"

/* Addresses of a heap's variables: in the target, or vaddrs of the file where noted. */
struct heap_head {
	uint64_t arenas, maxarenas; /* without the GIL arenas is an interpreter's state */
	uint64_t raw_blocks;        /* count of blocks passed to the raw allocator; 0: not known */
	int raw_is_total;           /* 3.8: the count includes pymalloc's blocks */
};

/*
 * Finds the variables' addresses in the target by their symbols, otherwise from the code. 0;
 * -ENOTSUP: neither has them (error_set); -ENOEXEC; -ENOMEM.
 */
int heap_symbols_find(const struct python_runtime *runtime, struct heap_head *out);
