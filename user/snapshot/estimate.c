/* SPDX-License-Identifier: Apache-2.0 */
#include "snapshot/estimate.h"

#include <errno.h>
#include <math.h>
#include <string.h>

#include "util/error.h"
#include "util/hash.h"

#define WHOLE_MAX     0x1p63
#define GROUPS_TURNED 5u           /* for each process: no divisor of CALIBRATE_GROUPS */
#define WEIGHT_MAX    (1ull << 59) /* limit of struct block.bytes */

double estimate_chance(uint64_t mean, uint64_t bytes)
{
	return mean ? -expm1(-(double)(bytes ? bytes : 1) / (double)mean) : 1;
}

uint32_t estimate_page_share(uint64_t mean)
{
	return (uint32_t)(estimate_chance(mean, EVENT_PAGES_UNIT) * UINT32_MAX);
}

double estimate_chance_weighted(uint64_t bytes, uint64_t count, uint64_t weight)
{
	return weight ? (double)bytes * (double)count / (double)weight : 1;
}

double estimate_chance_of(const struct snapshot *snapshot, const struct snapshot_trace *trace)
{
	return trace->weight
		       ? estimate_chance_weighted(trace->bytes, trace->count, trace->weight)
		       : estimate_chance(snapshot_sample_bytes(snapshot, trace), trace->bytes);
}

void estimate_add_sampled(struct estimate *sum, double chance, uint64_t bytes, uint64_t count)
{
	double size = (double)bytes;
	double variance = (1 - chance) / (chance * chance) * (double)count;

	sum->count += (double)count / chance;
	sum->size += (double)count * size / chance;
	sum->count_variance += variance;
	sum->size_variance += variance * size * size;
}

/* Whether what a process deviates by is turned round, where it meets others' (estimate.h). */
static float sign_of(uint64_t process, uint32_t group)
{
	return process && hash_u64(process << 8 | group) & 1 ? -1 : 1;
}

static void unseen_add(struct estimate *sum, const struct snapshot_trace *trace, float unseen)
{
	uint32_t at = trace->process % ESTIMATE_UNSEEN;

	if (trace->process >= ESTIMATE_UNSEEN)
		unseen *= sign_of(trace->process, CALIBRATE_GROUPS);
	sum->count_unseen[at] += unseen;
	sum->size_unseen[at] += unseen * (float)trace->bytes;
}

void estimate_add_trace(struct estimate *sum, const struct snapshot *snapshot,
			const struct snapshot_trace *trace)
{
	const struct snapshot_estimate *estimate;

	estimate_add_sampled(sum, estimate_chance_of(snapshot, trace), trace->bytes, trace->count);
	if (!trace->estimate)
		return;
	estimate = &snapshot->estimates[trace->estimate - 1];
	for (uint32_t i = 0; i < CALIBRATE_GROUPS; i++) {
		uint32_t at = (uint32_t)((i + (uint64_t)trace->process * GROUPS_TURNED) %
					 CALIBRATE_GROUPS);
		float deviation = estimate->deviations[i] * sign_of(trace->process, i);

		sum->count_deviations[at] += deviation;
		sum->size_deviations[at] += deviation * (float)trace->bytes;
	}
	unseen_add(sum, trace, estimate->deviations[CALIBRATE_GROUPS]);
}

void estimate_join(struct estimate *sum, const struct estimate *part)
{
	for (uint32_t i = 0; i < CALIBRATE_DEVIATIONS; i++) {
		sum->count_deviations[i] += part->count_deviations[i];
		sum->size_deviations[i] += part->size_deviations[i];
	}
	for (uint32_t i = 0; i < ESTIMATE_UNSEEN; i++) {
		sum->count_unseen[i] += part->count_unseen[i];
		sum->size_unseen[i] += part->size_unseen[i];
	}
	sum->count += part->count;
	sum->size += part->size;
	sum->count_variance += part->count_variance;
	sum->size_variance += part->size_variance;
}

void estimate_include_unseen(struct estimate *sum)
{
	memset(sum->size_unseen, 0, sizeof(sum->size_unseen));
	memset(sum->count_unseen, 0, sizeof(sum->count_unseen));
}

int estimate_round(double value, uint64_t *out)
{
	if (!(value >= 0 && value < WHOLE_MAX))
		return error_set(-EOVERFLOW, "the sums exceed 2^63");
	*out = (uint64_t)llround(value);
	return 0;
}

