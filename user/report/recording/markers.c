/* SPDX-License-Identifier: Apache-2.0 */
#include "report/recording/markers.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "util/array.h"
#include "util/json.h"
#include "util/sorted.h"
#include "util/strings.h"

/* What was told of a process. */
struct marker_process {
	uint64_t change_ns; /* its last change of mode */
	int has_exited;
	struct snapshot_collections collections; /* as of the snapshot before */
};

static int marker_add(struct markers *markers, const struct marker *marker)
{
	int is_collection = marker->kind == MARKER_COLLECTION;

	if (markers->count == MARKERS_MAX ||
	    (is_collection && markers->collections == COLLECTIONS_MAX)) {
		markers->left_out++;
		return 0;
	}
	markers->collections += is_collection;
	int err = ARRAY_GROW(markers->items, markers->capacity, markers->count);
	if (!err)
		markers->items[markers->count++] = *marker;
	return err;
}

static struct marker marker_of(enum marker_kind kind, uint64_t realtime_ns,
			       const struct snapshot_meta *process,
			       const struct recording_moment *moment)
{
	uint64_t begin = moment->realtime_ns - moment->since_ns;
	uint64_t since = realtime_ns > begin ? realtime_ns - begin : 0;
	struct marker marker = {.kind = kind,
				.since_ns = since < moment->since_ns ? since : moment->since_ns,
				.pid = process->pid};

	snprintf(marker.name, sizeof(marker.name), "%s", process->name);
	return marker;
}

/* The program before an exec, and the one after it, are two. 0, -ENOMEM. */
static int process_find(struct markers *markers, const struct snapshot_meta *process,
			struct marker_process **out, int *is_new)
{
	char key[sizeof(process->name) + 64];
	uint32_t id;
	int bytes = snprintf(key, sizeof(key), "%u %" PRIu64 " %s", process->pid,
			     process->start_ticks, process->name);
	int err = markers->names ? 0 : strings_new(&markers->names);

	err = err ?: strings_intern(markers->names, key, (size_t)bytes, &id);
	if (err)
		return err;
	*is_new = id > markers->process_count; /* id 0 is the empty string */
	if (*is_new) {
		err = ARRAY_GROW(markers->processes, markers->process_capacity,
				 markers->process_count);
		if (err)
			return err;
		markers->processes[markers->process_count++] = (struct marker_process){0};
	}
	*out = &markers->processes[id - 1];
	return 0;
}

/* The first mode is no change. */
static int changes_take(struct markers *markers, const struct snapshot_meta *process,
			struct marker_process *known, const struct recording_moment *moment)
{
	uint64_t begin = process->taken_realtime_ns - process->duration_ns;
	int err = 0;

	for (uint32_t i = 1; !err && i < process->change_count && i < SNAPSHOT_CHANGES; i++) {
		const struct snapshot_change *change = &process->changes[i];

		if (change->since_ns <= known->change_ns)
			continue;
		struct marker marker =
			marker_of(MARKER_MODE, begin + change->since_ns, process, moment);
		known->change_ns = change->since_ns;
		marker.mode = change->mode;
		err = marker_add(markers, &marker);
	}
	return err;
}

/* What was before the first snapshot of the process is no event of the recording. */
static int collections_take(struct markers *markers, const struct snapshot_meta *process,
			    struct marker_process *known, const struct recording_moment *moment)
{
	const struct snapshot_collections *now = &process->collections;
	struct snapshot_collections before = known->collections;
	struct marker marker;

	if (!now->known)
		return 0;
	known->collections = *now;
	if (!before.known || now->full <= before.full)
		return 0;
	marker = marker_of(MARKER_COLLECTION, process->taken_realtime_ns, process, moment);
	marker.collections = (struct snapshot_collections){
		.full = now->full - before.full,
		.all = increase(before.all, now->all),
		.collected = increase(before.collected, now->collected)};
	return marker_add(markers, &marker);
}

