/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/time/recording_leaks.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#include "cmd/time/line_name.h"
#include "cmd/time/timeline_text.h"
#include "report/recording/recording_load.h"
#include "report/report.h"
#include "util/array.h"
#include "util/error.h"
#include "util/json.h"
#include "util/size.h"

void leaks_free(struct leaks *leaks)
{
	free(leaks->lines);
	free(leaks->order);
	leaks->lines = NULL;
	leaks->order = NULL;
}

/* A figure of the whole, of the moments at which it is known. */
typedef int (*whole_fn)(const struct series_moment *moment, double *value);

static int total_of(const struct series_moment *moment, double *value)
{
	*value = (double)moment->total.size;
	return 1;
}

static int rss_of(const struct series_moment *moment, double *value)
{
	*value = (double)moment->rss_bytes;
	return moment->rss_bytes != 0;
}

/* What was taken of the limit: the more, the less is left. */
static int taken_of(const struct series_moment *moment, double *value)
{
	*value = -(double)moment->time.memory_left;
	return moment->time.memory_left != UINT64_MAX;
}

/* 1; 0: not known at all moments; -ENOMEM. */
static int whole_slope(const struct leaks *leaks, whole_fn whole, struct slope *out)
{
	const struct series *series = leaks->series;
	size_t count = series->moment_count - leaks->begin;
	double *values = malloc(2 * count * sizeof(*values));
	int known = 1, err = 0;

	if (!values)
		return -ENOMEM;
	for (size_t i = 0; known && i < count; i++) {
		values[i] = series_seconds(series, leaks->begin + i);
		known = whole(&series->moments[leaks->begin + i], &values[count + i]);
	}
	if (known)
		err = slope_find(values, values + count, count, out);
	free(values);
	return err ?: known;
}

static int total_slope(const struct leaks *leaks, struct slope *out)
{
	const struct series *series = leaks->series;
	size_t last = series->moment_count - 1;
	int known = whole_slope(leaks, total_of, out);

	if (known > 0)
		slope_widen(out,
			    hypot((double)series->moments[leaks->begin].total.size_error,
				  (double)series->moments[last].total.size_error),
			    series_seconds(series, last) - series_seconds(series, leaks->begin));
	return known;
}

static int limit_find(struct leaks *leaks)
{
	struct leaks_limit *limit = &leaks->limit;
	struct slope slope;
	int known = whole_slope(leaks, taken_of, &slope);

	if (known <= 0)
		return known;
	limit->known = 1;
	limit->left = leaks->series->moments[leaks->series->moment_count - 1].time.memory_left;
	limit->is_reached = slope.has_interval && slope.low > 0 && leaks_has_rates(leaks);
	if (limit->is_reached) {
		slope_undisturb(&slope, leaks->lost_share);
		limit->seconds = (double)limit->left / slope.median;
		limit->soonest = (double)limit->left / slope.high;
		limit->latest = (double)limit->left / slope.low;
	}
	return 0;
}

static void rates_undisturb(struct leaks *leaks)
{
	if (!leaks_has_rates(leaks))
		return;
	slope_undisturb(&leaks->total, leaks->lost_share);
	slope_undisturb(&leaks->rss, leaks->lost_share);
	for (size_t i = 0; i < leaks->series->line_count; i++)
		slope_undisturb(&leaks->lines[i].slope, leaks->lost_share);
}

static int lines_judge(struct leaks *out)
{
	const struct series *series = out->series;
	size_t count = series->moment_count - out->begin;
	struct evidence_point *points = calloc(count, sizeof(*points));
	int err = points ? 0 : -ENOMEM;

	for (size_t i = 0; !err && i < series->line_count; i++) {
		for (size_t at = 0; at < count; at++) {
			const struct series_moment *moment = &series->moments[out->begin + at];
			const struct series_figures *figures =
				&series->lines[i].at[out->begin + at];

			points[at] = (struct evidence_point){
				.seconds = series_seconds(series, out->begin + at),
				.size = (double)figures->size,
				.error = (double)figures->size_error,
				.deviations = figures->deviations,
				.count = (double)figures->count,
				.acquired = (double)figures->allocated_count,
				.old_gone = (double)moment->old_gone,
				.alive = (double)moment->alive};
		}
		err = evidence_find(points, count, series->allocated_known, &out->lines[i]);
		out->verdicts[out->lines[i].verdict]++;
	}
	free(points);
	return err;
}

