/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A producer as a library: to be linked or opened later, or (-DSHIM) to replace malloc by
 * LD_PRELOAD.
 */
#define _GNU_SOURCE
#include <stdlib.h>

#include "otel_sampler.h"

void *__libc_malloc(size_t bytes);
void __libc_free(void *address);

/* The probe is in another function than the one that programs call. */
NOINLINE static void report_alloc(void *address, size_t bytes, int mark)
{
	size_t weight;

	if (sample_take(address, bytes, mark, &weight))
		PROBE_ALLOC(address, bytes, weight);
	asm volatile("");
}

NOINLINE static void report_free(void *address)
{
	if (sample_drop(address))
		PROBE_FREE(address);
	asm volatile("");
}

#ifdef SHIM
NOINLINE void *malloc(size_t bytes)
{
	void *address = __libc_malloc(bytes);

	report_alloc(address, bytes, bytes & 1);
	return address;
}

NOINLINE void free(void *address)
{
	report_free(address);
	__libc_free(address);
}
#endif

NOINLINE void *library_malloc(size_t bytes, int mark)
{
	void *address = __libc_malloc(bytes);
	size_t weight;

	if (sample_take(address, bytes, mark, &weight))
		PROBE_ALLOC(address, bytes, weight);
	return address;
}

NOINLINE void library_free(void *address)
{
	report_free(address);
	__libc_free(address);
}

void library_sum(int mark, size_t *bytes, double *blocks, int *count)
{
	samples_sum(mark, bytes, blocks, count);
}

/* What a listener adds to both semaphores. */
unsigned int library_listeners(void)
{
	return (unsigned int)otel_memory_alloc_semaphore << 16 | otel_memory_free_semaphore;
}
