/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/plan_process.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/error.h"
#include "base/text.h"
#include "plan/plan_memory.h"
#include "python/heap.h"
#include "python/version.h"

void plan_process_memory(pid_t pid, struct plan *plan)
{
	int err;

	plan->memory = calloc(1, sizeof(*plan->memory));
	err = plan->memory ? plan_memory_process(pid, &plan->memory_file, plan->memory) : -ENOMEM;
	if (!err)
		return;
	snprintf(plan->memory_why, sizeof(plan->memory_why), "%s", error_reason(err));
	free(plan->memory);
	plan->memory = NULL;
}

void plan_sites_print(const struct plan *plan)
{
	for (size_t i = 0; i < plan->count; i++) {
		const struct plan_site *site = &plan->sites[i];

		printf("  %-24s file offset 0x%llx  %-28s %s\n", site->symbol,
		       (unsigned long long)site->offset, site->instruction, site->why);
	}
	for (size_t i = 0; i < plan->missing_count; i++)
		printf("  %-24s not probed: %s\n", plan->missing[i].symbol, plan->missing[i].why);
}

/*
 * An application may have CPython linked into it and name none of it. Its allocators are found all
 * the same, but not where an object is taken from a free list: its block would stay at the line of
 * its first life.
 */
static int names_check(struct elf_file *file)
{
	struct elf_symbol symbol;

	if (!elf_file_symbol(file, "_Py_NewReference", &symbol) ||
	    !elf_file_symbol(file, "_Py_tracemalloc_config", &symbol))
		return 0;
	return error_set(
		-ENOTSUP,
		"%s has Python linked into it without its symbols, so it is not to be seen where "
		"objects are taken from free lists (-Wl,--export-dynamic keeps them; --mode growth "
		"does without)",
		elf_file_path(file));
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
		unreadable = heap_find(runtime);
	possible.pool_bytes = runtime->offsets->heap.pool_bytes;
	/* Whoever asks for growth mode cannot afford another. */
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

int plan_process(pid_t pid, const struct plan_opts *opts, struct plan_cache *cache,
		 struct process_info *info, struct python_runtime *runtime, struct plan *plan)
{
	int err = python_process_find(pid, plan_cache_files(cache), info, runtime);

	if (err)
		return err;
	err = plan_runtime(runtime, opts, cache, plan);
	if (err)
		python_runtime_close(runtime);
	return err;
}

const char *plan_mode_name(enum event_mode mode)
{
	return mode == EVENT_MODE_CENSUS   ? "census"
	       : mode == EVENT_MODE_GROWTH ? "growth"
					   : "exact";
}

void plan_print(const struct python_runtime *runtime, const struct plan *plan)
{
	char version[VERSION_TEXT];

	printf("PID %d: CPython %s in ", runtime->pid, version_text(version, runtime->version_hex));
	text_print(stdout, elf_file_path(runtime->file));
	printf(" (build id %s)\n%s mode%s%s%s\n%s\n",
	       elf_file_build_id(runtime->file)[0] ? elf_file_build_id(runtime->file) : "none",
	       plan_mode_name(plan->mode), plan->mode_why[0] ? " (" : "", plan->mode_why,
	       plan->mode_why[0] ? ")" : "", plan->level);
	plan_sites_print(plan);
	plan_memory_print(plan);
}

void plan_memory_print(const struct plan *plan)
{
	if (plan->memory) {
		printf("mapped memory: ");
		text_print(stdout, elf_file_path(plan->memory_file));
		putchar('\n');
		plan_sites_print(plan->memory);
	} else if (plan->memory_why[0]) {
		printf("mapped memory is not followed: %s\n", plan->memory_why);
	}
}
