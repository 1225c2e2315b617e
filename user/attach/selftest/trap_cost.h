/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Measures the fixed cost of a probe on this machine: before its program begins and after it ends.
 */
#pragma once

#include <sys/types.h>

#include "attach/attach.h"

struct trap_trial {
	pid_t child; /* 0: none runs */
	int answer_fd;
};

/*
 * Has a child of ours measure some ten thousand hits of an empty program, on an instruction that
 * the kernel emulates. attach must have opts.counting. Takes some milliseconds, and the child about
 * 20. 0: trap_trial_end() is due; -errno with its reason.
 */
int trap_trial_begin(struct trap_trial *out, struct attach *attach);
/*
 * Waits for the child and removes its probe, which takes the kernel some ten milliseconds.
 * Nanoseconds into *cost (NULL: they are not wanted). attach NULL: the probe ends with the attach.
 * 0; -ECHILD with its reason.
 */
int trap_trial_end(struct trap_trial *trial, struct attach *attach, double *cost);
