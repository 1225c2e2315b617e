/* SPDX-License-Identifier: Apache-2.0 */
#include "snapshot/estimate.h"

#include <errno.h>
#include <math.h>

#include "base/error.h"

#define WHOLE_MAX  0x1p63
#define WEIGHT_MAX (1ull << 59) /* limit of struct block.bytes */

double estimate_chance(uint64_t mean, uint64_t bytes)
{
	return mean ? -expm1(-(double)(bytes ? bytes : 1) / (double)mean) : 1;
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

void estimate_add_trace(struct estimate *sum, const struct snapshot *snapshot,
			const struct snapshot_trace *trace)
{
	const struct snapshot_estimate *estimate;

	estimate_add_sampled(sum, estimate_chance_of(snapshot, trace), trace->bytes, trace->count);
	if (!trace->estimate)
		return;
	estimate = &snapshot->estimates[trace->estimate - 1];
	for (uint32_t i = 0; i < CALIBRATE_DEVIATIONS; i++) {
		sum->count_deviations[i] += estimate->deviations[i];
		sum->size_deviations[i] += estimate->deviations[i] * (float)trace->bytes;
	}
}

void estimate_join(struct estimate *sum, const struct estimate *part)
{
	for (uint32_t i = 0; i < CALIBRATE_DEVIATIONS; i++) {
		sum->count_deviations[i] += part->count_deviations[i];
		sum->size_deviations[i] += part->size_deviations[i];
	}
	sum->count += part->count;
	sum->size += part->size;
	sum->count_variance += part->count_variance;
	sum->size_variance += part->size_variance;
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

uint64_t estimate_size_error(const struct estimate *sum)
{
	return error_round(sum->size_variance + calibrate_variance(sum->size_deviations));
}

uint64_t estimate_count_error(const struct estimate *sum)
{
	return error_round(sum->count_variance + calibrate_variance(sum->count_deviations));
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
	return err ? err : estimate_round(estimate.size, size);
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
	err = estimate_round(total.size, &whole);
	if (!err)
		err = estimate_round(total.count, &whole);
	if (!err)
		err = snapshot_copy(snapshot, &all);
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
