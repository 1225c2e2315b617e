/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>

#include "recording/recording_load.h"
#include "report/report.h"
#include "text/json.h"
#include "text/size.h"
#include "text/text.h"
#include "time_answers/leaks.h"
#include "time_answers/line_name.h"
#include "time_answers/timeline.h"

#define MINUTE 60

static const char *const doubts[] = {
	[DOUBT_NONE] = "",
	[DOUBT_FEW] = "too few snapshots",
	[DOUBT_NOISE] = "the interval, of all or of the second half, includes 0",
	[DOUBT_FALLS] = "what is left when it is low does not rise",
	[DOUBT_OLD] = "blocks older than the trace went, which it may have replaced",
	[DOUBT_SLOWS] = "the second half grows at less than half the rate of the first",
};

/* " 3.1 MiB/min (2.9 MiB to 3.3 MiB)" */
static void slope_print(FILE *out, const struct slope *slope)
{
	char text[SIZE_TEXT_MAX];

	fprintf(out, " %s/min", size_format(text, slope->median * MINUTE, 1));
	if (!slope->has_interval)
		return;
	fprintf(out, " (%s", size_format(text, slope->low * MINUTE, 1));
	fprintf(out, " to %s)", size_format(text, slope->high * MINUTE, 1));
}

static char *seconds_text(char text[RECORDING_DURATION_BYTES], double seconds)
{
	/* A limit that is centuries away is as good as none. */
	return recording_duration_text(text, (uint64_t)((seconds < 9e9 ? seconds : 9e9) * 1e9));
}

/* What became of the blocks that the line allocated. */
static void fates_print(FILE *out, const struct leaks *leaks, const struct evidence *evidence)
{
	const struct series *series = leaks->series;
	char text[RECORDING_DURATION_BYTES];

	if (!series->allocated_known) {
		fputs("; how many were freed is not known", out);
		return;
	}
	fprintf(out, "; meanwhile %.0f allocated and %.0f freed", evidence->acquired,
		evidence->freed);
	if (evidence->survivors >= 0)
		fprintf(out, ": %.0f %% stay", evidence->survivors * 100);
	/* Of the last few moments it says little. */
	if (evidence->none_freed < series->moment_count * 3 / 4)
		fprintf(out, "; none was freed since %s",
			recording_clock_text(
				text, series->moments[evidence->none_freed].time.realtime_ns));
	if (evidence->age > 0)
		fprintf(out, "; half of them are at least %s old",
			seconds_text(text, evidence->age));
}

static void line_print(FILE *out, const struct leaks *leaks, size_t line)
{
	const struct evidence *evidence = &leaks->lines[line];
	const struct series_line *of = &leaks->series->lines[line];
	const struct series_figures *now = &of->at[leaks->series->moment_count - 1];
	char text[SIZE_TEXT_MAX];

	fputs("  ", out);
	line_name_print(out, of, leaks->by);
	putc(':', out);
	slope_print(out, &evidence->slope);
	fprintf(out, "\n    now %s in %" PRIu64 " blocks", size_text(text, now->size), now->count);
	fates_print(out, leaks, evidence);
	if (evidence->verdict == EVIDENCE_UNCLEAR)
		fprintf(out, "; unclear: %s", doubts[evidence->doubt]);
	putc('\n', out);
}

static void whole_print(FILE *out, const struct leaks *leaks)
{
	const struct leaks_limit *limit = &leaks->limit;
	char text[SIZE_TEXT_MAX], when[RECORDING_DURATION_BYTES], from[RECORDING_DURATION_BYTES],
		to[RECORDING_DURATION_BYTES];

	fputs("Total:", out);
	slope_print(out, &leaks->total);
	if (leaks->rss_known) {
		fputs("; RSS:", out);
		slope_print(out, &leaks->rss);
	}
	putc('\n', out);
	if (!limit->known)
		fputs("No memory limit of a cgroup is known.\n", out);
	else if (!limit->is_reached)
		fprintf(out, "The cgroup's memory limit: %s left, and no nearer by the interval.\n",
			size_text(text, limit->left));
	else
		fprintf(out,
			"The cgroup's memory limit: %s left; reached in %s (%s to %s) if it goes "
			"on like this.\n",
			size_text(text, limit->left), seconds_text(when, limit->seconds),
			seconds_text(from, limit->soonest), seconds_text(to, limit->latest));
}

/* The lines of a verdict, which are those from *at on, at most as many as are left to show. */
static void verdict_print(FILE *out, const struct leaks *leaks, enum evidence_verdict verdict,
			  const char *one, const char *several, size_t *at)
{
	size_t all = leaks->verdicts[verdict], left = leaks->top ? leaks->top - *at : all;
	size_t shown = all < left ? all : left;

	fprintf(out, "%zu %s%s %s", all, leaks->by == GROUP_FILENAME ? "file" : "line",
		all == 1 ? "" : "s", all == 1 ? one : several);
	if (shown && shown < all)
		fprintf(out, "; %zu of them", shown);
	fputs(shown ? ":\n" : ".\n", out);
	for (size_t i = 0; i < shown; i++)
		line_print(out, leaks, leaks->order[(*at)++]);
}

