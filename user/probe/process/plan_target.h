/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is probed in a process, by layer: its Python runtime's file, and the files that define
 * allocators.
 */
#pragma once

#include "probe/process/plan_cache.h"
#include "probe/process/plan_native_process.h"
#include "probe/python/plan.h"
#include "proc/process.h"
#include "runtime/cpython/runtime.h"

struct plan_target_opts {
	struct plan_opts python;
	struct plan_native_opts native;
	/*
	 * 1 << enum event_layer for each wanted layer. 0: Python's where there is a runtime,
	 * otherwise the native one (in growth mode, mapped memory alone); the native one in
	 * addition where functions are named for it.
	 */
	uint32_t layers;
	int mode_asked; /* the user set python.mode; it is no default */
};

/* Plans by file, for Python's layer and the native one. */
struct plan_caches {
	struct plan_cache *python;
	struct plan_native_cache *native;
};

/* What opts points to is borrowed until the caches are freed. 0, -ENOMEM. */
int plan_caches_new(struct plan_caches *out, const struct plan_target_opts *opts);
void plan_caches_free(struct plan_caches *caches);

struct plan_target {
	struct process_info info;
	struct python_runtime runtime; /* version_hex 0: no runtime */
	uint32_t layers;               /* the wanted layers that are available */
	/* has no sites without the Python layer; its memory plan is the mmap layer's */
	struct plan python;
	struct plan_file *native; /* the entries point to the cache's */
	size_t native_count;
	/* why the native layer is not available though it was wanted with others; else "" */
	char native_why[320];
};

/* The layers that are traced in a process without Python: 1 << enum event_layer each; 0: none. */
uint32_t plan_target_native_layers(const struct plan_target_opts *opts);
/*
 * 0, the caller frees; -ESRCH it has ended, or is about to, whatever else failed because of that;
 * -EINVAL a thread and not a process; -ENOENT it runs, and has nothing that is wanted (error_set);
 * others as plan_process().
 */
int plan_target(pid_t pid, const struct plan_target_opts *opts, struct plan_caches *caches,
		struct plan_target *out);
void plan_target_free(struct plan_target *target);
/*
 * Calls each with every plan and its file, in the order in which they are placed, until it returns
 * nonzero, and returns that. python: the runtime's file, which may have been moved out of target.
 */
typedef int (*plan_target_fn)(void *context, const struct plan *plan, const struct elf_file *file);
int plan_target_each(const struct plan_target *target, const struct elf_file *python,
		     plan_target_fn each, void *context);
/* How many file descriptors its probes take on a kernel without multi-uprobes. */
size_t plan_target_descriptors(const struct plan_target *target);
/*
 * "CPython 3.11.2, malloc in libc.so.6"; with paths "CPython 3.11.2 in /usr/bin/python3.11, malloc
 * in /lib/libc.so.6". runtime: as the target's, which may have been taken out of it.
 */
void plan_target_describe(const struct plan_target *target, const struct python_runtime *runtime,
			  int paths, char *out, size_t capacity);
