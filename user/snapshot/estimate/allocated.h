/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What was allocated in all of the time, alive or not, from what windows of probes have shown.
 * Pure.
 *
 * A window stands for the time since the window before: what it has shown counts span / length
 * times (Horvitz-Thompson). That is too little if probes slow the target in windows. Some probes
 * are in place all the time: those of pools that are taken into use, and of large blocks as long as
 * these are not traced in windows only. They show how much of the work was done in windows. So
 * where windows have shown enough of their records, the estimate is a ratio: what windows have
 * shown, by the records in them, times all records.
 *
 * Where they have not, the time is all that is known. Then the estimate is a lower bound, apart
 * from its sampling error: probes make nothing faster. A target that sleeps between its work, or
 * waits for it, sleeps as long with probes as without. So if it was idle for the part i of its
 * windows, what it did there is at least i of what it does without probes, and the truth at most
 * 1 / i of the estimate.
 *
 * Windows are clusters, in CALIBRATE_GROUPS groups; errors are those of a delete-a-group jackknife,
 * as in calibrate.h.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "snapshot/estimate/calibrate.h"

/* With fewer records of probes that are always in place they say too little. */
#define ALLOCATED_WORK_LEAST 32
/* Estimates need so many groups of windows, or nothing is known of their errors. */
#define ALLOCATED_GROUPS_LEAST 3
/* A target that is idle for a smaller part of its windows may do any number of times as much. */
#define ALLOCATED_IDLE_LEAST 0.5

/* A group of windows; sums. Zero-initialise. */
struct allocated_group {
	double span_ns, on_ns, idle_ns; /* idle: as in struct calibrate_window, of on_ns */
	double work;                    /* records of the other probes in span_ns */
	double work_shown; /* those in windows, each times its window's span / length */
	uint64_t work_in;  /* those in windows */
};

void allocated_group_add(struct allocated_group *sum, const struct allocated_group *group);

/* How groups of windows are extrapolated. */
struct allocated_scale {
	/* For all groups, and without each of them: what sums of weights are multiplied by. */
	double whole, without[CALIBRATE_GROUPS];
	double unseen;     /* the part of the time that no window has shown */
	uint32_t groups;   /* that have windows */
	bool by_work;      /* else by time, and a lower bound */
	double most;       /* the truth is at most so many times the estimate; 0: not known */
	uint64_t span_ns;  /* the time that it is about */
	double time_share; /* of it in windows */
};

/* Bytes or blocks; each that a window has shown times the window's span / length. */
struct allocated_sums {
	double groups[CALIBRATE_GROUPS];
};

/*
 * false: there are too few windows for estimates. What has no window is left out of time_share and
 * span_ns.
 */
bool allocated_scale_find(const struct allocated_group groups[CALIBRATE_GROUPS],
			  struct allocated_scale *out);
/* The estimate. deviations: as in calibrate.h, the last one 0. */
double allocated_estimate(const struct allocated_scale *scale, const struct allocated_sums *sums,
			  float deviations[CALIBRATE_DEVIATIONS]);

/* A 95 % interval. */
struct allocated_range {
	double estimate, low, high; /* high 0: not known */
};
/* sure: so much was seen one by one, and is part of the estimate. */
struct allocated_range allocated_range_of(const struct allocated_scale *scale,
					  const struct allocated_sums *sums, double sure);

/*
 * The group of a window, by its number from 0 on: of CALIBRATE_GROUPS windows in a row each is in
 * another one, in an order that differs, so that groups keep no step with periodic work.
 */
uint32_t allocated_group_of(uint64_t number);
