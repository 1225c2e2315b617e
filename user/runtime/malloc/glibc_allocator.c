/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/malloc/glibc_allocator.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "proc/memory.h"
#include "runtime/malloc/mapped.h"
#include "runtime/malloc/reader.h"
#include "runtime/malloc/runs.h"
#include "runtime/malloc/walk.h"
#include "util/array.h"
#include "util/cleanup.h"
#include "util/error.h"

#define LOOKS      10
#define SIZE_BYTES 8u /* of a chunk's header, which a block cannot use */

struct glibc_runs {
	struct runs runs;
	struct glibc_range *mapped; /* blocks with a mapping, by address */
	size_t mapped_count, mapped_capacity, mapped_next;
	int stop;
};

/*
 * Between the list of maps and the look, the heap may have grown out of what was mapped. later: the
 * maps of then; empty if the first ones were good.
 */
static int heaps_look(struct glibc *glibc, const struct process_maps *maps,
		      struct process_maps *later)
{
	int err = glibc_look(glibc, maps);

	for (int i = 1; i < LOOKS && !err && glibc->main_is_elsewhere; i++) {
		process_maps_free(later);
		err = process_maps_read(space_pid(glibc->space), later) ?: glibc_look(glibc, later);
	}
	if (!err && glibc->main_is_elsewhere)
		err = error_set(-ENOTSUP, "a part of malloc's heap cannot be found");
	return err;
}

static void glibc_allocator_close(void *state)
{
	glibc_close(state);
}

static int glibc_allocator_open(void **state, struct space *space, const struct process_maps *maps,
				char version[ALLOCATOR_VERSION])
{
	_cleanup_(process_maps_free) struct process_maps later = {0};
	struct glibc *glibc;
	int err = glibc_open(&glibc, space, maps);

	if (err)
		return err;
	err = heaps_look(glibc, maps, &later);
	if (err) {
		glibc_close(glibc);
		return err;
	}
	snprintf(version, ALLOCATOR_VERSION, "2.%u", glibc->minor);
	*state = glibc;
	return 0;
}

/* A block may use the first word of the chunk behind it, but not the one in front of itself. */
static int chunk_put(struct glibc_runs *walk, uint64_t address, uint64_t bytes,
		     enum allocator_kind kind)
{
	if (bytes > SIZE_BYTES && !walk->stop)
		walk->stop =
			runs_put(&walk->runs, address + GLIBC_HEADER, bytes - SIZE_BYTES, 1, kind);
	return walk->stop;
}

/* Visits blocks with a mapping up to an address. */
static int mapped_put(struct glibc_runs *walk, uint64_t limit)
{
	for (; walk->mapped_next < walk->mapped_count && !walk->stop; walk->mapped_next++) {
		const struct glibc_range *block = &walk->mapped[walk->mapped_next];

		if (block->start >= limit)
			break;
		chunk_put(walk, block->start, block->end - block->start, ALLOCATOR_USED);
	}
	return walk->stop;
}

static int chunk_visit(const struct glibc_chunk *chunk, void *context)
{
	static const enum allocator_kind kinds[GLIBC_KINDS] = {
		[GLIBC_USED] = ALLOCATOR_USED,       [GLIBC_TCACHE] = ALLOCATOR_CACHED,
		[GLIBC_FAST] = ALLOCATOR_CACHED,     [GLIBC_BIN] = ALLOCATOR_FREE,
		[GLIBC_TOP] = ALLOCATOR_DIRTY,       [GLIBC_OWN] = ALLOCATOR_METADATA,
		[GLIBC_UNKNOWN] = ALLOCATOR_UNKNOWN,
	};
	struct glibc_runs *walk = context;

	return mapped_put(walk, chunk->address)
		       ?: chunk_put(walk, chunk->address, chunk->bytes, kinds[chunk->kind]);
}

static int mapped_take(uint64_t start, uint64_t bytes, void *context)
{
	struct glibc_runs *walk = context;
	int err = ARRAY_GROW(walk->mapped, walk->mapped_capacity, walk->mapped_count);

	if (!err)
		walk->mapped[walk->mapped_count++] = (struct glibc_range){start, start + bytes};
	walk->stop = err;
	return err;
}

static int mapped_find(struct glibc *glibc, const struct process_maps *maps,
		       struct glibc_runs *walk)
{
	_cleanup_free_ struct glibc_range *except = calloc(glibc->heap_count + 1, sizeof(*except));
	int err = except ? 0 : -ENOMEM;

	for (size_t i = 0; !err && i < glibc->heap_count; i++)
		except[i] = (struct glibc_range){glibc->heaps[i].start, glibc->heaps[i].end};
	err = err ?: glibc_mapped_walk(glibc, maps, except, glibc->heap_count, mapped_take, walk);
	return err ?: walk->stop;
}

static int glibc_allocator_walk(void *state, const struct process_maps *maps,
				allocator_run_fn visit, void *context,
				struct allocator_totals *totals)
{
	_cleanup_(process_maps_free) struct process_maps later = {0};
	struct glibc_runs walk = {.runs = {.visit = visit, .context = context, .totals = totals}};
	struct glibc_totals found = {0};
	struct glibc *glibc = state;
	uint64_t swapped = reader_swapped(glibc->reader);
	int err = heaps_look(glibc, maps, &later);

	/* Nothing tells where they are: only look for them where there are some. */
	if (!err && (!glibc->mmaps.known || glibc->mmaps.count))
		err = mapped_find(glibc, later.count ? &later : maps, &walk);
	err = err ?: glibc_walk(glibc, chunk_visit, &walk, &found);
	err = err ?: walk.stop ?: mapped_put(&walk, UINT64_MAX) ?: runs_end(&walk.runs);
	totals->caches += found.tcaches;
	totals->cut += found.cut;
	totals->swapped += reader_swapped(glibc->reader) - swapped;
	free(walk.mapped);
	return err;
}

static bool glibc_allocator_has_variable(const void *state, uint64_t start, uint64_t end)
{
	const struct glibc *glibc = state;

	return glibc->main_arena >= start && glibc->main_arena < end;
}

const struct allocator_type glibc_allocator = {
	.name = "malloc",
	.purge = "malloc_trim(0)",
	.open = glibc_allocator_open,
	.close = glibc_allocator_close,
	.walk = glibc_allocator_walk,
	.has_variable = glibc_allocator_has_variable,
};
