/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/plan_print.h"

#include <errno.h>
#include <stdio.h>

#include "attach/unwind/survey.h"
#include "probe/process/plan_process.h"
#include "runtime/cpython/version.h"
#include "util/error.h"
#include "util/text.h"

static void sites_print(const struct plan *plan)
{
	for (size_t i = 0; i < plan->count; i++) {
		const struct plan_site *site = &plan->sites[i];

		printf("  %-24s file offset 0x%llx  %-28s %s\n", site->symbol,
		       (unsigned long long)site->offset, site->instruction, site->why);
	}
	for (size_t i = 0; i < plan->missing_count; i++)
		printf("  %-24s not probed: %s\n", plan->missing[i].symbol, plan->missing[i].why);
}

static void memory_print(const struct plan *plan)
{
	if (plan->memory) {
		printf("mapped memory: ");
		text_print(stdout, elf_file_path(plan->memory_file));
		putchar('\n');
		sites_print(plan->memory);
	} else if (plan->memory_why[0]) {
		printf("mapped memory is not followed: %s\n", plan->memory_why);
	}
}

static void python_print(const struct python_runtime *runtime, const struct plan *plan)
{
	char version[VERSION_TEXT];

	printf("PID %d: CPython %s in ", runtime->pid, version_text(version, runtime->version_hex));
	text_print(stdout, elf_file_path(runtime->file));
	printf(" (build id %s)\n%s mode%s%s%s\n%s\n",
	       elf_file_build_id(runtime->file)[0] ? elf_file_build_id(runtime->file) : "none",
	       plan_mode_name(plan->mode), plan->mode_why[0] ? " (" : "", plan->mode_why,
	       plan->mode_why[0] ? ")" : "", plan->level);
	sites_print(plan);
	memory_print(plan);
}

static void native_print(pid_t pid, const struct plan_file *list, size_t count)
{
	printf("PID %d: allocators in %zu file%s\n", pid, count, count == 1 ? "" : "s");
	for (size_t i = 0; i < count; i++) {
		const char *build_id = elf_file_build_id(list[i].file);

		text_print(stdout, elf_file_path(list[i].file));
		printf(" (build id %s): %s\n", build_id[0] ? build_id : "none",
		       list[i].plan->level);
		sites_print(list[i].plan);
	}
}

struct tables {
	size_t files, with, bytes;
};

static void table_print(void *context, const char *path, int err, size_t rows, size_t bytes)
{
	struct tables *tables = context;

	tables->files++;
	tables->with += !err;
	tables->bytes += bytes;
	fputs("  ", stdout);
	text_print(stdout, path);
	if (!err)
		printf(": %zu rows\n", rows);
	else if (err == -ENOENT)
		puts(": none; frame pointers are followed");
	else
		printf(": none; %s\n",
		       err == -EAGAIN ? "it takes too long to read" : error_reason(err));
}

/* In which files a native stack may end early. */
static void tables_print(pid_t pid)
{
	struct tables tables = {0};

	printf("PID %d: unwind tables\n", pid);
	int err = unwind_survey(pid, table_print, &tables);
	if (err)
		printf("  not known: %s\n", error_reason(err));
	else
		printf("  %zu of %zu files have one, %.1f KiB\n", tables.with, tables.files,
		       (double)tables.bytes / 1024);
}

void plan_target_print(const struct plan_target *target)
{
	if (target->layers & (1u << EVENT_LAYER_PYTHON))
		python_print(&target->runtime, &target->python);
	else
		printf("PID %d: %s\n", (int)target->info.pid,
		       target->runtime.version_hex ? "Python's allocators are not traced"
						   : "no Python runtime");
	if (target->layers & (1u << EVENT_LAYER_NATIVE))
		native_print(target->info.pid, target->native, target->native_count);
	if (target->layers & (1u << EVENT_LAYER_NATIVE) && log_level > 1)
		tables_print(target->info.pid);
	if (target->native_why[0])
		printf("the native layer is not traced: %s\n", target->native_why);
	if (!(target->layers & (1u << EVENT_LAYER_PYTHON)))
		memory_print(&target->python);
}
