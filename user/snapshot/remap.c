/* SPDX-License-Identifier: Apache-2.0 */
#include "snapshot/remap.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define NONE UINT32_MAX

static uint32_t *indices_new(size_t count)
{
	uint32_t *indices = malloc((count ? count : 1) * sizeof(*indices));

	if (indices)
		memset(indices, 0xff, count * sizeof(*indices));
	return indices;
}

int remap_begin(struct remap *remap, const struct snapshot *from, struct builder *to)
{
	uint32_t longest = 1;

	for (size_t i = 0; i < from->traceback_count; i++)
		if (from->tracebacks[i].nframe > longest)
			longest = from->tracebacks[i].nframe;
	*remap = (struct remap){.from = from, .to = to};
	remap->strings = indices_new(strings_count(from->strings));
	remap->tracebacks = indices_new(from->traceback_count);
	remap->frames = calloc(longest, sizeof(*remap->frames));
	remap->natives = calloc(from->binary_count + 1, sizeof(*remap->natives));
	int err = remap->strings && remap->tracebacks && remap->frames && remap->natives ? 0
											 : -ENOMEM;

	for (size_t i = 0; !err && i < from->thread_count; i++)
		err = builder_thread(to, from->threads[i].tid, from->threads[i].name);
	return err;
}

static int string_remap(struct remap *remap, uint32_t *id)
{
	uint32_t *known = &remap->strings[*id];
	int err = 0;

	if (*known == NONE) {
		const char *text = strings_get(remap->from->strings, *id);

		err = strings_intern(remap->to->snapshot->strings, text, strlen(text), known);
	}
	*id = *known;
	return err;
}

static int native_remap(struct remap *remap, uint16_t *native)
{
	uint16_t *known = &remap->natives[*native - SNAPSHOT_NATIVE - 1];
	int err = 0;

	if (!*known) {
		struct snapshot_binary binary =
			remap->from->binaries[*native - SNAPSHOT_NATIVE - 1];

		err = string_remap(remap, &binary.path)
			      ?: string_remap(remap, &binary.build_id)
			      ?: builder_binary(remap->to, &binary, known);
	}
	*native = *known;
	return err;
}

/* The frames that the copy of a traceback leaves out: in *first. 0, -ENOMEM. */
static int first_find(struct remap *remap, uint32_t index, uint32_t *first)
{
	const struct snapshot_traceback *shown;
	int rank;

	*first = 0;
	if (!remap->app || !remap->app->ranks)
		return 0;
	shown = &remap->app->snapshot->tracebacks[index];
	rank = app_run_find(remap->app, shown, first);
	if (rank > APP_NOT)
		*first += remap->from->tracebacks[index].nframe - shown->nframe;
	return rank < 0 ? rank : 0;
}

static int traceback_add(struct remap *remap, uint32_t index, uint32_t *added)
{
	const struct snapshot_traceback *traceback = &remap->from->tracebacks[index];
	uint32_t first, total = traceback->total;
	int err = first_find(remap, index, &first);

	for (uint32_t i = first; !err && i < traceback->nframe; i++) {
		struct snapshot_frame *frame = &remap->frames[i - first];

		*frame = remap->from->frames[traceback->first + i];
		err = string_remap(remap, &frame->filename)
			      ?: string_remap(remap, &frame->function);
		if (!err && frame->native > SNAPSHOT_NATIVE)
			err = native_remap(remap, &frame->native);
	}
	if (total != SNAPSHOT_TOTAL_UNKNOWN)
		total -= first;
	return err ? err
		   : builder_traceback(remap->to, remap->frames, traceback->nframe - first, total,
				       added);
}

int remap_trace(struct remap *remap, struct snapshot_trace *trace)
{
	uint32_t *known = &remap->tracebacks[trace->traceback];
	int err = *known == NONE ? traceback_add(remap, trace->traceback, known) : 0;

	trace->traceback = *known;
	if (!err && trace->task)
		err = string_remap(remap, &trace->task);
	if (!err && trace->estimate)
		err = builder_estimate(remap->to, &remap->from->estimates[trace->estimate - 1],
				       trace);
	return err;
}

void remap_end(struct remap *remap)
{
	free(remap->strings);
	free(remap->tracebacks);
	free(remap->frames);
	free(remap->natives);
	*remap = (struct remap){0};
}
