/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Snapshots of a process that was traced in windows: what was seen of the blocks of pymalloc's
 * pools becomes the input of the estimator (snapshot/calibrate.h), with the heap's own counts as
 * totals.
 */
#include "trace/trace_windowed.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "snapshot/calibrate.h"
#include "snapshot/windowed.h"

/*
 * Blocks that live shorter than the time between two windows are seen only if a window was open
 * shortly before the walk. So the newest cohort begins some seconds before the walk, and is split
 * by likeness: by what earlier windows have shown of as long a time after their end. Of blocks of
 * one line that are allocated at a steady rate, those alive at the end of a window of length L and
 * younger than L have all been seen, and so have those from x to L + x old at the time x after it.
 * The sum over x up to an age A, divided by L, stands for all that are younger than A: a block that
 * lived for D after its window counts 1 + min(D, A - L) / L times.
 */
#define NEWEST_PART      12u /* of the time traced */
#define NEWEST_MIN_NS    500000000ull
#define NEWEST_MAX_NS    5000000000ull
#define LIKE_WINDOWS     24u /* as many at most, the last ones before that time */
#define LIKE_WINDOWS_MIN 3u

enum seen_use {
	SEEN_LIKENESS,
	SEEN_ALIVE,
	SEEN_DEAD,
};

/* A block that was seen. */
struct seen {
	uint32_t stack, window, kind, class_bytes, cohort;
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
	uint32_t newest;  /* cohort, and all later ones */
	uint64_t walk_ns; /* the end of the last walk */
	/* numbers of the windows that likenesses are from, and how many of these serve */
	size_t like_from, like_end;
	uint32_t like_count;
	struct id_map newest_strata; /* kind and size class -> one of the newest cohort */
	struct id_map likes; /* stacks, kinds and size classes of which there are likenesses */
};

static uint32_t cohort_joined(const struct job *job, uint32_t cohort)
{
	return cohort < job->newest ? cohort : job->newest;
}

/* May a window tell how long blocks live? It is one, and has been over for as long as need be. */
static int is_like_window(const struct job *job, size_t number)
{
	const struct trace_window *window = &job->process->windows.items[number];

	return number >= job->like_from && number < job->like_end && window->end_ns &&
	       window->length_ns && window->length_ns == window->end_ns - window->start_ns &&
	       window->length_ns <= NEWEST_MIN_NS / 2;
}

/* The windows that have been over for the age of the newest cohort. */
static void likes_find(struct job *job)
{
	const struct trace_windows *windows = &job->process->windows;
	uint64_t age_ns = job->walk_ns - windows->cohorts_ns[job->newest];

	job->like_end = windows->count;
	while (job->like_end && (!windows->items[job->like_end - 1].end_ns ||
				 windows->items[job->like_end - 1].end_ns + age_ns > job->walk_ns))
		job->like_end--;
	job->like_from = job->like_end > LIKE_WINDOWS ? job->like_end - LIKE_WINDOWS : 0;
	for (size_t i = job->like_from; i < job->like_end; i++)
		job->like_count += (uint32_t)is_like_window(job, i);
	if (job->like_count < LIKE_WINDOWS_MIN)
		job->like_count = 0, job->like_from = job->like_end;
}

/*
 * The newest cohort for the estimator. If there are too few windows to tell how long blocks live,
 * it begins with the last walk before the last window, whose span begins there, too.
 */
static void newest_find(struct job *job)
{
	const struct trace_windows *windows = &job->process->windows;
	uint64_t start_ns = windows->count ? windows->items[windows->count - 1].start_ns : 0;
	uint64_t begin_ns = windows->cohorts_ns[COHORT_FIRST], age_ns;

	job->walk_ns = windows->cohort ? windows->cohorts_ns[windows->cohort] : 0;
	age_ns = job->walk_ns > begin_ns ? (job->walk_ns - begin_ns) / NEWEST_PART : 0;
	age_ns = age_ns < NEWEST_MIN_NS   ? NEWEST_MIN_NS
		 : age_ns > NEWEST_MAX_NS ? NEWEST_MAX_NS
					  : age_ns;
	for (job->newest = windows->cohort; job->newest > COHORT_FIRST; job->newest--)
		if (windows->cohorts_ns[job->newest] + age_ns <= job->walk_ns)
			break;
	likes_find(job);
	if (job->like_count)
		return;
	for (job->newest = windows->cohort; job->newest > COHORT_FIRST; job->newest--)
		if (windows->cohorts_ns[job->newest] <= start_ns)
			break;
}

