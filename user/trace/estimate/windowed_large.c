/* SPDX-License-Identifier: Apache-2.0 */
#include "trace/estimate/windowed_large.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

/* 3.8 does not count each of its large blocks. */
static bool is_counted(const struct trace_process *info)
{
	return info->coverage.time_ns && info->python_version >> 16 != 0x0308;
}

/* The part of a whole, at most 1. */
static double part_of(double part, double whole)
{
	return part >= whole ? 1 : part > 0 ? part / whole : 0;
}

static bool is_always_traced(const struct process_state *process)
{
	return process->windows.chunks.known && !process->info.large_windowed &&
	       !state_window_is_native(process);
}

static bool is_large(const struct block *block)
{
	return !block->pooled && !block->domain && block_allocator_bytes(block) > EVENT_SMALL_BYTES;
}

size_t large_collect_most(const struct process_state *process)
{
	const struct block *block;
	size_t cursor = 0, count = 0;

	while (is_always_traced(process) &&
	       (block = blocks_next(process->blocks[EVENT_LAYER_PYTHON], &cursor)))
		count += (size_t)is_large(block);
	return count;
}

/* The blocks that stand for themselves, of those that are traced in windows. */
static uint64_t certain_count(const struct process_state *process)
{
	const struct sampled_block *sampled_block;
	size_t cursor = 0;
	uint64_t count = 0;

	while ((sampled_block = sampled_blocks_next(&process->windows.sampled_blocks, &cursor)))
		count += !!(sampled_block->flags & SAMPLED_BLOCK_CERTAIN);
	return count;
}

struct large_shares large_shares_of(const struct process_state *process)
{
	const struct trace_process *info = &process->info;
	const struct trace_windows *windows = &process->windows;
	int is_native = state_window_is_native(process);
	struct large_shares shares = {1, is_native || info->large_windowed};
	double old, all, rest;

	if (is_native || !is_counted(info))
		return shares;
	shares.old = part_of((double)process->census.old_large, (double)windows->chunks_old);
	if (!info->large_windowed)
		return shares;
	old = (double)chunk_table_of(&windows->chunks, COHORT_OLD);
	all = (double)windows->chunks.count;
	rest = (double)info->coverage.large_blocks - (double)certain_count(process) -
	       shares.old * old;
	/* More than 1, if some of the new ones came before the first walk of malloc's heap. */
	shares.fresh = rest > 0 && all > old ? fmin(rest, all) / (all - old) : 0;
	return shares;
}

uint64_t large_chunks(const struct process_state *process)
{
	const struct chunk_table *chunks = &process->windows.chunks;

	if (!chunks->known || state_window_is_native(process))
		return 0;
	return chunks->count + certain_count(process) + large_collect_most(process);
}

/* They are no sample: their windows are such that errors do not take them for one. */
void large_collect(struct job *job)
{
	const struct process_state *process = job->process;
	const struct block *block;
	size_t cursor = 0, windows = process->windows.count;

	while (is_always_traced(process) &&
	       (block = blocks_next(process->blocks[EVENT_LAYER_PYTHON], &cursor))) {
		uint32_t units = chunk_units(block_allocator_bytes(block));

		if (!is_large(block) || job->tracebacks[block->stack] == UINT32_MAX)
			continue;
		job->seen[job->seen_count] =
			(struct seen){.stack = block->stack,
				      .owner = block->owner,
				      .window = windows ? (uint32_t)(job->seen_count % windows) : 0,
				      .kind = chunk_kind(units),
				      .class_bytes = chunk_class(units),
				      .large = LARGE_STRATA,
				      .cohort = COHORT_OLD,
				      .flags = state_block_flags(block),
				      .use = SEEN_DEAD,
				      .bytes = block->bytes,
				      .inclusion = 1};
		job->seen_count++;
	}
}

/* Of chunks of one kind: blocks that are certain; of the others, all new ones and the unseen. */
struct large_kind {
	double certain, fresh, unseen;
};

