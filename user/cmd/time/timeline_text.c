/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/time/timeline_text.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/time/line_name.h"
#include "report/recording/recording_load.h"
#include "report/report.h"
#include "util/json.h"
#include "util/size.h"
#include "util/text.h"

double timeline_value(const struct series *series, const struct series_line *line,
		      enum timeline_figure figure, size_t moment)
{
	const struct series_moment *whole = &series->moments[moment];
	const struct series_figures *figures = line ? &line->at[moment] : &whole->total;

	switch (figure) {
	case FIGURE_SIZE:
		return (double)figures->size;
	case FIGURE_COUNT:
		return (double)figures->count;
	case FIGURE_ALLOCATED:
		return (double)figures->allocated_size;
	default:
		return (double)whole->rss_bytes;
	}
}

static double line_peak(const struct series *series, size_t line, const void *context)
{
	double most = 0;

	(void)context;
	for (size_t i = 0; i < series->moment_count; i++) {
		double value = timeline_value(series, &series->lines[line], FIGURE_SIZE, i);

		most = value > most ? value : most;
	}
	return most;
}

size_t *timeline_lines(const struct timeline *timeline, size_t *count)
{
	size_t all = timeline->series->line_count;

	*count = timeline->top && timeline->top < all ? timeline->top : all;
	return lines_rank(timeline->series, line_peak, NULL);
}

void timeline_title(const struct timeline *timeline, FILE *out)
{
	const struct series *series = timeline->series;
	const struct series_moment *first = &series->moments[0],
				   *last = &series->moments[series->moment_count - 1];
	char from[RECORDING_DURATION_BYTES], lasts[RECORDING_DURATION_BYTES];

	text_print(out, timeline->name);
	fprintf(out, ": %zu snapshot%s, from %s for %s", series->snapshots,
		series->snapshots == 1 ? "" : "s",
		recording_clock_text(from, first->time.realtime_ns),
		recording_duration_text(lasts, last->time.since_ns - first->time.since_ns));
	if (series->moment_count < series->snapshots)
		fprintf(out, "; %zu of them are shown", series->moment_count);
	if (series->damage[0]) {
		fputs("; ", out);
		text_print(out, series->damage);
	}
	putc('\n', out);
}

void timeline_notes(const struct timeline *timeline, FILE *out)
{
	const struct series *series = timeline->series;
	double share = series_probes_share(series, 0);
	char text[RECORDING_DURATION_BYTES];
	size_t begin = series_begin(series);

	if (begin)
		fprintf(out,
			"Figures begin anew at %s: then tables were emptied, by tracer ctl "
			"clear or a change of mode.\n",
			recording_clock_text(text, series->moments[begin].time.realtime_ns));
	if (series_lost_share(series, 0) >= TIMELINE_LOST_TOLD)
		fprintf(out,
			"The probes took %.0f %% of its CPU time, without them it may do more.\n",
			share * 100);
}

