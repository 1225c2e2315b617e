/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Snapshots of a process that was traced in windows: what was seen of the blocks of pymalloc's
 * pools becomes the input of the estimator (snapshot/calibrate.h), with the heap's own counts as
 * totals.
 *
 * Large blocks, if they are traced in windows, too, have strata of their own. Of those that Python
 * asked its object allocator for, the interpreter's count gives a lower bound of the new ones: it
 * is exact as long as no older one is freed. The count itself is the upper bound. Of PyMem_Raw*'s
 * blocks only an upper bound is known: what else malloc has given out.
 */
#include "trace/trace_windowed.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "snapshot/calibrate.h"
#include "snapshot/windowed.h"
#include "trace/newest.h"

/* The first strata, before those of the heap's walk. */
enum large {
	LARGE_CERTAIN, /* seen before large blocks were traced in windows: they are all */
	LARGE_OBJECT,
	LARGE_RAW,
	LARGE_STRATA
};
#define LARGE_TYPE(stratum)  (1ull << 32 | (stratum))
#define LARGE_CLASS(stratum) (1u << 16 | (stratum)) /* no size class of pools */

enum seen_use {
	SEEN_LIKENESS,
	SEEN_ALIVE,
	SEEN_DEAD,
};

/* A block that was seen. */
struct seen {
	uint32_t stack, window, kind, class_bytes, cohort;
	uint32_t large; /* enum large; LARGE_STRATA: it is in a pool */
	uint32_t flags; /* SNAPSHOT_* */
	enum seen_use use;
	uint64_t bytes;
	double inclusion;
};

struct job {
	const struct process_state *process;
	const uint32_t *tracebacks;
	struct seen *seen;
	struct calibrate_stratum *strata;
	struct calibrate_window *windows;
	struct calibrate_sighting *sightings;
	struct snapshot_trace *rows;
	size_t seen_count, stratum_count, row_count;
	struct newest newest;
	struct id_map newest_strata; /* kind and size class -> one of the newest cohort */
	struct id_map likes; /* stacks, kinds and size classes of which there are likenesses */
};

static uint32_t cohort_joined(const struct job *job, uint32_t cohort)
{
	return cohort < job->newest.cohort ? cohort : job->newest.cohort;
}

static uint32_t large_of(const struct sighting *sighting, const struct block *block)
{
	if (!(sighting->flags & SIGHTING_LARGE))
		return LARGE_STRATA;
	if (sighting->flags & SIGHTING_CERTAIN)
		return LARGE_CERTAIN;
	return block->large ? LARGE_OBJECT : LARGE_RAW;
}

/* A window stands for the time up to the middle between it and its neighbours. */
static void windows_fill(struct job *job)
{
	const struct trace_windows *windows = &job->process->windows;
	const struct trace_process *info = &job->process->info;
	uint64_t newest_ns = state_cohort_ns(windows, job->newest.cohort), from_ns = info->start_ns,
		 until_ns;

	for (size_t i = 0; i < windows->count; i++) {
		const struct trace_window *window = &windows->items[i];
		uint64_t end_ns = window->end_ns ? window->end_ns : info->end_ns;
		uint64_t length_ns = window->end_ns              ? window->length_ns
				     : end_ns > window->start_ns ? end_ns - window->start_ns
								 : 0;

		until_ns = i + 1 < windows->count ? (end_ns + windows->items[i + 1].start_ns) / 2
						  : info->end_ns;
		if (i + 1 < windows->count && newest_ns > end_ns &&
		    newest_ns <= windows->items[i + 1].start_ns)
			until_ns = newest_ns;
		if (until_ns < from_ns + length_ns)
			until_ns = from_ns + length_ns;
		job->windows[i] = (struct calibrate_window){.start_ns = window->start_ns,
							    .end_ns = window->start_ns + length_ns,
							    .span_ns = until_ns - from_ns};
		from_ns = until_ns;
	}
}

static double inclusion(const struct calibrate_window *window)
{
	double length_ns = (double)(window->end_ns - window->start_ns);

	return window->span_ns && length_ns > 0 ? length_ns / (double)window->span_ns : 1;
}

static uint64_t like_key(const struct seen *seen)
{
	return hash_u64((uint64_t)seen->kind << 32 | seen->class_bytes) ^ seen->stack;
}

