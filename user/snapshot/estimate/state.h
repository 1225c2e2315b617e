/* SPDX-License-Identifier: Apache-2.0 */
/* Used by this folder: the sampled blocks in order, and what strata show. */
#pragma once

#include <stdbool.h>

#include "snapshot/estimate/calibrate.h"

/*
 * With fewer windows a ratio is biased, and rows that work rarely are missed. Poststratum-strata
 * have at least so many with sampled blocks, if their cell does.
 */
#define ENOUGH_WINDOWS 12
/* What fewer windows have shown says nothing about how many such blocks there are. */
#define FEW_WINDOWS 1.5

/* Beyond its estimate plus so many standard errors a stratum's total is not explained. */
#define LIMIT_ERRORS 3

/* What strata of one size class have in common to be of one cell. */
enum level {
	LEVEL_TYPE,
	LEVEL_FAMILY,
	LEVEL_RARE, /* nothing */
};

/* How fast the blocks of a cohort came, relative to the other cohorts of the cell. */
enum rate_class {
	RATE_CLASS_STEADY,
	RATE_CLASS_FAST,  /* there was a burst, perhaps */
	RATE_CLASS_BURST, /* there was one: it is a post-stratum of its own */
};

/* The blocks that a cell has of one cohort, and the time in which they came. */
struct stretch {
	double blocks, ns;
};

/* The weights of some sampled blocks. */
struct weights {
	double sum;
	double square;            /* the sum of the squares of each window's sum */
	double full, full_square; /* the same, without survival probabilities */
	double windows; /* with sampled blocks; windows of little weight count less (Kish) */
	uint64_t sampled_blocks;
	double seen;     /* of the sampled blocks: no donors; with survival probabilities */
	double seen_sum; /* their weights */
};

struct window_sum {
	double weight, full;
};

/* The blocks that a window's sampled blocks stand for, if it slowed nothing: themselves, and
 * others. */
struct window_share {
	double own, between;
};

/* A figure, and the same without each group of windows. */
struct replicates {
	double whole;
	double without[CALIBRATE_GROUPS];
};

/* A row's part of a cell. */
struct slot {
	uint32_t row;
	struct replicates weight; /* of its sampled blocks */
	struct replicates blocks; /* in the strata that have sampled blocks */
	struct replicates steady; /* of these: in cohorts without a burst, */
	struct replicates fast;   /* and in the others */
};

/*
 * A post-stratum: one cohort or several in a row, of one type and size class. With few
 * windows the ratio of a part to its whole is biased, so cohorts are joined until they have enough.
 */
struct poststratum {
	size_t strata, strata_end;                 /* ranks */
	size_t sampled_blocks, sampled_blocks_end; /* those that are alive */
	double blocks; /* new ones; INFINITY: as many as the sampled blocks stand for */
	struct weights weights;
	int least;    /* calibrate_stratum.least of one of its strata */
	int exceeded; /* with least: the sampled blocks stand for more, even if nothing is slowed */
	int lone;     /* nothing is known but what a single window has shown */
	int burst;    /* its cohorts had one: RATE_CLASS_BURST */
	double most;  /* sum of calibrate_stratum.most_blocks */
	/* Of the blocks that its sampled blocks explain: what they differ by without each group. */
	double explained_without[CALIBRATE_GROUPS];
};

/* The post-strata of one type and size class. */
struct cell {
	size_t poststrata, poststrata_end;
	size_t strata, strata_end;
	size_t sampled_blocks, dead, sampled_blocks_end; /* those that are alive come first */
	/* Blocks that would have come before the trace: at the median rate; in bursts. */
	double old_steady, old_bursts;
	double fast_ns, steady_ns; /* the time of cohorts with a burst, and of the others */
};

