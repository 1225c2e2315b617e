/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/time/timeline_text.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>

#include "cmd/time/line_name.h"
#include "report/recording/recording_load.h"
#include "report/report.h"
#include "util/html.h"
#include "util/json.h"
#include "util/size.h"
#include "util/text.h"

static double timeline_value(const struct series *series, const struct series_line *line,
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

/* The lines to show, *count of them. NULL: -ENOMEM. Caller frees. */
static size_t *timeline_lines(const struct timeline *timeline, size_t *count)
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

/* a share of the time */
static void timeline_notes(const struct timeline *timeline, FILE *out)
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
	if (series_lost_share(series, 0) >= TIMELINE_LOST_REPORTED)
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
	const char *noun = line_noun(timeline->by);

	fprintf(out, "%c%ss, %zu of %zu by the most they held:\n", toupper(noun[0]), noun + 1,
		count, series->line_count);
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
	json_open(json, "numbers", '[');
	for (size_t i = 0; i < series->moment_count; i++)
		json_unsigned(json, NULL, series->moments[i].time.index);
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
	line_by_json(&json, series, timeline->by);
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
	markers_json(&json, &series->markers);
	json_unsigned(&json, "line_count", series->line_count);
	json_open(&json, "lines", '[');
	for (size_t i = 0; i < count; i++) {
		json_open(&json, NULL, '{');
		line_name_json(&json, &series->lines[lines[i]], timeline->by);
		figures_json(&json, series, &series->lines[lines[i]]);
		json_close(&json, '}');
	}
	json_close(&json, ']');
	json_end(&json);
	free(lines);
	return 0;
}

/* --- timeline html ---------------------------------------------------------------------------- */

/*
 * A page without a script: charts in SVG, drawn here, and a table with every figure that they show.
 * Its policy allows nothing but its own style. Names are from the traced process: they are escaped
 * twice, for a terminal and for HTML.
 */

#define WIDTH  600
#define HEIGHT 120

static const char page_head[] =
	"<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
	"<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; "
	"style-src 'unsafe-inline'\">\n"
	"<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
	"<title>tracer timeline</title>\n<style>\n"
	":root { color-scheme: light dark; --ground: #fff; --text: #1b1b1f; --faint: #5d5f6b; "
	"--line: #d5d7de; --ink: #0b57d0; }\n"
	"@media (prefers-color-scheme: dark) { :root { --ground: #16171b; --text: #e6e6ea; "
	"--faint: #a2a4ae; --line: #383a44; --ink: #8ab4f8; } }\n"
	"* { box-sizing: border-box; }\n"
	"body { margin: 0 auto; padding: 0.75rem; max-width: 60rem; background: var(--ground); "
	"color: var(--text); font: 14px/1.45 system-ui, sans-serif; }\n"
	"h1 { font-size: 1.15rem; overflow-wrap: anywhere; }\n"
	"h2 { font-size: 1rem; margin: 1.2rem 0 0.2rem; overflow-wrap: anywhere; }\n"
	"p, pre { margin: 0.2rem 0; color: var(--faint); white-space: pre-wrap; "
	"overflow-wrap: anywhere; }\n"
	"svg { display: block; width: 100%; height: auto; border: 1px solid var(--line); }\n"
	"polyline { fill: none; stroke: var(--ink); stroke-width: 2; "
	"vector-effect: non-scaling-stroke; }\n"
	"polygon { fill: var(--ink); opacity: 0.15; }\n"
	"circle { fill: var(--ink); opacity: 0; }\ncircle:hover { opacity: 1; }\n"
	"details { margin: 0.3rem 0; }\n"
	"table { border-collapse: collapse; }\n"
	"th, td { padding: 0.1rem 0.6rem; border-bottom: 1px solid var(--line); "
	"text-align: right; font-variant-numeric: tabular-nums; }\n"
	"@media print { svg { break-inside: avoid; } }\n"
	"</style>\n</head>\n<body>\n";

/* Where a moment and a value are in a chart. */
struct scale {
	double seconds, most;
};

static double x_of(const struct series *series, const struct scale *scale, size_t moment)
{
	return scale->seconds > 0 ? series_seconds(series, moment) / scale->seconds * WIDTH : 0;
}

static double y_of(const struct scale *scale, double value)
{
	return scale->most > 0 ? HEIGHT - value / scale->most * (HEIGHT - 6) : HEIGHT;
}

static void points_write(FILE *out, const struct series *series, const struct series_line *line,
			 enum timeline_figure figure, const struct scale *scale)
{
	for (size_t i = 0; i < series->moment_count; i++)
		fprintf(out, "%s%.1f,%.1f", i ? " " : "", x_of(series, scale, i),
			y_of(scale, timeline_value(series, line, figure, i)));
}