static void sparkline_print(const struct timeline *timeline, FILE *out,
			    const struct series_line *line, enum timeline_figure figure)
{
	static const char *const bars[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
	static const char plain[] = ".:-=+*%#";
	const struct series *series = timeline->series;
	double most = 0, value;
	char text[SIZE_TEXT_MAX];

	for (size_t i = 0; i < series->moment_count; i++) {
		value = timeline_value(series, line, figure, i);
		most = value > most ? value : most;
	}
	fputs("  ", out);
	for (size_t i = 0; i < series->moment_count; i++) {
		value = timeline_value(series, line, figure, i);
		int bar = value > 0 ? (int)(value / most * 7) : 0;

		if (value <= 0)
			putc(' ', out);
		else if (timeline->ascii)
			putc(plain[bar], out);
		else
			fputs(bars[bar], out);
	}
	value = timeline_value(series, line, figure, series->moment_count - 1);
	fprintf(out, "  %10s", size_format(text, value, 0));
	fprintf(out, " (%s", size_format(text, value - timeline_value(series, line, figure, 0), 1));
	fprintf(out, "; at most %s)  ", size_format(text, most, 0));
}

int timeline_text(const void *context, FILE *out)
{
	const struct timeline *timeline = context;
	const struct series *series = timeline->series;
	size_t count, *lines = timeline_lines(timeline, &count);

	if (!lines)
		return -ENOMEM;
	timeline_title(timeline, out);
	report_title_print(out, series->last);
	sparkline_print(timeline, out, NULL, FIGURE_SIZE);
	fputs("total\n", out);
	sparkline_print(timeline, out, NULL, FIGURE_RSS);
	fputs("RSS\n", out);
	if (series->allocated_known) {
		sparkline_print(timeline, out, NULL, FIGURE_ALLOCATED);
		fputs("allocated, alive or not\n", out);
	}
	fprintf(out, "%s %zu of %zu by the most they held:\n",
		timeline->by == GROUP_FILENAME ? "Files," : "Lines,", count, series->line_count);
	for (size_t i = 0; i < count; i++) {
		sparkline_print(timeline, out, &series->lines[lines[i]], FIGURE_SIZE);
		line_name_print(out, &series->lines[lines[i]], timeline->by);
		putc('\n', out);
	}
	fputs("Each line is scaled from 0 to the most that it held; the last figure, then its "
	      "change since the first.\n",
	      out);
	if (series->sampled)
		fputs("Figures are estimates: tracer report --at has their errors.\n", out);
	timeline_notes(timeline, out);
	free(lines);
	return 0;
}

void series_begin_json(struct json *json, const struct series *series)
{
	const struct recording_moment *time = &series->moments[0].time;

	json_fixed(json, "begin", (double)(time->realtime_ns - time->since_ns) / 1e9, 3);
	json_unsigned(json, "snapshots", series->snapshots);
}

static void values_json(struct json *json, const char *key, const struct series *series,
			const struct series_line *line, enum timeline_figure figure)
{
	json_open(json, key, '[');
	for (size_t i = 0; i < series->moment_count; i++)
		json_fixed(json, NULL, timeline_value(series, line, figure, i), 0);
	json_close(json, ']');
}

static void moments_json(struct json *json, const struct series *series)
{
	series_begin_json(json, series);
	json_open(json, "times", '[');
	for (size_t i = 0; i < series->moment_count; i++)
		json_fixed(json, NULL, (double)series->moments[i].time.since_ns / 1e9, 3);
	json_close(json, ']');
	json_open(json, "memory_left", '[');
	for (size_t i = 0; i < series->moment_count; i++)
		if (series->moments[i].time.memory_left == UINT64_MAX)
			json_none(json, NULL);
		else
			json_unsigned(json, NULL, series->moments[i].time.memory_left);
	json_close(json, ']');
}

static void figures_json(struct json *json, const struct series *series,
			 const struct series_line *line)
{
	values_json(json, "size", series, line, FIGURE_SIZE);
	values_json(json, "count", series, line, FIGURE_COUNT);
	if (series->allocated_known)
		values_json(json, "allocated_size", series, line, FIGURE_ALLOCATED);
}

int timeline_json(const void *context, FILE *out)
{
	const struct timeline *timeline = context;
	const struct series *series = timeline->series;
	size_t count, *lines = timeline_lines(timeline, &count);
	double share = series_probes_share(series, 0);
	struct json json = {.out = out};

	if (!lines)
		return -ENOMEM;
	json_open(&json, NULL, '{');
	moments_json(&json, series);
	json_open(&json, "total", '{');
	figures_json(&json, series, NULL);
	json_close(&json, '}');
	values_json(&json, "rss", series, NULL, FIGURE_RSS);
	json_bool(&json, "estimated", series->sampled);
	json_float(&json, "since",
		   (double)series->moments[series_begin(series)].time.since_ns / 1e9);
	if (share < 0)
		json_none(&json, "probes_share");
	else
		json_float(&json, "probes_share", share);
	json_text(&json, "damage", series->damage);
	json_unsigned(&json, "line_count", series->line_count);
	json_open(&json, "lines", '[');
	for (size_t i = 0; i < count; i++) {
		json_open(&json, NULL, '{');
		line_name_json(&json, &series->lines[lines[i]]);
		figures_json(&json, series, &series->lines[lines[i]]);
		json_close(&json, '}');
	}
	json_close(&json, ']');
	json_end(&json);
	free(lines);
	return 0;
}
