/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What of a process is to be probed, layer by layer: its Python runtime's file, and those that
 * define allocators.
 */
#ifndef TRACER_PLAN_PLAN_TARGET_H
#define TRACER_PLAN_PLAN_TARGET_H

#include "plan/plan.h"
#include "plan/plan_cache.h"
#include "plan/plan_native_process.h"
#include "process/process.h"
#include "python/runtime.h"

struct plan_target_opts {
	struct plan_opts python;
	struct plan_native_opts native;
	/*
	 * 1 << enum event_layer for each layer that is wanted; 0: Python's where there is a
	 * runtime, and else the native one (in growth mode, mapped memory alone), and the native
	 * one beside it where functions are named for it.
	 */
	uint32_t layers;
	int mode_asked; /* python.mode was asked for by name, and is no default */
};

/* Plans by file, of Python's layer and of the native one. */
struct plan_caches {
	struct plan_cache *python;
	struct plan_native_cache *native;
};

/* What opts point to is borrowed until the caches are freed. 0, -ENOMEM. */
int plan_caches_new(struct plan_caches *out, const struct plan_target_opts *opts);
void plan_caches_free(struct plan_caches *caches);

struct plan_target {
	struct process_info info;
	struct python_runtime runtime; /* version_hex 0: there is none */
	uint32_t layers;               /* those that can be had of the wanted ones */
	/* no site without that layer; its memory is the mmap layer's */
	struct plan python;
	struct plan_file *native; /* what is in it is the cache's */
	size_t native_count;
	char native_why
		/* why the native layer is not there, though it was wanted with others; else "" */
		[160];
};

/*
 * What is traced of a process that runs no Python: 1 << enum event_layer for each layer; 0: nothing
 * is.
 */
uint32_t plan_target_native_layers(const struct plan_target_opts *opts);
/*
 * 0, and the caller frees; -ESRCH it is gone: it has ended, or is about to, whatever else went
 * wrong by that; -EINVAL a thread and not a process; -ENOENT it runs, and nothing of what is wanted
 * is there (error_set); others as plan_process().
 */
int plan_target(pid_t pid, const struct plan_target_opts *opts, struct plan_caches *caches,
		struct plan_target *out);
void plan_target_free(struct plan_target *target);
/*
 * Calls each with every plan and its file, in the order in which they are placed, until it returns
 * other than 0, which is returned. python: the runtime's file, which may have been taken out of the
 * target.
 */
typedef int (*plan_target_fn)(void *context, const struct plan *plan, const struct elf_file *file);
int plan_target_each(const struct plan_target *target, const struct elf_file *python,
		     plan_target_fn each, void *context);
/*
 * On stdout: every site with its file, symbol, offset, instruction and reason, and what is not
 * probed.
 */
void plan_target_print(const struct plan_target *target);

#endif
