/* SPDX-License-Identifier: Apache-2.0 */
/* Changes of the mode in which a process is traced (EVENT_MODE_CHANGE). */
#include <errno.h>
#include <string.h>

#include "abi/sample.h"
#include "snapshot/estimate.h"
#include "trace/process/process_tables.h"
#include "util/array.h"
#include "util/hash.h"

static int mode_known(uint32_t mode)
{
	return mode >= EVENT_MODE_EXACT && mode <= EVENT_MODE_WINDOWS;
}

static uint32_t large_kind(const struct trace_process *info, uint32_t mode)
{
	if ((mode & EVENT_MODE_MASK) != EVENT_MODE_WINDOWS)
		return SNAPSHOT_LARGE_ALWAYS;
	if (state_window_layer(info) == EVENT_LAYER_NATIVE)
		return SNAPSHOT_LARGE_NATIVE;
	if (!(mode & EVENT_MODE_LARGE))
		return SNAPSHOT_LARGE_NONE;
	return mode & EVENT_MODE_LARGE_WINDOWS ? SNAPSHOT_LARGE_WINDOWS : SNAPSHOT_LARGE_ALWAYS;
}

/* The same of the mode that the process is in. */
static uint32_t large_kind_now(const struct trace_process *info)
{
	return large_kind(info, info->mode | (info->large_skipped ? 0 : EVENT_MODE_LARGE) |
					(info->large_windowed ? EVENT_MODE_LARGE_WINDOWS : 0));
}

/* Keeps the first change and the most recent ones. */
static void change_add(struct trace_process *info, const struct snapshot_change *change)
{
	if (info->change_count == SNAPSHOT_CHANGES) {
		memmove(&info->changes[1], &info->changes[2],
			(SNAPSHOT_CHANGES - 2) * sizeof(info->changes[0]));
		info->change_count--;
		info->changes_dropped++;
	}
	info->changes[info->change_count++] = *change;
}

/* Most processes keep the mode that they begin with, and have no changes. */
static int change_first(struct process_state *process)
{
	struct trace_process *info = &process->info;
	int err = array_reserve_in(process->account, &info->changes, &info->changes_capacity, 0,
				   SNAPSHOT_CHANGES, sizeof(*info->changes));

	if (!err) {
		memset(info->changes, 0, SNAPSHOT_CHANGES * sizeof(*info->changes));
		change_add(info, &(struct snapshot_change){.mode = info->mode,
							   .sample_bytes = info->sample_bytes,
							   .large = large_kind_now(info)});
	}
	return err;
}

/*
 * Decides by a hash, so that every replay gives the same result, and each mean another one. A block
 * sampled with mean old stays with a probability that is the ratio of both sampling probabilities.
 */
static int block_stays(const struct block *block, uint64_t old, uint64_t mean)
{
	double share = estimate_chance(mean, block->bytes) / estimate_chance(old, block->bytes);

	return (double)(hash_u64(hash_u64(block->address + block->domain) ^ mean) >> 11) * 0x1p-53 <
	       share;
}

static int table_thin(struct process_state *process, enum event_layer layer, uint64_t old,
		      uint64_t mean)
{
	struct trace_table *table = &process->info.tables[layer];
	struct blocks *all = process->blocks[layer], *fewer;
	const struct block *block;
	int err = blocks_new(&fewer, process->account);

	if (err)
		return err;
	process->blocks[layer] = fewer;
	state_live_reset(process, layer);
	table->live_bytes = table->live_blocks = 0;
	for (size_t cursor = 0; !err && (block = blocks_next(all, &cursor));) {
		if (block_stays(block, old, mean))
			err = state_block_put(process, layer, block);
		/* Both tables are allocated at this point. */
		if (account_is_full(err)) {
			process->info.counters.blocks_dropped++;
			process->info.counters.bytes_dropped += block->bytes;
			err = 0;
		}
	}
	blocks_free(all);
	return err;
}

static int tables_thin(struct process_state *process, uint64_t mean)
{
	struct trace_process *info = &process->info;
	const uint64_t old = info->sample_bytes;
	int err;

	info->sample_bytes = mean;
	info->large_blocks = info->rounded_blocks = 0;
	pages_thin(&process->pages, estimate_page_share(mean));
	err = table_thin(process, EVENT_LAYER_PYTHON, old, mean);
	/* What the process samples itself is not sampled again. */
	return err || process->weights ? err : table_thin(process, EVENT_LAYER_NATIVE, old, mean);
}

