/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Snapshots of a process that was traced in windows: what was seen of the blocks of pymalloc's
 * pools becomes the input of the estimator (snapshot/estimate/calibrate.h), with the heap's own
 * counts as totals.
 *
 * So it is with large blocks, if they are traced in windows, too, and malloc's heap was walked
 * (windowed_large.h).
 */

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "snapshot/windowed.h"
#include "trace/estimate/windowed_large.h"

static uint32_t cohort_joined(const struct job *job, uint32_t cohort)
{
	return cohort < job->newest.cohort ? cohort : job->newest.cohort;
}

/* The row of blocks with this stack, size and flags. 0; -ENOMEM */
static int row_of(struct job *job, uint32_t stack, uint64_t bytes, uint32_t flags, uint32_t *row)
{
	uint64_t key = hash_u64(hash_u64((uint64_t)stack << 8 | flags) ^ bytes);
	int err;

	*row = id_map_find(&job->row_index, key);
	if (*row != ID_MAP_NONE)
		return 0;
	*row = (uint32_t)job->row_count;
	err = id_map_put(&job->row_index, key, *row);
	if (!err)
		job->rows[job->row_count++] = (struct snapshot_trace){
			.traceback = job->tracebacks[stack], .flags = flags, .bytes = bytes};
	return err;
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
	if (seen->use == SEEN_DONOR)
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
 * Of what donors stand for, sampled blocks of lines that have some are left out: these contain
 * them. The dead ones are of the stratum of older blocks, if there are any.
 */
static int is_used(const struct job *job, const struct seen *seen)
{
	if (seen->use == SEEN_DONOR)
		return id_map_find(&job->newest_strata,
				   kind_key(seen->kind, seen->class_bytes, 0)) != ID_MAP_NONE;
	if (seen->use == SEEN_DEAD)
		return id_map_find(&job->process->windows.heap.index,
				   kind_key(seen->kind, seen->class_bytes, COHORT_OLD)) !=
		       ID_MAP_NONE;
	return seen->large < LARGE_STRATA || !seen_is_replaced(job, seen);
}

static int sampled_blocks_fill(struct job *job, size_t *count)
{
	uint32_t row;
	int err = 0;

	*count = 0;
	for (size_t i = 0; !err && i < job->seen_count; i++) {
		const struct seen *seen = &job->seen[i];

		err = row_of(job, seen->stack, seen->bytes, seen->flags, &row);
		if (err || !is_used(job, seen))
			continue;
		job->sampled_blocks[(*count)++] = (struct calibrate_sampled_block){
			.stratum = stratum_of(job, seen),
			.window = seen->window,
			.row = row,
			.alive = seen->use != SEEN_DEAD,
			.donor = seen->use == SEEN_DONOR,
			.inclusion = seen->inclusion,
			.survival = seen->survival ? &job->survivals[seen->survival - 1] : NULL,
		};
	}
	return err;
}

#define SIZES_DIFFER 0 /* in sizes: not all that were seen have one size */

/* A str's length is in its kind, so most kinds have one size only. */
static int size_note(struct job *job, const struct seen *seen)
{
	uint64_t key = kind_key(seen->kind, seen->class_bytes, 0);
	uint32_t known = id_map_find(&job->sizes, key);

	return seen->large < LARGE_STRATA || known == seen->bytes
		       ? 0
		       : id_map_put(&job->sizes, key,
				    known == ID_MAP_NONE ? (uint32_t)seen->bytes : SIZES_DIFFER);
}

/* The instruction of the most recent frame; NO_PLACE: there is none. */
#define NO_PLACE UINT32_MAX

static uint64_t place_of(const struct process_state *process, uint32_t stack)
{
	const struct stack_entry *entry = &process->stacks[stack];

	return entry->nframe ? process->stack_frames[entry->first] : NO_PLACE;
}

static uint64_t place_key(const struct process_state *process, uint32_t stack, uint32_t class_bytes)
{
	return hash_u64(place_of(process, stack)) ^ class_bytes;
}

static int place_add(struct id_map *blocks, uint64_t place, uint64_t more)
{
	uint32_t known = id_map_find(blocks, place);
	uint64_t sum = (known == ID_MAP_NONE ? 0 : known) + more;

	return id_map_put(blocks, place, sum < ID_MAP_NONE ? (uint32_t)sum : ID_MAP_NONE - 1);
}

/* What windows have shown of each place. */
static int places_note(struct job *job)
{
	const struct process_state *process = job->process;
	const struct kind_counts *made = &process->windows.made;
	int err = 0;

	for (size_t i = 0; !err && i < made->count; i++)
		err = place_add(&job->made,
				place_key(process, made->items[i].kind, made->items[i].bytes),
				made->items[i].live);
	for (size_t i = 0; !err && i < job->seen_count; i++)
		if (job->seen[i].use == SEEN_ALIVE)
			err = place_add(
				&job->alive,
				place_key(process, job->seen[i].stack, job->seen[i].class_bytes),
				1);
	return err;
}

static int seen_note(struct job *job)
{
	int err = places_note(job);

	for (size_t i = 0; !err && i < job->seen_count; i++)
		err = size_note(job, &job->seen[i]);
	return err;
}

#define KEEPS_LEAST 20u /* after fewer blocks it is not known what part of them a place keeps */

/*
 * What part of the blocks that windows have shown is kept, of those of a size class that are made
 * where the stack ends: the same instruction may make values of other sizes on the way.
 */
static double stack_keeps(const struct job *job, uint32_t stack, uint32_t class_bytes)
{
	uint64_t place = place_key(job->process, stack, class_bytes);
	uint32_t made = id_map_find(&job->made, place), alive = id_map_find(&job->alive, place);

	if (made == ID_MAP_NONE || made < KEEPS_LEAST)
		return 1;
	return alive == ID_MAP_NONE ? 0 : fmin(1, (double)alive / made);
}

/* The requests that took pools; the pools' other blocks are of other requests. */
static int taken_fill(struct job *job)
{
	const struct taken_counts *taken = &job->process->windows.taken;
	const struct kind_counts *heap = &job->process->windows.heap;
	int err = taken->count ? seen_note(job) : 0;

	_Static_assert(POOL_GROUPS == CALIBRATE_GROUPS, "the groups are the jackknife's");
	job->taken_count = 0;
	for (size_t i = 0; !err && i < taken->count; i++) {
		const struct taken_count *count = &taken->items[i];
		uint32_t found = id_map_find(&heap->index,
					     kind_key(count->kind, count->bytes, count->cohort));
		uint32_t bytes = id_map_find(&job->sizes, kind_key(count->kind, count->bytes, 0));
		int is_class = bytes == ID_MAP_NONE || bytes == SIZES_DIFFER;
		struct pools_taken *out = &job->taken[job->taken_count];

		if (found == ID_MAP_NONE || job->tracebacks[count->stack] == UINT32_MAX)
			continue;
		out->stratum = LARGE_STRATA + found;
		out->keeps = stack_keeps(job, count->stack, count->bytes);
		memcpy(out->blocks, count->blocks, sizeof(out->blocks));
		err = row_of(job, count->stack, is_class ? count->bytes : bytes,
			     is_class ? SNAPSHOT_ROUNDED : 0, &out->row);
		job->taken_count += !err;
	}
	return err;
}

/* The time in which the blocks of each cohort came. The newest one ends with the last walk. */
static void cohorts_fill(const struct job *job, uint64_t cohorts_ns[COHORT_MAX + 1])
{
	const struct trace_windows *windows = &job->process->windows;

	for (uint32_t i = COHORT_FIRST; i <= job->newest.cohort && i < COHORT_MAX; i++) {
		uint64_t end_ns = i < job->newest.cohort ? state_cohort_ns(windows, i + 1)
							 : job->newest.walk_ns;
		uint64_t begin_ns = state_cohort_ns(windows, i);

		cohorts_ns[i] = end_ns > begin_ns ? end_ns - begin_ns : 0;
	}
}

/* Of the target, when its blocks began to count as new. */
static uint64_t age_ns(const struct process_state *process)
{
	const struct trace_process *info = &process->info;

	return info->age_ns ? info->age_ns + (state_windows_since_ns(process) - info->start_ns) : 0;
}

/* Estimates with the rates of reuse as they are. */
static int job_estimate(struct job *job, struct calibrate_result *out)
{
	uint64_t cohorts_ns[COHORT_MAX + 1] = {0};
	size_t windows = job->process->windows.count;
	/* Blocks known one by one before the first window are of one without length. */
	struct calibrate_input input = {.strata = job->strata,
					.windows = job->windows,
					.window_count = windows ? windows : 1,
					.sampled_blocks = job->sampled_blocks,
					.cohorts_ns = cohorts_ns,
					.cohort_count = COHORT_MAX + 1,
					.age_ns = age_ns(job->process)};
	int err = seen_collect(job);

	if (!err)
		large_collect(job);
	if (!err)
		err = strata_fill(job);
	if (err)
		return err;
	seen_sort(job);
	err = sampled_blocks_fill(job, &input.sampled_block_count) ?: taken_fill(job);
	if (err)
		return err;
	cohorts_fill(job, cohorts_ns);
	input.stratum_count = job->stratum_count;
	input.row_count = job->row_count;
	err = calibrate(&input, out);
	if (err)
		return err;
	err = pools_split(&input, job->taken, job->taken_count, out)
		      ?: large_split(job, &input, out);
	if (err)
		calibrate_free(out);
	else
		large_doubt(job, &input, out);
	return err;
}

static void job_clear(struct job *job)
{
	seen_clear(job);
	job->stratum_count = job->row_count = 0;
	id_map_free(&job->newest_strata);
	id_map_free(&job->row_index);
	id_map_free(&job->sizes);
	id_map_free(&job->made);
	id_map_free(&job->alive);
}

static int job_run(struct job *job, trace_windowed_fn take, void *context)
{
	struct calibrate_result result = {0};
	int err;

	newest_find(&job->process->windows, &job->newest);
	err = reuse_find(job->process, job->newest.walk_ns, &job->reuse)
		      ?: job_estimate(job, &result);
	/* How much slower the target is in windows says how much more it allocates between them. */
	if (!err && job->reuse.count && result.speed < 1) {
		reuse_rates(&job->reuse, result.speed);
		calibrate_free(&result);
		job_clear(job);
		err = job_estimate(job, &result);
	}
	if (err)
		return err;
	result.windows = job->process->windows.count;
	err = take(context, job->rows, &result);
	calibrate_free(&result);
	return err;
}

int trace_windowed_estimate(const struct process_state *process, const uint32_t *tracebacks,
			    trace_windowed_fn take, void *context)
{
	const struct trace_windows *windows = &process->windows;
	struct job job = {.process = process, .tracebacks = tracebacks};
	size_t most = 2 * (windows->sampled_blocks.count + windows->deaths.count) +
		      large_collect_most(process) + windows->taken.count + 1;
	int err = -ENOMEM;

	job.seen = calloc(most, sizeof(*job.seen));
	job.rows = calloc(most, sizeof(*job.rows));
	job.taken = calloc(windows->taken.count + 1, sizeof(*job.taken));
	job.sampled_blocks = calloc(most, sizeof(*job.sampled_blocks));
	job.strata = calloc(most + LARGE_STRATA + windows->heap.count, sizeof(*job.strata));
	job.windows = calloc(windows->count + 1, sizeof(*job.windows));
	if (job.seen && job.rows && job.taken && job.sampled_blocks && job.strata && job.windows)
		err = job_run(&job, take, context);
	free(job.seen);
	free(job.rows);
	free(job.taken);
	free(job.sampled_blocks);
	free(job.strata);
	free(job.windows);
	free(job.survivals);
	job_clear(&job);
	reuse_free(&job.reuse);
	return err;
}

static int builder_take(void *context, const struct snapshot_trace *rows,
			const struct calibrate_result *result)
{
	return windowed_add(context, rows, result);
}

int trace_windowed_add(const struct process_state *process, const uint32_t *tracebacks,
		       struct builder *builder)
{
	return trace_windowed_estimate(process, tracebacks, builder_take, builder);
}
