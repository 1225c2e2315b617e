/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Estimates from a sample of blocks (abi/sample.h). A block of s bytes is sampled with probability
 * p = 1 - exp(-s / mean), so it stands for 1 / p blocks and s / p bytes (Horvitz-Thompson); sums of
 * these are unbiased. Blocks are sampled independently, so the variance of a sum is the sum of the
 * variances. For each sampled block that is (1 - p) / p^2, times s^2 for bytes; this estimate is
 * unbiased, too.
 *
 * Estimates from windows (snapshot/estimate/calibrate.h) are numbers of blocks already. Those of
 * one process are not independent; what is summed is their deviations. Those of two processes are,
 * since each has windows of its own: their errors add up as the root of the sum of squares, so that
 * many workers are one larger sample. For that the groups of a process are turned, so that the
 * deviations of a few processes with a few windows do not meet at all, and have random signs, with
 * which those that meet do not add up. What rows that no window has shown take from others has no
 * group, and is kept by process.
 */
#pragma once

#include <stdint.h>

#include "snapshot/snapshot.h"

#define ESTIMATE_UNSEEN 16u

/* Sums of doubles, rounded only for display. Zero-initialise. */
struct estimate {
	double size, count;
	double size_variance, count_variance; /* of the samples */
	/* The last one, of what was not seen, is 0: it is in these, by process. */
	float size_deviations[CALIBRATE_DEVIATIONS], count_deviations[CALIBRATE_DEVIATIONS];
	float size_unseen[ESTIMATE_UNSEEN], count_unseen[ESTIMATE_UNSEEN];
};

/* The probability that a block is sampled; 1 if mean is 0 (no sampling). */
double estimate_chance(uint64_t mean, uint64_t bytes);
/* That of a page, of 2^32, for sample_takes_page(). */
uint32_t estimate_page_share(uint64_t mean);
/*
 * The same for blocks that their process has sampled and that stand for weight bytes: the mean of
 * their probabilities. 1 if weight is 0.
 */
double estimate_chance_weighted(uint64_t bytes, uint64_t count, uint64_t weight);
/* The probability with which the blocks of a trace were sampled, by whomever. */
double estimate_chance_of(const struct snapshot *snapshot, const struct snapshot_trace *trace);
/* Adds count blocks of that many bytes each that were sampled with that probability. */
void estimate_add_sampled(struct estimate *sum, double chance, uint64_t bytes, uint64_t count);
/* Adds a trace of the snapshot: sampled, estimated from windows, or exact. */
void estimate_add_trace(struct estimate *sum, const struct snapshot *snapshot,
			const struct snapshot_trace *trace);
void estimate_join(struct estimate *sum, const struct estimate *part);

/*
 * What an estimate of bytes deviates by, to be compared with another one of the same blocks or of
 * those that followed: of what both have seen the errors are the same.
 */
struct estimate_deviations {
	float groups[CALIBRATE_GROUPS];
	float others; /* the standard error of what two estimates do not have in common */
};
void estimate_size_deviations(const struct estimate *sum, struct estimate_deviations *out);
/* Adds those of another process. */
void estimate_deviations_add(struct estimate_deviations *sum,
			     const struct estimate_deviations *part);
/* The standard error of the difference of two estimates; NULL: of nothing. */
double estimate_difference_error(const struct estimate_deviations *from,
				 const struct estimate_deviations *to);

/* The sum is of all rows: what those that no window has shown take from others is within it. */
void estimate_include_unseen(struct estimate *sum);
/* Rounds to the nearest integer. 0; -EOVERFLOW: more than INT64_MAX (error_set). */
int estimate_round(double value, uint64_t *out);
/* The standard errors, rounded up so that they are never understated. At most INT64_MAX. */
uint64_t estimate_size_error(const struct estimate *sum);
uint64_t estimate_count_error(const struct estimate *sum);
/* The rounded estimate for a trace. chance 1: its own figures. 0; -EOVERFLOW. */
int estimate_trace_figures(double chance, const struct snapshot_trace *trace, uint64_t *size,
			   uint64_t *count);
/* The inverse: how many sampled blocks of that many bytes stand for count, a rounded estimate. */
uint64_t estimate_sampled(uint64_t mean, uint64_t bytes, uint64_t count);
/* What one sampled block stands for, in whole bytes. At most 2^59. */
uint64_t estimate_bytes(uint64_t mean, uint64_t bytes);

/*
 * The snapshot scaled to all blocks: each trace gets its estimated count. Counts are integers; the
 * rounding error of one trace is carried to the next, so that sums of many are right.
 * meta.sample_bytes, self_sampled, windows.count and weights are 0 in the result. 0; -ENOMEM;
 * -EOVERFLOW.
 */
int estimate_snapshot(const struct snapshot *snapshot, struct snapshot **out);