/* Adds a likeness of the newest cohort: a block that was seen, and lived until then. */
static int likeness_add(struct job *job, const struct seen *seen, uint64_t died_ns)
{
	const struct trace_windows *windows = &job->process->windows;
	struct seen *like = &job->seen[job->seen_count];

	if (seen->large < LARGE_STRATA || !newest_is_like(windows, &job->newest, seen->window))
		return 0;
	*like = *seen;
	like->use = SEEN_LIKENESS;
	like->cohort = job->newest.cohort;
	like->inclusion = newest_inclusion(windows, &job->newest, seen->window, died_ns);
	job->seen_count++;
	return id_map_put(&job->likes, like_key(seen), 0);
}

static int alive_collect(struct job *job)
{
	const struct sightings *sightings = &job->process->windows.sightings;
	const struct sighting *sighting;
	size_t cursor = 0;
	int err = 0;

	while (!err && (sighting = sightings_next(sightings, &cursor))) {
		const struct block *block = state_window_block(job->process, sighting);
		struct seen *seen = &job->seen[job->seen_count];
		uint32_t large;

		/* Without memory for its traceback the snapshot has no row for it. */
		if (!block || job->tracebacks[block->stack] == UINT32_MAX ||
		    !(sighting->kind || sighting->flags & SIGHTING_CERTAIN))
			continue;
		large = large_of(sighting, block);
		*seen = (struct seen){
			.stack = block->stack,
			.window = sighting->window,
			.large = large,
			.cohort = state_windows_cohort(job->process, sighting->address),
			.flags = (block->rounded ? SNAPSHOT_ROUNDED : 0) |
				 (block->inherited ? SNAPSHOT_INHERITED : 0),
			.use = SEEN_ALIVE,
			.bytes = block->bytes,
			.inclusion = large == LARGE_CERTAIN
					     ? 1
					     : inclusion(&job->windows[sighting->window]),
		};
		state_window_place(sighting, block, &seen->kind, &seen->class_bytes);
		job->seen_count++;
		err = likeness_add(job, seen, job->newest.walk_ns);
	}
	return err;
}

static int dead_collect(struct job *job)
{
	const struct trace_windows *windows = &job->process->windows;
	int err = 0;

	for (size_t i = 0; !err && i < windows->deaths.count; i++) {
		const struct death *dead = &windows->deaths.items[i];
		struct seen *seen = &job->seen[job->seen_count];

		if (job->tracebacks[dead->stack] == UINT32_MAX)
			continue;
		*seen = (struct seen){
			.stack = dead->stack,
			.window = dead->window,
			.kind = dead->kind,
			.class_bytes = dead->class_bytes,
			.large = LARGE_STRATA,
			.cohort = COHORT_OLD,
			.flags = dead->flags,
			.use = SEEN_DEAD,
			.bytes = dead->bytes,
			.inclusion = inclusion(&job->windows[dead->window]),
		};
		job->seen_count++;
		err = likeness_add(job, seen, dead->died_ns);
	}
	return err;
}

/* Equal rows are neighbours, in an order that replays give again. */
static int seen_compare(const void *a, const void *b)
{
	const struct seen *x = a, *y = b;

	if (x->stack != y->stack)
		return x->stack < y->stack ? -1 : 1;
	if (x->bytes != y->bytes)
		return x->bytes < y->bytes ? -1 : 1;
	if (x->flags != y->flags)
		return x->flags < y->flags ? -1 : 1;
	if (x->large != y->large)
		return x->large < y->large ? -1 : 1;
	if (x->kind != y->kind)
		return x->kind < y->kind ? -1 : 1;
	if (x->cohort != y->cohort)
		return x->cohort < y->cohort ? -1 : 1;
	if (x->use != y->use)
		return x->use < y->use ? -1 : 1;
	if (x->inclusion != y->inclusion)
		return x->inclusion < y->inclusion ? -1 : 1;
	return (x->window > y->window) - (x->window < y->window);
}

static int is_same_row(const struct seen *a, const struct seen *b)
{
	return a->stack == b->stack && a->bytes == b->bytes && a->flags == b->flags;
}