/* By verdict, then by what is sure of the slope. */
static double line_rank(const struct series *series, size_t line, const void *context)
{
	const struct leaks *leaks = context;
	const struct evidence *evidence = &leaks->lines[line];
	double sure =
		evidence->verdict == EVIDENCE_GROWS ? evidence->slope.low : evidence->slope.median;

	(void)series;
	/* From 0 to 1, in the same order. */
	sure = sure > 0 ? sure / (sure + 1) : 0;
	return evidence->verdict + sure;
}

/* Is it known that nothing was allocated? Then nothing can be said of growth. */
static int leaks_is_idle(const struct leaks *leaks)
{
	const struct series *series = leaks->series;
	const struct series_figures *first = &series->moments[leaks->begin].total,
				    *last = &series->moments[series->moment_count - 1].total;

	return series->allocated_known && last->size == first->size &&
	       last->count == first->count && last->allocated_count == first->allocated_count;
}

/* 0, -ENOMEM. */
static int whole_judge(struct leaks *out)
{
	int known = total_slope(out, &out->total);

	if (known >= 0)
		known = whole_slope(out, rss_of, &out->rss);
	out->rss_known = known > 0;
	return known < 0 ? known : limit_find(out);
}

int leaks_find(const struct series *series, struct leaks *out)
{
	*out = (struct leaks){.series = series, .begin = series_begin(series)};
	if (series->moment_count < 2)
		return error_set(-EINVAL, "the recording has one snapshot: growth needs more");
	if (series->moment_count - out->begin < 2)
		return error_set(-EINVAL, "the recording has one snapshot since its tables were "
					  "emptied: growth needs more");
	out->probes_share = series_probes_share(series, out->begin);
	out->lost_share = series_lost_share(series, out->begin);
	out->lines = calloc(series->line_count + 1, sizeof(*out->lines));
	int err = out->lines ? lines_judge(out) : -ENOMEM;
	err = err ?: whole_judge(out);
	if (!err) {
		rates_undisturb(out);
		out->order = lines_rank(series, line_rank, out);
	}
	if (!err && !out->order)
		err = -ENOMEM;
	if (err)
		leaks_free(out);
	return err;
}

/* --- recording leaks print -------------------------------------------------------------------- */

#define MINUTE 60

static const char *const doubts[] = {
	[DOUBT_NONE] = "",
	[DOUBT_FEW] = "too few snapshots",
	[DOUBT_NOISE] = "the interval, of all or of the second half, includes 0",
	[DOUBT_FALLS] = "what is left when it is low does not rise",
	[DOUBT_OLD] = "blocks older than the trace went, which it may have replaced",
	[DOUBT_SLOWS] = "the second half grows at less than half the rate of the first",
	[DOUBT_LATE] = "it grew only in a last part of the time",
};

/* " +3.1 MiB/min (+2.9 MiB to +3.3 MiB)"; without a rate the change: " +3.1 MiB" */
static void slope_print(FILE *out, const struct leaks *leaks, const struct slope *slope,
			uint64_t first, uint64_t last)
{
	char text[SIZE_TEXT_MAX];

	if (!leaks_has_rates(leaks)) {
		fprintf(out, " %s", size_format(text, (double)last - (double)first, 1));
		return;
	}
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
	if (evidence->none_freed < (series->moment_count - leaks->begin) * 3 / 4)
		fprintf(out, "; none was freed since %s",
			recording_clock_text(text,
					     series->moments[leaks->begin + evidence->none_freed]
						     .time.realtime_ns));
	if (evidence->age > 0)
		fprintf(out, "; half of them are at least %s old",
			seconds_text(text, evidence->age));
}

/* " +3.1 MiB since 2026-11-24 02:10:03" */
static void late_print(FILE *out, const struct leaks *leaks, const struct evidence *evidence,
		       const struct series_line *line)
{
	const struct series *series = leaks->series;
	double now = (double)line->at[series->moment_count - 1].size,
	       then = (double)line->at[leaks->begin + evidence->late].size;
	char size[SIZE_TEXT_MAX], clock[RECORDING_DURATION_BYTES];

	fprintf(out, " %s since %s", size_format(size, now - then, 1),
		recording_clock_text(
			clock, series->moments[leaks->begin + evidence->late].time.realtime_ns));
}

