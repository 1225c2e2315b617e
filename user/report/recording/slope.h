/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The slope of a series that outliers cannot bend: Theil's and Sen's, the median of the slopes
 * between all pairs of points. Its interval is Sen's (1968), by the variance of Kendall's statistic
 * without ties; it supposes that the points scatter around a line, each by itself. Pure.
 */
#pragma once

#include <stddef.h>

#define NORMAL_95        1.959964 /* standard errors that 95 % are within */
#define SLOPE_POINTS_MAX 1000u    /* 499,500 pairs: 4 MB */

struct slope {
	/* units of y for one of x; the interval has 95 % */
	double median, low, high;
	/*
	 * 0: fewer than 4 points, for which there is no interval: low and high are the smallest and
	 * the largest slope
	 */
	int has_interval;
};

/*
 * x rises from point to point. 0; -EINVAL: fewer than 2 points, more than SLOPE_POINTS_MAX, or x
 * does not rise; -ENOMEM.
 */
int slope_find(const double *x, const double *y, size_t count, struct slope *out);
/*
 * Is each step of the series upwards, and none less than a fifth as steep as the steepest? Of what
 * swings, a few points may rise by chance; they seldom do so evenly. x rises from point to point.
 */
int slope_is_even(const double *x, const double *y, size_t count);
/*
 * The share of the time that what was measured lost by the measuring: undisturbed, a slope is at
 * most 1 / (1 - lost) as steep. Widens the interval by that.
 */
void slope_undisturb(struct slope *slope, double lost);
/*
 * The points are estimates: widens the interval by the standard error of the difference of the
 * first and the last one, which lie `seconds` apart. Errors that all points share do not show as
 * scatter.
 */
void slope_widen(struct slope *slope, double error, double seconds);
