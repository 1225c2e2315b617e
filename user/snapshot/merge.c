/* SPDX-License-Identifier: Apache-2.0 */
#include "snapshot/merge.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "snapshot/meta.h"
#include "snapshot/remap.h"
#include "util/account.h"
#include "util/error.h"

#define PIDS_NAMED 8u /* in an error message */

/* What the rows of meta_fields do not say. */
static void others_add(struct snapshot_meta *sum, const struct snapshot_meta *one)
{
	sum->layers |= one->layers | 1u << one->layer;
	stack_ends_add(&sum->stack_ends, &one->stack_ends);
	for (size_t i = 0; i < LOSS_COUNT; i++)
		if (one->loss[i] > sum->loss[i])
			sum->loss[i] = one->loss[i];
}

static void merged_set(struct snapshot *snapshot)
{
	struct snapshot_meta *merged = &snapshot->meta;

	*merged = snapshot->processes[0];
	merged->layers |= 1u << merged->layer;
	for (size_t i = 1; i < snapshot->process_count; i++) {
		meta_add(merged, &snapshot->processes[i]);
		others_add(merged, &snapshot->processes[i]);
	}
	merged->layers &= ~(1u << merged->layer);
	/* These stay per process. */
	merged->change_count = 0;
	memset(merged->changes, 0, sizeof(merged->changes));
}

/* The index of each of the part's processes in the merged snapshot; UINT32_MAX: not wanted. */
static int processes_add(struct builder *builder, const struct snapshot *part,
			 const signed char *wanted, uint32_t *indices)
{
	int err = 0;

	for (size_t i = 0; !err && i < snapshot_process_count(part); i++) {
		struct snapshot_meta *meta;

		indices[i] = UINT32_MAX;
		if (wanted && !wanted[i])
			continue;
		indices[i] = (uint32_t)builder->snapshot->process_count;
		err = builder_process(builder, &meta);
		if (!err)
			*meta = *snapshot_process(part, i);
	}
	return err;
}

/* There is no memory for a trace. */
static void dropped_count(struct snapshot_meta *meta, uint32_t layer,
			  const struct snapshot_trace *trace)
{
	if (layer < SNAPSHOT_EXTRA_FIRST) {
		meta->blocks_dropped += trace->count;
		meta->bytes_dropped += trace->count * trace->bytes;
		return;
	}
	layer -= SNAPSHOT_EXTRA_FIRST;
	meta->extra[layer / EVENT_LAYER_TABLES].gaps |= 1u << layer % EVENT_LAYER_TABLES;
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

int merge_add(struct builder *builder, const struct snapshot *part, const signed char *wanted)
{
	uint32_t *indices = calloc(snapshot_process_count(part), sizeof(*indices));
	struct remap remap = {0};
	int err = -ENOMEM;

	if (indices)
		err = processes_add(builder, part, wanted, indices);
	if (!err)
		err = remap_begin(&remap, part, builder);
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

struct snapshot *merge_finish(struct builder *builder)
{
	struct snapshot *snapshot = builder_finish(builder);

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

int snapshot_merge(const struct snapshot *const *parts, size_t count, struct snapshot **out)
{
	struct builder builder;
	int err = count ? builder_begin(&builder) : -EINVAL;

	if (err)
		return err;
	for (size_t i = 0; !err && i < count; i++)
		err = merge_add(&builder, parts[i], NULL);
	if (err)
		builder_abort(&builder);
	else
		*out = merge_finish(&builder);
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
	struct builder builder;
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
		err = builder_begin(&builder);
	if (!err) {
		err = merge_add(&builder, snapshot, wanted);
		if (err)
			builder_abort(&builder);
		else
			*out = merge_finish(&builder);
	}
	free(wanted);
	return err;
}
