/* SPDX-License-Identifier: Apache-2.0 */
#include "attach/selftest/seccomp.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "attach/kernel/trial_child.h"
#include "attach/links/perf_uprobe.h"
#include "proc/own_function.h"
#include "proc/process.h"
#include "util/array.h"
#include "util/error.h"

#define URETPROBE   335 /* the system call's number on x86-64 */
#define MAX_THREADS 65536

/* The probed function in the child; it must not be inlined, and returns. */
__attribute__((noinline)) static int returns(volatile int *value)
{
	return ++*value;
}

/* Places a return probe in the child, without a program. Returns a descriptor, or -errno. */
static int probe_place(pid_t child)
{
	char path[OWN_FUNCTION_PATH];
	uint64_t offset;
	int err = own_function_find((uintptr_t)returns, path, &offset);

	return err ?: perf_uprobe_open(path, offset, child, LINKS_RETURN);
}

/* Waits for a byte from the parent, and calls the function under a filter. Never returns. */
static void child_run(int wait_fd)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, URETPROBE, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog filter = {.len = ARRAY_SIZE(code), .filter = code};
	volatile int value = 0;
	char word;

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
	    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) || read(wait_fd, &word, 1) != 1)
		_exit(1);
	_exit(returns(&value) == 1 ? 0 : 1);
}

/*
 * The event counts the returns that were probed: without one the child's exit status proves
 * nothing.
 */
static int child_judge(int status, int probe)
{
	uint64_t count = 0;

	if (WIFSIGNALED(status))
		return 1;
	if (read(probe, &count, sizeof(count)) != sizeof(count) || count != 1)
		return -ENOSYS;
	return WIFEXITED(status) && !WEXITSTATUS(status) ? 0 : -ENOSYS;
}

/* Its event stays open: see trial_child.h. */
static int returns_try(void *context)
{
	int fds[2], probe, status = 0, result;

	(void)context;
	if (pipe2(fds, O_CLOEXEC))
		return error_errno();
	pid_t child = fork();
	if (!child) {
		close(fds[1]);
		child_run(fds[0]);
	}
	close(fds[0]);
	probe = child < 0 ? error_errno() : probe_place(child);
	result = probe < 0 ? probe : 0;
	if (!result && write(fds[1], "", 1) != 1)
		result = error_errno();
	/* Without that byte the child reads the end of the pipe and exits too. */
	close(fds[1]);
	while (child > 0 && waitpid(child, &status, 0) < 0 && errno == EINTR)
		;
	if (!result)
		result = child_judge(status, probe);
	return result;
}

int seccomp_kills_returns(void)
{
	return trial_child_run(returns_try, NULL);
}

int seccomp_is_filtered(pid_t pid)
{
	struct process_info info;
	struct dirent *entry;
	char path[40];
	int filtered = 0, count = 0;

	snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
	DIR *threads = opendir(path);
	if (!threads)
		return errno == ENOENT ? -ESRCH : error_errno();
	while (!filtered && count++ < MAX_THREADS && (entry = readdir(threads))) {
		pid_t tid = (pid_t)strtol(entry->d_name, NULL, 10);

		/* A thread that has ended meanwhile has no filter. */
		filtered = tid > 0 && !process_info_read(tid, &info) && info.seccomp;
	}
	closedir(threads);
	return filtered || count > MAX_THREADS;
}

int seccomp_concerns(const struct plan *plan)
{
	for (size_t i = 0; i < plan->count; i++)
		if (plan->sites[i].with_return)
			return 1;
	return 0;
}

int seccomp_check(struct seccomp_answer *answer, const struct features *features, pid_t pid,
		  const struct plan *plan)
{
	if (!features->returns_by_call || !seccomp_concerns(plan))
		return 0;
	int filtered = seccomp_is_filtered(pid);
	if (filtered <= 0)
		return filtered;
	if (!answer->asked) {
		answer->kills = seccomp_kills_returns();
		answer->asked = 1;
	}
	if (!answer->kills)
		return 0;
	return error_set(
		-ENOTSUP,
		"it runs under a seccomp filter, and on this kernel (%s) a return probe %s such a "
		"process; fixed in kernel 6.14 and in stable kernels since February 2025",
		features->kernel, answer->kills > 0 ? "kills" : "may kill");
}
