/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The child requests tracing and stops before its exec. After each exec it is resumed from system
 * call to system call, with a hardware breakpoint on the program's entry point. It is considered
 * ready at the first of:
 *
 *   - the exec itself, for a program without a dynamic loader;
 *   - a system call from code outside the loader: the libraries are mapped and the constructor of
 *     one runs;
 *   - the entry point. A loader that is also the C library (musl) makes every system call itself,
 *     and a program's first allocations come before its first system call.
 *
 * Anything that is not mapped by then may be loaded later: the child runs on, and ready() is called
 * every 10 ms.
 *
 * Some virtual machines grant breakpoints that stop nothing: each child tries one before its exec.
 * Without, it is stepped by single instructions behind each mprotect() of its loader, by which
 * relocated data becomes read-only, until it leaves the loader. The child is never written to.
 *
 * While the child is traced it is killed with the tracer (EXITKILL): otherwise a stop would last
 * for ever.
 */
#include "proc/launch.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "proc/process.h"
#include "proc/registers.h"
#include "util/descriptor.h"
#include "util/error.h"

#define SYSCALL_STOP (SIGTRAP | 0x80) /* PTRACE_O_TRACESYSGOOD */
#define AUXV_MAX     64
#define POLL_NS      10000000 /* between two calls of ready() for a child that runs */
#define STEPS_MAX    50000    /* single instructions after a loader's mprotect() */

struct launch {
	pid_t pid;
	int ended, wait_status;
	int breaks; /* breakpoints stop the child */

	/* Of the program that was exec'd last: */
	int stepping; /* its loader is at work */
	int single;   /* so many single instructions are left; 0: it is stepped by system calls */
	int polling;  /* ready() is called while it runs */
	uint64_t entry;
	uint64_t loader_start, loader_end;
};