static struct calibrate_stratum *stratum_add(struct job *job, uint32_t kind, uint32_t bytes,
					     uint32_t cohort)
{
	struct calibrate_stratum *stratum = &job->strata[job->stratum_count++];

	*stratum = (struct calibrate_stratum){.type = kind == EVENT_KIND_OTHER ? 0 : kind,
					      .class_bytes = bytes,
					      .cohort = cohort};
	return stratum;
}

/*
 * How many blocks there are besides those that are known one by one. Of the object allocator's: the
 * new ones at least, as the interpreter counts them; all of them at most. 0: not known.
 */
static uint64_t large_least(const struct job *job, uint64_t certain)
{
	const struct trace_process *info = &job->process->info;

	/* 3.8 does not count each of them. */
	if (!info->coverage.time_ns || info->python_version >> 16 == 0x0308)
		return 0;
	return info->coverage.large_new > certain ? info->coverage.large_new - certain : 0;
}

static uint64_t large_most(const struct job *job, enum large large, uint64_t certain)
{
	uint64_t objects = job->process->info.coverage.large_blocks;
	uint64_t used = job->process->windows.malloc_used;

	if (large == LARGE_OBJECT)
		return objects > certain ? objects - certain : 0;
	return used > objects ? used - objects : 0;
}

static void large_fill(struct job *job)
{
	uint64_t counts[LARGE_STRATA] = {0}, bytes[LARGE_STRATA] = {0};

	for (size_t i = 0; i < job->seen_count; i++)
		if (job->seen[i].large < LARGE_STRATA) {
			counts[job->seen[i].large]++;
			bytes[job->seen[i].large] += job->seen[i].bytes;
		}
	for (uint32_t i = 0; i < LARGE_STRATA; i++) {
		uint64_t blocks = i == LARGE_CERTAIN  ? counts[i]
				  : i == LARGE_OBJECT ? large_least(job, counts[LARGE_CERTAIN])
						      : 0;
		double mean = counts[i] ? (double)bytes[i] / (double)counts[i] : 0;

		job->strata[i] = (struct calibrate_stratum){
			.type = LARGE_TYPE(i),
			.class_bytes = LARGE_CLASS(i),
			.new_blocks = blocks,
			.new_bytes = (uint64_t)(mean * (double)blocks),
			.least = i != LARGE_CERTAIN,
			.most_blocks =
				i == LARGE_CERTAIN ? 0 : large_most(job, i, counts[LARGE_CERTAIN]),
		};
	}
	job->stratum_count = LARGE_STRATA;
}

static int strata_fill(struct job *job)
{
	const struct kind_counts *heap = &job->process->windows.heap;
	int native = state_window_layer(&job->process->info) == EVENT_LAYER_NATIVE, err = 0;

	large_fill(job);
	for (size_t i = 0; !err && i < heap->count; i++) {
		const struct kind_count *count = &heap->items[i];
		struct calibrate_stratum *stratum = stratum_add(job, count->kind, count->bytes,
								cohort_joined(job, count->cohort));
		uint64_t bytes = native ? chunk_kind_bytes(count->kind) : count->bytes;

		if (count->cohort == COHORT_OLD) {
			stratum->cohort = 0;
			stratum->old_blocks = count->live;
			stratum->old_bytes = count->live * bytes;
		} else {
			stratum->new_blocks = count->live;
			stratum->new_bytes = count->live * bytes;
		}
		if (stratum->cohort == job->newest.cohort)
			err = id_map_put(&job->newest_strata,
					 kind_key(count->kind, count->bytes, 0),
					 (uint32_t)(job->stratum_count - 1));
	}
	return err;
}

/*
 * The stratum of a block. If the last walk did not count one, such as before the first walk, a new
 * one holds what was seen.
 */
static uint32_t stratum_of(struct job *job, const struct seen *seen)
{
	const struct kind_counts *heap = &job->process->windows.heap;
	uint32_t found =
		seen->cohort ? id_map_find(&heap->index,
					   kind_key(seen->kind, seen->class_bytes, seen->cohort))
			     : ID_MAP_NONE;
	struct calibrate_stratum *last = job->stratum_count > LARGE_STRATA + heap->count
						 ? &job->strata[job->stratum_count - 1]
						 : NULL;

	if (seen->large < LARGE_STRATA)
		return seen->large;
	if (seen->use == SEEN_LIKENESS)
		return id_map_find(&job->newest_strata, kind_key(seen->kind, seen->class_bytes, 0));
	if (found != ID_MAP_NONE)
		return LARGE_STRATA + found;
	if (!last || last->type != (seen->kind == EVENT_KIND_OTHER ? 0 : seen->kind) ||
	    last->class_bytes != seen->class_bytes)
		last = stratum_add(job, seen->kind, seen->class_bytes, job->newest.cohort);
	last->new_blocks++;
	last->new_bytes += seen->class_bytes;
	return (uint32_t)(job->stratum_count - 1);
}

