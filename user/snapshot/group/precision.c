/* SPDX-License-Identifier: Apache-2.0 */
#include "snapshot/group/precision.h"

#include <math.h>

#define LARGE_PART 10
#define NEARLY     1.05 /* an error that is told as the aim is good enough */

double precision_of(const struct statistics *statistics)
{
	uint64_t largest = 0, least = statistics->total_size / LARGE_PART;
	double worst = 0;

	if (!statistics->sampled)
		return 0;
	for (size_t i = 0; i < statistics->count; i++)
		if (statistics->entries[i].size > largest)
			largest = statistics->entries[i].size;
	if (!largest)
		return INFINITY;
	for (size_t i = 0; i < statistics->count; i++) {
		const struct statistic *entry = &statistics->entries[i];

		if (entry->size >= (largest < least ? largest : least) && entry->size)
			worst = fmax(worst, (double)entry->error.size / (double)entry->size);
	}
	return worst;
}

double precision_next(double error)
{
	static const double aims[] = {PRECISION_AIM, 0.1, 0.05};

	for (size_t i = 0; i < sizeof(aims) / sizeof(aims[0]); i++)
		if (error > aims[i] * NEARLY)
			return aims[i];
	return 0;
}

double precision_more(double error, double length, double aim)
{
	double times = error / aim;

	return times > 1 ? length * (times * times - 1) : 0;
}
