/* SPDX-License-Identifier: Apache-2.0 */
/* What fuzz targets of heaps share: memory for them, and changes that the input makes. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "runtime/malloc/allocator.h"

/* Memory of so many bytes, a multiple of the alignment, at a multiple of it. */
static inline uint8_t *heap_world_map(uint64_t bytes, uint64_t alignment)
{
	uint8_t *area = mmap(NULL, bytes + alignment, PROT_READ | PROT_WRITE,
			     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (area == MAP_FAILED)
		abort();
	return (uint8_t *)(((uintptr_t)area + alignment - 1) & ~(uintptr_t)(alignment - 1));
}

/* Takes the next change of an input; false: there is none left. */
static inline bool heap_world_change(const uint8_t **data, size_t *size, void *change, size_t bytes)
{
	if (*size < bytes)
		return false;
	memcpy(change, *data, bytes);
	*data += bytes;
	*size -= bytes;
	return true;
}

/* An allocator_run_fn: runs come in order of address, and do not overlap. context: their end. */
static inline int heap_world_run(const struct allocator_run *run, void *context)
{
	uint64_t *end = context;

	if (run->address < *end || !run->count || !run->block_bytes ||
	    run->kind >= ALLOCATOR_KINDS || run->count > (1ull << 47) / run->block_bytes)
		abort();
	*end = run->address + run->count * run->block_bytes;
	if (*end <= run->address)
		abort();
	return 0;
}
