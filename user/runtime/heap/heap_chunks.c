/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/heap/heap_chunks.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "abi/events.h"
#include "runtime/malloc/allocator.h"
#include "util/array.h"
#include "util/cleanup.h"
#include "util/clock.h"
#include "util/error.h"
#include "util/sorted.h"

#define TRIES             3
#define SIZE_BYTES        8u /* what a chunk has beside its block */
#define LEAST_UNITS       2u
#define BLOCK_LEAST_BYTES 8u
#define MORE_BYTES        (64ull << 20) /* what a process may have beside what was counted */

/* What a walk has found. */
struct heap_chunks_found {
	const struct heap_chunks_opts *opts;
	const struct allocator *allocator; /* that is walked */
	size_t seen;                       /* those of the options before are below the walk */
	struct event_chunk *chunks;
	size_t count, capacity;
	uint64_t left;   /* blocks that may still be found */
	uint64_t used;   /* blocks of any size */
	uint64_t unread; /* units */
};

/* A record holds at most that many units of one chunk. */
static int chunk_add(struct heap_chunks_found *found, uint64_t address, uint64_t units, bool unread)
{
	int err = units ? ARRAY_GROW(found->chunks, found->capacity, found->count) : 0;

	if (err || !units)
		return err;
	found->chunks[found->count++] =
		(struct event_chunk){.address = address,
				     .units = units < UINT32_MAX ? (uint32_t)units : UINT32_MAX,
				     .unread = unread};
	found->unread += unread ? units : 0;
	return 0;
}

/* The newest address within a block that windows have shown; where the block begins: none. */
static uint64_t address_seen(struct heap_chunks_found *found, uint64_t address, uint64_t bytes)
{
	const struct heap_chunks_opts *opts = found->opts;
	const struct heap_chunk_seen *best = NULL;

	while (found->seen < opts->seen_count && opts->seen[found->seen].address < address)
		found->seen++;
	for (size_t i = found->seen;
	     i < opts->seen_count && opts->seen[i].address - address < bytes; i++)
		if (!best || opts->seen[i].made_ns > best->made_ns)
			best = &opts->seen[i];
	return best ? best->address : address;
}

static int block_add(struct heap_chunks_found *found, uint64_t address, uint64_t bytes)
{
	const struct allocator *allocator = found->allocator;
	uint64_t units = (bytes + SIZE_BYTES + EVENT_CHUNK_UNIT - 1) / EVENT_CHUNK_UNIT;

	if (!found->left--)
		return error_set(-ENOTSUP, "its heaps claim more blocks than it has memory for");
	found->used++;
	if (bytes < found->opts->least_bytes)
		return 0;
	if (allocator->type->is_inner)
		address = address_seen(found, address, bytes);
	else if (allocator->type->returned)
		address = allocator->type->returned(allocator->state, address, bytes);
	return chunk_add(found, address, units < LEAST_UNITS ? LEAST_UNITS : units, 0);
}

static int run_take(const struct allocator_run *run, void *context)
{
	struct heap_chunks_found *found = context;
	int err = 0;

	if (run->kind == ALLOCATOR_UNKNOWN)
		return chunk_add(found, run->address,
				 (run->block_bytes * run->count + SIZE_BYTES) / EVENT_CHUNK_UNIT,
				 1);
	for (uint64_t i = 0; run->kind == ALLOCATOR_USED && i < run->count && !err; i++)
		err = block_add(found, run->address + i * run->block_bytes, run->block_bytes);
	return err;
}

/* Heaps are the process's own memory; what the kernel counts is not exact, and they grow. */
static uint64_t blocks_limit(pid_t pid)
{
	uint64_t bytes;

	if (process_own_bytes_read(pid, &bytes))
		return UINT64_MAX;
	return (bytes + bytes / 4 + MORE_BYTES) / BLOCK_LEAST_BYTES;
}

static int walk(const struct allocators *allocators, struct heap_chunks_found *found)
{
	_cleanup_free_ struct allocator_totals *totals = malloc(sizeof(*totals));
	int err = totals ? 0 : -ENOMEM;

	found->left = blocks_limit(allocators->pid);
	for (size_t i = 0; i < allocators->count && !err; i++) {
		_cleanup_(process_maps_free) struct process_maps maps = {0};

		found->allocator = &allocators->items[i];
		found->seen = 0;
		err = process_maps_read(allocators->pid, &maps)
			      ?: allocator_walk(found->allocator, &maps, run_take, found, totals);
	}
	return err;
}

/* In order of address, each once, without those in what was not read. */
static void found_sort(struct heap_chunks_found *found)
{
	size_t kept = 0;
	uint64_t end = 0;

	SORT_BY(found->chunks, found->count, address);
	for (size_t i = 0; i < found->count; i++) {
		const struct event_chunk *chunk = &found->chunks[i];

		if (chunk->address < end)
			continue;
		end = chunk->address + 1;
		if (chunk->unread)
			end = chunk->address + (uint64_t)chunk->units * EVENT_CHUNK_UNIT;
		found->chunks[kept++] = *chunk;
	}
	found->count = kept;
}

static uint32_t flags_of(const struct allocators *allocators)
{
	uint32_t flags = 0;

	for (size_t i = 0; i < allocators->count; i++)
		flags |= allocators->items[i].type->has_classes ? EVENT_CHUNKS_CLASSES : 0;
	return flags;
}

static int found_pass(const struct heap_chunks_found *found, pid_t pid, uint32_t flags,
		      const struct heap_chunks_opts *opts)
{
	size_t most =
		sizeof(struct event_census_chunks) + EVENT_CHUNKS_MAX * sizeof(struct event_chunk);
	_cleanup_free_ struct event_census_chunks *record = calloc(1, most);
	size_t done = 0;
	int err = record ? 0 : -ENOMEM;

	do {
		size_t count = found->count - done;

		if (err)
			break;
		if (count > EVENT_CHUNKS_MAX)
			count = EVENT_CHUNKS_MAX;
		record->flags = flags | (done ? 0 : EVENT_CHUNKS_FIRST) |
				(done + count == found->count ? EVENT_CHUNKS_LAST : 0);
		record->count = (uint32_t)count;
		if (count)
			memcpy(record->chunks, found->chunks + done,
			       count * sizeof(record->chunks[0]));
		record->header = (struct event_header){
			.type = EVENT_CENSUS_CHUNKS,
			.size = (uint32_t)(sizeof(*record) + count * sizeof(record->chunks[0])),
			.time_ns = clock_ns(CLOCK_MONOTONIC),
			.tgid = (uint32_t)pid,
			.tid = (uint32_t)pid};
		err = opts->record(opts->context, record, record->header.size);
		done += count;
	} while (done < found->count);
	return err;
}

int heap_chunks_read(const struct allocators *allocators, const struct heap_chunks_opts *opts,
		     uint64_t *used)
{
	struct heap_chunks_found best = {0};
	int err = -EAGAIN, got = 0;

	for (int try = 0; try < TRIES && (!got || best.unread); try++) {
		struct heap_chunks_found found = {.opts = opts};

		err = walk(allocators, &found);
		if (err) {
			free(found.chunks);
			break;
		}
		if (!got || found.unread < best.unread) {
			free(best.chunks);
			best = found;
		} else {
			free(found.chunks);
		}
		got = 1;
	}
	/* What an earlier try has found is good enough. */
	if (got) {
		if (used)
			*used = best.unread ? 0 : best.used;
		found_sort(&best);
		err = found_pass(&best, allocators->pid, flags_of(allocators), opts);
	}
	free(best.chunks);
	return err;
}
