/* SPDX-License-Identifier: Apache-2.0 */
#include "target/threads.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* Those that probed instructions make, in place of a trap: no end of anything. */
#define CALL_URETPROBE 335
#define CALL_UPROBE    336

/* "running", or the number of the call (-1: none) and more. */
static int thread_in_call(int directory, pid_t tid)
{
	char path[64], text[64];
	ssize_t got;
	long call;
	int fd;

	snprintf(path, sizeof(path), "%d/syscall", tid);
	fd = openat(directory, path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return errno == ENOENT || errno == ESRCH; /* it has ended */
	got = read(fd, text, sizeof(text) - 1);
	if (got < 0 && errno == ESRCH)
		got = snprintf(text, sizeof(text), "0");
	close(fd);
	if (got <= 0 || !isdigit((unsigned char)text[0]))
		return 0;
	text[got] = '\0';
	call = strtol(text, NULL, 10);
	return call != CALL_URETPROBE && call != CALL_UPROBE;
}

int threads_visit(pid_t pid, int (*visit)(pid_t tid, void *context), void *context)
{
	struct dirent *entry;
	char path[64];
	DIR *directory;
	int err = 0;

	snprintf(path, sizeof(path), "/proc/%d/task", pid);
	directory = opendir(path);
	if (!directory)
		return errno == ENOENT ? -ESRCH : -errno;
	while (!err && (entry = readdir(directory))) {
		pid_t tid = (pid_t)strtol(entry->d_name, NULL, 10);

		if (tid > 0 && !thread_in_call(dirfd(directory), tid))
			err = visit(tid, context);
	}
	closedir(directory);
	return err;
}
