/* SPDX-License-Identifier: Apache-2.0 */
#include "trace/estimate/windowed_seen.h"

#include <errno.h>
#include <stdlib.h>

#include "util/array.h"
#include "util/sorted.h"

/* Of the weight of a kind and size class so much belongs to others: its cohorts say nothing. */
#define BLURRED_SHARE 0.1

static uint32_t huge_of(uint64_t bytes)
{
	uint32_t huge = LARGE_HUGE;

	while (huge + 1 < LARGE_STRATA && bytes >= 2 * (uint64_t)LARGE_HUGE_BYTES) {
		bytes /= 2;
		huge++;
	}
	return huge;
}

static uint32_t large_of(const struct process_state *process,
			 const struct sampled_block *sampled_block, const struct block *block)
{
	if (!(sampled_block->flags & SAMPLED_BLOCK_LARGE) ||
	    state_window_is_chunk(process, sampled_block, block))
		return LARGE_STRATA;
	if (sampled_block->flags & SAMPLED_BLOCK_CERTAIN)
		return LARGE_CERTAIN;
	if (block->bytes >= LARGE_HUGE_BYTES)
		return huge_of(block->bytes);
	return block->large ? LARGE_OBJECT : LARGE_RAW;
}

/*
 * Where the time between two windows is divided: at the end of the first one, or where the newest
 * cohort begins, or what its donors stand for.
 */
static uint64_t span_end(const struct job *job, uint64_t end_ns, uint64_t next_ns)
{
	const uint64_t bounds[] = {
		job->newest.from_ns,
		state_cohort_ns(&job->process->windows, job->newest.cohort),
	};

	for (size_t i = 0; i < ARRAY_SIZE(bounds); i++)
		if (bounds[i] > end_ns && bounds[i] <= next_ns)
			return bounds[i];
	return end_ns;
}

static double idle_part(const struct trace_window *window)
{
	return window->length_ns ? (double)window->idle_ns / (double)window->length_ns : 0;
}

/*
 * A window stands for the time since the one before. How long that was had been decided before the
 * window showed anything. The time after it has not: the budget makes the pause after expensive
 * windows longer, so that what costs much would have too large a weight.
 */
static void windows_fill(struct job *job)
{
	const struct trace_windows *windows = &job->process->windows;
	const struct trace_process *info = &job->process->info;
	uint64_t from_ns = state_windows_since_ns(job->process), until_ns;

	for (size_t i = 0; i < windows->count; i++) {
		const struct trace_window *window = &windows->items[i];
		uint64_t end_ns = window->end_ns ? window->end_ns : info->end_ns;
		uint64_t length_ns = window->end_ns              ? window->length_ns
				     : end_ns > window->start_ns ? end_ns - window->start_ns
								 : 0;

		until_ns = i + 1 < windows->count
				   ? span_end(job, end_ns, windows->items[i + 1].start_ns)
				   : info->end_ns;
		if (until_ns < from_ns + length_ns)
			until_ns = from_ns + length_ns;
		job->windows[i] = (struct calibrate_window){.start_ns = window->start_ns,
							    .end_ns = window->start_ns + length_ns,
							    .span_ns = until_ns - from_ns,
							    .idle = idle_part(window)};
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
	return death_row_key(seen->stack, seen->kind, seen->class_bytes);
}

static uint64_t shared_key(const struct seen *seen)
{
	return hash_u64(like_key(seen)) ^ seen->window;
}

static int survival_add(struct job *job, struct seen *seen,
			const struct calibrate_survival *survival)
{
	int err = ARRAY_RESERVE(NULL, job, survivals, survival_count, survival_capacity, 1);

	if (err)
		return err;
	job->survivals[job->survival_count++] = *survival;
	seen->survival = (uint32_t)job->survival_count;
	return 0;
}

/*
 * Blocks of one row that were seen in one window, and count as alive, have the same survival.
 * Returns 1 if the block has got it.
 */
static int survival_share(const struct job *job, struct seen *seen)
{
	uint32_t found = id_map_find(&job->shared, shared_key(seen));

	seen->survival = found == ID_MAP_NONE ? 0 : found;
	return found != ID_MAP_NONE;
}

/* Of a donor that stands for `times` blocks if it was the same one until until_ns. */
static int donor_survival(struct job *job, struct seen *like, uint64_t until_ns, double times)
{
	const struct reuse_row *row = reuse_row_of(&job->reuse, like_key(like));
	struct calibrate_survival survival;

	if (!row)
		return 0;
	survival = reuse_lived(&job->reuse, row, like->shown_ns, until_ns);
	survival.whole = (float)((1 + (times - 1) * (double)survival.whole) / times);
	for (uint32_t g = 0; g < CALIBRATE_GROUPS; g++)
		survival.without[g] =
			(float)((1 + (times - 1) * (double)survival.without[g]) / times);
	return survival_add(job, like, &survival);
}

/* Adds a donor of the newest cohort: a block that was seen, and lived until then. */
static int donor_add(struct job *job, const struct seen *seen, uint64_t died_ns)
{
	const struct trace_windows *windows = &job->process->windows;
	struct seen *like = &job->seen[job->seen_count];
	struct lifetime life = {seen->made_ns, died_ns};
	uint64_t until_ns;
	int err;

	if (seen->large < LARGE_STRATA || !newest_is_like(windows, &job->newest, seen->window))
		return 0;
	*like = *seen;
	like->use = SEEN_DONOR;
	like->survival = 0;
	like->cohort = job->newest.cohort;
	like->inclusion = newest_inclusion(windows, &job->newest, seen->window, &life);
	until_ns = newest_until(windows, &job->newest, seen->window, died_ns);
	err = donor_survival(job, like, until_ns,
			     newest_times(windows, &job->newest, seen->window, &life));
	job->seen_count += !err;
	return err ?: id_map_put(&job->likes, like_key(seen), 0);
}

static int alive_survival(struct job *job, struct seen *seen)
{
	const struct reuse_row *row =
		seen->large == LARGE_STRATA ? reuse_row_of(&job->reuse, like_key(seen)) : NULL;
	struct calibrate_survival survival;

	int err;

	if (!row || survival_share(job, seen))
		return 0;
	survival = reuse_alive(&job->reuse, row, seen->shown_ns);
	err = survival_add(job, seen, &survival);
	return err ?: id_map_put(&job->shared, shared_key(seen), seen->survival);
}

static int alive_collect(struct job *job)
{
	const struct sampled_blocks *sampled_blocks = &job->process->windows.sampled_blocks;
	const struct sampled_block *sampled_block;
	int err = 0;

	for (size_t cursor = 0;
	     !err && (sampled_block = sampled_blocks_next(sampled_blocks, &cursor));) {
		const struct block *block = state_window_block(job->process, sampled_block);
		struct seen *seen = &job->seen[job->seen_count];
		uint32_t large;

		/* Without memory for its traceback the snapshot has no row for it. */
		if (!block || job->tracebacks[block->stack] == UINT32_MAX ||
		    !(sampled_block->kind || sampled_block->flags & SAMPLED_BLOCK_CERTAIN))
			continue;
		large = large_of(job->process, sampled_block, block);
		*seen = (struct seen){
			.stack = block->stack,
			.window = sampled_block->window,
			.large = large,
			.cohort = state_windows_cohort(job->process, sampled_block->address),
			.flags = state_block_flags(block),
			.use = SEEN_ALIVE,
			.bytes = block->bytes,
			.made_ns = sampled_block->made_ns,
			.shown_ns = sampled_block->shown_ns,
			.inclusion = large == LARGE_CERTAIN
					     ? 1
					     : inclusion(&job->windows[sampled_block->window]),
		};
		state_window_place(job->process, sampled_block, block, &seen->kind,
				   &seen->class_bytes);
		err = alive_survival(job, seen);
		job->seen_count++;
		if (!err)
			err = donor_add(job, seen, job->newest.walk_ns);
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
			.made_ns = dead->made_ns,
			.shown_ns = dead->shown_ns,
			.inclusion = inclusion(&job->windows[dead->window]),
		};
		job->seen_count++;
		err = donor_add(job, seen, dead->died_ns);
	}
	return err;
}

