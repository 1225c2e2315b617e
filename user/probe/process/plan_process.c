/* SPDX-License-Identifier: Apache-2.0 */
#include "probe/process/plan_process.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "probe/process/plan_memory.h"
#include "runtime/cpython/heap.h"
#include "util/error.h"

void plan_process_memory(pid_t pid, struct plan *plan)
{
	plan->memory = calloc(1, sizeof(*plan->memory));
	int err =
		plan->memory ? plan_memory_process(pid, &plan->memory_file, plan->memory) : -ENOMEM;
	if (!err)
		return;
	snprintf(plan->memory_why, sizeof(plan->memory_why), "%s", error_reason(err));
	free(plan->memory);
	plan->memory = NULL;
}

/*
 * An application may have CPython linked into it without exporting its symbols. Its allocators are
 * still found, but not the places where objects are taken from free lists: an object's block would
 * stay charged to the line of the object that first used it.
 */
static int names_check(struct elf_file *file)
{
	struct elf_symbol symbol;

	if (!elf_file_symbol(file, "_Py_NewReference", &symbol) ||
	    !elf_file_symbol(file, "_Py_tracemalloc_config", &symbol))
		return 0;
	return error_set(
		-ENOTSUP,
		"%s has Python linked into it without its symbols, so the places where objects are "
		"taken from free lists are not found (-Wl,--export-dynamic keeps them; --mode "
		"growth does without)",
		elf_file_path(file));
}

/*
 * Modes that leave out probes need the heap as the process ends, too, which only BPF could read
 * then.
 */
static int heap_mode_check(const struct python_runtime *runtime)
{
	if (runtime->offsets->build == BUILD_FREE_THREADED)
		return error_set(-ENOTSUP, "without the GIL it is mimalloc's, which is read from "
					   "outside only, not as the process ends");
	return heap_find(runtime);
}

int plan_runtime(struct python_runtime *runtime, const struct plan_opts *opts,
		 struct plan_cache *cache, struct plan *plan)
{
	struct plan_opts possible = *opts;
	int err, unreadable = 0;

	err = opts->mode == EVENT_MODE_GROWTH ? 0 : names_check(runtime->file);
	if (err)
		return err;
	if (opts->mode == EVENT_MODE_CENSUS || opts->mode == EVENT_MODE_GROWTH)
		unreadable = heap_mode_check(runtime);
	possible.pool_bytes = runtime->offsets->heap.pool_bytes;
	possible.free_threaded = runtime->offsets->build == BUILD_FREE_THREADED;
	/*
	 * Growth mode is requested because the other modes cost too much, so there is no fallback.
	 */
	if (unreadable && opts->mode == EVENT_MODE_GROWTH)
		return unreadable;
	if (unreadable)
		possible.mode = EVENT_MODE_EXACT;
	err = plan_cache_python(cache, runtime->file, &possible, plan);
	if (!err && unreadable)
		snprintf(plan->mode_why, sizeof(plan->mode_why), "the heap cannot be read: %s",
			 error_reason(unreadable));
	if (!err && plan->mode == EVENT_MODE_GROWTH)
		plan_process_memory(runtime->pid, plan);
	return err;
}

const char *plan_mode_name(enum event_mode mode)
{
	return mode == EVENT_MODE_CENSUS   ? "census"
	       : mode == EVENT_MODE_GROWTH ? "growth"
					   : "exact";
}
