/* SPDX-License-Identifier: Apache-2.0 */
#include "report/recording/slope.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

#define INTERVAL_POINTS 4
#define EVEN_LEAST      (1.0 / 5)

static int double_compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* Ranks are from 1; between two, or beyond the ends: the nearest inside. */
static double rank_value(const double *sorted, size_t count, double rank)
{
	if (rank < 1)
		rank = 1;
	if (rank > (double)count)
		rank = (double)count;
	return sorted[(size_t)rank - 1];
}

static void interval_set(const double *slopes, size_t pairs, size_t points, struct slope *out)
{
	double n = (double)points, count = (double)pairs,
	       spread = NORMAL_95 * sqrt(n * (n - 1) * (2 * n + 5) / 18);

	out->low = rank_value(slopes, pairs, floor((count - spread) / 2));
	out->high = rank_value(slopes, pairs, ceil((count + spread) / 2) + 1);
	out->has_interval = points >= INTERVAL_POINTS;
}

/* Most lines of a recording never change. */
static int all_equal(const double *values, size_t count)
{
	for (size_t i = 1; i < count; i++)
		if (values[i] > values[0] || values[i] < values[0])
			return 0;
	return 1;
}

int slope_is_even(const double *x, const double *y, size_t count)
{
	double least = INFINITY, most = 0;

	for (size_t i = 1; i < count; i++) {
		double steepness = (y[i] - y[i - 1]) / (x[i] - x[i - 1]);

		least = fmin(least, steepness);
		most = fmax(most, steepness);
	}
	return most > 0 && least >= most * EVEN_LEAST;
}

void slope_undisturb(struct slope *slope, double lost)
{
	if (slope->low < 0)
		slope->low /= 1 - lost;
	if (slope->high > 0)
		slope->high /= 1 - lost;
}

void slope_widen(struct slope *slope, double error, double seconds)
{
	error *= NORMAL_95 / seconds;
	slope->low = slope->median - hypot(slope->median - slope->low, error);
	slope->high = slope->median + hypot(slope->high - slope->median, error);
}

int slope_find(const double *x, const double *y, size_t count, struct slope *out)
{
	size_t pairs = count * (count - 1) / 2, at = 0;
	double *slopes;

	if (count < 2 || count > SLOPE_POINTS_MAX)
		return -EINVAL;
	for (size_t i = 1; i < count; i++)
		if (!(x[i] > x[i - 1]))
			return -EINVAL;
	*out = (struct slope){.has_interval = count >= INTERVAL_POINTS};
	if (all_equal(y, count))
		return 0;
	slopes = malloc(pairs * sizeof(*slopes));
	if (!slopes)
		return -ENOMEM;
	for (size_t i = 0; i < count; i++)
		for (size_t j = i + 1; j < count; j++)
			slopes[at++] = (y[j] - y[i]) / (x[j] - x[i]);
	qsort(slopes, pairs, sizeof(*slopes), double_compare);
	out->median = (slopes[(pairs - 1) / 2] + slopes[pairs / 2]) / 2;
	interval_set(slopes, pairs, count, out);
	free(slopes);
	return 0;
}
