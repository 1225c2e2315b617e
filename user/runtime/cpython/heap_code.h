/* SPDX-License-Identifier: Apache-2.0 */
/* The machine code of a function of CPython's that reads pymalloc's variables. Pure. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#define HEAP_CODE_BYTES_MAX 1024u

struct machine;

/* vaddrs */
struct heap_code {
	uint64_t arenas, maxarenas, raw_blocks;
};

/*
 * Decodes _Py_GetAllocatedBlocks() of 3.9 to 3.11; *out gets the variables that it reads. vaddr is
 * that of the code, which is the complete function or its hot part. 0; -ENOTSUP: other code
 * (error_set); -ENOMEM.
 */
int heap_code_decode(const struct machine *machine, const uint8_t *code, size_t bytes,
		     uint64_t vaddr, struct heap_code *out);
