/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Measures the fixed cost of a probe on this machine: before its program begins and after it ends.
 */
#ifndef TRACER_TRIAL_TRAP_COST_H
#define TRACER_TRIAL_TRAP_COST_H

#include "attach/attach.h"

/*
 * Measures some ten thousand hits of an empty program in our own child, on an instruction that the
 * kernel emulates; takes about 20 ms. attach must have opts.counting. Nanoseconds into *out. 0,
 * -errno with its reason.
 */
int trap_cost_measure(struct attach *attach, double *out);

#endif
