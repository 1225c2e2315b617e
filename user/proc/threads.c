/* SPDX-License-Identifier: Apache-2.0 */
#include "proc/threads.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "util/cleanup.h"
#include "util/error.h"
#include "util/hash.h"

/*
 * System calls that probed instructions make instead of a trap. They do not mean that a function
 * has completed.
 */
#define CALL_URETPROBE 335
#define CALL_UPROBE    336

/*
 * Reads a short file of a thread, below its process's task directory. 0, -errno: -ESRCH it has
 * ended.
 */
static int file_read(int directory, pid_t tid, const char *name, char *text, size_t capacity)
{
	char path[64];

	snprintf(path, sizeof(path), "%d/%s", tid, name);
	int fd = openat(directory, path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return errno == ENOENT ? -ESRCH : error_errno();
	ssize_t got = read(fd, text, capacity - 1);
	if (got < 0)
		got = error_errno();
	close(fd);
	text[got > 0 ? got : 0] = '\0';
	return got < 0 ? (int)got : 0;
}

/* The file has "running", or the number of the system call (-1: none) and its arguments. */
static long call_read(int directory, pid_t tid)
{
	char text[64];
	int err = file_read(directory, tid, "syscall", text, sizeof(text));

	if (err == -ESRCH)
		return err;
	if (err || !isdigit((unsigned char)text[0]))
		return -1;
	long call = strtol(text, NULL, 10);
	return call == CALL_URETPROBE || call == CALL_UPROBE ? -1 : call;
}

static int task_open(pid_t pid)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/task", pid);
	return open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
}

long thread_call(pid_t pid, pid_t tid)
{
	_cleanup_close_ int directory = task_open(pid);
	long call = directory < 0 ? -ESRCH : call_read(directory, tid);

	return call;
}

int thread_name(pid_t pid, pid_t tid, char name[16])
{
	int directory = task_open(pid), err;

	if (directory < 0)
		return -ESRCH;
	err = file_read(directory, tid, "comm", name, 16);
	close(directory);
	name[strcspn(name, "\n")] = '\0';
	return err;
}

unsigned long thread_runs(pid_t pid, pid_t tid)
{
	_cleanup_close_ int directory = task_open(pid);
	unsigned long runs = 0;
	char text[96];

	if (directory < 0)
		return 0;
	/* Time on a processor, time waiting for one, number of time slices. */
	if (file_read(directory, tid, "schedstat", text, sizeof(text)) ||
	    sscanf(text, "%*u %*u %lu", &runs) != 1)
		runs = 0;
	return runs;
}

/* each() returns non-zero to stop; that value is returned. 0; -ESRCH; -errno. */
static int tasks_each(pid_t pid, int (*each)(int directory, pid_t tid, void *context),
		      void *context)
{
	struct dirent *entry;
	char path[64];
	int err = 0;

	snprintf(path, sizeof(path), "/proc/%d/task", pid);
	_cleanup_(closedirp) DIR *directory = opendir(path);
	if (!directory)
		return errno == ENOENT ? -ESRCH : error_errno();
	while (!err && (entry = readdir(directory))) {
		pid_t tid = (pid_t)strtol(entry->d_name, NULL, 10);

		if (tid > 0)
			err = each(dirfd(directory), tid, context);
	}
	return err;
}

struct visiting {
	int (*visit)(pid_t tid, void *context);
	void *context;
};

static int task_visit(int directory, pid_t tid, void *context)
{
	const struct visiting *visiting = context;

	return call_read(directory, tid) == -1 ? visiting->visit(tid, visiting->context) : 0;
}

int threads_visit(pid_t pid, int (*visit)(pid_t tid, void *context), void *context)
{
	struct visiting visiting = {visit, context};

	return tasks_each(pid, task_visit, &visiting);
}

struct timing {
	struct threads_time sum;
	size_t left; /* as many threads may follow */
};

static int task_time(int directory, pid_t tid, void *context)
{
	struct timing *timing = context;
	unsigned long long run, wait;
	char text[96];

	if (!timing->left--)
		return -E2BIG;
	int err = file_read(directory, tid, "schedstat", text, sizeof(text));
	/* It has ended meanwhile, or no thread has this file. */
	if (err == -ESRCH && file_read(directory, tid, "comm", text, sizeof(text)) == -ESRCH)
		return 0;
	if (err || sscanf(text, "%llu %llu", &run, &wait) != 2)
		return -ENOTSUP;
	timing->sum.run_ns += run;
	timing->sum.wait_ns += wait;
	timing->sum.threads += hash_u64((uint64_t)tid);
	return 0;
}

int threads_time(pid_t pid, size_t most, struct threads_time *out)
{
	struct timing timing = {.left = most};
	int err = tasks_each(pid, task_time, &timing);

	if (!err)
		*out = timing.sum;
	return err;
}

uint64_t threads_run_ns(pid_t pid)
{
	struct threads_time now;

	return threads_time(pid, SIZE_MAX, &now) ? 0 : now.run_ns;
}
