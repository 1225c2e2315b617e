/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Estimates from windows of probes, calibrated by the heap. Probes are on only in windows at random
 * moments. A block whose allocation was seen in a window and that is still alive is a sampled
 * block. Heap walks count the blocks alive in each stratum (type, size class, cohort) exactly. So
 * the totals of strata are known, and only their split among rows (tracebacks and sizes) is
 * estimated. Pure.
 *
 * A sampled block stands for 1 / inclusion blocks (Horvitz-Thompson), times its survival, and for
 * more if probes slowed the target in its window (calibrate_result.speed). In a stratum with N
 * new blocks, a row with the weight y of all weights Y holds N * y / Y (a ratio estimate,
 * post-stratification).
 * - With few windows such a ratio is biased. So cohorts in a row are joined until they have a dozen
 *   windows, except for the newest cohort. Types of one family are one type unless half a dozen
 *   have shown each of those that hold more than a tenth of the blocks. Types with so few blocks
 *   that windows may well miss all of them are joined with the others of their size class.
 * - A stratum that holds far more blocks than its sampled blocks can stand for (Y plus three
 * standard errors) had a burst between windows. It gets Y; nobody gets the rest ("unseen").
 * - So it is with a type without sampled blocks. A cohort without sampled blocks gets what the
 * sampled blocks of the other cohorts of its type and size class leave unexplained.
 * - Of some strata only a lower bound of the blocks is known (calibrate_stratum.least). If the
 *   sampled blocks stand for more than that by three standard errors, the stratum has as many as
 * these stand for, at most most_blocks, and the error of that number is part of the rows' errors.
 * If nothing but a single window has shown such blocks, there are those that were seen, with the
 *   same error: a large block would else be charged many times, and mostly there is one.
 *
 * What windows must be like. Every moment must be as probable as any other: a window starts
 * anywhere in its span and may reach into the next. Blocks that live no longer than the time
 * between windows are seen only shortly before the walk, so the last window ends at the walk, and a
 * cohort begins where the span of that window does.
 *
 * Errors. Windows are clusters: blocks of one window are not independent. Windows are divided into
 * CALIBRATE_GROUPS random groups, and the estimates are repeated without each group (delete-a-group
 * jackknife). Each row has the deviations of these replicates from its estimate, so the error of
 * any sum of rows (a line, a file) is that of the summed deviations, whatever rows have in common
 * (calibrate_variance()). A further deviation is for rows that no window has shown: their share is
 * that of the rows which only one group has shown, and one part in n + 1 of n windows.
 *
 * Blocks older than the trace are split like the new ones of their type and size class: by
 * donor. What was allocated in a burst since then says little about the time before. So as many
 * of them as the median rate of cohorts explains, for the target's age, are split like the cohorts
 * with at most twice that rate, and as many as bursts of the same frequency would explain like the
 * others. Their deviations contain the sampling error of the split only; that older blocks had the
 * same origin is an assumption. They are never part of the new ones.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#define CALIBRATE_GROUPS 16u
/* The last one is for rows that no window has shown, and for what is left unseen without some. */
#define CALIBRATE_DEVIATIONS (CALIBRATE_GROUPS + 1)

struct calibrate_stratum {
	uint64_t type; /* identifies the type; 0: no object, or unknown */
	/*
	 * Types that differ in a detail (the length of a str) are of one family: where windows show
	 * too little of one, or of its siblings, these are one type. 0: it has no siblings.
	 */
	uint64_t family;
	uint32_t class_bytes; /* the size class */
	/*
	 * The complete heap walk that first showed these blocks, so that a burst between windows is
	 * a stratum of its own; any increasing numbers. 0 for all: not known. A block that was seen
	 * allocated belongs to the walk after that, even if its address was in use before.
	 */
	uint32_t cohort;
	/* Alive now: allocated since the trace began; older than the trace. */
	uint64_t new_blocks, new_bytes;
	uint64_t old_blocks, old_bytes;
	/* 1: new_blocks is a lower bound, 0 if nothing is known. Never joined with other strata */
	int least;
	/* with least: what blocks there can be at most; 0: not known */
	uint64_t most_blocks;
};

struct calibrate_window {
	uint64_t start_ns, end_ns;
	/*
	 * The time that the window represents. The spans of all windows add up to the time traced.
	 */
	uint64_t span_ns;
	/*
	 * The part of it, 0 to 1, in which no thread of the target ran or waited for a processor:
	 * threads sleep as long with probes as without. 0 where it is not known.
	 */
	double idle;
};

