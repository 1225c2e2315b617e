/* SPDX-License-Identifier: Apache-2.0 */
/* How good the figures of a sample or of windows are, and how much longer a trace must be. */
#pragma once

#include "snapshot/group/group.h"

#define PRECISION_AIM 0.2 /* the standard error of a line's size, by its size */

/*
 * The largest standard error by size of the lines that hold at least a tenth of the total, or of
 * the largest one. 0: the figures are no estimates. INFINITY: there is no line.
 */
double precision_of(const struct statistics *statistics);
/*
 * By how much a trace of that length must be longer until that error is `aim`: an error falls with
 * the root of the number of windows, or of the blocks of a sample. 0: it is.
 */
double precision_more(double error, double length, double aim);
/* What to aim at next with such an error: PRECISION_AIM, 10 or 5 %; 0: it is good enough. */
double precision_next(double error);
