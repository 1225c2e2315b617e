/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/heap/heap_chunks.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "abi/events.h"
#include "proc/memory.h"
#include "runtime/malloc/mapped.h"
#include "runtime/malloc/walk.h"
#include "util/array.h"
#include "util/cleanup.h"
#include "util/clock.h"
#include "util/error.h"
#include "util/sorted.h"

#define TRIES 3
#define LOOKS 10

/* What a walk has found. */
struct heap_chunks_found {
	struct event_chunk *chunks;
	size_t count, capacity;
	uint64_t least_bytes; /* as in the options */
	uint64_t used;        /* chunks of any size */
	uint64_t unread;      /* units */
	int err;
};

/* A record holds at most that many units of one chunk. */
static void found_add(struct heap_chunks_found *found, uint64_t address, uint64_t bytes, int unread)
{
	uint64_t units = bytes / EVENT_CHUNK_UNIT;

	found->used += !unread;
	if (!unread && bytes < found->least_bytes + sizeof(uint64_t))
		return;
	if (!found->err)
		found->err = ARRAY_GROW(found->chunks, found->capacity, found->count);
	if (found->err || !units)
		return;
	found->chunks[found->count++] =
		(struct event_chunk){.address = address,
				     .units = units < UINT32_MAX ? (uint32_t)units : UINT32_MAX,
				     .unread = (uint32_t)unread};
	found->unread += unread ? units : 0;
}

static int chunk_take(const struct glibc_chunk *chunk, void *context)
{
	struct heap_chunks_found *found = context;

	if (chunk->kind == GLIBC_USED || chunk->kind == GLIBC_UNKNOWN)
		found_add(found, chunk->address + GLIBC_HEADER, chunk->bytes,
			  chunk->kind == GLIBC_UNKNOWN);
	return found->err;
}

static int mapped_take(uint64_t start, uint64_t bytes, void *context)
{
	struct heap_chunks_found *found = context;

	found_add(found, start + GLIBC_HEADER, bytes, 0);
	return found->err;
}

static int mapped_find(struct glibc *glibc, const struct process_maps *maps,
		       struct heap_chunks_found *found)
{
	_cleanup_free_ struct glibc_range *except = calloc(glibc->heap_count + 1, sizeof(*except));
	int err = except ? 0 : -ENOMEM;

	for (size_t i = 0; !err && i < glibc->heap_count; i++)
		except[i] = (struct glibc_range){glibc->heaps[i].start, glibc->heaps[i].end};
	err = err ?: glibc_mapped_walk(glibc, maps, except, glibc->heap_count, mapped_take, found);
	return err ?: found->err;
}

/* Between the list of maps and the look, the heap may have grown out of what was mapped. */
static int look(struct glibc *glibc, struct process_maps *maps)
{
	int err = 0;

	for (int try = 0; try < LOOKS; try++) {
		process_maps_free(maps);
		err = process_maps_read(space_pid(glibc->space), maps) ?: glibc_look(glibc, maps);
		if (err || !glibc->main_is_elsewhere)
			return err;
	}
	return error_set(-ENOTSUP, "a part of malloc's heap cannot be found");
}

static int walk(struct glibc *glibc, struct heap_chunks_found *found)
{
	_cleanup_(process_maps_free) struct process_maps maps = {0};
	struct glibc_totals totals;
	int err = look(glibc, &maps);

	err = err ?: glibc_walk(glibc, chunk_take, found, &totals);
	if (!err)
		err = found->err;
	/* Nothing tells where they are: only look for them where there are some. */
	if (!err && (!glibc->mmaps.known || glibc->mmaps.count))
		err = mapped_find(glibc, &maps, found);
	return err;
}

int heap_chunks_possible(struct glibc *glibc)
{
	_cleanup_(process_maps_free) struct process_maps maps = {0};
	int err = look(glibc, &maps);

	return err;
}

/* In order of address, without those that begin in one before. */
static void found_sort(struct heap_chunks_found *found)
{
	size_t kept = 0;
	uint64_t end = 0;

	SORT_BY(found->chunks, found->count, address);
	for (size_t i = 0; i < found->count; i++) {
		const struct event_chunk *chunk = &found->chunks[i];

		if (chunk->address < end)
			continue;
		end = chunk->address + (uint64_t)chunk->units * EVENT_CHUNK_UNIT;
		found->chunks[kept++] = *chunk;
	}
	found->count = kept;
}

static int found_pass(pid_t pid, const struct heap_chunks_found *found,
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
		record->flags = (done ? 0 : EVENT_CHUNKS_FIRST) |
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

int heap_chunks_read(struct glibc *glibc, const struct heap_chunks_opts *opts, uint64_t *used)
{
	struct heap_chunks_found best = {0};
	int err = -EAGAIN, got = 0;

	for (int try = 0; try < TRIES && (!got || best.unread); try++) {
		struct heap_chunks_found found = {.least_bytes = opts->least_bytes};

		err = walk(glibc, &found);
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
		err = found_pass(space_pid(glibc->space), &best, opts);
	}
	free(best.chunks);
	return err;
}