static int process_take(struct markers *markers, const struct snapshot_meta *process,
			const struct recording_moment *moment)
{
	struct marker_process *known;
	struct marker marker;
	int is_new, err = process_find(markers, process, &known, &is_new);

	/* Those that were there at the beginning did not come in it. */
	if (!err && is_new && (markers->began || process->parent)) {
		marker = marker_of(process->parent ? MARKER_FORK : MARKER_PROCESS,
				   process->taken_realtime_ns - process->duration_ns, process,
				   moment);
		marker.parent = process->parent;
		err = marker_add(markers, &marker);
	}
	if (!err && process->has_exited && !known->has_exited) {
		known->has_exited = 1;
		marker = marker_of(MARKER_EXIT, process->taken_realtime_ns, process, moment);
		marker.wait_status = process->wait_status;
		marker.oom_killed = process->oom_killed;
		err = marker_add(markers, &marker);
	}
	err = err ?: collections_take(markers, process, known, moment);
	return err ?: changes_take(markers, process, known, moment);
}

int markers_take(struct markers *markers, const struct snapshot *snapshot,
		 const struct recording_moment *moment)
{
	uint64_t lost = snapshot_lost_events(snapshot), dropped = snapshot->meta.blocks_dropped;
	struct marker marker = {.since_ns = moment->since_ns};
	int err = 0;

	for (size_t i = 0; !err && i < snapshot_process_count(snapshot); i++)
		err = process_take(markers, snapshot_process(snapshot, i), moment);
	if (!err && (lost > markers->lost || dropped > markers->dropped)) {
		marker.kind = MARKER_LOSS;
		marker.lost = increase(markers->lost, lost);
		marker.dropped = increase(markers->dropped, dropped);
		err = marker_add(markers, &marker);
	}
	if (!err && markers->began && snapshot->meta.emptied > markers->emptied) {
		marker.kind = MARKER_EMPTIED;
		err = marker_add(markers, &marker);
	}
	markers->lost = lost;
	markers->dropped = dropped;
	markers->emptied = snapshot->meta.emptied;
	markers->began = 1;
	return err;
}

static int marker_compare(const void *a, const void *b)
{
	const struct marker *first = a, *second = b;

	return CMP(first->since_ns, second->since_ns)
	       ?: CMP(first->kind, second->kind)
	       ?: CMP(first->pid, second->pid);
}

void markers_sort(struct markers *markers)
{
	if (markers->count)
		qsort(markers->items, markers->count, sizeof(*markers->items), marker_compare);
}

void markers_json(struct json *json, const struct markers *markers)
{
	static const char *const names[] = {
		[MARKER_MODE] = "mode",       [MARKER_LOSS] = "loss",
		[MARKER_EMPTIED] = "emptied", [MARKER_COLLECTION] = "collection",
		[MARKER_FORK] = "fork",       [MARKER_PROCESS] = "process",
		[MARKER_EXIT] = "exit"};

	json_open(json, "markers", '[');
	for (size_t i = 0; i < markers->count; i++) {
		const struct marker *marker = &markers->items[i];

		json_open(json, NULL, '{');
		json_fixed(json, "time", (double)marker->since_ns / 1e9, 3);
		json_text(json, "kind", names[marker->kind]);
		if (marker->pid) {
			json_unsigned(json, "pid", marker->pid);
			json_text(json, "name", marker->name);
		}
		if (marker->kind == MARKER_MODE)
			json_text(json, "mode", snapshot_mode_name(marker->mode));
		if (marker->kind == MARKER_LOSS)
			json_numbers(json, {"lost", marker->lost}, {"dropped", marker->dropped});
		if (marker->kind == MARKER_FORK)
			json_unsigned(json, "parent", marker->parent);
		if (marker->kind == MARKER_COLLECTION)
			json_numbers(json, {"full", marker->collections.full},
				     {"collections", marker->collections.all},
				     {"collected", marker->collections.collected});
		if (marker->kind == MARKER_EXIT) {
			json_unsigned(json, "wait_status", marker->wait_status);
			json_bool(json, "oom_killed", marker->oom_killed);
		}
		json_close(json, '}');
	}
	json_close(json, ']');
	json_unsigned(json, "markers_left_out", markers->left_out);
}

void markers_free(struct markers *markers)
{
	strings_free(markers->names);
	free(markers->processes);
	free(markers->items);
	*markers = (struct markers){0};
}
