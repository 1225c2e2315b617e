/* SPDX-License-Identifier: Apache-2.0 */
/* snapshot_select(): names and tracebacks go over when a trace that passes first needs them. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "stats/builder.h"
#include "stats/filter.h"

#define NONE UINT32_MAX

struct selection {
	const struct snapshot *snapshot;
	struct builder builder;
	uint32_t *strings, *tracebacks; /* old index -> new one, NONE: not there yet */
	struct snapshot_frame *frames;  /* of one traceback */
};

static uint32_t *indices_new(size_t count)
{
	uint32_t *indices = malloc((count ? count : 1) * sizeof(*indices));

	if (indices)
		memset(indices, 0xff, count * sizeof(*indices));
	return indices;
}

static int selection_begin(struct selection *selection, const struct snapshot *snapshot)
{
	uint32_t longest = 1;
	int err = builder_begin(&selection->builder);

	if (err)
		return err;
	for (size_t i = 0; i < snapshot->traceback_count; i++)
		if (snapshot->tracebacks[i].nframe > longest)
			longest = snapshot->tracebacks[i].nframe;
	selection->snapshot = snapshot;
	selection->builder.snapshot->meta = snapshot->meta;
	selection->strings = indices_new(strings_count(snapshot->strings));
	selection->tracebacks = indices_new(snapshot->traceback_count);
	selection->frames = calloc(longest, sizeof(*selection->frames));
	return selection->strings && selection->tracebacks && selection->frames ? 0 : -ENOMEM;
}

static int string_take(struct selection *selection, uint32_t *id)
{
	uint32_t *known = &selection->strings[*id];
	int err = 0;

	if (*known == NONE) {
		const char *text = strings_get(selection->snapshot->strings, *id);

		err = strings_intern(selection->builder.snapshot->strings, text, strlen(text), known);
	}
	*id = *known;
	return err;
}

static int traceback_take(struct selection *selection, uint32_t *index)
{
	const struct snapshot *snapshot = selection->snapshot;
	const struct snapshot_traceback *traceback = &snapshot->tracebacks[*index];
	uint32_t *known = &selection->tracebacks[*index];
	int err = 0;

	if (*known == NONE) {
		for (uint32_t i = 0; !err && i < traceback->nframe; i++) {
			struct snapshot_frame *frame = &selection->frames[i];

			*frame = snapshot->frames[traceback->first + i];
			err = string_take(selection, &frame->filename);
			if (!err)
				err = string_take(selection, &frame->function);
		}
		if (!err)
			err = builder_traceback(&selection->builder, selection->frames, traceback->nframe,
						traceback->total, known);
	}
	*index = *known;
	return err;
}

/* Of one layer, by its index; -1: the first. */
static int layer_select(struct selection *selection, struct filter_run *run, int which, int merge)
{
	const struct snapshot *snapshot = selection->snapshot;
	const struct snapshot_trace *traces = which < 0 ? snapshot->traces : snapshot->layers[which].traces;
	size_t count = which < 0 ? snapshot->trace_count : snapshot->layers[which].trace_count;
	int err = 0;

	for (size_t i = 0; !err && i < count; i++) {
		struct snapshot_trace trace = traces[i];
		int passes = filter_run_passes(run, &trace);

		if (passes <= 0) {
			err = passes;
			continue;
		}
		err = traceback_take(selection, &trace.traceback);
		if (!err && which >= 0)
			err = builder_layer(&selection->builder, (enum event_layer)which, &trace);
		else if (!err)
			err = merge ? builder_trace(&selection->builder, &trace)
				    : builder_append(&selection->builder, &trace);
	}
	return err;
}

int snapshot_select(const struct snapshot *snapshot, const struct filters *filters, int merge,
		    struct snapshot **out)
{
	struct selection selection = {0};
	struct filter_run run = {0};
	int err = selection_begin(&selection, snapshot);

	if (!err)
		err = filter_run_begin(&run, filters, snapshot);
	for (int which = -1; !err && which < EVENT_LAYERS; which++)
		err = layer_select(&selection, &run, which, merge);
	filter_run_end(&run);
	free(selection.strings);
	free(selection.tracebacks);
	free(selection.frames);
	if (err)
		builder_abort(&selection.builder);
	else
		*out = builder_finish(&selection.builder);
	return err;
}
