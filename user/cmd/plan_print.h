/* SPDX-License-Identifier: Apache-2.0 */
/* Probe plans for people to read. */
#pragma once

#include "probe/process/plan_target.h"

/*
 * Prints to stdout every site of the target's plans with its file, symbol, offset, instruction and
 * reason, and the functions that are not probed. With -v also the files that native stacks pass
 * through, and whether they have unwind tables.
 */
void plan_target_print(const struct plan_target *target);