struct calibration {
	const struct calibrate_input *input;
	uint8_t *levels; /* by stratum: enum level */
	uint32_t *order; /* strata by type, size class, cohort */
	uint32_t *ranks; /* the inverse */
	struct cell *cells;
	size_t cell_count;
	uint32_t *cell_of;              /* by rank */
	uint8_t *rate_classes;          /* by stratum: enum rate class */
	struct stretch *stretches;      /* of the cell in work */
	uint32_t *sampled_blocks;       /* by cell, alive or not, stratum, row */
	uint32_t group_count;           /* at most CALIBRATE_GROUPS */
	uint8_t *groups;                /* by window */
	struct window_sum *window_sums; /* by window; 0 between uses */
	struct poststratum *poststrata;
	size_t poststratum_count;
	double block_weight; /* the mean weight of a sampled block */
	struct window_share
		*shares;    /* by window: of the sampled blocks that tell about the speed */
	double *speed;      /* by window: what the target did in it, relative to without probes */
	int donors;         /* of the cell in work: it has no other sampled blocks that are alive */
	struct slot *slots; /* of the cell in work */
	uint32_t slot_count;
	uint32_t *slot_of; /* row -> 1 + slot; 0: none, between uses for all */
	struct calibrate_result out;
};

static inline const struct calibrate_sampled_block *
sampled_block_at(const struct calibration *calibration, size_t position)
{
	return &calibration->input->sampled_blocks[calibration->sampled_blocks[position]];
}

static inline const struct calibrate_stratum *stratum_at(const struct calibration *calibration,
							 size_t rank)
{
	return &calibration->input->strata[calibration->order[rank]];
}

/*
 * The blocks that it stands for: itself, and as many between windows as that time is longer than
 * the window, or than the time in which the target would have done the same without probes.
 */
static inline double full_weight_of(const struct calibration *calibration,
				    const struct calibrate_sampled_block *sampled_block)
{
	double speed = calibration->speed[sampled_block->window];

	return sampled_block->donor ? 1 / sampled_block->inclusion / speed
				    : 1 + (1 / sampled_block->inclusion - 1) / speed;
}

/* g: without that group of windows, unless negative. */
static inline double survival_of(const struct calibrate_sampled_block *sampled_block, int g)
{
	if (!sampled_block->survival)
		return 1;
	return (double)(g < 0 ? sampled_block->survival->whole
			      : sampled_block->survival->without[g]);
}

/* The same with its survival. */
static inline double weight_of(const struct calibration *calibration,
			       const struct calibrate_sampled_block *sampled_block, int g)
{
	return full_weight_of(calibration, sampled_block) * survival_of(sampled_block, g);
}

static inline bool is_burst(const struct calibration *calibration, uint32_t stratum)
{
	return calibration->rate_classes[stratum] == RATE_CLASS_BURST;
}

static inline void level_set(struct calibration *calibration, const struct cell *cell,
			     enum level level)
{
	for (size_t rank = cell->strata; rank < cell->strata_end; rank++)
		calibration->levels[calibration->order[rank]] = (uint8_t)level;
}

/* Sums the sampled blocks at positions [begin, end). */
struct weights weights_sum(struct calibration *calibration, size_t begin, size_t end);
/*
 * How many of the blocks are attributed: all, or if these are too many, what the sampled blocks
 * stand for. Survivals do not count: what has taken the place of a dead block is of the rows that
 * were seen there, or the look-alikes would not be as many.
 */
double weights_explain(const struct calibration *calibration, const struct weights *weights,
		       double blocks);
/* Student's t for a 95 % interval, relative to that of the normal distribution. */
double calibrate_student(uint32_t degrees);
/* Splits the older blocks of a cell among its slots. unseen: the share of rows that have none. */
void older_split(struct calibration *calibration, const struct cell *cell, int by_blocks,
		 double unseen);
/* Adds an estimate to a row: blocks, the same without each group, and the part of unseen rows. */
void estimate_add(const struct calibration *calibration, struct calibrate_estimate *row,
		  const struct replicates *blocks, double unseen);
/* Adds the cell's estimates to the result. */
void cell_estimate(struct calibration *calibration, const struct cell *cell);
