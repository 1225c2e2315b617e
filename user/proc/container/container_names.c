/* SPDX-License-Identifier: Apache-2.0 */
/* The list is read again, at most once a second, when a process is in a container not on it. */
#include "proc/container/container_names.h"

#include <stdio.h>
#include <time.h>

#include "proc/container/cgroup.h"
#include "proc/process.h"
#include "util/buffer.h"
#include "util/clock.h"

#define LIST_NS 1000000000ull /* the least time between two reads of the list */

static const struct container *container_find(struct container_names *names, pid_t pid)
{
	const struct container *found = container_of(&names->list, pid);
	uint64_t now = clock_ns(CLOCK_MONOTONIC);

	if (found || (names->read_ns && now - names->read_ns < LIST_NS))
		return found;
	container_names_free(names);
	names->read_ns = now;
	return container_list_read(&names->list) ? NULL : container_of(&names->list, pid);
}

void container_names_find(struct container_names *names, pid_t pid, char *out, size_t capacity)
{
	struct cgroup_container in;
	struct buffer text = {0};

	out[0] = '\0';
	if (!process_file_read(pid, "cgroup", CGROUP_TEXT_MAX, &text) &&
	    cgroup_container_find((const char *)text.data, &in, NULL)) {
		const struct container *container = container_find(names, pid);
		char label[CONTAINER_LABEL_SIZE];

		if (container)
			snprintf(out, capacity, "%s", container_label(container, label));
		else
			snprintf(out, capacity, "%.12s", in.id);
	}
	buffer_free(&text);
}

void container_names_free(struct container_names *names)
{
	container_list_free(&names->list);
	*names = (struct container_names){0};
}
