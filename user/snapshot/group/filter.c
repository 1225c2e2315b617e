/* SPDX-License-Identifier: Apache-2.0 */
#include "snapshot/group/filter.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "util/array.h"

static int filters_add(struct filters *filters, const struct filter *filter)
{
	int err = ARRAY_RESERVE(NULL, filters, items, count, capacity, 1);

	if (!err)
		filters->items[filters->count++] = *filter;
	return err;
}

/* The colon of ":LINE"; NULL: none. */
static char *line_find(char *text)
{
	char *colon = strrchr(text, ':');

	if (!colon || !colon[1])
		return NULL;
	for (const char *at = colon + 1; *at; at++)
		if (!isdigit((unsigned char)*at))
			return NULL;
	return colon;
}

int filters_add_file(struct filters *filters, int inclusive, const char *text)
{
	struct filter filter = {.inclusive = inclusive};
	char *copy = strdup(text);

	if (!copy)
		return -ENOMEM;
	char *colon = line_find(copy);
	if (colon) {
		*colon = '\0';
		filter.has_line = 1;
		filter.line = strtoull(colon + 1, NULL, 10); /* saturates beyond any line number */
	}
	int err = pattern_new(&filter.pattern, copy);
	free(copy);
	if (err)
		return err;
	err = filters_add(filters, &filter);
	if (err)
		pattern_free(filter.pattern);
	return err;
}

int filters_add_domain(struct filters *filters, int inclusive, uint32_t domain)
{
	return filters_add(
		filters,
		&(struct filter){.inclusive = inclusive, .has_domain = 1, .domain = domain});
}

void filters_all_frames(struct filters *filters)
{
	for (size_t i = 0; i < filters->count; i++)
		filters->items[i].all_frames = 1;
}

void filters_free(struct filters *filters)
{
	for (size_t i = 0; i < filters->count; i++)
		pattern_free(filters->items[i].pattern);
	free(filters->items);
	*filters = (struct filters){0};
}

int filter_run_begin(struct filter_run *run, const struct filters *filters,
		     const struct snapshot *snapshot)
{
	*run = (struct filter_run){.filters = filters,
				   .snapshot = snapshot,
				   .string_count = strings_count(snapshot->strings)};
	run->refused = filters && filters->no_inherited ? SNAPSHOT_INHERITED : 0;
	if (!filters || !filters->count)
		return 0;
	run->matches = calloc(filters->count, run->string_count);
	return run->matches ? 0 : -ENOMEM;
}

void filter_run_end(struct filter_run *run)
{
	free(run->matches);
	run->matches = NULL;
}

/* _match_frame_impl(): 1, 0, -ENOMEM. */
static int frame_matches(struct filter_run *run, size_t index, const struct snapshot_frame *frame)
{
	const struct filter *filter = &run->filters->items[index];
	signed char *known = &run->matches[index * run->string_count + frame->filename];

	if (!*known) {
		int matches = pattern_match(filter->pattern,
					    strings_get(run->snapshot->strings, frame->filename));

		if (matches < 0)
			return matches;
		*known = matches ? 1 : -1;
	}
	return *known > 0 && (!filter->has_line || frame->line == filter->line);
}

/*
 * As _match(), but an exclusive filter returns whether it concerns the trace, not whether the trace
 * passes. An inclusive filter that matches admits a trace, an exclusive one rejects it. 1, 0,
 * -ENOMEM.
 */
static int filter_hits(struct filter_run *run, size_t index, const struct snapshot_trace *trace)
{
	const struct filter *filter = &run->filters->items[index];
	const struct snapshot *snapshot = run->snapshot;
	const struct snapshot_traceback *traceback = &snapshot->tracebacks[trace->traceback];
	uint32_t nframe = filter->all_frames ? traceback->nframe : 1;

	if (filter->has_domain && trace->domain != filter->domain)
		return 0;
	if (!filter->pattern)
		return 1;
	for (uint32_t i = 0; i < nframe; i++) {
		int matches = frame_matches(run, index, &snapshot->frames[traceback->first + i]);

		if (matches)
			return matches;
	}
	return 0;
}

int filter_run_match(struct filter_run *run, const struct snapshot_trace *trace)
{
	int wanted = 0, included = 0;

	for (size_t i = 0; i < run->filters->count; i++) {
		int inclusive = run->filters->items[i].inclusive;

		wanted |= inclusive;
		if (inclusive && included)
			continue;
		int hits = filter_hits(run, i, trace);
		if (hits < 0)
			return hits;
		if (hits && !inclusive)
			return 0;
		included |= hits;
	}
	return !wanted || included;
}
