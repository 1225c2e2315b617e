/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/plan_target.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/text.h"
#include "plan/plan_memory.h"
#include "plan/plan_process.h"

#define PYTHON (1u << EVENT_LAYER_PYTHON)
#define NATIVE (1u << EVENT_LAYER_NATIVE)
#define MMAP   (1u << EVENT_LAYER_MMAP)

static int is_python_wanted(const struct plan_target_opts *opts)
{
	return !opts->layers || opts->layers & PYTHON;
}

/* A census is one of Python's heap. */
static int is_census_asked(const struct plan_target_opts *opts)
{
	return is_python_wanted(opts) && opts->mode_asked && opts->python.mode == EVENT_MODE_CENSUS;
}

uint32_t plan_target_native_layers(const struct plan_target_opts *opts)
{
	uint32_t layers = opts->layers & ~PYTHON;

	if (is_census_asked(opts))
		return 0;
	if (!opts->layers)
		layers = opts->python.mode == EVENT_MODE_GROWTH ? MMAP : NATIVE;
	if (!opts->layers && opts->native.alloc_count)
		layers |= NATIVE;
	return layers;
}

/* The process runs no Python that could be traced: what is traced instead. */
static int without_python(const struct plan_target_opts *opts, struct plan_target *out)
{
	if (is_census_asked(opts))
		return error_set(
			-ENOENT,
			"no Python runtime in this process, and so no heap that a census could "
			"read");
	out->layers = plan_target_native_layers(opts);
	out->python.mode = EVENT_MODE_EXACT;
	return 0;
}

/* The runtime, and the plan for Python's layer if that is wanted; what the layers are then. */
static int python_plan(pid_t pid, const struct plan_target_opts *opts, struct plan_cache *cache,
		       struct plan_target *out)
{
	int python_wanted = is_python_wanted(opts);
	int err = python_process_find(pid, plan_cache_files(cache), &out->info, &out->runtime);

	if (err) {
		out->runtime = (struct python_runtime){0};
		if (out->info.kernel_thread || out->info.zombie || opts->layers == PYTHON)
			return err;
		/*
		 * Of a version that is not known, its native layer can be traced all the same if
		 * that is asked for.
		 */
		return err == -ENOENT || (err == -ENOTSUP && !python_wanted)
			       ? without_python(opts, out)
			       : err;
	}
	out->layers = opts->layers ? opts->layers : PYTHON;
	out->python.mode = EVENT_MODE_EXACT;
	return python_wanted ? plan_runtime(&out->runtime, &opts->python, cache, &out->python) : 0;
}

static int native_plan(pid_t pid, struct plan_caches *caches, struct plan_target *out)
{
	size_t sites = 0;
	int err = plan_native_process(pid, caches->native, &out->native, &out->native_count);

	if (err)
		return err;
	for (size_t i = 0; i < out->native_count; i++)
		sites += out->native[i].plan->count;
	return sites ? 0
		     : error_set(-ENOENT,
				 "no file that it has mapped names an allocator's functions, as "
				 "where a program is linked statically and stripped");
}

int plan_caches_new(struct plan_caches *out, const struct plan_target_opts *opts)
{
	int err = plan_cache_new(&out->python);

	if (!err)
		err = plan_native_cache_new(&out->native, &opts->native);
	return err;
}

void plan_caches_free(struct plan_caches *caches)
{
	plan_cache_free(caches->python);
	plan_native_cache_free(caches->native);
}

/* 1: it has ended, or is about to. */
static int is_gone(pid_t pid)
{
	struct process_info info;

	return process_info_read(pid, &info) || info.zombie;
}

int plan_target(pid_t pid, const struct plan_target_opts *opts, struct plan_caches *caches,
		struct plan_target *out)
{
	int err;

	error_clear();
	*out = (struct plan_target){0};
	err = python_plan(pid, opts, caches->python, out);
	if (!opts->layers && opts->native.alloc_count)
		out->layers |= NATIVE;
	if (!err && out->layers & NATIVE) {
		err = native_plan(pid, caches, out);
		if (err == -ENOENT && out->layers != NATIVE) {
			snprintf(out->native_why, sizeof(out->native_why), "%s", error_reason(err));
			out->layers &= ~NATIVE;
			err = 0;
		}
	}
	if (!err && out->layers & MMAP && !out->python.memory) {
		plan_process_memory(pid, &out->python);
		if (!out->python.memory && out->layers == MMAP)
			err = error_set(-ENOENT, "%s", out->python.memory_why);
	}
	if (out->python.memory)
		out->layers |= MMAP;
	else
		out->layers &= ~MMAP;
	if (!err && !out->layers)
		err = error_set(-ENOENT, "nothing of what is wanted can be traced in it");
	if (err)
		plan_target_free(out);
	/* Of what has no memory any more nothing can be said. */
	if (err && err != -ESRCH && err != -EINVAL && is_gone(pid))
		err = error_set(-ESRCH, "it has ended, or is about to");
	return err;
}

int plan_target_each(const struct plan_target *target, const struct elf_file *python,
		     plan_target_fn each, void *context)
{
	const struct plan *plan = &target->python;
	int err = plan->count ? each(context, plan, python) : 0;

	if (!err && plan->memory)
		err = each(context, plan->memory, plan->memory_file);
	for (size_t i = 0; i < target->native_count && !err; i++)
		err = each(context, target->native[i].plan, target->native[i].file);
	return err;
}

void plan_target_free(struct plan_target *target)
{
	free(target->native);
	plan_free(&target->python);
	python_runtime_close(&target->runtime);
	memset(target, 0, sizeof(*target));
}

void plan_target_print(const struct plan_target *target)
{
	if (target->layers & PYTHON)
		plan_print(&target->runtime, &target->python);
	else
		printf("PID %d: %s\n", (int)target->info.pid,
		       target->runtime.version_hex ? "Python's allocators are not traced"
						   : "no Python runtime");
	if (target->layers & NATIVE)
		plan_native_print(target->info.pid, target->native, target->native_count);
	if (target->native_why[0])
		printf("the native layer is not traced: %s\n", target->native_why);
	if (!(target->layers & PYTHON))
		plan_memory_print(&target->python);
}