/* What a pointer that rests on a point shows. */
static void tips_write(FILE *out, const struct series *series, const struct series_line *line,
		       enum timeline_figure figure, const struct scale *scale)
{
	char clock[RECORDING_DURATION_BYTES], size[SIZE_TEXT_MAX];

	for (size_t i = 0; i < series->moment_count; i++) {
		double value = timeline_value(series, line, figure, i);

		fprintf(out,
			"<circle cx=\"%.1f\" cy=\"%.1f\" r=\"5\"><title>%s: %s</title></circle>\n",
			x_of(series, scale, i), y_of(scale, value),
			recording_clock_text(clock, series->moments[i].time.realtime_ns),
			size_format(size, value, 0));
	}
}

static void chart_write(FILE *out, const struct series *series, const struct series_line *line,
			enum timeline_figure figure)
{
	size_t last = series->moment_count - 1;
	struct scale scale = {.seconds = series_seconds(series, last)};
	char now[SIZE_TEXT_MAX], change[SIZE_TEXT_MAX], most[SIZE_TEXT_MAX];
	double end = timeline_value(series, line, figure, last);

	for (size_t i = 0; i <= last; i++) {
		double value = timeline_value(series, line, figure, i);

		scale.most = value > scale.most ? value : scale.most;
	}
	fprintf(out, "<p>%s (%s), at most %s</p>\n", size_format(now, end, 0),
		size_format(change, end - timeline_value(series, line, figure, 0), 1),
		size_format(most, scale.most, 0));
	fprintf(out,
		"<svg viewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"from 0 to %s\">\n"
		"<polygon points=\"0,%d ",
		WIDTH, HEIGHT, most, HEIGHT);
	points_write(out, series, line, figure, &scale);
	fprintf(out, " %d,%d\"/>\n<polyline points=\"", WIDTH, HEIGHT);
	points_write(out, series, line, figure, &scale);
	fputs("\"/>\n", out);
	tips_write(out, series, line, figure, &scale);
	fputs("</svg>\n", out);
}

static void head_write(FILE *out, const struct timeline *timeline)
{
	char *text = NULL;
	size_t bytes;
	FILE *notes = open_memstream(&text, &bytes);

	fputs(page_head, out);
	fputs("<h1>tracer timeline</h1>\n<pre>", out);
	if (notes) {
		timeline_title(timeline, notes);
		report_title_print(notes, timeline->series->last);
		timeline_notes(timeline, notes);
		if (!fclose(notes))
			html_text(out, text);
		free(text);
	}
	if (timeline->series->sampled)
		fputs("Figures are estimates.", out);
	fputs("</pre>\n", out);
}

static void table_write(FILE *out, const struct series *series)
{
	char clock[RECORDING_DURATION_BYTES];

	fputs("<details><summary>Figures</summary>\n<table><tr><th>time</th><th>total, "
	      "bytes</th><th>blocks</th><th>RSS, bytes</th></tr>\n",
	      out);
	for (size_t i = 0; i < series->moment_count; i++)
		fprintf(out, "<tr><td>%s</td><td>%.0f</td><td>%.0f</td><td>%.0f</td></tr>\n",
			recording_clock_text(clock, series->moments[i].time.realtime_ns),
			timeline_value(series, NULL, FIGURE_SIZE, i),
			timeline_value(series, NULL, FIGURE_COUNT, i),
			timeline_value(series, NULL, FIGURE_RSS, i));
	fputs("</table></details>\n", out);
}

int timeline_html(const void *context, FILE *out)
{
	const struct timeline *timeline = context;
	const struct series *series = timeline->series;
	size_t count, *lines = timeline_lines(timeline, &count);

	if (!lines)
		return -ENOMEM;
	head_write(out, timeline);
	fputs("<h2>Traced total</h2>\n", out);
	chart_write(out, series, NULL, FIGURE_SIZE);
	fputs("<h2>RSS</h2>\n", out);
	chart_write(out, series, NULL, FIGURE_RSS);
	table_write(out, series);
	for (size_t i = 0; i < count; i++) {
		fputs("<h2>", out);
		line_name_html(out, &series->lines[lines[i]], timeline->by);
		fputs("</h2>\n", out);
		chart_write(out, series, &series->lines[lines[i]], FIGURE_SIZE);
	}
	fprintf(out,
		"<p>%zu of %zu by the most they held. Charts begin at 0; each has a scale of its "
		"own.</p>\n</body>\n</html>\n",
		count, series->line_count);
	free(lines);
	return 0;
}
