/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The plan for a process: which of its files holds the runtime, and where that is probed. Attaches
 * nothing.
 */
#pragma once

#include "probe/process/plan_cache.h"
#include "probe/python/plan.h"
#include "proc/process.h"
#include "runtime/cpython/runtime.h"

/* Of a runtime that was found, which stays the caller's. Returns as plan_python(). */
int plan_runtime(struct python_runtime *runtime, const struct plan_opts *opts,
		 struct plan_cache *cache, struct plan *plan);
/*
 * Adds the plan for mapped memory (plan.memory), or the reason that there is none
 * (plan.memory_why).
 */
void plan_process_memory(pid_t pid, struct plan *plan);
/* "census", … */
const char *plan_mode_name(enum event_mode mode);