static uint64_t error_round(double variance)
{
	double error = ceil(sqrt(variance));

	return error < WHOLE_MAX ? (uint64_t)error : INT64_MAX;
}

static double variance_of(double sampled, const float *deviations, const float *unseen)
{
	double variance = sampled + calibrate_variance(deviations);

	for (uint32_t i = 0; i < ESTIMATE_UNSEEN; i++)
		variance += (double)unseen[i] * (double)unseen[i];
	return variance;
}

uint64_t estimate_size_error(const struct estimate *sum)
{
	return error_round(variance_of(sum->size_variance, sum->size_deviations, sum->size_unseen));
}

uint64_t estimate_count_error(const struct estimate *sum)
{
	return error_round(
		variance_of(sum->count_variance, sum->count_deviations, sum->count_unseen));
}

void estimate_size_deviations(const struct estimate *sum, struct estimate_deviations *out)
{
	static const float none[CALIBRATE_DEVIATIONS];

	memcpy(out->groups, sum->size_deviations, sizeof(out->groups));
	out->others = (float)sqrt(variance_of(sum->size_variance, none, sum->size_unseen));
}

void estimate_deviations_add(struct estimate_deviations *sum,
			     const struct estimate_deviations *part)
{
	for (uint32_t i = 0; i < CALIBRATE_GROUPS; i++)
		sum->groups[i] += part->groups[i];
	sum->others = hypotf(sum->others, part->others);
}

double estimate_difference_error(const struct estimate_deviations *from,
				 const struct estimate_deviations *to)
{
	static const struct estimate_deviations none;
	float differences[CALIBRATE_DEVIATIONS] = {0};

	from = from ?: &none;
	to = to ?: &none;
	for (uint32_t i = 0; i < CALIBRATE_GROUPS; i++)
		differences[i] = to->groups[i] - from->groups[i];
	return sqrt(calibrate_variance(differences) + (double)from->others * (double)from->others +
		    (double)to->others * (double)to->others);
}

int estimate_trace_figures(double chance, const struct snapshot_trace *trace, uint64_t *size,
			   uint64_t *count)
{
	struct estimate estimate = {0};

	if (chance >= 1) {
		*count = trace->count;
		if (__builtin_mul_overflow(trace->bytes, trace->count, size))
			return error_set(-EOVERFLOW, "%llu blocks of %llu bytes exceed 64 bits",
					 (unsigned long long)trace->count,
					 (unsigned long long)trace->bytes);
		return 0;
	}
	estimate_add_sampled(&estimate, chance, trace->bytes, trace->count);
	int err = estimate_round(estimate.count, count);
	return err ?: estimate_round(estimate.size, size);
}

/* The rounding error of the product is less than half a block. */
uint64_t estimate_sampled(uint64_t mean, uint64_t bytes, uint64_t count)
{
	return mean ? (uint64_t)llround((double)count * estimate_chance(mean, bytes)) : count;
}

uint64_t estimate_bytes(uint64_t mean, uint64_t bytes)
{
	double whole = (double)bytes / estimate_chance(mean, bytes);

	return !mean ? bytes : whole < (double)WEIGHT_MAX ? (uint64_t)llround(whole) : WEIGHT_MAX;
}

int estimate_snapshot(const struct snapshot *snapshot, struct snapshot **out)
{
	struct estimate total = {0};
	struct snapshot *all;
	uint64_t whole;
	double rest = 0;
	int err;

	for (size_t i = 0; i < snapshot->trace_count; i++)
		estimate_add_trace(&total, snapshot, &snapshot->traces[i]);
	err = estimate_round(total.size, &whole)
			?: estimate_round(total.count, &whole)
			?: snapshot_copy(snapshot, &all);
	if (err)
		return err;
	for (size_t i = 0; i < all->trace_count; i++) {
		struct snapshot_trace *trace = &all->traces[i];
		double count = (double)trace->count / estimate_chance_of(snapshot, trace) + rest;

		trace->weight = 0;
		trace->count = (uint64_t)llround(count);
		trace->estimate = 0;
		rest = count - (double)trace->count;
	}
	all->meta.sample_bytes = all->meta.windows.count = 0;
	all->meta.self_sampled = 0;
	for (size_t i = 0; i < all->process_count; i++) {
		all->processes[i].sample_bytes = all->processes[i].windows.count = 0;
		all->processes[i].self_sampled = 0;
	}
	*out = all;
	return 0;
}
