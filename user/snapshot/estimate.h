/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Estimates from a sample of blocks (abi/sample.h). A block of s bytes is in it with the chance p =
 * 1 - exp(-s / mean), so it stands for 1 / p blocks and s / p bytes (Horvitz and Thompson):
 * whatever is summed up so is unbiased. Since blocks are in the sample independently of each other,
 * the variance of such a sum is that of its parts, for each block in the sample (1 - p) / p^2,
 * times s^2 for bytes, which is unbiased, too.
 */
#ifndef TRACER_SNAPSHOT_ESTIMATE_H
#define TRACER_SNAPSHOT_ESTIMATE_H

#include <stdint.h>

#include "snapshot/snapshot.h"

/* Sums of doubles: not rounded before they are shown. Zero-initialise. */
struct estimate {
	double size, count;
	double size_variance, count_variance;
};

/*
 * The chance of one block to be in a sample with that mean; 1 with a mean of 0, which is no sample.
 */
double estimate_chance(uint64_t mean, uint64_t bytes);
/* Adds count blocks of the sample, of bytes each. */
void estimate_add(struct estimate *sum, uint64_t mean, uint64_t bytes, uint64_t count);
void estimate_join(struct estimate *sum, const struct estimate *part);
/* To the nearest whole number. 0; -EOVERFLOW: more than INT64_MAX (error_set). */
int estimate_round(double value, uint64_t *out);
/* Rounded up: an error is never said to be less than it is. INT64_MAX at most. */
uint64_t estimate_error(double variance);
/* What a trace stands for, rounded. mean 0: what it says. 0; -EOVERFLOW. */
int estimate_trace(uint64_t mean, const struct snapshot_trace *trace, uint64_t *size,
		   uint64_t *count);
/*
 * The other way: the number of blocks in the sample, of so many bytes each, that stand for count
 * (as it was rounded).
 */
uint64_t estimate_sampled(uint64_t mean, uint64_t bytes, uint64_t count);
/* What one block of the sample stands for, in whole bytes. 2^59 at most. */
uint64_t estimate_bytes(uint64_t mean, uint64_t bytes);

/*
 * The snapshot as it would be of all blocks: each trace has so many as it stands for. Numbers are
 * whole: what is rounded off one trace is taken into the next, so that sums of many are right.
 * meta.sample_bytes is 0 in it. 0; -ENOMEM; -EOVERFLOW.
 */
int estimate_snapshot(const struct snapshot *snapshot, struct snapshot **out);

#endif
