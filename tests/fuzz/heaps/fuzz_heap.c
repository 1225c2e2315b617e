/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A heap of arbitrary bytes, walked in this process as the tracer walks one. Two pools, the arena
 * objects and the pointers to them are taken from the input; words that are offsets in the pools
 * become addresses there, so that lists point to valid memory. The walk is then fed into a trace.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/cpython/heap.h"
#include "runtime/cpython/offsets.h"
#include "runtime/heap/census.h"
#include "trace/trace.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define POOLS   2u
#define OBJECTS 3u

/* Memory that the walk may follow; one aligned object, pools first. */
struct forgery {
	uint8_t *memory;
	uint8_t *objects, *management, *interp, *cpython;
};

static const uint32_t versions[] = {0x030c, 0x030d};

static void bytes_take(uint8_t *to, size_t bytes, const uint8_t **data, size_t *size)
{
	size_t got = *size < bytes ? *size : bytes;

	memset(to, 0, bytes);
	memcpy(to, *data, got);
	*data += got;
	*size -= got;
}

/*
 * Words that are offsets in the pools become addresses there; no other memory of this process has a
 * stable address.
 */
static void words_relocate(uint8_t *at, size_t bytes, const uint8_t *base, size_t pools)
{
	for (size_t i = 0; i + 8 <= bytes; i += 8) {
		uint64_t word;

		memcpy(&word, at + i, 8);
		if (word > pools || word < 64 || word % 16)
			continue;
		word += (uintptr_t)base;
		memcpy(at + i, &word, 8);
	}
}

static void put64(uint8_t *at, uint64_t value)
{
	memcpy(at, &value, 8);
}

static void forge(struct forgery *forgery, const struct python_offsets *offsets,
		  const uint8_t *data, size_t size)
{
	const struct heap_offsets *heap = &offsets->heap;
	size_t pools = (size_t)POOLS * heap->pool_bytes;
	uint64_t state;
	uint32_t count;

	forgery->memory = aligned_alloc(heap->pool_bytes, pools);
	forgery->objects = calloc(OBJECTS, heap->arena_object_size);
	forgery->management = calloc(1, 16384);
	forgery->interp = calloc(1, 1 << 20);
	forgery->cpython = calloc(1, 1 << 16);
	if (!forgery->memory || !forgery->objects || !forgery->management || !forgery->interp ||
	    !forgery->cpython)
		abort();
	bytes_take(forgery->objects, OBJECTS * heap->arena_object_size, &data, &size);
	words_relocate(forgery->objects, OBJECTS * heap->arena_object_size, forgery->memory, pools);
	for (size_t i = 0; i < POOLS; i++) {
		uint8_t *pool = forgery->memory + i * heap->pool_bytes;

		bytes_take(pool, heap->pool_header_size, &data, &size);
		words_relocate(pool, heap->pool_header_size, forgery->memory, pools);
	}
	for (size_t i = 0; i < POOLS; i++) {
		uint8_t *blocks = forgery->memory + i * heap->pool_bytes + heap->pool_header_size;

		bytes_take(blocks, heap->pool_bytes - heap->pool_header_size, &data, &size);
		words_relocate(blocks, heap->pool_bytes - heap->pool_header_size, forgery->memory,
			       pools);
	}
	/* The first arena has its correct address, unless the input has another one for it. */
	if (!size || *data & 1) {
		put64(forgery->objects + heap->arena_address, (uintptr_t)forgery->memory);
		put64(forgery->objects + heap->arena_pool_address,
		      (uintptr_t)forgery->memory + pools);
	}
	state = heap->obmalloc_is_pointer ? (uintptr_t)forgery->management
					  : (uintptr_t)forgery->interp + heap->interp_obmalloc;
	count = OBJECTS;
	memcpy(forgery->management + heap->mgmt_maxarenas, &count, sizeof(count));
	put64(forgery->management + heap->mgmt_arenas, (uintptr_t)forgery->objects);
	/* pools.used[] */
	for (uint32_t at = 0; at < heap->mgmt_arenas; at += 8)
		put64(forgery->management + at, state + at / 16 * 16 - 16);
	if (heap->obmalloc_is_pointer)
		put64(forgery->interp + heap->interp_obmalloc, (uintptr_t)forgery->management);
	else
		memcpy(forgery->interp + heap->interp_obmalloc, forgery->management, 16384);
	put64(forgery->cpython + offsets->abi.runtime_interpreters_head,
	      (uintptr_t)forgery->interp);
}

static void unforge(const struct forgery *forgery)
{
	free(forgery->memory);
	free(forgery->objects);
	free(forgery->management);
	free(forgery->interp);
	free(forgery->cpython);
}

static int block_see(uint64_t address, uint64_t bytes, const uint8_t *content, void *context)
{
	uint64_t *blocks = context;
	volatile uint8_t last = content[bytes - 1];

	(void)last;
	(void)address;
	(*blocks)++;
	return 0;
}

static int record_feed(void *context, const void *record, size_t size)
{
	/* Records made by the walk are never malformed. */
	if (trace_feed(context, record, size))
		abort();
	return 0;
}

static void nothing(void *context)
{
	(void)context;
}

static void census(const struct python_runtime *runtime, const struct heap_walk *walk, int readable)
{
	struct event_target process = {
		.header = {EVENT_PROCESS, sizeof(process), 1, getpid(), getpid()},
		.nframe = 1,
		.mode = EVENT_MODE_CENSUS};
	struct census_opts opts = {.record = record_feed, .refresh = nothing};
	const struct snapshot_coverage *counts;
	struct trace *trace;

	if (trace_new(&trace, NULL) || trace_feed(trace, &process, sizeof(process)))
		abort();
	opts.context = trace;
	if ((census_take(runtime, &opts) == 0) != readable)
		abort();
	counts = &trace_process_at(trace, 0)->coverage;
	if (readable && (counts->live_blocks != walk->blocks || counts->live_bytes != walk->bytes ||
			 counts->pools_unreadable != walk->pools_unreadable))
		abort();
	trace_free(trace);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct space *space;
	struct python_runtime runtime = {.pid = getpid()};
	struct heap_walk walk = {0};
	struct forgery forgery;
	uint64_t blocks = 0;
	int readable;

	if (!size)
		return 0;
	runtime.offsets = offsets_for(versions[*data % 2], BUILD_RELEASE);
	if (!runtime.offsets)
		abort();
	if (!space && space_open(&space, getpid()))
		abort();
	runtime.space = space;
	forge(&forgery, runtime.offsets, data + 1, size - 1);
	runtime.target.runtime = (uintptr_t)forgery.cpython;
	readable = !heap_read(&runtime, block_see, &blocks, &walk);
	if (readable && blocks != walk.blocks)
		abort();
	census(&runtime, &walk, readable);
	unforge(&forgery);
	return 0;
}