static void line_print(FILE *out, const struct leaks *leaks, size_t line)
{
	const struct evidence *evidence = &leaks->lines[line];
	const struct series_line *of = &leaks->series->lines[line];
	const struct series_figures *now = &of->at[leaks->series->moment_count - 1];

	fputs("  ", out);
	line_name_print(out, of, leaks->by);
	putc(':', out);
	if (evidence->doubt == DOUBT_LATE)
		late_print(out, leaks, evidence, of);
	else
		slope_print(out, leaks, &evidence->slope, of->at[leaks->begin].size, now->size);
	fprintf(out, "\n    now %s in %" PRIu64 " blocks", SIZE_TEXT(now->size), now->count);
	fates_print(out, leaks, evidence);
	if (evidence->verdict == EVIDENCE_UNCLEAR)
		fprintf(out, "; unclear: %s", doubts[evidence->doubt]);
	putc('\n', out);
}

/* "9.5 MiB, then 96.7 MiB:" and the slope */
static void change_print(FILE *out, const struct leaks *leaks, const struct slope *slope,
			 uint64_t first, uint64_t last)
{
	fprintf(out, " %s", SIZE_TEXT(first));
	fprintf(out, ", then %s:", SIZE_TEXT(last));
	slope_print(out, leaks, slope, first, last);
}

static void limit_print(FILE *out, const struct leaks *leaks)
{
	const struct leaks_limit *limit = &leaks->limit;
	char text[SIZE_TEXT_MAX], when[RECORDING_DURATION_BYTES], from[RECORDING_DURATION_BYTES],
		to[RECORDING_DURATION_BYTES];

	if (!limit->known)
		fputs("No memory limit of a cgroup is known.\n", out);
	else if (!limit->is_reached)
		fprintf(out, "The cgroup's memory limit: %s left, and %s.\n",
			size_text(text, limit->left),
			leaks_has_rates(leaks) ? "no nearer by the interval"
					       : "no forecast of when it is reached");
	else
		fprintf(out,
			"The cgroup's memory limit: %s left; reached in %s (%s to %s) if it goes "
			"on like this.\n",
			size_text(text, limit->left), seconds_text(when, limit->seconds),
			seconds_text(from, limit->soonest), seconds_text(to, limit->latest));
}

/* What is to be known of the rates. */
static void rates_print(FILE *out, const struct leaks *leaks)
{
	const struct series *series = leaks->series;
	char text[RECORDING_DURATION_BYTES];

	if (leaks->begin)
		fprintf(out,
			"Growth is that since %s: then tables were emptied, by tracer ctl clear or "
			"a change of mode.\n",
			recording_clock_text(text, series->moments[leaks->begin].time.realtime_ns));
	if (!leaks_has_rates(leaks))
		fprintf(out,
			"No rate is known, only what was gained: the probes took %.0f %% of its "
			"CPU time, without them it does more. --overhead 5 disturbs it less.\n",
			leaks->probes_share * 100);
	else if (leaks->lost_share >= TIMELINE_LOST_REPORTED)
		fprintf(out,
			"The probes took %.0f %% of its CPU time. Without them growth may be up to "
			"%.2f times as fast, which the intervals allow for.\n",
			leaks->probes_share * 100, 1 / (1 - leaks->lost_share));
}

static void whole_print(FILE *out, const struct leaks *leaks)
{
	const struct series_moment *first = &leaks->series->moments[leaks->begin],
				   *last = &leaks->series->moments[leaks->series->moment_count - 1];

	fputs("Total:", out);
	change_print(out, leaks, &leaks->total, first->total.size, last->total.size);
	if (leaks->rss_known) {
		fputs("; RSS:", out);
		change_print(out, leaks, &leaks->rss, first->rss_bytes, last->rss_bytes);
	}
	putc('\n', out);
	rates_print(out, leaks);
	limit_print(out, leaks);
}

/* The next `all` lines, from *at on, at most as many as are left to show. */
static void lines_print(FILE *out, const struct leaks *leaks, size_t all, size_t *at)
{
	size_t left = leaks->top ? leaks->top - *at : all, shown = all < left ? all : left;

	if (shown && shown < all)
		fprintf(out, "; %zu of them", shown);
	fputs(shown ? ":\n" : ".\n", out);
	for (size_t i = 0; i < shown; i++)
		line_print(out, leaks, leaks->order[(*at)++]);
}

