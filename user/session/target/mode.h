/* SPDX-License-Identifier: Apache-2.0 */
/* Changing the mode of a process under trace. */
#pragma once

#include "abi/events.h"

struct governor_step;
struct session;
struct target;

/*
 * Changes to the step's mode and sample. cost and budget, shares of CPU time, go into the record.
 * 0; -errno with its reason: the process is traced as before or not at all. EVENT_MODE_OFF fails
 * for lack of memory only.
 */
int target_mode_change(struct session *session, struct target *target,
		       const struct governor_step *step, double cost, double budget);
/*
 * Changes from census to exact mode, because the heap cannot be read (error_reason(-ENOTSUP) says
 * why). The table may hold blocks that were freed long ago, and is dropped.
 */
void target_mode_fall_back(struct session *session, struct target *target);

/* The mode that a target in this mode is planned for: windows have census mode's plan. */
enum event_mode target_plan_mode(enum event_mode mode);
/* Takes over a mode after target_planned(). In windows mode no window is open yet. */
void target_mode_take(struct target *target, enum event_mode mode);
