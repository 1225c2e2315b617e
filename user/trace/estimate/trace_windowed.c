/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "snapshot/ages.h"
#include "snapshot/windowed.h"
#include "trace/estimate/windowed_large.h"
#include "trace/estimate/windowed_seen.h"
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
		job->middles_ns[i] = from_ns + (until_ns - from_ns) / 2;
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

static uint64_t like_key(const struct job *job, const struct seen *seen)
{
	return reuse_key(&job->reuse, &(struct reuse_like){seen->stack, seen->kind,
							   seen->class_bytes, seen->owner});
}

static uint64_t shared_key(const struct job *job, const struct seen *seen)
{
	return hash_u64(like_key(job, seen)) ^ seen->window;
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
	uint32_t found = id_map_find(&job->shared, shared_key(job, seen));

	seen->survival = found == ID_MAP_NONE ? 0 : found;
	return found != ID_MAP_NONE;
}

/* Of a donor that stands for `times` blocks if it was the same one until until_ns. */
static int donor_survival(struct job *job, struct seen *like, uint64_t until_ns, double times)
{
	const struct reuse_row *row = reuse_row_of(&job->reuse, like_key(job, like));
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
	/* It stands for blocks of all ages up to its own. */
	like->born_ns = job->newest.walk_ns -
			(until_ns > seen->born_ns ? (until_ns - seen->born_ns) / 2 : 0);
	err = donor_survival(job, like, until_ns,
			     newest_times(windows, &job->newest, seen->window, &life));
	job->seen_count += !err;
	return err ?: id_map_put(&job->likes, like_key(job, seen), 0);
}

static int alive_survival(struct job *job, struct seen *seen)
{
	const struct reuse_row *row =
		seen->large == LARGE_STRATA ? reuse_row_of(&job->reuse, like_key(job, seen)) : NULL;
	struct calibrate_survival survival;

	int err;

	if (!row || survival_share(job, seen))
		return 0;
	survival = reuse_alive(&job->reuse, row, seen->shown_ns);
	err = survival_add(job, seen, &survival);
	return err ?: id_map_put(&job->shared, shared_key(job, seen), seen->survival);
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
			.owner = block->owner,
			.window = sampled_block->window,
			.large = large,
			.cohort = state_windows_cohort(job->process, sampled_block->address),
			.flags = state_block_flags(block),
			.use = SEEN_ALIVE,
			.bytes = block->bytes,
			.made_ns = sampled_block->made_ns,
			.shown_ns = sampled_block->shown_ns,
			.born_ns = state_birth_ns(job->process, block),
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
			.owner = dead->owner,
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
			.born_ns = dead->made_ns ?: windows->items[dead->window].start_ns,
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

static bool seen_is_blurred(const struct job *job, uint32_t kind, uint32_t class_bytes)
{
	return id_map_find(&job->blurred, kind_key(kind, class_bytes, 0)) != ID_MAP_NONE;
}

/* Have donors taken its place? */
static bool seen_is_replaced(const struct job *job, const struct seen *seen)
{
	const struct trace_windows *windows = &job->process->windows;
	int newest = windows->items[seen->window].start_ns >= job->newest.from_ns &&
		     (seen->cohort >= job->newest.cohort ||
		      seen_is_blurred(job, seen->kind, seen->class_bytes));

	return newest && id_map_find(&job->likes, like_key(job, seen)) != ID_MAP_NONE;
}

/*
 * Fills windows, seen and what belongs to these, of which there is room for twice the sampled
 * blocks and deaths. newest and reuse are set. 0; -ENOMEM.
 */
static int seen_collect(struct job *job)
{
	int err;

	windows_fill(job);
	err = alive_collect(job) ?: dead_collect(job);
	return err || !job->survival_count ? err : blurred_find(job);
}

/* Drops what seen_collect() has filled. */
static void seen_clear(struct job *job)
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
	       ?: CMP(x->window, y->window)
	       ?: CMP(x->owner, y->owner);
}

/* Sorts, so that equal rows are neighbours, in an order that replays give again. */
static void seen_sort(struct job *job)
{
	qsort(job->seen, job->seen_count, sizeof(*job->seen), seen_compare);
}

/*
 * Snapshots of a process that was traced in windows: what was seen of the blocks of pymalloc's
 * pools becomes the input of the estimator (snapshot/estimate/calibrate.h), with the heap's own
 * counts as totals.
 *
 * So it is with large blocks, if they are traced in windows, too, and malloc's heap was walked
 * (windowed_large.h).
 */

static uint32_t cohort_joined(const struct job *job, uint32_t cohort)
{
	return cohort < job->newest.cohort ? cohort : job->newest.cohort;
}

/* The thread or the task of an owner, as it is told: the members of `like`. */
static void owner_set(const struct job *job, uint32_t owner, struct snapshot_trace *like)
{
	const struct block_owner *of = block_owners_get(&job->process->owners, owner);

	if (!job->by_owner)
		return;
	if (job->process->info.tasks)
		like->task = of->task;
	else
		like->thread = of->tid;
}

