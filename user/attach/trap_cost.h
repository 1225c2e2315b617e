/* SPDX-License-Identifier: Apache-2.0 */
/* What a probe costs before its program begins and after it ends, on this machine. */
#ifndef TRACER_ATTACH_TRAP_COST_H
#define TRACER_ATTACH_TRAP_COST_H

#include "attach/attach.h"

/*
 * Measured on a child of our own that runs into an empty program, on an instruction that the kernel
 * emulates, some ten thousand times; takes about 20 ms. attach has opts.counting. Nanoseconds into
 * *out. 0, -errno with its reason.
 */
int trap_cost_measure(struct attach *attach, double *out);

#endif