/* The weights of a kind and size class, without survival probabilities and with them. */
struct blur {
	uint64_t key;
	double weight, rest;
};

static int blur_add(const struct seen *seen, const struct job *job, struct id_map *index,
		    struct blur *blurs)
{
	uint64_t key = kind_key(seen->kind, seen->class_bytes, 0);
	uint32_t found = id_map_find(index, key);
	double weight = 1 / seen->inclusion;
	int err = 0;

	if (found == ID_MAP_NONE) {
		found = (uint32_t)index->count;
		blurs[found].key = key;
		err = id_map_put(index, key, found);
	}
	blurs[found].weight += weight;
	if (seen->survival)
		weight *= (double)job->survivals[seen->survival - 1].whole;
	blurs[found].rest += weight;
	return err;
}

static int blurred_find(struct job *job)
{
	struct id_map index = {0};
	struct blur *blurs = calloc(job->seen_count + 1, sizeof(*blurs));
	int err = blurs ? 0 : -ENOMEM;

	for (size_t i = 0; !err && i < job->seen_count; i++)
		if (job->seen[i].use == SEEN_ALIVE && job->seen[i].large == LARGE_STRATA)
			err = blur_add(&job->seen[i], job, &index, blurs);
	for (size_t i = 0; !err && i < index.count; i++)
		if (blurs[i].rest < (1 - BLURRED_SHARE) * blurs[i].weight)
			err = id_map_put(&job->blurred, blurs[i].key, 0);
	id_map_free(&index);
	free(blurs);
	return err;
}

int seen_is_blurred(const struct job *job, uint32_t kind, uint32_t class_bytes)
{
	return id_map_find(&job->blurred, kind_key(kind, class_bytes, 0)) != ID_MAP_NONE;
}

int seen_is_replaced(const struct job *job, const struct seen *seen)
{
	const struct trace_windows *windows = &job->process->windows;
	int newest = windows->items[seen->window].start_ns >= job->newest.from_ns &&
		     (seen->cohort >= job->newest.cohort ||
		      seen_is_blurred(job, seen->kind, seen->class_bytes));

	return newest && id_map_find(&job->likes, like_key(seen)) != ID_MAP_NONE;
}

int seen_collect(struct job *job)
{
	int err;

	windows_fill(job);
	err = alive_collect(job) ?: dead_collect(job);
	return err || !job->survival_count ? err : blurred_find(job);
}

void seen_clear(struct job *job)
{
	job->seen_count = job->survival_count = 0;
	id_map_free(&job->shared);
	id_map_free(&job->likes);
	id_map_free(&job->blurred);
}

static int seen_compare(const void *a, const void *b)
{
	const struct seen *x = a, *y = b;

	return CMP(x->stack, y->stack)
	       ?: CMP(x->bytes, y->bytes)
	       ?: CMP(x->flags, y->flags)
	       ?: CMP(x->large, y->large)
	       ?: CMP(x->kind, y->kind)
	       ?: CMP(x->cohort, y->cohort)
	       ?: CMP(x->use, y->use)
	       ?: CMP(x->inclusion, y->inclusion)
	       ?: CMP(x->window, y->window);
}

void seen_sort(struct job *job)
{
	qsort(job->seen, job->seen_count, sizeof(*job->seen), seen_compare);
}