/* No line that grows is not said while some may. */
static void verdicts_print(FILE *out, const struct leaks *leaks)
{
	size_t grows = leaks->verdicts[EVIDENCE_GROWS], may = leaks->verdicts[EVIDENCE_UNCLEAR],
	       last = leaks->series->moment_count - 1, at = 0;
	const char *noun = line_noun(leaks->by);
	char text[RECORDING_DURATION_BYTES];

	if (grows) {
		fprintf(out,
			grows == 1 ? "%zu %s grows over the whole time (95 %% interval)"
				   : "%zu %ss grow over the whole time (95 %% intervals)",
			grows, noun);
		if (may)
			fprintf(out, ", and %zu more may", may);
		lines_print(out, leaks, grows, &at);
	}
	if (may) {
		if (grows)
			fprintf(out, "%zu %s%s may grow, which is unclear", may, noun,
				may == 1 ? "" : "s");
		else
			fprintf(out, "No %s surely grows, but %zu may", noun, may);
		lines_print(out, leaks, may, &at);
	}
	if (!grows && !may && leaks_is_idle(leaks))
		fprintf(out, "Nothing was allocated in %s: too short to tell what grows.\n",
			seconds_text(text, series_seconds(leaks->series, last) -
						   series_seconds(leaks->series, leaks->begin)));
	else if (!grows && !may)
		fprintf(out, "No %s grows over the whole time (95 %% intervals).\n", noun);
}

/* Who keeps the blocks is told by another command. */
static void next_print(FILE *out, const struct leaks *leaks)
{
	const struct snapshot_meta *meta = &leaks->series->last->meta;
	char pid[16] = "PID";

	if (leaks->verdicts[EVIDENCE_STEADY] == leaks->series->line_count || !meta->python_version)
		return;
	if (meta->pid)
		snprintf(pid, sizeof(pid), "%u", meta->pid);
	fprintf(out,
		"What keeps it, with no probe: tracer heap -p %s -o a.dump, later the same with "
		"b.dump, then tracer heap diff a.dump b.dump --by path\n",
		pid);
}

/* What the rows do not tell, of threads, tasks and values. */
static void owners_unseen_print(FILE *out, const struct leaks *leaks)
{
	const struct series *series = leaks->series;
	const struct snapshot_meta *meta = &series->last->meta;
	const struct series_figures *none = NULL;
	size_t last = series->moment_count - 1;

	if (leaks->by < GROUP_THREAD)
		return;
	for (size_t i = 0; i < series->line_count && !none; i++)
		if (!series->lines[i].filename[0])
			none = &series->lines[i].at[last];
	fputs("Not seen: ", out);
	if (none && none->size)
		fprintf(out, "%s have no %s; ", SIZE_TEXT(none->size), line_noun(leaks->by));
	if (meta->windows.unseen_bytes)
		fprintf(out, "%s were in no window; ", SIZE_TEXT(meta->windows.unseen_bytes));
	fputs("blocks older than the trace, and how much was freed.\n", out);
	if (meta->windows.count && leaks->verdicts[EVIDENCE_UNCLEAR])
		fputs("Windows show few requests of each: a longer time (-d) tells more; so does "
		      "-m census, of all blocks, which slows the process.\n",
		      out);
}

/* Of a value whose requests fell between windows nothing is known. */
static void steady_print(const struct leaks *leaks, FILE *out)
{
	size_t count = leaks->verdicts[EVIDENCE_STEADY];

	if (leaks->by >= GROUP_THREAD && leaks->series->last->meta.windows.count)
		fprintf(out, "Of %zu %s windows have seen no growth, and may have missed it.\n",
			count, count == 1 ? "other" : "others");
	else
		fprintf(out, "%zu %s steady.\n", count, count == 1 ? "is" : "are");
}

int leaks_text(const void *context, FILE *out)
{
	const struct leaks *leaks = context;
	const struct timeline title = {.series = leaks->series, .name = leaks->name};

	timeline_title(&title, out);
	report_title_print(out, leaks->series->last);
	verdicts_print(out, leaks);
	steady_print(leaks, out);
	whole_print(out, leaks);
	owners_unseen_print(out, leaks);
	if (leaks->series->sampled)
		fputs("Figures are estimates: their standard errors are part of the intervals.\n",
		      out);
	if (!leaks->more)
		next_print(out, leaks);
	return 0;
}

static void slope_json(struct json *json, const struct leaks *leaks, const struct slope *slope)
{
	const struct {
		const char *key;
		double value;
	} rates[] = {
		{"slope", slope->median}, {"slope_low", slope->low}, {"slope_high", slope->high}};

	for (size_t i = 0; i < ARRAY_SIZE(rates); i++)
		if (leaks_has_rates(leaks))
			json_float(json, rates[i].key, rates[i].value);
		else
			json_none(json, rates[i].key);
}

