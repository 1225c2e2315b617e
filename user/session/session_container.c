/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The name of the container that a process is in. The list of them is read again when a process is
 * in none of it.
 */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/buffer.h"
#include "base/clock.h"
#include "container/cgroup.h"
#include "process/process.h"
#include "session/session_state.h"

#define LIST_NS 1000000000ull /* between two readings at least */

static const struct container *container_find(struct session *session, pid_t pid)
{
	const struct container *found = container_of(&session->containers, pid);
	uint64_t now = clock_ns(CLOCK_MONOTONIC);

	if (found || (session->containers_ns && now - session->containers_ns < LIST_NS))
		return found;
	container_list_free(&session->containers);
	session->containers = (struct container_list){0};
	session->containers_ns = now;
	return container_list_read(&session->containers) ? NULL
							 : container_of(&session->containers, pid);
}

void session_container(struct session *session, pid_t pid, char *out, size_t room)
{
	struct cgroup_container in;
	struct buffer text = {0};

	out[0] = '\0';
	if (!process_file_read(pid, "cgroup", CGROUP_TEXT_MAX, &text) &&
	    cgroup_container_find((const char *)text.data, &in, NULL)) {
		const struct container *container = container_find(session, pid);
		char label[CONTAINER_LABEL_SIZE];

		if (container)
			snprintf(out, room, "%s", container_label(container, label));
		else
			snprintf(out, room, "%.12s", in.id);
	}
	buffer_free(&text);
}
