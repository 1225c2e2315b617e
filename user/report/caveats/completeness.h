/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Are the figures of a snapshot complete? The one answer for --require-complete and for the line
 * "Figures: complete". Pure.
 */
#pragma once

#include <stdbool.h>

#include "snapshot/snapshot.h"

#define INCOMPLETE_WHY 384

/*
 * Complete are figures of all blocks that were allocated since the trace began, and are alive, each
 * at its line. Blocks older than the trace, standard errors of estimates and tracebacks that are
 * cut do not matter. If they are not complete, why has the first reason.
 */
bool figures_are_complete(const struct snapshot *snapshot, char why[INCOMPLETE_WHY]);