/* Their frees are not seen any more. Blocks that extension modules report are traced as before. */
static int large_drop(struct process_state *process)
{
	struct trace_table *table = &process->info.tables[EVENT_LAYER_PYTHON];
	struct blocks *all = process->blocks[EVENT_LAYER_PYTHON], *fewer;
	const struct block *block;
	int err = blocks_new(&fewer, process->account);

	if (err)
		return err;
	process->blocks[EVENT_LAYER_PYTHON] = fewer;
	state_live_reset(process, EVENT_LAYER_PYTHON);
	table->live_bytes = table->live_blocks = 0;
	process->info.large_blocks = process->info.rounded_blocks = 0;
	for (size_t cursor = 0; !err && (block = blocks_next(all, &cursor));)
		if (block->pooled || block->domain)
			err = state_block_put(process, EVENT_LAYER_PYTHON, block);
	blocks_free(all);
	return account_is_full(err) ? state_clear(process) : err;
}

/* Which large blocks are traced from here on? */
static int large_change(struct process_state *process, uint32_t mode)
{
	struct trace_process *info = &process->info;
	int windows = info->mode == EVENT_MODE_WINDOWS, was_windowed = info->large_windowed;

	info->large_skipped =
		(windows || info->mode == EVENT_MODE_GROWTH) && !(mode & EVENT_MODE_LARGE);
	info->large_windowed = windows && mode & EVENT_MODE_LARGE_WINDOWS;
	if (windows && info->large_skipped) {
		/* Nothing counts malloc's blocks from here on. */
		chunk_table_free(&process->windows.chunks);
		return large_drop(process);
	}
	return info->large_windowed && !was_windowed ? state_windows_large_begin(process) : 0;
}

int state_mode_change(struct process_state *process, const struct event_mode_change *event)
{
	struct trace_process *info = &process->info;
	uint32_t mode = event->mode & EVENT_MODE_MASK;
	int growth = mode == EVENT_MODE_GROWTH, windows = mode == EVENT_MODE_WINDOWS;
	int was_growth = info->mode == EVENT_MODE_GROWTH;
	int was_windows = info->mode == EVENT_MODE_WINDOWS, was_off = info->off;
	uint64_t before_ns = info->start_ns;
	int unread, err = 0;
	const struct snapshot_change change = {
		.since_ns = event->header.time_ns - info->start_ns,
		.mode = mode,
		.cost_permille = event->cost_permille,
		.budget_permille = event->budget_permille,
		.sample_bytes = event->sample_bytes,
		.large = large_kind(info, event->mode),
	};

	if (!mode_known(mode) || event->sample_bytes > SAMPLE_MEAN_MAX ||
	    event->header.time_ns < info->start_ns)
		return -EBADMSG;
	/* The table of a finalizing process must not be lost. */
	if (info->end != TRACE_RUNNING)
		return 0;
	process->activities.reported_first = 0; /* layers may come and go */
	if (!info->change_count)
		err = change_first(process);
	if (err)
		return err;
	before_ns += info->changes[info->change_count - 1].since_ns;
	change_add(info, &change);
	info->off = mode == EVENT_MODE_OFF;
	if (info->off) {
		/* Without probes only heap walks find dead blocks. */
		if (info->mode == EVENT_MODE_EXACT && info->layers & 1u << EVENT_LAYER_PYTHON)
			info->mode = EVENT_MODE_CENSUS;
		process->activities.gap = 1; /* what is allocated meanwhile is not counted */
		return 0;
	}
	unread = info->mode == EVENT_MODE_CENSUS && mode == EVENT_MODE_EXACT &&
		 !event->cost_permille && !event->budget_permille;
	/*
	 * A growth table cannot be converted, and blocks outside the old sample cannot be
	 * recovered.
	 */
	if (unread || growth != was_growth || (was_windows && !windows) ||
	    event->sample_bytes < info->sample_bytes)
		err = state_clear(process);
	else if (event->sample_bytes > info->sample_bytes)
		err = tables_thin(process, event->sample_bytes);
	info->mode = mode;
	info->layers = state_layers(event->mode);
	info->sample_bytes = event->sample_bytes;
	if (!err)
		err = large_change(process, event->mode);
	info->reuse_unseen |= (event->mode & EVENT_MODE_NO_REUSE) != 0;
	info->ends_unseen |= (event->mode & EVENT_MODE_NO_ENDS) != 0;
	/* The blocks that are in the table have been seen in a window that began with the mode. */
	if (!err && windows && !was_windows && !was_growth && !was_off)
		err = state_windows_begin(process, before_ns);
	return err;
}
