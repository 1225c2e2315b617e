/* SPDX-License-Identifier: Apache-2.0 */
/* The code of a file that is searched, and what the file says about it. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "abi/target.h"

struct inline_range {
	const uint8_t *code;
	uint64_t vaddr;
	size_t bytes;
};

/* A slot that the dynamic linker fills with the address of one of libc's functions. */
struct inline_import {
	uint64_t slot;
	enum abi_op op; /* ABI_OP_MALLOC, _CALLOC, _REALLOC, _FREE */
};

#define INLINE_STUB_RANGES      3
#define INLINE_IMPORTS_MAX      16
#define INLINE_TRACING_SLOTS    2
#define INLINE_NEW_TYPES        21
#define INLINE_NEW_FUNCTIONS    6
#define INLINE_OBJECT_FUNCTIONS 3

struct machine;

struct inline_image {
	const struct machine *machine; /* borrowed */
	struct inline_range text;
	struct inline_range stubs[INLINE_STUB_RANGES]; /* .plt and its kin; bytes 0: none */
	struct inline_import imports[INLINE_IMPORTS_MAX];
	size_t import_count;
	const uint64_t *starts; /* of functions, and of parts split off; sorted */
	size_t start_count;
	/* what the object allocator's slots hold at the start, but for free; 0: unknown */
	uint64_t object_functions[INLINE_OBJECT_FUNCTIONS];
	uint64_t get_allocator; /* PyMem_GetAllocator; 0: not found */
	uint64_t get_allocator_slots[INLINE_TRACING_SLOTS];
	uint64_t new_reference; /* _Py_NewReference; 0: not found */
	/* slots through which the file calls it; 0: none */
	uint64_t new_reference_slots[INLINE_TRACING_SLOTS];
	/*
	 * The flag by which tracemalloc says that it traces, or 0; and slots with the address of
	 * the structure that holds it.
	 */
	uint64_t tracing, tracing_slots[INLINE_TRACING_SLOTS];
	int64_t tracing_offset; /* of the flag in that structure */
	/*
	 * Types without a free list, and functions that only allocate: their objects are always
	 * new. 0: none.
	 */
	uint64_t new_types[INLINE_NEW_TYPES];
	uint64_t new_slots[INLINE_NEW_TYPES]; /* slots with the addresses of these types */
	struct {
		uint64_t vaddr, bytes;
	} new_functions[INLINE_NEW_FUNCTIONS];
};