/*
 * Of the newest cohort, sightings of lines that have likenesses are left out: these contain them.
 * The dead ones are of the stratum of older blocks, if there are any.
 */
static int is_used(const struct job *job, const struct seen *seen)
{
	if (seen->use == SEEN_LIKENESS)
		return id_map_find(&job->newest_strata,
				   kind_key(seen->kind, seen->class_bytes, 0)) != ID_MAP_NONE;
	if (seen->use == SEEN_DEAD)
		return id_map_find(&job->process->windows.heap.index,
				   kind_key(seen->kind, seen->class_bytes, COHORT_OLD)) !=
		       ID_MAP_NONE;
	return seen->large < LARGE_STRATA || seen->cohort < job->newest.cohort ||
	       id_map_find(&job->likes, like_key(seen)) == ID_MAP_NONE;
}

static size_t sightings_fill(struct job *job)
{
	size_t count = 0;

	for (size_t i = 0; i < job->seen_count; i++) {
		const struct seen *seen = &job->seen[i];

		if (!i || !is_same_row(seen, seen - 1))
			job->rows[job->row_count++] =
				(struct snapshot_trace){.traceback = job->tracebacks[seen->stack],
							.flags = seen->flags,
							.bytes = seen->bytes};
		if (!is_used(job, seen))
			continue;
		job->sightings[count++] = (struct calibrate_sighting){
			.stratum = stratum_of(job, seen),
			.window = seen->window,
			.row = (uint32_t)(job->row_count - 1),
			.alive = seen->use != SEEN_DEAD,
			.likeness = seen->use == SEEN_LIKENESS,
			.inclusion = seen->inclusion,
		};
	}
	return count;
}

static int job_run(struct job *job, struct builder *builder)
{
	size_t windows = job->process->windows.count;
	/* Blocks known one by one before the first window are of one without length. */
	struct calibrate_input input = {.strata = job->strata,
					.windows = job->windows,
					.window_count = windows ? windows : 1,
					.sightings = job->sightings};
	struct calibrate_result result;
	int err;

	newest_find(&job->process->windows, &job->newest);
	windows_fill(job);
	err = alive_collect(job);
	if (!err)
		err = dead_collect(job);
	if (!err)
		err = strata_fill(job);
	if (err)
		return err;
	qsort(job->seen, job->seen_count, sizeof(*job->seen), seen_compare);
	input.sighting_count = sightings_fill(job);
	input.stratum_count = job->stratum_count;
	input.row_count = job->row_count;
	err = calibrate(&input, &result);
	if (err)
		return err;
	result.windows = windows;
	err = windowed_add(builder, job->rows, &result);
	calibrate_free(&result);
	return err;
}

int trace_windowed_add(const struct process_state *process, const uint32_t *tracebacks,
		       struct builder *builder)
{
	const struct trace_windows *windows = &process->windows;
	struct job job = {.process = process, .tracebacks = tracebacks};
	size_t most = 2 * (windows->sightings.count + windows->deaths.count) + 1;
	int err = -ENOMEM;

	job.seen = calloc(most, sizeof(*job.seen));
	job.rows = calloc(most, sizeof(*job.rows));
	job.sightings = calloc(most, sizeof(*job.sightings));
	job.strata = calloc(most + LARGE_STRATA + windows->heap.count, sizeof(*job.strata));
	job.windows = calloc(windows->count + 1, sizeof(*job.windows));
	if (job.seen && job.rows && job.sightings && job.strata && job.windows)
		err = job_run(&job, builder);
	free(job.seen);
	free(job.rows);
	free(job.sightings);
	free(job.strata);
	free(job.windows);
	id_map_free(&job.newest_strata);
	id_map_free(&job.likes);
	return err;
}
