/* SPDX-License-Identifier: Apache-2.0 */
#include "series/evidence.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define THIRDS 3
/* Growth below it, over the whole time, is none: two blocks of an interpreter, say. */
#define GROWTH_BYTES  1024.0
#define GROWTH_BLOCKS 3.0

static int slope_of(const struct evidence_point *points, size_t count, struct slope *out)
{
	double *values = malloc(2 * count * sizeof(*values));
	int err;

	if (!values)
		return -ENOMEM;
	for (size_t i = 0; i < count; i++) {
		values[i] = points[i].seconds;
		values[count + i] = points[i].size;
	}
	err = slope_find(values, values + count, count, out);
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

/* Is there growth at all that is worth a word? */
static int has_grown(const struct evidence_point *points, size_t count, const struct slope *slope)
{
	double seconds = points[count - 1].seconds - points[0].seconds;

	return slope->median * seconds >= GROWTH_BYTES &&
	       points[count - 1].count - points[0].count >= GROWTH_BLOCKS;
}

/* May it have replaced blocks older than the trace, in the second half? */
static int may_replace(const struct evidence_point *points, size_t count)
{
	const struct evidence_point *half = &points[count / 2], *last = &points[count - 1];

	return 2 * (last->old_gone - half->old_gone) >= last->count - half->count;
}

static void judge(const struct evidence_point *points, size_t count, struct evidence *out)
{
	out->verdict = EVIDENCE_UNCLEAR;
	if (count < EVIDENCE_POINTS)
		out->doubt = DOUBT_FEW;
	else if (!has_grown(points, count, &out->slope) || out->second.median <= 0 ||
		 out->slope.high <= 0)
		out->verdict = EVIDENCE_STEADY;
	else if (out->slope.low <= 0 || out->second.low <= 0)
		out->doubt = DOUBT_NOISE;
	else if (!floor_rises(points, count))
		out->doubt = DOUBT_FALLS;
	else if (may_replace(points, count))
		out->doubt = DOUBT_OLD;
	else if (out->second.median < out->first.median / 2)
		out->doubt = DOUBT_SLOWS;
	else
		out->verdict = EVIDENCE_GROWS;
}

/* Blocks that were freed from one point to the last. */
static double freed_since(const struct evidence_point *from, const struct evidence_point *last)
{
	double freed = last->acquired - from->acquired - (last->count - from->count);

	return freed > 0 ? freed : 0;
}

static void fates_set(const struct evidence_point *points, size_t count, struct evidence *out)
{
	const struct evidence_point *last = &points[count - 1];
	double acquired = last->acquired - points[0].acquired, more = last->count - points[0].count;

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
	int err;

	memset(out, 0, sizeof(*out));
	out->survivors = out->age = -1;
	out->none_freed = count ? count - 1 : 0;
	err = slope_of(points, count, &out->slope);
	if (!err && half >= 2)
		err = slope_of(points, half + 1, &out->first)
			      ?: slope_of(points + half, count - half, &out->second);
	if (err)
		return err;
	judge(points, count, out);
	if (acquired_known)
		fates_set(points, count, out);
	return 0;
}
