/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the probes of all processes together may take of the machine: the policy, pure. Each process
 * has a budget, a share of its CPU time. If these come to more than the machine's, each one is the
 * same part of what it was: windows of probes become rarer, and nobody is left out.
 */
#pragma once

#include <stddef.h>

/*
 * The part of each process's budget, above 0, at most 1, with which all together take at most limit
 * (CPUs). rates: the CPUs that each process takes; overhead: the budget, a share of that or of
 * WINDOWS_RATE_MIN if that is more (windows.h). Probes take no more than all of a process's time.
 */
double machine_part(const double *rates, size_t count, double overhead, double limit);
