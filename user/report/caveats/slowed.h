/* SPDX-License-Identifier: Apache-2.0 */
/* How slow a process is, of whose CPU time the probes take a share. */
#ifndef TRACER_REPORT_CAVEATS_SLOWED_H
#define TRACER_REPORT_CAVEATS_SLOWED_H

#define COST_SLOWED 0.4 /* from there on "to 1/2" and so on say more than the share */
#define COST_MOST   0.99

/* It does 1/N of its work in the same time: N, at most 100, since a share is an estimate. */
static inline double cost_slowed(double share)
{
	return 1 / (1 - (share < COST_MOST ? share : COST_MOST));
}

#endif
