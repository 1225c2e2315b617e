/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds CPython's debugging hooks in a file without their symbols: the code of
 * PyMem_SetupDebugHooks(), which is exported, stores their addresses in the allocators' slots.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

enum { HOOKS_MALLOC, HOOKS_CALLOC, HOOKS_REALLOC, HOOKS_FREE, HOOKS_FUNCTIONS };

struct hooks {
	uint64_t raw[HOOKS_FUNCTIONS]; /* _PyMem_DebugRawMalloc …: vaddrs */
	uint64_t obj[HOOKS_FUNCTIONS]; /* _PyMem_DebugMalloc …, for mem and obj */
};

/* Copies the file's bytes at vaddr. Returns their number; 0 or negative if there are none. */
typedef int (*hooks_read_fn)(void *context, uint64_t vaddr, void *out, size_t bytes);

/*
 * setup, bytes: vaddr of PyMem_SetupDebugHooks() and its size, 0: unknown. Pure. 0; -ENOENT its
 * code does not match the model; -ENOMEM.
 */
int hooks_find(hooks_read_fn read, void *context, uint64_t setup, uint64_t bytes,
	       struct hooks *out);
