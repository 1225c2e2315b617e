/* SPDX-License-Identifier: Apache-2.0 */
#include "proc/family.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "proc/process.h"
#include "util/sorted.h"

#define GENERATIONS 32

struct relative {
	pid_t pid, parent;
};

static int relative_compare(const void *a, const void *b)
{
	const struct relative *x = a, *y = b;

	return CMP(x->pid, y->pid);
}

static int descends(const struct relative *one, pid_t pid, const struct relative *all, size_t count)
{
	for (int i = 0; one && i < GENERATIONS; i++) {
		const struct relative parent = {.pid = one->parent};

		if (one->parent == pid)
			return 1;
		one = bsearch(&parent, all, count, sizeof(*all), relative_compare);
	}
	return 0;
}

/* The processes that run that program, with their parents. */
static size_t same_read(const char *program, const pid_t *pids, size_t count, struct relative *out)
{
	struct process_info info;
	char path[PATH_MAX];
	size_t same = 0;

	for (size_t i = 0; i < count; i++)
		if (!process_program_path(pids[i], path) && !strcmp(path, program) &&
		    !process_info_read(pids[i], &info) && !info.zombie)
			out[same++] = (struct relative){.pid = pids[i], .parent = info.ppid};
	return same;
}

int family_list(pid_t pid, pid_t **pids, size_t *count)
{
	char program[PATH_MAX];
	struct relative *all;
	int err = process_program_path(pid, program) ?: process_list(pids, count);

	if (err)
		return err;
	all = calloc(*count + 1, sizeof(*all));
	if (!all) {
		free(*pids);
		return -ENOMEM;
	}
	size_t same = same_read(program, *pids, *count, all);
	qsort(all, same, sizeof(*all), relative_compare);
	*count = 0;
	for (size_t i = 0; i < same; i++)
		if (all[i].pid != pid && descends(&all[i], pid, all, same))
			(*pids)[(*count)++] = all[i].pid;
	free(all);
	return 0;
}
