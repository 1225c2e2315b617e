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

/*
 * 0, the caller closes runtime and frees plan; -ESRCH; -ENOENT no runtime, a kernel thread or a
 * zombie; -EINVAL a thread and not a process; others as python_runtime_find() and plan_python().
 */
int plan_process(pid_t pid, const struct plan_opts *opts, struct plan_cache *cache,
		 struct process_info *info, struct python_runtime *runtime, struct plan *plan);
/*
 * The same for a runtime that is already found, which stays the caller's. Returns as plan_python().
 */
int plan_runtime(struct python_runtime *runtime, const struct plan_opts *opts,
		 struct plan_cache *cache, struct plan *plan);
/*
 * Adds the plan for mapped memory (plan.memory), or the reason that there is none
 * (plan.memory_why).
 */
void plan_process_memory(pid_t pid, struct plan *plan);
/* "census", … */
const char *plan_mode_name(enum event_mode mode);
