/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads malloc's heaps. Of Python's large blocks that were seen in windows, only the headers and
 * first words are read in a window and between two; before each heap walk malloc's heap is walked,
 * too: it says which of them are allocated, and how many blocks of each size there are. Where the
 * windows are those of the native layer, all heaps are read each time, of whichever allocators.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "runtime/heap/heap_chunks.h"
#include "runtime/heap/heap_large.h"
#include "runtime/malloc/allocator.h"
#include "runtime/malloc/glibc_allocator.h"
#include "runtime/malloc/reader.h"
#include "runtime/malloc/states.h"
#include "session/target/state.h"
#include "session/target/target.h"
#include "session/target/target_windows.h"
#include "util/cleanup.h"
#include "util/clock.h"
#include "util/error.h"
#include "util/regular.h"

#define LOOK_STRETCH_NS 10000000ull
#define LOOK_LAST_NS    20000000ull /* within a window, which is that much longer then */

/* glibc's heap, as the only one. */
static int target_glibc_open(const struct target *target, struct allocators *out)
{
	_cleanup_(process_maps_free) struct process_maps maps = {0};
	struct allocator *glibc = &out->items[0];
	int err = process_maps_read(target->pid, &maps);

	*out = (struct allocators){.pid = target->pid};
	glibc->type = &glibc_allocator;
	err = err ?: glibc->type->open(&glibc->state, target->runtime.space, &maps, glibc->version);
	out->count = !err;
	return err;
}

int target_large_possible(const struct target *target)
{
	struct allocators heaps;
	int err = target_glibc_open(target, &heaps);

	if (err == -ENOENT || err == -ENODATA)
		return error_set(-ENOTSUP, "its malloc is not glibc's");
	allocators_close(&heaps);
	return err;
}

/* What to read. */
struct large_blocks {
	const uint64_t *addresses;
	const uint8_t *states; /* NULL: not known */
	size_t count;
	uint64_t used; /* as in struct event_census_large */
	uint64_t until_ns;
	int fresh; /* as in struct target_recheck */
};

/* Returns how many were read, of which those after an error were not. */
static size_t blocks_read(struct session *session, const struct target *target,
			  struct malloc_reader *reader, const struct large_blocks *blocks)
{
	struct target_recheck look = {session, target, blocks->fresh};
	const struct heap_kinds_opts opts = {
		.until_ns = blocks->until_ns, .record = target_recheck_feed, .context = &look};
	size_t done = 0;
	int err = heap_large_read(&target->runtime, reader, blocks->addresses, blocks->states,
				  blocks->count, blocks->used, &opts, &done);

	if (err && err != -ESRCH && err != -ECANCELED)
		log_debug("PID %d: large blocks could not be read: %s", target->pid,
			  error_reason(err));
	return err ? 0 : done;
}

/* The blocks to look at; 0: there are none. The caller frees *addresses. */
static size_t sighted_take(struct session *session, const struct target *target, int fresh,
			   uint64_t **addresses)
{
	size_t count = 0;

	*addresses = NULL;
	if (!target->large_windowed || target->ended)
		return 0;
	session_pull(session);
	if (target->ended ||
	    trace_sighted_large(session->trace, target->index, fresh, addresses, &count))
		return 0;
	return count;
}

int target_large_fresh(struct session *session, const struct target *target)
{
	uint64_t until_ns = clock_ns(CLOCK_MONOTONIC) + LOOK_LAST_NS, *addresses;
	size_t count = sighted_take(session, target, 1, &addresses), done = 0;
	struct malloc_reader *reader;

	if (count && !reader_new(&reader, target->runtime.space)) {
		done = blocks_read(session, target, reader,
				   &(struct large_blocks){.addresses = addresses,
							  .count = count,
							  .until_ns = until_ns,
							  .fresh = 1});
		reader_free(reader);
	}
	free(addresses);
	return done == count;
}

