/* SPDX-License-Identifier: Apache-2.0 */
/* Members that sample their native allocations themselves (native/plan_provider.h). */
#ifndef TRACER_MEMBER_PROVIDER_H
#define TRACER_MEMBER_PROVIDER_H

#include "process_plan/plan_target.h"

struct session;
struct member;

/*
 * Called for a member that has begun, once the probes of a plan are placed. If they are those of a
 * process that samples itself, the trace is told so, once, and the member's own probes on malloc
 * are removed. 0, -errno.
 */
int member_provider_begin(struct session *session, struct member *member,
			  const struct plan_target *target);

#endif
