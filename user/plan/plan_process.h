/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The plan for a process: which file of it holds the runtime, and where that is probed. Attaches
 * nothing.
 */
#ifndef TRACER_PLAN_PLAN_PROCESS_H
#define TRACER_PLAN_PLAN_PROCESS_H

#include "plan/plan.h"
#include "plan/plan_cache.h"
#include "process/process.h"
#include "python/runtime.h"

/*
 * 0, and the caller closes runtime and frees plan; -ESRCH; -ENOENT no runtime, a kernel thread or a
 * zombie; -EINVAL a thread and not a process; others as python_runtime_find() and plan_python().
 */
int plan_process(pid_t pid, const struct plan_opts *opts, struct plan_cache *cache,
		 struct process_info *info, struct python_runtime *runtime, struct plan *plan);
/* The same of a runtime that was found, which stays the caller's; as plan_python(). */
int plan_runtime(struct python_runtime *runtime, const struct plan_opts *opts,
		 struct plan_cache *cache, struct plan *plan);
/*
 * Adds the plan for what the process maps (plan.memory), or says in plan.memory_why why there is
 * none.
 */
void plan_process_memory(pid_t pid, struct plan *plan);
/*
 * On stdout: the file, every site with its symbol, offset, instruction and reason, and what is not
 * probed.
 */
void plan_print(const struct python_runtime *runtime, const struct plan *plan);
/* Parts of it. */
void plan_sites_print(const struct plan *plan);
void plan_memory_print(const struct plan *plan);

/* "census", … */
const char *plan_mode_name(enum event_mode mode);

#endif
