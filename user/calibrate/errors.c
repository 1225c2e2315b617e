/* SPDX-License-Identifier: Apache-2.0 */
/* Groups of windows, and the variance of what the estimates without each group are. */
#include <math.h>

#include "base/hash.h"
#include "calibrate/state.h"

#define NORMAL_95 1.959964

/* The order is random, so that no period of the program coincides with that of the groups. */
uint32_t calibrate_groups(size_t count, uint8_t *groups)
{
	for (size_t i = 0; i < count; i++) {
		size_t begin = i - i % CALIBRATE_GROUPS,
		       other = begin + hash_u64(i + 1) % (i - begin + 1);

		groups[i] = groups[other];
		groups[other] = (uint8_t)(i - begin);
	}
	return count < CALIBRATE_GROUPS ? (uint32_t)count : CALIBRATE_GROUPS;
}

double calibrate_student(uint32_t degrees)
{
	static const double quantiles[] = {4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306,
					   2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131};
	uint32_t count = sizeof(quantiles) / sizeof(quantiles[0]);

	return quantiles[degrees < 2           ? 0
			 : degrees - 2 < count ? degrees - 2
					       : count - 1] /
	       NORMAL_95;
}

double calibrate_variance(const float deviations[CALIBRATE_DEVIATIONS])
{
	double variance = 0, fourth = 0, unseen = (double)deviations[CALIBRATE_GROUPS];

	for (uint32_t i = 0; i < CALIBRATE_GROUPS; i++) {
		double square = (double)deviations[i] * (double)deviations[i];

		variance += square;
		fourth += square * square;
	}
	/*
	 * Satterthwaite: the variance of the variance, from the fourth moment of normal deviations.
	 */
	double degrees = fourth > 0 ? 3 * variance * variance / fourth - 1 : CALIBRATE_GROUPS;
	double widening = calibrate_student((uint32_t)fmin(degrees, CALIBRATE_GROUPS));
	return variance * widening * widening + unseen * unseen;
}