/*
 * How probable it is that a block which seems to be alive is still the one that was seen: with all
 * windows, and without each group of them (calibrate_groups()). whole: at least 2^-32.
 */
struct calibrate_survival {
	float whole, without[CALIBRATE_GROUPS];
};

struct calibrate_sampled_block {
	uint32_t stratum, window; /* indices */
	/* What blocks are split by: the caller's number of {traceback, bytes, domain, flags}. */
	uint32_t row;
	/*
	 * 0: died meanwhile. Such sampled blocks show who allocates blocks of the stratum. They
	 * serve only for older blocks of types and size classes without a sampled block that is
	 * alive.
	 */
	uint32_t alive;
	/*
	 * 1: it is not one of the stratum's blocks, but stands for such as were allocated when no
	 * window was open, as one of the same age did once (short-lived blocks). Not one of the
	 * blocks that were seen.
	 */
	uint32_t donor;
	/*
	 * The probability that a block allocated at that moment was seen, above 0, at most 1 (of a
	 * donor, the inverse of the number of blocks for which it stands, at most 2^32): the
	 * window's length divided by its span, as if the target did as much in it as without probes
	 * (calibrate_result.speed).
	 */
	double inclusion;
	const struct calibrate_survival *survival; /* NULL: it is certain */
};

struct calibrate_input {
	const struct calibrate_stratum *strata;
	size_t stratum_count;
	/* All of them, also those that showed nothing. */
	const struct calibrate_window *windows;
	size_t window_count;
	const struct calibrate_sampled_block *sampled_blocks;
	size_t sampled_block_count;
	size_t row_count;
	/* By cohort: the time in which its blocks were allocated. NULL: not known. */
	const uint64_t *cohorts_ns;
	size_t cohort_count;
	uint64_t age_ns; /* of the target when the trace began; 0: not known */
};

struct calibrate_estimate {
	double blocks;
	/* of the replicates; the sum of their squares is the variance (calibrate_variance()) */
	float deviations[CALIBRATE_DEVIATIONS];
};

/* What could not be attributed. */
struct calibrate_unseen {
	double new_blocks, new_bytes;
	double old_blocks, old_bytes;
	float deviations[CALIBRATE_DEVIATIONS]; /* of new_blocks, as of rows; 0 in the sum */
};

struct calibrate_result {
	/* By row. The sums of blocks and unseen equal the totals of the strata. */
	struct calibrate_estimate *rows;
	struct calibrate_estimate *old_rows; /* by donor */
	size_t row_count;
	double *shares; /* by sampled block: of its row's blocks, those that it stands for */
	struct calibrate_unseen *strata; /* by stratum: not seen in any window */
	struct calibrate_unseen unseen;  /* their sum */
	/* of rows: by who took their pools (trace/estimate/pools_split.h) */
	double pool_blocks, pool_bytes;
	/*
	 * What the target did in windows relative to the same time without probes, above 0, at most
	 * 1: an estimate, such that weights add up to the number of blocks, without the strata that
	 * had bursts. It is that of each window's idle part and of the rest of it, in which the
	 * target is slowed as much in all windows; this is the mean over blocks.
	 */
	double speed;
	uint64_t windows;
	uint64_t on_ns, span_ns;          /* of the time traced: in windows; all of it */
	uint64_t new_blocks, seen_blocks; /* new and alive: all; those that are sampled blocks */
	double time_share, blocks_share;  /* the parts of these that windows have shown */
};

/*
 * Divides the windows into random groups, by window; of CALIBRATE_GROUPS windows in a row each is
 * in another one. Always the same, whatever windows follow: so the deviations of two estimates can
 * be compared. Returns how many groups there are.
 */
uint32_t calibrate_groups(size_t window_count, uint8_t *groups);
/*
 * 0; -EINVAL: an index or a probability out of range, a row count above 2^32 - 1 (error_set);
 * -ENOMEM. *out is the caller's to calibrate_free(), untouched on failure. Time: sampled blocks *
 * log(sampled blocks) + (strata + rows) * CALIBRATE_GROUPS.
 */
int calibrate(const struct calibrate_input *input, struct calibrate_result *out);
void calibrate_free(struct calibrate_result *result);
/* By what a replicate without one of so many groups differs, it is multiplied for a deviation. */
double calibrate_scale(uint32_t group_count);

/*
 * The variance of a sum of estimates, given the sum of their deviations. It is widened where few
 * groups of windows contributed, so that 1.96 standard errors are a 95 % interval (Student's t).
 */
double calibrate_variance(const float deviations[CALIBRATE_DEVIATIONS]);
