/* SPDX-License-Identifier: Apache-2.0 */
#include "snapshot/estimate/allocated.h"

#include <math.h>

#include "util/hash.h"

#define NORMAL_95 1.96

void allocated_group_add(struct allocated_group *sum, const struct allocated_group *group)
{
	sum->span_ns += group->span_ns;
	sum->on_ns += group->on_ns;
	sum->idle_ns += group->idle_ns;
	sum->work += group->work;
	sum->work_shown += group->work_shown;
	sum->work_in += group->work_in;
}

/* What the sum of weights is multiplied by, without a group of windows or with all. */
static double factor(const struct allocated_scale *scale, const struct allocated_group *all,
		     double shown, double span_ns)
{
	if (scale->by_work)
		return shown > 0 ? all->work / shown : 0;
	return span_ns > 0 ? all->span_ns / span_ns : 0;
}

bool allocated_scale_find(const struct allocated_group groups[CALIBRATE_GROUPS],
			  struct allocated_scale *out)
{
	struct allocated_group all = {0};
	double idle;

	*out = (struct allocated_scale){0};
	for (uint32_t i = 0; i < CALIBRATE_GROUPS; i++) {
		allocated_group_add(&all, &groups[i]);
		out->groups += groups[i].on_ns > 0;
	}
	if (out->groups < ALLOCATED_GROUPS_LEAST || !(all.span_ns > 0))
		return false;
	out->by_work = all.work_in >= ALLOCATED_WORK_LEAST;
	out->whole = factor(out, &all, all.work_shown, all.span_ns);
	for (uint32_t i = 0; i < CALIBRATE_GROUPS; i++)
		out->without[i] = factor(out, &all, all.work_shown - groups[i].work_shown,
					 all.span_ns - groups[i].span_ns);
	out->span_ns = (uint64_t)all.span_ns;
	out->time_share = fmin(1, all.on_ns / all.span_ns);
	out->unseen = 1 - out->time_share;
	idle = all.idle_ns / all.on_ns;
	out->most = out->by_work ? 1 : idle >= ALLOCATED_IDLE_LEAST ? 1 / idle : 0;
	return true;
}

double allocated_estimate(const struct allocated_scale *scale, const struct allocated_sums *sums,
			  float deviations[CALIBRATE_DEVIATIONS])
{
	double sum = 0, n = scale->groups, estimate;
	/* If windows have shown all of the time there is no error. */
	double part = sqrt((n - 1) / n * scale->unseen);

	for (uint32_t i = 0; i < CALIBRATE_GROUPS; i++)
		sum += sums->groups[i];
	estimate = sum * scale->whole;
	for (uint32_t i = 0; i < CALIBRATE_GROUPS; i++)
		deviations[i] =
			(float)(part * ((sum - sums->groups[i]) * scale->without[i] - estimate));
	deviations[CALIBRATE_GROUPS] = 0;
	return estimate;
}

struct allocated_range allocated_range_of(const struct allocated_scale *scale,
					  const struct allocated_sums *sums, double sure)
{
	float deviations[CALIBRATE_DEVIATIONS];
	double estimate = allocated_estimate(scale, sums, deviations);
	double error = NORMAL_95 * sqrt(calibrate_variance(deviations));

	return (struct allocated_range){
		.estimate = sure + estimate,
		.low = sure + fmax(0, estimate - error),
		.high = scale->most > 0 ? sure + (estimate + error) * scale->most : 0};
}

uint32_t allocated_group_of(uint64_t number)
{
	uint64_t turn = hash_u64(number / CALIBRATE_GROUPS + 1);

	/* An odd factor makes a permutation of a power of two. */
	return (uint32_t)((number * (2 * (turn >> 32) + 1) + turn) % CALIBRATE_GROUPS);
}
