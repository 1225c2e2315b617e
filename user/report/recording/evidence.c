/* SPDX-License-Identifier: Apache-2.0 */
#include "report/recording/evidence.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define THIRDS 3
/* Growth below it, over the whole time, is none: two blocks of an interpreter, say. */
#define GROWTH_BYTES  1024.0
#define GROWTH_BLOCKS 3.0
/* What keeps all may free so much of what it gains: a dict's keys that were too small, say. */
#define FREED_SHARE 0.01
/* Of a heap that gains so many times what went of the older blocks, most growth replaces none. */
#define HEAP_MORE 4

/* The standard error of what the size has grown by from one point to the other. */
static double growth_error(const struct evidence_point *from, const struct evidence_point *to)
{
	if ((from->error > 0 && !from->deviations) || (to->error > 0 && !to->deviations))
		return hypot(from->error, to->error);
	return estimate_difference_error(from->deviations, to->deviations);
}

static int slope_of(const struct evidence_point *points, size_t count, struct slope *out)
{
	double *values = malloc(2 * count * sizeof(*values));

	if (!values)
		return -ENOMEM;
	for (size_t i = 0; i < count; i++) {
		values[i] = points[i].seconds;
		values[count + i] = points[i].size;
	}
	int err = slope_find(values, values + count, count, out);
	if (!err)
		slope_widen(out, growth_error(&points[0], &points[count - 1]),
			    points[count - 1].seconds - points[0].seconds);
	free(values);
	return err;
}

/* The least of each third rises from third to third. */
static int floor_rises(const struct evidence_point *points, size_t count)
{
	double least[THIRDS];

	for (size_t third = 0; third < THIRDS; third++) {
		size_t begin = count * third / THIRDS, end = count * (third + 1) / THIRDS;

		least[third] = points[begin].size;
		for (size_t i = begin; i < end; i++)
			if (points[i].size < least[third])
				least[third] = points[i].size;
		if (third && !(least[third] > least[third - 1]))
			return 0;
	}
	return 1;
}

/* Is that growth worth a word? */
static int is_growth(double bytes, const struct evidence_point *from,
		     const struct evidence_point *last)
{
	return bytes >= GROWTH_BYTES && last->count - from->count >= GROWTH_BLOCKS;
}

static int has_grown(const struct evidence_point *points, size_t count, const struct slope *slope)
{
	const struct evidence_point *last = &points[count - 1];

	return is_growth(slope->median * (last->seconds - points[0].seconds), &points[0], last);
}

/*
 * Does it hold more at the end than ever in the first half, by twice as much as it varied there?
 * Most pairs of points say nothing of that. Sets the last point at which it did not.
 */
static int grows_late(const struct evidence_point *points, size_t count, size_t *since)
{
	const struct evidence_point *last = &points[count - 1], *least = points, *most = points;

	for (size_t i = 1; i <= count / 2; i++) {
		least = points[i].size < least->size ? &points[i] : least;
		most = points[i].size > most->size ? &points[i] : most;
	}
	for (*since = count - 1; *since && points[*since].size > most->size;)
		--*since;
	return is_growth(last->size - most->size - NORMAL_95 * growth_error(most, last), most,
			 last) &&
	       last->size - most->size > 2 * (most->size - least->size);
}

/* Blocks that were freed from one point to the last. */
static double freed_since(const struct evidence_point *from, const struct evidence_point *last)
{
	double freed = last->acquired - from->acquired - (last->count - from->count);

	return freed > 0 ? freed : 0;
}

/* Does it keep all that it allocates from that point on? */
static int keeps_all(const struct evidence_point *from, const struct evidence_point *last)
{
	return freed_since(from, last) <= FREED_SHARE * (last->count - from->count);
}

/* May it have replaced blocks older than the trace, in the second half? */
static int may_replace(const struct evidence_point *points, size_t count, int acquired_known)
{
	const struct evidence_point *half = &points[count / 2], *last = &points[count - 1];
	double gone = last->old_gone - half->old_gone;

	if (2 * gone < last->count - half->count)
		return 0;
	return !acquired_known || !keeps_all(half, last) ||
	       last->alive - half->alive < HEAP_MORE * gone;
}

static enum evidence_doubt doubt_find(const struct evidence_point *points, size_t count,
				      int acquired_known, const struct evidence *evidence)
{
	if (evidence->slope.low <= 0 || evidence->second.low <= 0)
		return DOUBT_NOISE;
	if (!floor_rises(points, count))
		return DOUBT_FALLS;
	if (may_replace(points, count, acquired_known))
		return DOUBT_OLD;
	return evidence->second.median < evidence->first.median / 2 ? DOUBT_SLOWS : DOUBT_NONE;
}

static void judge(const struct evidence_point *points, size_t count, int acquired_known,
		  struct evidence *out)
{
	int late = grows_late(points, count, &out->late);
	int grows = has_grown(points, count, &out->slope) && out->slope.high > 0 &&
		    (count < EVIDENCE_POINTS || out->second.median > 0);

	if (count < EVIDENCE_POINTS)
		out->doubt = grows ? DOUBT_FEW : DOUBT_NONE;
	else if (grows)
		out->doubt = doubt_find(points, count, acquired_known, out);
	if (count >= EVIDENCE_POINTS && late &&
	    (!grows || out->doubt == DOUBT_NOISE || out->doubt == DOUBT_FALLS))
		out->doubt = DOUBT_LATE;
	out->verdict = out->doubt ? EVIDENCE_UNCLEAR : grows ? EVIDENCE_GROWS : EVIDENCE_STEADY;
}

static void fates_set(const struct evidence_point *points, size_t count, struct evidence *out)
{
	const struct evidence_point *last = &points[count - 1];
	double acquired = last->acquired - points[0].acquired, more = last->count - points[0].count;

	acquired = acquired < more ? more : acquired;
	out->acquired = acquired > 0 ? acquired : 0;
	out->freed = freed_since(&points[0], last);
	if (acquired > 0)
		out->survivors = more <= 0 ? 0 : more >= acquired ? 1 : more / acquired;
	while (out->none_freed && freed_since(&points[out->none_freed - 1], last) <= 0)
		out->none_freed--;
	/* Of the blocks of a moment, all that were not freed since are alive at the end. */
	for (size_t i = count; i-- > 0 && last->count > 0;)
		if (points[i].count - freed_since(&points[i], last) >= last->count / 2)
			out->age = last->seconds - points[i].seconds;
}

int evidence_find(const struct evidence_point *points, size_t count, int acquired_known,
		  struct evidence *out)
{
	size_t half = count / 2;

	memset(out, 0, sizeof(*out));
	out->survivors = out->age = -1;
	out->none_freed = count ? count - 1 : 0;
	int err = slope_of(points, count, &out->slope);
	if (!err && half >= 2)
		err = slope_of(points, half + 1, &out->first)
			      ?: slope_of(points + half, count - half, &out->second);
	if (err)
		return err;
	judge(points, count, acquired_known, out);
	if (acquired_known)
		fates_set(points, count, out);
	return 0;
}