static uint64_t certain_kind(const struct job *job,
			     const struct calibrate_sampled_block *sampled_block)
{
	uint32_t units = chunk_units(job->rows[sampled_block->row].bytes);

	return kind_key(chunk_kind(units), chunk_class(units), 0);
}

static uint64_t stratum_kind(const struct calibrate_stratum *stratum)
{
	return kind_key((uint32_t)stratum->type, stratum->class_bytes, 0);
}

static int large_kinds_find(const struct job *job, const struct calibrate_input *input,
			    const struct calibrate_result *result, struct id_map *index,
			    struct large_kind *kinds)
{
	int err = 0;

	for (size_t i = 0; !err && i < input->sampled_block_count; i++) {
		const struct calibrate_sampled_block *sampled_block = &input->sampled_blocks[i];
		uint64_t kind = certain_kind(job, sampled_block);
		uint32_t found = id_map_find(index, kind);

		if (sampled_block->stratum != LARGE_CERTAIN)
			continue;
		if (found == ID_MAP_NONE) {
			found = (uint32_t)index->count;
			err = id_map_put(index, kind, found);
		}
		kinds[found].certain++;
	}
	for (size_t i = LARGE_STRATA; !err && i < input->stratum_count; i++) {
		uint32_t found = id_map_find(index, stratum_kind(&input->strata[i]));

		if (found == ID_MAP_NONE || !chunk_is_class(input->strata[i].class_bytes))
			continue;
		kinds[found].fresh += (double)input->strata[i].new_blocks;
		kinds[found].unseen += result->strata[i].new_blocks;
	}
	return err;
}

static void large_unseen_lessen(const struct calibrate_input *input, const struct id_map *index,
				struct calibrate_result *result)
{
	for (size_t i = LARGE_STRATA; i < input->stratum_count; i++) {
		struct calibrate_unseen *unseen = &result->strata[i];

		if (id_map_find(index, stratum_kind(&input->strata[i])) == ID_MAP_NONE ||
		    !chunk_is_class(input->strata[i].class_bytes))
			continue;
		result->unseen.new_blocks = fmax(0, result->unseen.new_blocks - unseen->new_blocks);
		result->unseen.new_bytes = fmax(0, result->unseen.new_bytes - unseen->new_bytes);
		unseen->new_blocks = unseen->new_bytes = 0;
	}
}

/* Standard errors that cover what windows miss of a row by chance, in sampled blocks. */
#define MISSED_ERROR 1.5

int large_split(const struct job *job, const struct calibrate_input *input,
		struct calibrate_result *result)
{
	double weight = result->time_share > 0 ? 1 / (result->time_share * result->speed) : 0;
	struct large_kind *kinds = calloc(input->sampled_block_count + 1, sizeof(*kinds));
	struct id_map index = {0};
	int err = kinds ? large_kinds_find(job, input, result, &index, kinds) : -ENOMEM;

	for (size_t i = 0; !err && i < input->sampled_block_count; i++) {
		const struct calibrate_sampled_block *sampled_block = &input->sampled_blocks[i];
		struct calibrate_estimate *row = &result->rows[sampled_block->row];
		const struct large_kind *kind;

		if (sampled_block->stratum != LARGE_CERTAIN)
			continue;
		kind = &kinds[id_map_find(&index, certain_kind(job, sampled_block))];
		row->blocks += kind->unseen / kind->certain;
		row->deviations[CALIBRATE_GROUPS] +=
			(float)(fmax(kind->unseen, fmin(kind->fresh, MISSED_ERROR * weight)) /
				kind->certain);
	}
	if (!err)
		large_unseen_lessen(input, &index, result);
	id_map_free(&index);
	free(kinds);
	return err;
}

/* By how many blocks the estimate of the older ones that are alive may be wrong. */
static double old_doubt(const struct process_state *process)
{
	double then = (double)process->windows.chunks_old;
	double now = (double)chunk_table_of(&process->windows.chunks, COHORT_OLD);
	double python = fmin((double)process->census.old_large, then);
	double estimate = large_shares_of(process).old * now;
	double least = fmax(0, python - fmax(0, then - now)), most = fmin(python, now);

	return fmax(0, fmax(estimate - least, most - estimate));
}

