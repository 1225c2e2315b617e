/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A page without a script: charts in SVG, drawn here, and a table with every figure that they show.
 * Its policy allows nothing but its own style. Names are from the traced process: they are escaped
 * twice, for a terminal and for HTML.
 */
#include <errno.h>
#include <stdlib.h>

#include "cmd/time/line_name.h"
#include "cmd/time/timeline_text.h"
#include "report/recording/recording_load.h"
#include "report/report.h"
#include "util/size.h"

#define WIDTH  600
#define HEIGHT 120

static const char page_head[] =
	"<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
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
