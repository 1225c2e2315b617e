/* SPDX-License-Identifier: Apache-2.0 */
#include "probe/process/plan_target.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "probe/malloc/plan_provider.h"
#include "probe/process/plan_memory.h"
#include "probe/process/plan_process.h"
#include "probe/process/translator.h"
#include "runtime/cpython/version.h"
#include "util/error.h"

#define PYTHON (1u << EVENT_LAYER_PYTHON)
#define NATIVE (1u << EVENT_LAYER_NATIVE)
#define MMAP   (1u << EVENT_LAYER_MMAP)
#define PAGES  (1u << EVENT_LAYER_PAGES)

static bool is_python_wanted(const struct plan_target_opts *opts)
{
	return !opts->layers || opts->layers & PYTHON;
}

/* A census walks Python's heap, so the request needs Python's layer. */
static bool is_census_asked(const struct plan_target_opts *opts)
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

/* Sets the layers to trace in a process without a Python that can be traced. */
static int without_python(const struct plan_target_opts *opts, struct plan_target *out)
{
	if (is_census_asked(opts))
		return error_set(-ENOENT,
				 "no Python runtime in this process, and so no heap for a census");
	out->layers = plan_target_native_layers(opts);
	out->python.mode = EVENT_MODE_EXACT;
	return 0;
}

/* Finds the runtime, plans Python's layer if it is wanted, and sets the layers. */
static int python_plan(pid_t pid, const struct plan_target_opts *opts, struct plan_cache *cache,
		       struct plan_target *out)
{
	int python_wanted = is_python_wanted(opts);
	int err = python_process_find(pid, plan_cache_files(cache), 1, &out->info, &out->runtime);

	if (err) {
		out->runtime = (struct python_runtime){0};
		if (out->info.kernel_thread || out->info.zombie || out->info.headless ||
		    opts->layers == PYTHON)
			return err;
		/*
		 * For an unknown version, the native layer can still be traced if it is requested.
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
				 "none of its mapped files has symbols of an allocator, as in a "
				 "program that is linked statically and stripped");
}

int plan_caches_new(struct plan_caches *out, const struct plan_target_opts *opts)
{
	int err = plan_cache_new(&out->python);

	if (err)
		return err;
	err = plan_native_cache_new(&out->native, &opts->native);
	if (err) {
		plan_cache_free(out->python);
		out->python = NULL;
	}
	return err;
}

void plan_caches_free(struct plan_caches *caches)
{
	plan_cache_free(caches->python);
	plan_native_cache_free(caches->native);
}

/* 1: the process has ended, or is about to. */
static bool is_gone(pid_t pid)
{
	struct process_info info;
	int err = process_info_read(pid, &info);

	return err == -ESRCH || (!err && (info.zombie || info.headless));
}

int plan_target(pid_t pid, const struct plan_target_opts *opts, struct plan_caches *caches,
		struct plan_target *out)
{
	error_clear();
	*out = (struct plan_target){0};
	int err = translator_check(pid) ?: python_plan(pid, opts, caches->python, out);
	if (!opts->layers && opts->native.alloc_count)
		out->layers |= NATIVE;
	/*
	 * What leads to Python's state, some pages, was read in any case: the process needs them to
	 * run one line. From now on nothing is swapped in.
	 */
	if (out->runtime.space)
		space_swap_in(out->runtime.space, 0);
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
		err = error_set(-ENOENT, "none of the requested layers can be traced in it");
	int headless = out->info.headless;
	if (err)
		plan_target_free(out);
	/* A process that is ending has no memory map, which makes other steps fail. */
	if (err && err != -ESRCH && err != -EINVAL && !headless && is_gone(pid))
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

/* A probe of a return takes a descriptor of its own. */
static size_t plan_descriptors(const struct plan *plan)
{
	size_t count = plan->count;

	for (size_t i = 0; i < plan->count; i++)
		count += plan->sites[i].with_return != 0;
	return plan->memory ? count + plan_descriptors(plan->memory) : count;
}

size_t plan_target_descriptors(const struct plan_target *target)
{
	size_t count = plan_descriptors(&target->python);

	for (size_t i = 0; i < target->native_count; i++)
		count += plan_descriptors(target->native[i].plan);
	return count;
}

static const char *file_shown(const struct elf_file *file, int whole)
{
	const char *path = elf_file_path(file), *slash = whole ? NULL : strrchr(path, '/');

	return slash ? slash + 1 : path;
}

static const char *native_what(const struct plan_target *target)
{
	return plan_native_is_self_sampled(target->native, target->native_count)
		       ? "its own samples, " PLAN_PROVIDER " in "
		       : "malloc in ";
}

void plan_target_describe(const struct plan_target *target, const struct python_runtime *runtime,
			  int paths, char *out, size_t capacity)
{
	char version[VERSION_TEXT];
	size_t at = 0;

	out[0] = '\0';
	if (target->layers & PYTHON)
		at += snprintf(out, capacity, "CPython %s%s%s",
			       version_text(version, runtime->version_hex), paths ? " in " : "",
			       paths ? file_shown(runtime->file, 1) : "");
	for (size_t i = 0; i < target->native_count && at < capacity; i++)
		at += snprintf(out + at, capacity - at, "%s%s%s", at ? ", " : "",
			       i ? "" : native_what(target),
			       file_shown(target->native[i].file, paths));
	if (!at && target->layers & PAGES)
		snprintf(out, capacity, "page faults");
	else if (!at)
		snprintf(out, capacity, "mapped memory in %s",
			 file_shown(target->python.memory_file, paths));
}

void plan_target_free(struct plan_target *target)
{
	free(target->native);
	plan_free(&target->python);
	python_runtime_close(&target->runtime);
	memset(target, 0, sizeof(*target));
}