/* The loader's base address (0: none) and the program's entry point. */
static int read_auxv(pid_t pid, uint64_t *loader, uint64_t *entry)
{
	Elf64_auxv_t auxv[AUXV_MAX];
	char name[32];

	snprintf(name, sizeof(name), "/proc/%d/auxv", pid);
	int fd = open(name, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return error_errno();
	ssize_t n = read(fd, auxv, sizeof(auxv));
	close(fd);
	if (n < 0)
		return error_errno();
	*loader = *entry = 0;
	for (size_t i = 0; i < (size_t)n / sizeof(auxv[0]) && auxv[i].a_type != AT_NULL; i++) {
		if (auxv[i].a_type == AT_BASE)
			*loader = auxv[i].a_un.a_val;
		else if (auxv[i].a_type == AT_ENTRY)
			*entry = auxv[i].a_un.a_val;
	}
	return 0;
}

/*
 * Finds the address range of the loader's file around base; both ends are 0 if nothing is mapped
 * there.
 */
static int find_loader(struct launch *launch, uint64_t base)
{
	const struct process_map *first = NULL;
	struct process_maps maps;
	int err = process_maps_read(launch->pid, &maps);

	if (err)
		return err;
	for (size_t i = 0; i < maps.count; i++) {
		const struct process_map *map = &maps.entries[i];

		if (!first && base >= map->start && base < map->end) {
			first = map;
			launch->loader_start = map->start;
		}
		if (first && map->inode == first->inode &&
		    map->device_major == first->device_major &&
		    map->device_minor == first->device_minor)
			launch->loader_end = map->end;
	}
	process_maps_free(&maps);
	return 0;
}

/* Handles a new program: 1 if it needs no loader and is ready, 0 if stepping has begun, -errno. */
static int begin_stepping(struct launch *launch)
{
	uint64_t base = 0;
	int err = read_auxv(launch->pid, &base, &launch->entry);

	launch->loader_start = launch->loader_end = 0;
	if (!err && base)
		err = find_loader(launch, base);
	if (err)
		return err;
	if (!launch->loader_end)
		return 1;
	registers_break_at(launch->pid, launch->entry);
	launch->stepping = 1;
	return 0;
}

/* Does this stop of a stepped child mean that its libraries are mapped? */
static bool has_left_loader(const struct launch *launch, int signal)
{
	uint64_t pc;

	if (registers_pc(launch->pid, &pc))
		return 0;
	if (signal == SYSCALL_STOP || (signal == SIGTRAP && launch->single))
		return pc < launch->loader_start || pc >= launch->loader_end;
	return signal == SIGTRAP && pc == launch->entry;
}

/* Chooses how a stepped child goes on after a stop. */
static void step_choose(struct launch *launch, int signal)
{
	struct __ptrace_syscall_info info;

	if (signal == SIGTRAP && launch->single)
		launch->single--;
	else if (signal == SYSCALL_STOP && !launch->breaks &&
		 ptrace(PTRACE_GET_SYSCALL_INFO, launch->pid, (void *)sizeof(info), &info) > 0 &&
		 info.op == PTRACE_SYSCALL_INFO_ENTRY && info.entry.nr == SYS_mprotect)
		launch->single = STEPS_MAX;
}

/* Notes the end of the child, if the status tells it. */
static bool has_ended(struct launch *launch, int status)
{
	if (WIFSTOPPED(status))
		return 0;
	launch->ended = 1;
	launch->wait_status = status;
	return 1;
}

/*
 * Waits until the child stops or ends: 0 and *status. While it runs, ready() is called
 * periodically; 1 if ready() returned 1; -errno.
 */
static int wait_stop(struct launch *launch, launch_ready_fn ready, void *context, int *status)
{
	const struct timespec pause = {.tv_nsec = POLL_NS};
	sigset_t child, before;
	int result = 0;

	/*
	 * A blocked SIGCHLD stays pending and can be waited for, so that a stop is handled at once
	 * rather than at the next poll.
	 */
	sigemptyset(&child);
	sigaddset(&child, SIGCHLD);
	sigprocmask(SIG_BLOCK, &child, &before);
	for (;;) {
		pid_t pid = waitpid(launch->pid, status, __WALL | (launch->polling ? WNOHANG : 0));

		if (pid > 0)
			break;
		if (pid < 0 && errno == EINTR)
			continue;
		result = pid < 0 ? error_errno() : ready(launch->pid, 1, context);
		if (result && result != -ESRCH)
			break;
		result = 0;
		sigtimedwait(&child, NULL, &pause);
	}
	sigprocmask(SIG_SETMASK, &before, NULL);
	return result;
}

/*
 * Stops a running child, since only a stopped one can be detached. Signals that it received
 * meanwhile are delivered. 0, -errno.
 */
static int stop_running(struct launch *launch)
{
	int status, signal;

	kill(launch->pid, SIGSTOP);
	for (;;) {
		while (waitpid(launch->pid, &status, __WALL) < 0)
			if (errno != EINTR)
				return error_errno();
		if (has_ended(launch, status))
			return 0;
		signal = status >> 16 ? 0 : WSTOPSIG(status);
		if (signal == SIGSTOP)
			return 0;
		if (ptrace(PTRACE_CONT, launch->pid, NULL, (void *)(intptr_t)signal) &&
		    errno != ESRCH)
			return error_errno();
	}
}

/*
 * Follows the child from stop to stop. 0: ready() returned 1 and the child is stopped; -ECHILD: it
 * has ended; -errno: ready() failed.
 */
static int follow(struct launch *launch, launch_ready_fn ready, void *context)
{
	int signal = 0; /* to deliver when it is resumed */

	for (;;) {
		int status, stop, event, at_ready = 0, err;

		if (ptrace(!launch->stepping ? PTRACE_CONT
			   : launch->single  ? PTRACE_SINGLESTEP
					     : PTRACE_SYSCALL,
			   launch->pid, NULL, (void *)(intptr_t)signal) &&
		    errno != ESRCH)
			return error_errno();
		err = wait_stop(launch, ready, context, &status);
		if (err < 0)
			return err;
		if (err)
			return stop_running(launch);
		if (has_ended(launch, status))
			return -ECHILD;
		stop = WSTOPSIG(status);
		event = status >> 16;
		signal = 0;
		if (event == PTRACE_EVENT_EXEC) {
			launch->stepping = launch->single = launch->polling = 0;
			at_ready = begin_stepping(launch);
		} else if (launch->stepping && !event && has_left_loader(launch, stop))
			at_ready = 1;
		else if (launch->stepping && !event &&
			 (stop == SYSCALL_STOP || (stop == SIGTRAP && launch->single)))
			step_choose(launch, stop);
		else if (!event && stop != SYSCALL_STOP) {
			siginfo_t info;

			/*
			 * A signal for the child. A group stop has no siginfo and is resumed
			 * without a signal.
			 */
			if (!ptrace(PTRACE_GETSIGINFO, launch->pid, NULL, &info))
				signal = stop;
		}
		if (at_ready < 0)
			return at_ready;
		if (!at_ready)
			continue;

		registers_break_at(launch->pid, 0);
		launch->stepping = 0;
		launch->polling = 1;
		err = ready(launch->pid, 0, context);
		if (err)
			return err < 0 ? err : 0;
	}
}

/* The child calls this between two stops: a breakpoint here must stop it, too. */
static __attribute__((noinline)) void trial_reached(void)
{
	__asm__ volatile("");
}

static void run_child(char *const argv[], int report)
{
	sigset_t none;

	/*
	 * The tracer may read its signals from a descriptor; the command must not inherit the mask.
	 */
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	if (!ptrace(PTRACE_TRACEME, 0, NULL, NULL)) {
		raise(SIGSTOP);
		trial_reached();
		raise(SIGSTOP);
		execvp(argv[0], argv);
	}
	int err = errno, status = err == ENOENT ? LAUNCH_NOT_FOUND : LAUNCH_NOT_RUN;
	if (write(report, &err, sizeof(err)) < 0)
		status = LAUNCH_NOT_RUN;
	_exit(status);
}

/* Waits until the child stops: the signal; -ECHILD: it has ended; -errno. */
static int stop_await(struct launch *launch)
{
	int status;

	while (waitpid(launch->pid, &status, __WALL) < 0)
		if (errno != EINTR)
			return error_errno();
	return has_ended(launch, status) ? -ECHILD : WSTOPSIG(status);
}

/* From the child's first stop to its second, in which it is before its exec. 0; as stop_await(). */
static int breakpoint_try(struct launch *launch)
{
	for (;;) {
		registers_break_at(launch->pid,
				   launch->breaks ? 0 : (uint64_t)(uintptr_t)trial_reached);
		if (ptrace(PTRACE_CONT, launch->pid, NULL, NULL))
			return error_errno();
		int signal = stop_await(launch);
		if (signal != SIGTRAP)
			return signal < 0 ? signal : 0;
		launch->breaks = 1;
	}
}

/*
 * Forks. On success the child is stopped before its exec, and *report yields the errno of a failed
 * exec, or nothing.
 */
static int start_child(struct launch *launch, char *const argv[], int *report)
{
	int fds[2], signal;

	if (pipe2(fds, O_CLOEXEC))
		return error_errno();
	launch->pid = fork();
	if (launch->pid < 0) {
		int err = error_errno();

		close(fds[0]);
		close(fds[1]);
		return err;
	}
	if (!launch->pid)
		run_child(argv, fds[1]);
	close(fds[1]);
	*report = fds[0];

	signal = stop_await(launch);
	if (signal < 0)
		return signal;
	if (ptrace(PTRACE_SETOPTIONS, launch->pid, NULL,
		   (void *)(PTRACE_O_EXITKILL | PTRACE_O_TRACEEXEC | PTRACE_O_TRACESYSGOOD)))
		return error_errno();
	return breakpoint_try(launch);
}

/* Kills the child after an error. */
static void kill_child(struct launch *launch)
{
	int status;

	if (launch->pid <= 0 || launch->ended)
		return;
	kill(launch->pid, SIGKILL);
	while (waitpid(launch->pid, &status, __WALL) < 0
		       ? errno == EINTR
		       : !WIFEXITED(status) && !WIFSIGNALED(status))
		;
	launch->ended = 1;
}

int launch_start(struct launch **out, char *const argv[], launch_ready_fn ready, void *context)
{
	struct launch *launch = calloc(1, sizeof(*launch));
	int report = -1, exec_errno, err;

	error_clear();
	if (!launch)
		return -ENOMEM;
	err = (argv[0] ? start_child(launch, argv, &report) : -EINVAL)
		      ?: follow(launch, ready, context);
	if (!err && ptrace(PTRACE_DETACH, launch->pid, NULL, NULL) && errno != ESRCH)
		err = error_errno();
	if (err == -ECHILD && report >= 0 &&
	    read(report, &exec_errno, sizeof(exec_errno)) == sizeof(exec_errno))
		err = error_set(-exec_errno, "%s: %s", argv[0], strerror(exec_errno));
	descriptor_close(report);

	if (!err || launch->ended) {
		*out = launch;
		return err;
	}
	kill_child(launch);
	launch_free(launch);
	return err;
}

pid_t launch_pid(const struct launch *launch)
{
	return launch->pid;
}

int launch_wait(struct launch *launch, int block, int *status)
{
	pid_t pid = 0;

	if (!launch->ended) {
		pid = waitpid(launch->pid, &launch->wait_status, block ? 0 : WNOHANG);
		if (pid < 0)
			return error_errno();
		if (!pid)
			return 0;
		launch->ended = 1;
	}
	*status = WIFSIGNALED(launch->wait_status) ? 128 + WTERMSIG(launch->wait_status)
						   : WEXITSTATUS(launch->wait_status);
	return 1;
}

void launch_signal(struct launch *launch, int signal)
{
	if (!launch->ended)
		kill(launch->pid, signal);
}

void launch_free(struct launch *launch)
{
	free(launch);
}