void target_large_recheck(struct session *session, struct target *target)
{
	uint64_t until_ns = clock_ns(CLOCK_MONOTONIC) + LOOK_STRETCH_NS, *addresses;
	size_t count = sighted_take(session, target, 0, &addresses), first = 0, done;
	struct target_windows *windows = &target->windows;
	struct malloc_reader *reader;

	while (first < count && addresses[first] < windows->large_from)
		first++;
	if (first == count)
		first = 0;
	if (count && !reader_new(&reader, target->runtime.space)) {
		done = blocks_read(session, target, reader,
				   &(struct large_blocks){.addresses = addresses + first,
							  .count = count - first,
							  .until_ns = until_ns});
		windows->large_from = first + done < count ? addresses[first + done] : 0;
		reader_free(reader);
	}
	free(addresses);
}

/* Which of the blocks that were seen are allocated? */
static int large_ask(struct session *session, const struct target *target, struct glibc *glibc,
		     uint64_t used)
{
	uint64_t *addresses;
	size_t count = sighted_take(session, target, 0, &addresses);
	uint8_t *states = calloc(count + 1, 1);
	int err = !states ? -ENOMEM : count ? glibc_states(glibc, addresses, count, states) : 0;

	if (!err && count)
		blocks_read(session, target, glibc->reader,
			    &(struct large_blocks){.addresses = addresses,
						   .states = states,
						   .count = count,
						   .used = used,
						   .until_ns = UINT64_MAX});
	free(states);
	free(addresses);
	return err;
}

void target_large_walk(struct session *session, const struct target *target)
{
	struct target_recheck look = {session, target, 0};
	const struct heap_chunks_opts opts = {.least_bytes = EVENT_SMALL_BYTES + 1,
					      .record = target_recheck_feed,
					      .context = &look};
	int is_windows = target->mode == EVENT_MODE_WINDOWS && !target_is_native(target);
	struct allocators heaps;
	uint64_t used = 0;
	int err;

	if (!is_windows || !target->large_blocks || target->ended ||
	    target_mode_flags(target) & EVENT_MODE_MIMALLOC)
		return;
	session_pull(session);
	err = target_glibc_open(target, &heaps);
	if (!err)
		err = heap_chunks_read(&heaps, &opts, &used)
			      ?: large_ask(session, target, heaps.items[0].state, used);
	allocators_close(&heaps);
	if (err && err != -ESRCH)
		log_debug("PID %d: malloc's heap could not be read: %s", target->pid,
			  error_reason(err));
}

/* C++'s operators get their blocks from malloc. */
static bool is_operator(const char *symbol)
{
	return !strncmp(symbol, "_Zn", 3) || !strncmp(symbol, "_Zd", 3);
}