int leaks_text(const void *context, FILE *out)
{
	const struct leaks *leaks = context;
	const struct timeline title = {.series = leaks->series, .name = leaks->name};
	size_t at = 0;

	timeline_title(&title, out);
	report_title_print(out, leaks->series->last);
	verdict_print(out, leaks, EVIDENCE_GROWS, "grows over the whole time (95 % interval)",
		      "grow over the whole time (95 % intervals)", &at);
	verdict_print(out, leaks, EVIDENCE_UNCLEAR, "may grow, which is unclear",
		      "may grow, which is unclear", &at);
	fprintf(out, "%zu %s steady.\n", leaks->verdicts[EVIDENCE_STEADY],
		leaks->verdicts[EVIDENCE_STEADY] == 1 ? "is" : "are");
	whole_print(out, leaks);
	if (leaks->series->sampled)
		fputs("Figures are estimates: their errors are part of the intervals as far as "
		      "they differ from snapshot to snapshot.\n",
		      out);
	return 0;
}

static void slope_json(FILE *out, const struct slope *slope)
{
	fprintf(out, "\"slope\": %.6g, \"slope_low\": %.6g, \"slope_high\": %.6g", slope->median,
		slope->low, slope->high);
}

/* A number that may be unknown. */
static void maybe_json(FILE *out, const char *key, double value)
{
	if (value < 0)
		fprintf(out, ", \"%s\": null", key);
	else
		fprintf(out, ", \"%s\": %.6g", key, value);
}

static void line_json(FILE *out, const struct leaks *leaks, size_t line)
{
	static const char *const verdicts[] = {[EVIDENCE_STEADY] = "steady",
					       [EVIDENCE_UNCLEAR] = "unclear",
					       [EVIDENCE_GROWS] = "grows"};
	const struct series *series = leaks->series;
	const struct evidence *evidence = &leaks->lines[line];
	const struct series_figures *now = &series->lines[line].at[series->moment_count - 1];
	double since = -1;

	if (series->allocated_known && evidence->none_freed + 1 < series->moment_count)
		since = (double)series->moments[evidence->none_freed].time.since_ns / 1e9;
	putc('{', out);
	line_name_json(out, &series->lines[line]);
	fprintf(out, ", \"size\": %" PRIu64 ", \"count\": %" PRIu64 ", ", now->size, now->count);
	slope_json(out, &evidence->slope);
	fprintf(out, ", \"slope_first\": %.6g, \"slope_second\": %.6g", evidence->first.median,
		evidence->second.median);
	if (series->allocated_known)
		fprintf(out, ", \"allocated_count\": %.0f, \"freed_count\": %.0f",
			evidence->acquired, evidence->freed);
	maybe_json(out, "survivors", evidence->survivors);
	maybe_json(out, "none_freed_since", since);
	maybe_json(out, "age", evidence->age);
	fprintf(out, ", \"verdict\": \"%s\"", verdicts[evidence->verdict]);
	if (evidence->doubt)
		fprintf(out, ", \"doubt\": \"%s\"", doubts[evidence->doubt]);
	putc('}', out);
}

static void limit_json(FILE *out, const struct leaks_limit *limit)
{
	if (!limit->known) {
		fputs("\"limit\": null, ", out);
		return;
	}
	fprintf(out, "\"limit\": {\"left\": %" PRIu64, limit->left);
	if (limit->is_reached)
		fprintf(out, ", \"seconds\": %.6g, \"seconds_low\": %.6g, \"seconds_high\": %.6g",
			limit->seconds, limit->soonest, limit->latest);
	fputs("}, ", out);
}

int leaks_json(const void *context, FILE *out)
{
	const struct leaks *leaks = context;
	const struct series *series = leaks->series;
	size_t all = series->line_count, shown = leaks->top && leaks->top < all ? leaks->top : all;

	fprintf(out, "{\"begin\": %.3f, \"snapshots\": %zu, \"points\": %zu, \"duration\": %.3f, ",
		(double)(series->moments[0].time.realtime_ns - series->moments[0].time.since_ns) /
			1e9,
		series->snapshots, series->moment_count,
		series_seconds(series, series->moment_count - 1));
	fputs("\"total\": {", out);
	slope_json(out, &leaks->total);
	fputs("}, \"rss\": ", out);
	if (leaks->rss_known) {
		putc('{', out);
		slope_json(out, &leaks->rss);
		fputs("}, ", out);
	} else {
		fputs("null, ", out);
	}
	limit_json(out, &leaks->limit);
	fprintf(out, "\"estimated\": %s, ", series->sampled ? "true" : "false");
	json_member(out, "damage", series->damage);
	fprintf(out, ", \"line_count\": %zu, \"lines\": [", all);
	for (size_t i = 0; i < shown; i++) {
		fputs(i ? ", " : "", out);
		line_json(out, leaks, leaks->order[i]);
	}
	fputs("]}\n", out);
	return 0;
}