/* A window stands for the time up to the middle between it and its neighbours. */
static void windows_fill(struct job *job)
{
	const struct trace_windows *windows = &job->process->windows;
	const struct trace_process *info = &job->process->info;
	uint64_t newest_ns = windows->cohorts_ns[job->newest], from_ns = info->start_ns, until_ns;

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
	const struct trace_window *window = &job->process->windows.items[seen->window];
	uint64_t age_ns = job->walk_ns - job->process->windows.cohorts_ns[job->newest];
	double length = (double)window->length_ns, most = (double)age_ns - length, lived;
	struct seen *like = &job->seen[job->seen_count];

	if (!is_like_window(job, seen->window))
		return 0;
	lived = died_ns > window->end_ns ? (double)(died_ns - window->end_ns) : 0;
	*like = *seen;
	like->use = SEEN_LIKENESS;
	like->cohort = job->newest;
	like->inclusion = (double)job->like_count / (1 + fmin(lived, most) / length);
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

		/* Without memory for its traceback the snapshot has no row for it. */
		if (!block || !sighting->kind || job->tracebacks[block->stack] == UINT32_MAX)
			continue;
		*seen = (struct seen){
			.stack = block->stack,
			.window = sighting->window,
			.kind = sighting->kind,
			.class_bytes = state_window_class(block),
			.cohort = state_windows_cohort(job->process, sighting->address),
			.flags = (block->rounded ? SNAPSHOT_ROUNDED : 0) |
				 (block->inherited ? SNAPSHOT_INHERITED : 0),
			.use = SEEN_ALIVE,
			.bytes = block->bytes,
			.inclusion = inclusion(&job->windows[sighting->window]),
		};
		job->seen_count++;
		err = likeness_add(job, seen, job->walk_ns);
	}
	return err;
}

static int dead_collect(struct job *job)
{
	const struct trace_windows *windows = &job->process->windows;
	int err = 0;

	for (size_t i = 0; !err && i < windows->dead_count; i++) {
		const struct sighting_dead *dead = &windows->dead[i];
		struct seen *seen = &job->seen[job->seen_count];

		if (job->tracebacks[dead->stack] == UINT32_MAX)
			continue;
		*seen = (struct seen){
			.stack = dead->stack,
			.window = dead->window,
			.kind = dead->kind,
			.class_bytes = dead->class_bytes,
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

static int strata_fill(struct job *job)
{
	const struct kind_counts *heap = &job->process->windows.heap;
	int err = 0;

	for (size_t i = 0; !err && i < heap->count; i++) {
		const struct kind_count *count = &heap->items[i];
		struct calibrate_stratum *stratum = stratum_add(job, count->kind, count->bytes,
								cohort_joined(job, count->cohort));

		if (count->cohort == COHORT_OLD) {
			stratum->cohort = 0;
			stratum->old_blocks = count->live;
			stratum->old_bytes = count->live * count->bytes;
		} else {
			stratum->new_blocks = count->live;
			stratum->new_bytes = count->live * count->bytes;
		}
		if (stratum->cohort == job->newest)
			err = id_map_put(&job->newest_strata,
					 kind_key(count->kind, count->bytes, 0), (uint32_t)i);
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
	struct calibrate_stratum *last =
		job->stratum_count > heap->count ? &job->strata[job->stratum_count - 1] : NULL;

	if (seen->use == SEEN_LIKENESS)
		return id_map_find(&job->newest_strata, kind_key(seen->kind, seen->class_bytes, 0));
	if (found != ID_MAP_NONE)
		return found;
	if (!last || last->type != (seen->kind == EVENT_KIND_OTHER ? 0 : seen->kind) ||
	    last->class_bytes != seen->class_bytes)
		last = stratum_add(job, seen->kind, seen->class_bytes, job->newest);
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
	return seen->cohort < job->newest ||
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
	struct calibrate_input input = {.strata = job->strata,
					.windows = job->windows,
					.window_count = job->process->windows.count,
					.sightings = job->sightings};
	struct calibrate_result result;
	int err;

	newest_find(job);
	windows_fill(job);
	err = strata_fill(job);
	if (!err)
		err = alive_collect(job);
	if (!err)
		err = dead_collect(job);
	if (err)
		return err;
	qsort(job->seen, job->seen_count, sizeof(*job->seen), seen_compare);
	input.sighting_count = sightings_fill(job);
	input.stratum_count = job->stratum_count;
	input.row_count = job->row_count;
	err = calibrate(&input, &result);
	if (err)
		return err;
	err = windowed_add(builder, job->rows, &result);
	calibrate_free(&result);
	return err;
}

int trace_windowed_add(const struct process_state *process, const uint32_t *tracebacks,
		       struct builder *builder)
{
	const struct trace_windows *windows = &process->windows;
	struct job job = {.process = process, .tracebacks = tracebacks};
	size_t most = 2 * (windows->sightings.count + windows->dead_count) + 1;
	int err = -ENOMEM;

	job.seen = calloc(most, sizeof(*job.seen));
	job.rows = calloc(most, sizeof(*job.rows));
	job.sightings = calloc(most, sizeof(*job.sightings));
	job.strata = calloc(most + windows->heap.count, sizeof(*job.strata));
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