static void change_json(struct json *json, const char *key, const struct leaks *leaks,
			const struct slope *slope, uint64_t first, uint64_t last)
{
	json_open(json, key, '{');
	json_numbers(json, {"first", first}, {"last", last});
	slope_json(json, leaks, slope);
	json_close(json, '}');
}

/* A number that may be unknown. */
static void maybe_json(struct json *json, const char *key, double value)
{
	if (value < 0)
		json_none(json, key);
	else
		json_float(json, key, value);
}

static void line_json(struct json *json, const struct leaks *leaks, size_t line)
{
	static const char *const verdicts[] = {[EVIDENCE_STEADY] = "steady",
					       [EVIDENCE_UNCLEAR] = "unclear",
					       [EVIDENCE_GROWS] = "grows"};
	const struct series *series = leaks->series;
	const struct evidence *evidence = &leaks->lines[line];
	const struct series_figures *now = &series->lines[line].at[series->moment_count - 1];
	double since = -1;

	if (series->allocated_known &&
	    evidence->none_freed + 1 < series->moment_count - leaks->begin)
		since = (double)series->moments[leaks->begin + evidence->none_freed].time.since_ns /
			1e9;
	json_open(json, NULL, '{');
	line_name_json(json, &series->lines[line], leaks->by);
	json_numbers(json, {"size", now->size}, {"count", now->count});
	slope_json(json, leaks, &evidence->slope);
	if (leaks_has_rates(leaks)) {
		json_float(json, "slope_first", evidence->first.median);
		json_float(json, "slope_second", evidence->second.median);
	}
	if (series->allocated_known) {
		json_fixed(json, "allocated_count", evidence->acquired, 0);
		json_fixed(json, "freed_count", evidence->freed, 0);
	}
	maybe_json(json, "survivors", evidence->survivors);
	maybe_json(json, "none_freed_since", since);
	maybe_json(json, "age", evidence->age);
	json_text(json, "verdict", verdicts[evidence->verdict]);
	if (evidence->doubt)
		json_text(json, "doubt", doubts[evidence->doubt]);
	if (evidence->doubt == DOUBT_LATE)
		json_float(json, "grows_since",
			   (double)series->moments[leaks->begin + evidence->late].time.since_ns /
				   1e9);
	json_close(json, '}');
}

static void limit_json(struct json *json, const struct leaks_limit *limit)
{
	if (!limit->known) {
		json_none(json, "limit");
		return;
	}
	json_open(json, "limit", '{');
	json_unsigned(json, "left", limit->left);
	if (limit->is_reached) {
		json_float(json, "seconds", limit->seconds);
		json_float(json, "seconds_low", limit->soonest);
		json_float(json, "seconds_high", limit->latest);
	}
	json_close(json, '}');
}

int leaks_json(const void *context, FILE *out)
{
	const struct leaks *leaks = context;
	const struct series *series = leaks->series;
	const struct series_moment *first = &series->moments[leaks->begin],
				   *last = &series->moments[series->moment_count - 1];
	size_t all = series->line_count, shown = leaks->top && leaks->top < all ? leaks->top : all;
	struct json json = {.out = out};

	json_open(&json, NULL, '{');
	if (leaks->more)
		leaks->more(leaks->more_context, &json);
	line_by_json(&json, series, leaks->by);
	series_begin_json(&json, series);
	json_unsigned(&json, "points", series->moment_count - leaks->begin);
	json_fixed(&json, "duration",
		   series_seconds(series, series->moment_count - 1) -
			   series_seconds(series, leaks->begin),
		   3);
	json_float(&json, "since", (double)first->time.since_ns / 1e9);
	maybe_json(&json, "probes_share", leaks->probes_share);
	change_json(&json, "total", leaks, &leaks->total, first->total.size, last->total.size);
	if (leaks->rss_known)
		change_json(&json, "rss", leaks, &leaks->rss, first->rss_bytes, last->rss_bytes);
	else
		json_none(&json, "rss");
	limit_json(&json, &leaks->limit);
	json_bool(&json, "estimated", series->sampled);
	json_bool(&json, "idle", leaks_is_idle(leaks));
	json_text(&json, "damage", series->damage);
	json_unsigned(&json, "line_count", all);
	json_open(&json, "lines", '[');
	for (size_t i = 0; i < shown; i++)
		line_json(&json, leaks, leaks->order[i]);
	json_close(&json, ']');
	json_end(&json);
	return 0;
}