/* The same in all groups: it is orthogonal to deviations of the jackknife, whose sum is about 0. */
static void doubt_add(struct calibrate_estimate *row, double doubt)
{
	for (uint32_t g = 0; g < CALIBRATE_GROUPS; g++)
		row->deviations[g] += (float)(doubt / sqrt(CALIBRATE_GROUPS));
}

void large_doubt(const struct job *job, const struct calibrate_input *input,
		 struct calibrate_result *result)
{
	const struct process_state *process = job->process;
	double fresh = 0, old = 0, doubt;

	if (!process->windows.chunks.known || !is_counted(&process->info) ||
	    state_window_is_native(process))
		return;
	doubt = old_doubt(process);
	for (size_t i = LARGE_STRATA; i < input->stratum_count; i++)
		if (chunk_is_class(input->strata[i].class_bytes)) {
			fresh += (double)input->strata[i].new_blocks;
			old += (double)input->strata[i].old_blocks;
		}
	for (size_t i = 0; i < result->row_count; i++) {
		if (job->rows[i].bytes <= EVENT_SMALL_BYTES ||
		    job->rows[i].bytes >= LARGE_HUGE_BYTES)
			continue;
		doubt_add(&result->rows[i], fresh > 0 ? doubt * result->rows[i].blocks / fresh : 0);
		doubt_add(&result->old_rows[i],
			  old > 0 ? doubt * result->old_rows[i].blocks / old : 0);
	}
	/* Blocks that are certain are no part of these. */
	for (size_t i = 0; fresh > 0 && i < input->sampled_block_count; i++) {
		const struct calibrate_sampled_block *sampled_block = &input->sampled_blocks[i];

		if (sampled_block->stratum == LARGE_CERTAIN &&
		    job->rows[sampled_block->row].bytes < LARGE_HUGE_BYTES)
			doubt_add(&result->rows[sampled_block->row], -doubt / fresh);
	}
}

uint64_t large_share(uint64_t blocks, double share)
{
	return (uint64_t)llround((double)blocks * share);
}

/*
 * How many blocks there are besides those that are known one by one: all that are traced, if they
 * are traced all the time. Of the object allocator's: the new ones at least, as the interpreter
 * counts them; all of them at most. 0: not known.
 */
static uint64_t large_least(const struct job *job, uint64_t certain)
{
	const struct trace_process *info = &job->process->info;
	uint64_t known = info->large_windowed ? certain : info->coverage.large_seen;

	if (!is_counted(info) || job->process->windows.chunks.known)
		return 0;
	return info->coverage.large_new > known ? info->coverage.large_new - known : 0;
}

static uint64_t large_most(const struct job *job, enum large large, uint64_t certain)
{
	uint64_t objects = job->process->info.coverage.large_blocks;
	uint64_t used = job->process->windows.malloc_used;

	if (large == LARGE_OBJECT)
		return objects > certain ? objects - certain : 0;
	if (large >= LARGE_HUGE)
		return used > certain ? used - certain : 0;
	return used > objects ? used - objects : 0;
}

void large_strata_fill(struct job *job)
{
	uint64_t counts[LARGE_STRATA] = {0}, bytes[LARGE_STRATA] = {0}, apart;

	for (size_t i = 0; i < job->seen_count; i++)
		if (job->seen[i].large < LARGE_STRATA) {
			counts[job->seen[i].large]++;
			bytes[job->seen[i].large] += job->seen[i].bytes;
		}
	apart = counts[LARGE_CERTAIN];
	for (uint32_t i = LARGE_HUGE; i < LARGE_STRATA; i++)
		apart += counts[i];
	for (uint32_t i = 0; i < LARGE_STRATA; i++) {
		uint64_t blocks = i == LARGE_CERTAIN  ? counts[i]
				  : i == LARGE_OBJECT ? large_least(job, apart)
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
