/* SPDX-License-Identifier: Apache-2.0 */
#include "probe/plan_process.h"

#include <stdio.h>

#include "base/text.h"
#include "python/version.h"

int plan_process(pid_t pid, const struct plan_opts *opts, struct process_info *info,
		 struct python_runtime *runtime, struct plan *plan)
{
	int err = python_process_find(pid, info, runtime);

	if (err)
		return err;
	err = plan_python(runtime->file, opts, plan);
	if (err)
		python_runtime_close(runtime);
	return err;
}

void plan_print(const struct python_runtime *runtime, const struct plan *plan)
{
	char version[VERSION_TEXT];

	printf("PID %d: CPython %s in ", runtime->pid, version_text(version, runtime->version_hex));
	text_print(stdout, elf_file_path(runtime->file));
	printf(" (build id %s)\n%s\n",
	       elf_file_build_id(runtime->file)[0] ? elf_file_build_id(runtime->file) : "none", plan->level);
	for (size_t i = 0; i < plan->count; i++) {
		const struct plan_site *site = &plan->sites[i];

		printf("  %-24s file offset 0x%llx  %-28s %s\n", site->symbol,
		       (unsigned long long)site->offset, site->instruction, site->why);
	}
	for (size_t i = 0; i < plan->missing_count; i++)
		printf("  %-24s not probed: %s\n", plan->missing[i].symbol, plan->missing[i].why);
}
