/* SPDX-License-Identifier: Apache-2.0 */
#include "util/sched_time.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static int task_file_read(pid_t tid, const char *name, char *text, size_t bytes)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/self/task/%d/%s", (int)tid, name);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return 0;
	ssize_t got = read(fd, text, bytes - 1);
	close(fd);
	text[got > 0 ? got : 0] = '\0';
	return got > 0;
}

uint64_t sched_time_ns(pid_t tid)
{
	uint64_t ran, waited;
	char text[128];

	if (!task_file_read(tid, "schedstat", text, sizeof(text)) ||
	    sscanf(text, "%" SCNu64 " %" SCNu64, &ran, &waited) != 2)
		return UINT64_MAX;
	return ran + waited;
}

uint64_t sched_slept_ns(pid_t tid, uint64_t took_ns, uint64_t before_ns)
{
	uint64_t now_ns = sched_time_ns(tid);

	if (now_ns == UINT64_MAX || before_ns == UINT64_MAX)
		return took_ns;
	return took_ns > now_ns - before_ns ? took_ns - (now_ns - before_ns) : 0;
}

int sched_sleeps(pid_t tid)
{
	char text[256];

	/* "TID (NAME) S ..."; the name is ours. */
	if (!task_file_read(tid, "stat", text, sizeof(text)))
		return -1;
	const char *state = strrchr(text, ')');
	return state && state[1] ? state[2] != 'R' : -1;
}
