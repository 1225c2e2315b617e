/* SPDX-License-Identifier: Apache-2.0 */
/* Explains why a pid that the user named is not found, or is another process than intended. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "proc/targets/target_set.h"

#define EXPLAINED 3 /* candidates that are named */

static int has_below(const struct process_info *info, pid_t pid)
{
	for (unsigned int i = 1; i < info->ns_count; i++)
		if (info->ns_pids[i] == pid)
			return 1;
	return 0;
}

int target_pid_explain(pid_t pid, char *out, size_t capacity)
{
	struct container_list list = {0};
	struct process_info info;
	size_t count, found = 0, length = 0;
	pid_t *pids;

	if (process_list(&pids, &count))
		return 0;
	for (size_t i = 0; i < count; i++) {
		char label[CONTAINER_LABEL_SIZE];

		if (process_info_read(pids[i], &info) || !has_below(&info, pid) ||
		    found++ >= EXPLAINED)
			continue;
		if (!list.entries)
			container_list_read(&list);
		const struct container *container = container_of(&list, pids[i]);
		length += (size_t)snprintf(
			out + length, capacity - length, "%sPID %d %s%.60s", length ? ", " : "",
			pids[i], container ? "in container " : "in a PID namespace of its own",
			container ? container_label(container, label) : "");
		if (length >= capacity)
			length = capacity - 1;
	}
	if (found > EXPLAINED)
		snprintf(out + length, capacity - length, " and %zu more", found - EXPLAINED);
	container_list_free(&list);
	free(pids);
	return found > 0;
}

int target_hidden_explain(char *out, size_t capacity)
{
	struct buffer text = {0};
	const char *at;
	int found = 0;

	/*
	 * Matches "… /proc rw,… - proc proc rw,hidepid=invisible". If several mounts are stacked on
	 * /proc, the last one is visible.
	 */
	if (geteuid() && !process_file_read(getpid(), "mountinfo", 1u << 20, &text)) {
		at = (const char *)text.data;
		while ((at = strstr(at, " /proc "))) {
			size_t line = strcspn(at, "\n");
			const char *option = memmem(at, line, "hidepid=", 8);

			found = option && strncmp(option + 8, "0", 1) != 0 &&
				strncmp(option + 8, "off", 3) != 0;
			if (found)
				snprintf(out, capacity, "/proc is mounted with %.*s",
					 (int)strcspn(option, ",\n "), option);
			at += line;
		}
	}
	buffer_free(&text);
	return found;
}
