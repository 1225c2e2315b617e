/* SPDX-License-Identifier: Apache-2.0 */
#include "session/overhead/machine.h"

#include <math.h>

#include "session/overhead/windows.h"

/* Parts are found to so much; none is smaller than the last one. */
#define HALVINGS 32

/* What all processes take at most with that part of their budgets, in CPUs. */
static double taken(const double *rates, size_t count, double share)
{
	double sum = 0;

	for (size_t i = 0; i < count; i++)
		sum += fmin(rates[i], share * fmax(rates[i], WINDOWS_RATE_MIN));
	return sum;
}

double machine_part(const double *rates, size_t count, double overhead, double limit)
{
	double low = 0, high = 1;

	if (taken(rates, count, overhead) <= limit)
		return 1;
	for (int i = 0; i < HALVINGS; i++) {
		double part = (low + high) / 2;

		if (taken(rates, count, overhead * part) <= limit)
			low = part;
		else
			high = part;
	}
	return low > 0 ? low : high;
}
