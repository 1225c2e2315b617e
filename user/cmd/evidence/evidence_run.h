/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "cmd/evidence/evidence.h"
#include "proc/targets/target_set.h"

/*
 * tracer -p PID --on-oom FILE, --on-memory: watches the targets until they have ended, a signal
 * asks for the end, or the time is over (0: no limit). opts->folder is made from opts->path. The
 * exit status.
 */
int evidence_run(struct evidence_opts *opts, struct target_set *targets, uint64_t duration_ns);
