/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/leaks_confirm.h"

#include <math.h>
#include <string.h>

#define THROUGH_LEAST 0.5 /* of a line's bytes */

static int is_filler(const struct snapshot *snapshot, const struct snapshot_frame *frame,
		     const struct holder *holder, const struct filler *filler)
{
	const char *filename = strings_get(snapshot->strings, frame->filename),
		   *function = strings_get(snapshot->strings, frame->function),
		   *filled = strings_get(holder->filled_names, filler->function);

	if (strcmp(filename, strings_get(holder->filled_names, filler->filename)) != 0)
		return 0;
	return frame->line == filler->line || (filled[0] && !strcmp(function, filled));
}

static int comes_through(const struct snapshot *snapshot, const struct snapshot_traceback *of,
			 const struct holder *holder)
{
	size_t count =
		holder->filler_count < GROWTH_FILLERS ? holder->filler_count : GROWTH_FILLERS;

	for (uint32_t i = 0; i < of->nframe; i++)
		for (size_t k = 0; k < count; k++)
			if (is_filler(snapshot, &snapshot->frames[of->first + i], holder,
				      &holder->fillers[k]))
				return 1;
	return 0;
}

/* The share of the line's bytes, of those alive in the end, that comes through such code. */
static double share_through(const struct snapshot *snapshot, const struct series_line *line,
			    const struct holder *holder)
{
	double all = 0, through = 0;

	for (size_t i = 0; i < snapshot->trace_count; i++) {
		const struct snapshot_trace *trace = &snapshot->traces[i];
		const struct snapshot_traceback *of = &snapshot->tracebacks[trace->traceback];
		const struct snapshot_frame *frame = &snapshot->frames[of->first];
		double bytes = (double)trace->bytes * (double)trace->count;

		if (!of->nframe || frame->line != line->line ||
		    strcmp(strings_get(snapshot->strings, frame->filename), line->filename) != 0)
			continue;
		all += bytes;
		if (comes_through(snapshot, of, holder))
			through += bytes;
	}
	return all > 0 ? through / all : 0;
}

static void holder_confirm(struct holder *holder, const struct leaks *measured)
{
	const struct series *series = measured->series;
	size_t count = measured->verdicts[EVIDENCE_GROWS] + measured->verdicts[EVIDENCE_UNCLEAR];

	for (size_t i = 0; i < count; i++) {
		size_t number = measured->order[i];
		const struct series_line *line = &series->lines[number];
		double through = share_through(series->last, line, holder);

		if (through < THROUGH_LEAST || holder->line_count == GROWTH_FILLERS)
			continue;
		holder->lines[holder->line_count++] = (struct holder_line){
			.filename = line->filename,
			.function = line->function,
			.line = line->line,
			.slope = leaks_has_rates(measured) ? measured->lines[number].slope.median
							   : NAN,
			.through = through,
			.unclear = i >= measured->verdicts[EVIDENCE_GROWS],
		};
	}
}

void leaks_confirm(struct heap_leaks *holders, const struct leaks *measured)
{
	holders->measured =
		measured->verdicts[EVIDENCE_GROWS] ? HOLDERS_LINES_GROW : HOLDERS_LINES_UNCLEAR;
	for (size_t i = 0; i < holders->count; i++)
		if (holders->holders[i].verdict >= HOLDER_BOUNDED)
			holder_confirm(&holders->holders[i], measured);
}
