/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/time/recording_leaks.h"

#include <errno.h>
#include <stdlib.h>

#include "cmd/time/line_name.h"
#include "util/error.h"

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
		slope_widen(out, (double)series->moments[leaks->begin].total.size_error,
			    (double)series->moments[last].total.size_error,
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

int leaks_is_idle(const struct leaks *leaks)
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
	int err;

	*out = (struct leaks){.series = series, .begin = series_begin(series)};
	if (series->moment_count < 2)
		return error_set(-EINVAL, "the recording has one snapshot: growth needs more");
	if (series->moment_count - out->begin < 2)
		return error_set(-EINVAL, "the recording has one snapshot since its tables were "
					  "emptied: growth needs more");
	out->probes_share = series_probes_share(series, out->begin);
	out->lost_share = series_lost_share(series, out->begin);
	out->lines = calloc(series->line_count + 1, sizeof(*out->lines));
	err = out->lines ? lines_judge(out) : -ENOMEM;
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