static const char *file_name(const struct plan_file *file)
{
	const char *path = elf_file_path(file->file), *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

/* Does the file hand out memory of its own? */
static bool is_allocator(const struct plan_file *file)
{
	for (size_t i = 0; i < file->plan->count; i++)
		if (!is_operator(file->plan->sites[i].symbol))
			return true;
	return false;
}

/* Is it the file of one of the allocators? */
static bool is_read(const struct allocators *heaps, const struct process_maps *maps,
		    const struct plan_file *file)
{
	struct stat st;

	if (regular_stat(elf_file_fd(file->file), &st))
		return false;
	for (size_t i = 0; i < maps->count; i++) {
		const struct process_map *map = &maps->entries[i];

		/* A C library that has not begun to allocate, or never will, is searched again. */
		if (process_map_is_code(map, &st))
			return (heaps->has_unused && process_map_is_libc(map)) ||
			       allocators_have(heaps, maps, map);
	}
	return false;
}

static int heaps_check(const struct allocators *heaps, const struct process_maps *maps,
		       const struct plan_target *plan)
{
	for (size_t i = 0; i < plan->native_count; i++) {
		const struct plan_file *file = &plan->native[i];

		if (!is_allocator(file) || is_read(heaps, maps, file))
			continue;
		return error_set(-ENOTSUP, "%s allocates memory, and its heap cannot be read%s%s",
				 file_name(file), heaps->reason[0] ? ": " : "", heaps->reason);
	}
	return 0;
}

int target_native_possible(const struct session *session, const struct target *target,
			   const struct plan_target *plan)
{
	_cleanup_(process_maps_free) struct process_maps maps = {0};
	struct allocators heaps = {0};
	int err;

	if (!(target->layers & 1u << EVENT_LAYER_NATIVE))
		return error_set(-ENOTSUP, "it has no heap that can be read");
	if (plan_native_is_self_sampled(plan->native, plan->native_count))
		return error_set(-ENOTSUP, "it samples its blocks itself");
	if (session->opts.plan.native.alloc_count)
		return error_set(-ENOTSUP, "blocks of --alloc are in no heap that can be read");
	err = process_maps_read(target->pid, &maps)
		      ?: allocators_open_all(&heaps, target->runtime.space, &maps)
		      ?: heaps_check(&heaps, &maps, plan);
	allocators_close(&heaps);
	return err;
}

static int heaps_open(const struct target *target, struct allocators *out)
{
	_cleanup_(process_maps_free) struct process_maps maps = {0};
	int err = process_maps_read(target->pid, &maps);

	err = err ?: allocators_open_all(out, target->runtime.space, &maps);
	if (!err && !out->count)
		err = out->has_unused ? -ENODATA : error_set(-ENOTSUP, "%s", out->reason);
	return err;
}

static bool has_inner(const struct allocators *heaps)
{
	for (size_t i = 0; i < heaps->count; i++)
		if (heaps->items[i].type->is_inner)
			return true;
	return false;
}

/* What the walk must know of blocks that were seen; nothing, where addresses tell all. */
static int seen_take(const struct session *session, const struct target *target,
		     struct heap_chunk_seen **out, size_t *count)
{
	_cleanup_free_ struct trace_seen *seen = NULL;
	int err = 0;

	*count = 0;
	if (has_inner(&target->windows.heaps))
		err = trace_sighted_native(session->trace, target->index, &seen, count);
	*out = err ? NULL : calloc(*count + 1, sizeof(**out));
	if (err || !*out)
		return err ?: -ENOMEM;
	for (size_t i = 0; i < *count; i++)
		(*out)[i] = (struct heap_chunk_seen){seen[i].address, seen[i].made_ns};
	return 0;
}

static int heaps_walk(struct session *session, struct target *target)
{
	struct target_recheck look = {.session = session, .target = target};
	_cleanup_free_ struct heap_chunk_seen *seen = NULL;
	size_t count;
	int err = seen_take(session, target, &seen, &count);

	return err
		       ?: heap_chunks_read(&target->windows.heaps,
					   &(struct heap_chunks_opts){.record = target_recheck_feed,
								      .context = &look,
								      .seen = seen,
								      .seen_count = count},
					   NULL);
}

/* Finding the heaps takes longer than reading small ones: it is done once. */
int target_native_walk(struct session *session, struct target *target)
{
	struct target_windows *windows = &target->windows;
	uint64_t began_ns;
	int err;

	session_pull(session);
	began_ns = clock_ns(CLOCK_PROCESS_CPUTIME_ID);
	err = target->ended ? -ESRCH : 0;
	if (!err && !windows->heaps.count)
		err = heaps_open(target, &windows->heaps);
	err = err ?: heaps_walk(session, target);
	if (err)
		allocators_close(&windows->heaps);
	windows->walked_ns = windows->recheck_ns = clock_ns(CLOCK_MONOTONIC);
	windows->recheck_took_ns = clock_ns(CLOCK_PROCESS_CPUTIME_ID) - began_ns;
	if (err && err != -ESRCH)
		log_debug("PID %d: malloc's heap could not be read: %s", target->pid,
			  error_reason(err));
	else
		log_debug("PID %d: malloc's heap was read in %.1f ms", target->pid,
			  (double)windows->recheck_took_ns / 1e6);
	return err == -ENODATA ? 0 : err;
}
