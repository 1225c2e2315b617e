/* SPDX-License-Identifier: Apache-2.0 */
#include "snapshot/merge.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "snapshot/remap.h"
#include "util/account.h"
#include "util/error.h"

#define PIDS_NAMED 8u /* in an error message */

static uint64_t max(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

static void coverage_add(struct snapshot_coverage *sum, const struct snapshot_coverage *one)
{
	sum->time_ns = max(sum->time_ns, one->time_ns);
	sum->live_blocks += one->live_blocks;
	sum->live_bytes += one->live_bytes;
	sum->new_blocks += one->new_blocks;
	sum->new_bytes += one->new_bytes;
	sum->seen_blocks += one->seen_blocks;
	sum->seen_bytes += one->seen_bytes;
	sum->old_blocks += one->old_blocks;
	sum->old_bytes += one->old_bytes;
	sum->large_blocks += one->large_blocks;
	sum->large_new += one->large_new;
	sum->large_seen += one->large_seen;
	sum->pools_unreadable += one->pools_unreadable;
	sum->typed_blocks += one->typed_blocks;
	sum->mistyped_blocks += one->mistyped_blocks;
	sum->dead_blocks += one->dead_blocks;
	sum->elapsed_ns += one->elapsed_ns;
	sum->frozen_ns += one->frozen_ns;
}

static void ending_add(struct snapshot_ending *sum, const struct snapshot_ending *one)
{
	sum->pieces += one->pieces;
	sum->steps += one->steps;
	sum->slowest_ns = max(sum->slowest_ns, one->slowest_ns);
	sum->arenas += one->arenas;
	sum->arenas_unread += one->arenas_unread;
	sum->failed = max(sum->failed, one->failed);
}

static void windows_add(struct snapshot_windows *sum, const struct snapshot_windows *one)
{
	sum->count = max(sum->count, one->count);
	sum->on_ns += one->on_ns;
	sum->span_ns += one->span_ns;
	sum->new_blocks += one->new_blocks;
	sum->seen_blocks += one->seen_blocks;
	sum->unseen_blocks += one->unseen_blocks;
	sum->unseen_bytes += one->unseen_bytes;
	sum->old_unseen_blocks += one->old_unseen_blocks;
	sum->old_unseen_bytes += one->old_unseen_bytes;
	sum->pool_blocks += one->pool_blocks;
	sum->pool_bytes += one->pool_bytes;
	sum->large |= one->large;
	sum->malloc_blocks += one->malloc_blocks;
}

static void counters_add(struct snapshot_meta *sum, const struct snapshot_meta *one)
{
	sum->frees_unknown += one->frees_unknown;
	sum->replaced += one->replaced;
	sum->stacks_unknown += one->stacks_unknown;
	sum->frames_unknown += one->frames_unknown;
	sum->records_malformed += one->records_malformed;
	sum->frames_unnamed += one->frames_unnamed;
	sum->frames_slow += one->frames_slow;
	stack_ends_add(&sum->stack_ends, &one->stack_ends);
	sum->rounded_blocks += one->rounded_blocks;
	sum->rss_bytes += one->rss_bytes;
	sum->cpu_ns += one->cpu_ns;
	sum->wait_ns += one->wait_ns;
	sum->probes_ns += one->probes_ns;
	sum->budget_permille = max(sum->budget_permille, one->budget_permille);
	sum->emptied += one->emptied;
	sum->rss_age_ns = max(sum->rss_age_ns, one->rss_age_ns);
	sum->regions_dropped += one->regions_dropped;
	sum->blocks_dropped += one->blocks_dropped;
	sum->bytes_dropped += one->bytes_dropped;
	sum->stacks_dropped += one->stacks_dropped;
	sum->codes_dropped += one->codes_dropped;
	sum->symbols_dropped += one->symbols_dropped;
	sum->walks_dropped += one->walks_dropped;
	sum->native.frees_unknown += one->native.frees_unknown;
	sum->native.replaced += one->native.replaced;
	for (size_t i = 0; i < SNAPSHOT_UNKNOWNS; i++) {
		sum->unknown[i].blocks += one->unknown[i].blocks;
		sum->unknown[i].bytes += one->unknown[i].bytes;
	}
	for (size_t i = 0; i < LOSS_COUNT; i++)
		sum->loss[i] = max(sum->loss[i], one->loss[i]);
	sum->coverage_known |= one->coverage_known;
	coverage_add(&sum->coverage, &one->coverage);
	ending_add(&sum->ending, &one->ending);
	windows_add(&sum->windows, &one->windows);
}

/* Clears the whole array, because such texts are compared and copied with their padding. */
static void mixed_set(char *text, size_t bytes)
{
	memset(text, 0, bytes);
	memcpy(text, SNAPSHOT_MIXED, sizeof(SNAPSHOT_MIXED));
}

/* Keeps fields that are equal in all processes. */
static void common_keep(struct snapshot_meta *sum, const struct snapshot_meta *one)
{
	if (sum->layer != one->layer)
		sum->layer = EVENT_LAYER_PYTHON;
	if (sum->python_version != one->python_version)
		sum->python_version = 0;
	if (sum->pool_bytes != one->pool_bytes)
		sum->pool_bytes = 0;
	if (strcmp(sum->name, one->name) != 0)
		memset(sum->name, 0, sizeof(sum->name));
	if (strcmp(sum->container, one->container) != 0)
		memset(sum->container, 0, sizeof(sum->container));
	if (strcmp(sum->mode, one->mode) != 0)
		mixed_set(sum->mode, sizeof(sum->mode));
	if (strcmp(sum->moment, one->moment) != 0)
		mixed_set(sum->moment, sizeof(sum->moment));
}

static void meta_add(struct snapshot_meta *sum, const struct snapshot_meta *one)
{
	common_keep(sum, one);
	counters_add(sum, one);
	if (one->traceback_limit > sum->traceback_limit)
		sum->traceback_limit = one->traceback_limit;
	sum->taken_realtime_ns = max(sum->taken_realtime_ns, one->taken_realtime_ns);
	sum->duration_ns = max(sum->duration_ns, one->duration_ns);
	sum->sample_bytes = max(sum->sample_bytes, one->sample_bytes);
	sum->self_sampled |= one->self_sampled;
	sum->self_sampled_ns = max(sum->self_sampled_ns, one->self_sampled_ns);
	sum->unread_ns = max(sum->unread_ns, one->unread_ns);
	sum->from_start &= one->from_start;
	sum->tasks &= one->tasks;
	sum->layers |= one->layers | 1u << one->layer;
	if (one->layer < sum->layer)
		sum->layer = one->layer;
	sum->large_skipped |= one->large_skipped;
	sum->of_app |= one->of_app;
	sum->reuse_unseen |= one->reuse_unseen;
	sum->ends_unseen |= one->ends_unseen;
	for (size_t i = 0; i < BESIDES; i++) {
		sum->beside[i].known |= one->beside[i].known;
		sum->beside[i].gaps |= one->beside[i].gaps;
	}
	sum->allocated_ns = max(sum->allocated_ns, one->allocated_ns);
}

static void merged_set(struct snapshot *snapshot)
{
	struct snapshot_meta *merged = &snapshot->meta;

	*merged = snapshot->processes[0];
	merged->layers |= 1u << merged->layer;
	for (size_t i = 1; i < snapshot->process_count; i++)
		meta_add(merged, &snapshot->processes[i]);
	merged->layers &= ~(1u << merged->layer);
	merged->pid = merged->ns_pid = merged->parent = 0;
	merged->has_exited = 0;
	merged->wait_status = 0;
	merged->peak_bytes = merged->native.peak_bytes = 0;
	memset(merged->peak_after_ns, 0, sizeof(merged->peak_after_ns));
	memset(merged->sole_thread, 0, sizeof(merged->sole_thread));
	memset(merged->sole_thread_name, 0, sizeof(merged->sole_thread_name));
	/* These stay per process. */
	merged->change_count = merged->changes_dropped = 0;
	memset(merged->changes, 0, sizeof(merged->changes));
}

int merger_begin(struct merger *merger)
{
	return merger_begin_in(merger, NULL);
}

int merger_begin_in(struct merger *merger, struct account *account)
{
	return builder_begin_in(&merger->builder, account);
}

/* The index of each of the part's processes in the merged snapshot; UINT32_MAX: not wanted. */
static int processes_add(struct merger *merger, const struct snapshot *part,
			 const signed char *wanted, uint32_t *indices)
{
	int err = 0;

	for (size_t i = 0; !err && i < snapshot_process_count(part); i++) {
		struct snapshot_meta *meta;

		indices[i] = UINT32_MAX;
		if (wanted && !wanted[i])
			continue;
		indices[i] = (uint32_t)merger->builder.snapshot->process_count;
		err = builder_process(&merger->builder, &meta);
		if (!err)
			*meta = *snapshot_process(part, i);
	}
	return err;
}

/* There is no memory for a trace. */
static void dropped_count(struct snapshot_meta *meta, uint32_t layer,
			  const struct snapshot_trace *trace)
{
	if (layer < SNAPSHOT_BESIDE_FIRST) {
		meta->blocks_dropped += trace->count;
		meta->bytes_dropped += trace->count * trace->bytes;
		return;
	}
	layer -= SNAPSHOT_BESIDE_FIRST;
	meta->beside[layer / EVENT_LAYER_TABLES].gaps |= 1u << layer % EVENT_LAYER_TABLES;
}

/*
 * The native layer may be the first of one process and beside Python's in another. In the merged
 * snapshot traces are grouped by layer.
 */
static int traces_add(struct remap *remap, const struct snapshot_trace *traces, size_t count,
		      const uint32_t *indices, uint32_t layer)
{
	int err = 0;

	for (size_t i = 0; !err && i < count; i++) {
		struct snapshot_trace trace = traces[i];

		if (indices[trace.process] == UINT32_MAX)
			continue;
		trace.process = indices[trace.process];
		err = remap_trace(remap, &trace) ?: builder_layer(remap->to, layer, &trace);
		if (remap->to->account && account_is_full(err)) {
			struct snapshot_meta *meta = &remap->to->snapshot->processes[trace.process];

			dropped_count(meta, layer, &trace);
			err = 0;
		}
	}
	return err;
}

int merger_add(struct merger *merger, const struct snapshot *part, const signed char *wanted)
{
	uint32_t *indices = calloc(snapshot_process_count(part), sizeof(*indices));
	struct remap remap = {0};
	int err = -ENOMEM;

	if (indices)
		err = processes_add(merger, part, wanted, indices);
	if (!err)
		err = remap_begin(&remap, part, &merger->builder);
	/* Equal traces were merged before, or were listed individually on purpose. */
	if (!err)
		err = traces_add(&remap, part->traces, part->trace_count, indices,
				 part->meta.layer);
	for (uint32_t i = 0; i < SNAPSHOT_LAYERS && !err; i++)
		err = traces_add(&remap, part->layers[i].traces, part->layers[i].trace_count,
				 indices, i);
	remap_end(&remap);
	free(indices);
	return err;
}

/* Moves the traces of the first layer into place. */
static void first_take(struct snapshot *snapshot)
{
	struct snapshot_layer *first = &snapshot->layers[snapshot->meta.layer];

	snapshot->traces = first->traces;
	snapshot->trace_count = first->trace_count;
	*first = (struct snapshot_layer){0};
}

struct snapshot *merger_finish(struct merger *merger)
{
	struct snapshot *snapshot = builder_finish(&merger->builder);

	if (snapshot->process_count)
		merged_set(snapshot);
	first_take(snapshot);
	if (snapshot->process_count == 1) {
		snapshot->meta = snapshot->processes[0];
		free(snapshot->processes);
		snapshot->processes = NULL;
		snapshot->process_count = 0;
	}
	return snapshot;
}

void merger_abort(struct merger *merger)
{
	builder_abort(&merger->builder);
}

int snapshot_merge(const struct snapshot *const *parts, size_t count, struct snapshot **out)
{
	struct merger merger;
	int err = count ? merger_begin(&merger) : -EINVAL;

	if (err)
		return err;
	for (size_t i = 0; !err && i < count; i++)
		err = merger_add(&merger, parts[i], NULL);
	if (err)
		merger_abort(&merger);
	else
		*out = merger_finish(&merger);
	return err;
}

static int pid_missing(const struct snapshot *snapshot, uint32_t pid)
{
	size_t count = snapshot_process_count(snapshot), at = 0;
	char text[PIDS_NAMED * 12 + 32] = "";

	if (!snapshot_process(snapshot, 0)->pid)
		return error_set(-ESRCH, "the file does not name its process");
	for (size_t i = 0; i < count && i < PIDS_NAMED; i++)
		at += (size_t)snprintf(text + at, sizeof(text) - at, "%s%u", i ? ", " : "",
				       snapshot_process(snapshot, i)->pid);
	if (count > PIDS_NAMED)
		snprintf(text + at, sizeof(text) - at, " and %zu more", count - PIDS_NAMED);
	return error_set(-ESRCH, "no process %u in the file, only %s", pid, text);
}

int snapshot_pick(const struct snapshot *snapshot, const uint32_t *pids, size_t count,
		  struct snapshot **out)
{
	size_t processes = snapshot_process_count(snapshot);
	signed char *wanted = calloc(processes, 1);
	struct merger merger;
	int err = wanted ? 0 : -ENOMEM;

	for (size_t i = 0; !err && i < count; i++) {
		int found = 0;

		for (size_t p = 0; p < processes; p++)
			if (pids[i] && snapshot_process(snapshot, p)->pid == pids[i])
				found = wanted[p] = 1;
		if (!found)
			err = pid_missing(snapshot, pids[i]);
	}
	if (!err)
		err = merger_begin(&merger);
	if (!err) {
		err = merger_add(&merger, snapshot, wanted);
		if (err)
			merger_abort(&merger);
		else
			*out = merger_finish(&merger);
	}
	free(wanted);
	return err;
}