/* The row of blocks with this stack, owner, size and flags. 0; -ENOMEM */
static int row_of(struct job *job, uint32_t stack, uint32_t owner, uint64_t bytes, uint32_t flags,
		  uint32_t *row)
{
	struct snapshot_trace like = {
		.traceback = job->tracebacks[stack], .flags = flags & 0xff, .bytes = bytes};
	uint64_t key = hash_u64(hash_u64((uint64_t)stack << 8 | flags) ^ bytes);
	int err;

	owner_set(job, owner, &like);
	if (job->by_owner)
		key = hash_u64(key) ^ ((uint64_t)like.task << 32 | like.thread);
	*row = id_map_find(&job->row_index, key);
	if (*row != ID_MAP_NONE)
		return 0;
	*row = (uint32_t)job->row_count;
	err = id_map_put(&job->row_index, key, *row);
	if (!err)
		job->rows[job->row_count++] = like;
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
	int has_classes = job->process->windows.chunks.has_classes, err = 0;

	large_strata_fill(job);
	for (size_t i = 0; !err && i < heap->count; i++) {
		const struct kind_count *count = &heap->items[i];
		struct calibrate_stratum *stratum = stratum_add(job, count->kind, count->bytes,
								cohort_joined(job, count->cohort));
		int is_chunk = chunk_is_class(count->bytes);
		uint64_t bytes =
			is_chunk ? chunk_kind_bytes(count->kind, has_classes) : count->bytes;

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
static bool is_used(const struct job *job, const struct seen *seen)
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

static uint64_t age_at(const struct job *job, uint64_t born_ns)
{
	return job->moment_ns > born_ns ? job->moment_ns - born_ns : 0;
}

static struct block_ages ages_of(const struct job *job, const struct seen *seen)
{
	uint64_t own_ns = age_at(job, seen->born_ns);
	int alone = seen->use == SEEN_DONOR || seen->large == LARGE_CERTAIN;

	return (struct block_ages){own_ns,
				   alone ? own_ns : age_at(job, job->middles_ns[seen->window])};
}

static int sampled_blocks_fill(struct job *job, size_t *count)
{
	uint32_t row;
	int err = 0;

	*count = 0;
	for (size_t i = 0; !err && i < job->seen_count; i++) {
		const struct seen *seen = &job->seen[i];

		err = row_of(job, seen->stack, seen->owner, seen->bytes, seen->flags, &row);
		if (err || !is_used(job, seen))
			continue;
		job->ages[*count] = ages_of(job, seen);
		job->shown[seen->window] |= seen->use == SEEN_ALIVE;
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
		err = row_of(job, count->stack, count->owner, is_class ? count->bytes : bytes,
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

/* The blocks in pools that a row has taken: of one cohort each. */
static void taken_ages(const struct job *job, struct row_age *out)
{
	const struct trace_windows *windows = &job->process->windows;

	for (size_t i = 0; i < job->taken_count; i++) {
		const struct pools_taken *taken = &job->taken[i];
		uint32_t cohort = job->strata[taken->stratum].cohort;
		uint64_t end_ns = cohort < job->newest.cohort && cohort < COHORT_MAX
					  ? state_cohort_ns(windows, cohort + 1)
					  : job->newest.walk_ns;

		/* on average; neither is near the end of time */
		out[i] = (struct row_age){
			.row = taken->row,
			.age_ns = age_at(job, (state_cohort_ns(windows, cohort) + end_ns) / 2)};
		for (uint32_t g = 0; g < POOL_GROUPS; g++)
			out[i].blocks += taken->blocks[g];
	}
}

/* Splits the rows by age. *rows: the caller's to free. 0; -ENOMEM. */
static int rows_split(struct job *job, struct snapshot_trace **rows,
		      struct calibrate_result *result)
{
	struct row_age *others = calloc(job->taken_count + 1, sizeof(*others));
	size_t windows = job->process->windows.count;
	const struct ages_input ages = {.sampled_blocks = job->sampled_blocks,
					.sampled_count = job->sampled_count,
					.row_count = job->row_count,
					.window_count = windows ? windows : 1,
					.ages = job->ages,
					.most_ns = age_at(job, job->process->births_ns),
					.others = others,
					.other_count = job->taken_count};
	int err = -ENOMEM;

	if (others) {
		taken_ages(job, others);
		err = ages_split(&ages, job->rows, rows, result);
	}
	free(others);
	return err;
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
	err = sampled_blocks_fill(job, &job->sampled_count) ?: taken_fill(job);
	if (err)
		return err;
	cohorts_fill(job, cohorts_ns);
	input.sampled_block_count = job->sampled_count;
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

/* Of the new blocks, those that walks have shown first about a time, by cohort. */
struct fresh {
	double all, of[COHORT_MAX + 1];
};

static void fresh_sum(const struct job *job, struct fresh *fresh)
{
	const struct kind_counts *heap = &job->process->windows.heap;

	for (size_t i = 0; i < heap->count; i++) {
		uint32_t cohort = heap->items[i].cohort;

		if (cohort < COHORT_FIRST || cohort > COHORT_MAX)
			continue;
		fresh->of[cohort] += (double)heap->items[i].live;
		fresh->all += (double)heap->items[i].live;
	}
}

/* Did many come in that time? */
static bool is_busy(const struct job *job, const struct fresh *fresh, uint64_t from_ns,
		    uint64_t until_ns)
{
	const struct trace_windows *windows = &job->process->windows;
	double sum = 0;

	for (uint32_t i = COHORT_FIRST; i <= windows->cohort && i <= COHORT_MAX; i++) {
		uint64_t end_ns =
			i < windows->cohort ? state_cohort_ns(windows, i + 1) : job->moment_ns;

		if (state_cohort_ns(windows, i) < until_ns && end_ns > from_ns)
			sum += fresh->of[i];
	}
	return sum > AGE_ROUNDING * fresh->all;
}

/*
 * What windows have not shown is dated by those that have: to the time that one stands for. If
 * some in a row have shown nothing that is alive, though the heap has blocks of that time, these
 * are dated by others, too.
 */
static uint64_t ages_error_ns(const struct job *job)
{
	uint64_t longest_ns = job->newest.walk_ns - job->newest.from_ns + 1;
	uint64_t shown_ns = state_windows_since_ns(job->process);
	size_t count = job->process->windows.count;
	struct fresh fresh = {0};

	fresh_sum(job, &fresh);
	for (size_t i = 0; i < count; i++) {
		uint64_t span_ns = job->windows[i].span_ns;
		uint64_t from_ns = job->middles_ns[i] - span_ns / 2, until_ns = from_ns + span_ns;
		uint64_t error_ns = span_ns;

		if (!job->shown[i] && i + 1 < count)
			continue;
		if (from_ns > shown_ns &&
		    is_busy(job, &fresh, shown_ns, job->shown[i] ? from_ns : until_ns))
			error_ns = until_ns - shown_ns;
		if (longest_ns < error_ns)
			longest_ns = error_ns;
		shown_ns = until_ns;
	}
	return longest_ns;
}

static int job_run(struct job *job, trace_windowed_fn take, void *context)
{
	struct calibrate_result result = {0};
	struct snapshot_trace *rows = NULL;
	int err;

	newest_find(&job->process->windows, &job->newest);
	err = reuse_find(job->process, job->newest.walk_ns, job->by_owner, &job->reuse)
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
	if (job->moment_ns)
		err = rows_split(job, &rows, &result);
	if (!err)
		err = take(context, rows ?: job->rows, &result,
			   job->moment_ns ? ages_error_ns(job) : 0);
	calibrate_free(&result);
	free(rows);
	return err;
}

int trace_windowed_estimate(const struct process_state *process, const uint32_t *tracebacks,
			    const struct windowed_split *split, trace_windowed_fn take,
			    void *context)
{
	const struct trace_windows *windows = &process->windows;
	struct job job = {.process = process,
			  .tracebacks = tracebacks,
			  .moment_ns = split->moment_ns,
			  .by_owner = split->by_owner};
	size_t most = 2 * (windows->sampled_blocks.count + windows->deaths.count) +
		      large_collect_most(process) + windows->taken.count + 1;
	int err = -ENOMEM;

	job.seen = calloc(most, sizeof(*job.seen));
	job.rows = calloc(most, sizeof(*job.rows));
	job.taken = calloc(windows->taken.count + 1, sizeof(*job.taken));
	job.sampled_blocks = calloc(most, sizeof(*job.sampled_blocks));
	job.strata = calloc(most + LARGE_STRATA + windows->heap.count, sizeof(*job.strata));
	job.windows = calloc(windows->count + 1, sizeof(*job.windows));
	job.middles_ns = calloc(windows->count + 1, sizeof(*job.middles_ns));
	job.shown = calloc(windows->count + 1, sizeof(*job.shown));
	job.ages = calloc(most, sizeof(*job.ages));
	if (job.seen && job.rows && job.taken && job.sampled_blocks && job.strata && job.windows &&
	    job.middles_ns && job.shown && job.ages)
		err = job_run(&job, take, context);
	free(job.seen);
	free(job.rows);
	free(job.taken);
	free(job.sampled_blocks);
	free(job.strata);
	free(job.windows);
	free(job.middles_ns);
	free(job.shown);
	free(job.ages);
	free(job.survivals);
	job_clear(&job);
	reuse_free(&job.reuse);
	return err;
}

static int builder_take(void *context, const struct snapshot_trace *rows,
			const struct calibrate_result *result, uint64_t ages_error_ns)
{
	struct builder *builder = context;

	builder->snapshot->meta.ages_error_ns = ages_error_ns;
	return windowed_add(builder, rows, result, ages_error_ns != 0);
}

int trace_windowed_add(const struct process_state *process, const uint32_t *tracebacks,
		       uint64_t moment_ns, struct builder *builder)
{
	const struct windowed_split split = {.moment_ns = moment_ns};

	return trace_windowed_estimate(process, tracebacks, &split, builder_take, builder);
}
