/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Snapshots of a process that was traced in windows: what was seen of the blocks of pymalloc's
 * pools becomes the input of the estimator (snapshot/calibrate.h), with the heap's own counts as
 * totals.
 *
 * So it is with large blocks, if they are traced in windows, too, and malloc's heap was walked
 * (windowed_large.h).
 */
#include "windowed/trace_windowed.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "snapshot/windowed.h"
#include "windowed/windowed_large.h"

static uint32_t cohort_joined(const struct job *job, uint32_t cohort)
{
	return cohort < job->newest.cohort ? cohort : job->newest.cohort;
}

static int is_same_row(const struct seen *a, const struct seen *b)
{
	return a->stack == b->stack && a->bytes == b->bytes && a->flags == b->flags;
}

/* Of a block of malloc's there is no more than its size. */
static uint64_t family_of(uint32_t kind, uint32_t class_bytes)
{
	return chunk_is_class(class_bytes) ? 0 : kind & ~EVENT_KIND_LENGTH;
}

static struct calibrate_stratum *stratum_add(struct job *job, uint32_t kind, uint32_t bytes,
					     uint32_t cohort)
{
	struct calibrate_stratum *stratum = &job->strata[job->stratum_count++];

	*stratum = (struct calibrate_stratum){.type = kind == EVENT_KIND_OTHER ? 0 : kind,
					      .family = family_of(kind, bytes),
					      .class_bytes = bytes,
					      .cohort = cohort};
	return stratum;
}

static int strata_fill(struct job *job)
{
	const struct kind_counts *heap = &job->process->windows.heap;
	struct large_shares shares = large_shares_of(job->process);
	int err = 0;

	large_strata_fill(job);
	for (size_t i = 0; !err && i < heap->count; i++) {
		const struct kind_count *count = &heap->items[i];
		struct calibrate_stratum *stratum = stratum_add(job, count->kind, count->bytes,
								cohort_joined(job, count->cohort));
		int is_chunk = chunk_is_class(count->bytes);
		uint64_t bytes = is_chunk ? chunk_kind_bytes(count->kind) : count->bytes;

		if (count->cohort == COHORT_OLD) {
			stratum->cohort = 0;
			stratum->old_blocks = large_share(count->live, is_chunk ? shares.old : 1);
			stratum->old_bytes = stratum->old_blocks * bytes;
		} else {
			stratum->new_blocks = large_share(count->live, is_chunk ? shares.fresh : 1);
			stratum->new_bytes = stratum->new_blocks * bytes;
			if (seen_is_blurred(job, count->kind, count->bytes))
				stratum->cohort = job->newest.cohort;
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
 * Of what likenesses stand for, sightings of lines that have some are left out: these contain them.
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
	return seen->large < LARGE_STRATA || !seen_is_replaced(job, seen);
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
			.discount = seen->discount ? &job->discounts[seen->discount - 1] : NULL,
		};
	}
	return count;
}

/* Windows lose a part of their blocks otherwise, too, such as those that no look has shown. */
#define LEAST_MARGIN 0.75

static double progress_least(const struct trace_windows *windows)
{
	return windows->undisturbed > 0 ? LEAST_MARGIN * windows->done / windows->undisturbed : 0;
}

/* Estimates with the rates of reuse as they are. */
static int job_estimate(struct job *job, struct calibrate_result *out)
{
	size_t windows = job->process->windows.count;
	/* Blocks known one by one before the first window are of one without length. */
	struct calibrate_input input = {.strata = job->strata,
					.windows = job->windows,
					.window_count = windows ? windows : 1,
					.sightings = job->sightings,
					.progress_least = progress_least(&job->process->windows)};
	int err = seen_collect(job);

	if (!err)
		large_collect(job);
	if (!err)
		err = strata_fill(job);
	if (err)
		return err;
	seen_sort(job);
	input.sighting_count = sightings_fill(job);
	input.stratum_count = job->stratum_count;
	input.row_count = job->row_count;
	return calibrate(&input, out);
}

static void job_clear(struct job *job)
{
	seen_clear(job);
	job->stratum_count = job->row_count = 0;
	id_map_free(&job->newest_strata);
}

static int job_run(struct job *job, struct builder *builder)
{
	struct calibrate_result result = {0};
	int err;

	newest_find(&job->process->windows, &job->newest);
	err = reuse_find(job->process, job->newest.walk_ns, &job->reuse);
	if (!err)
		err = job_estimate(job, &result);
	/* How much slower the target is in windows says how much more it allocates between them. */
	if (!err && job->reuse.count && result.progress < 1) {
		reuse_rates(&job->reuse, result.progress);
		calibrate_free(&result);
		job_clear(job);
		err = job_estimate(job, &result);
	}
	if (err)
		return err;
	result.windows = job->process->windows.count;
	err = windowed_add(builder, job->rows, &result);
	calibrate_free(&result);
	return err;
}

int trace_windowed_add(const struct process_state *process, const uint32_t *tracebacks,
		       struct builder *builder)
{
	const struct trace_windows *windows = &process->windows;
	struct job job = {.process = process, .tracebacks = tracebacks};
	size_t most = 2 * (windows->sightings.count + windows->deaths.count) +
		      large_collect_most(process) + 1;
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
	free(job.discounts);
	job_clear(&job);
	reuse_free(&job.reuse);
	return err;
}
