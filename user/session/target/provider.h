/* SPDX-License-Identifier: Apache-2.0 */
/* Members that sample their native allocations themselves (probe/malloc/plan_provider.h). */
#ifndef TRACER_SESSION_TARGET_PROVIDER_H
#define TRACER_SESSION_TARGET_PROVIDER_H

#include "probe/process/plan_target.h"

struct session;
struct target;

/*
 * Called for a target that has begun, once the probes of a plan are placed. If they are those of a
 * process that samples itself, the trace is told so, once, and the target's own probes on malloc
 * are removed. 0, -errno.
 */
int target_provider_begin(struct session *session, struct target *target,
			  const struct plan_target *plans);

#endif
