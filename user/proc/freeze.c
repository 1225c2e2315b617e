/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A helper process does the tracing, so that the target resumes whatever happens to the tracer: the
 * helper lets it run when the tracer is stopped (Ctrl-Z), when the tracer ends, and at the latest
 * after STOP_MAX_NS. When the helper ends, the kernel detaches everything that it traces, so a
 * thread that did not stop in time (it sleeps in a driver) does not meet a stale stop later.
 *
 * An interruption is visible in calls that the kernel does not restart by itself: epoll_wait,
 * semop, sigtimedwait and others then fail with EINTR. Therefore a thread that sleeps in a call
 * that is not known to be restarted is left asleep, and is stopped once it has woken up.
 */
#include "proc/freeze.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "proc/registers.h"
#include "proc/threads.h"
#include "util/array.h"
#include "util/clock.h"
#include "util/descriptor.h"
#include "util/error.h"
#include "util/message.h"

#define PATIENCE_NS 500000000ull
#define PAUSE_NS    50000
/* over the list of threads; a pass that finds new threads is followed by another */
#define MAX_PASSES 64

#define STOP_MAX_NS 10000000000ull
#define POLL_MS     1 /* polling interval for the parent and for the threads left asleep */

struct stopped {
	pid_t tid;
	int signal; /* pending when it stopped; delivered when it runs again */
	/* not stopped: it sleeps in a call that must not be interrupted */
	int asleep;
	unsigned long runs; /* thread_runs(), if asleep */
};

/* State of the helper process. */
struct freezer {
	pid_t pid;
	struct stopped *threads;
	size_t count, capacity;
	uint64_t began_ns;
	int woke; /* threads that were left asleep and have run since */
};

/* Message of the helper: sent when the threads are stopped, and at the end. */
struct freeze_report {
	int err;
	int woke; /* at the end: some thread was not stopped for the whole time */
	char reason[128];
};

struct freeze {
	pid_t holder;
	int socket;
	uint64_t began_ns;
};

static int thread_known(const struct freezer *holder, pid_t tid)
{
	for (size_t i = 0; i < holder->count; i++)
		if (holder->threads[i].tid == tid)
			return 1;
	return 0;
}

/* Calls that the kernel restarts transparently after an interruption. */
static bool is_restarted(long call)
{
	static const long calls[] = {
#ifdef SYS_poll /* a machine without the older calls */
		SYS_poll,  SYS_select, SYS_pause,
#endif
		SYS_futex, SYS_ppoll,  SYS_pselect6,      SYS_nanosleep,      SYS_clock_nanosleep,
		SYS_wait4, SYS_waitid, SYS_rt_sigsuspend, SYS_restart_syscall};

	for (size_t i = 0; i < ARRAY_SIZE(calls); i++)
		if (calls[i] == call)
			return 1;
	return 0;
}

/*
 * A thread that ran a moment ago may have just entered a call, which our interruption makes fail
 * with EINTR. Restart it in the way the kernel restarts calls. A call that fails with EINTR has had
 * no effect.
 */
static void call_resume(pid_t tid)
{
	static const long calls[] = {
#ifdef SYS_epoll_wait
		SYS_epoll_wait,
#endif
		SYS_epoll_pwait, 441 /* epoll_pwait2 */, SYS_rt_sigtimedwait, SYS_semop,
		SYS_semtimedop,  SYS_io_getevents,       SYS_io_pgetevents};
	long call = registers_interrupted_call(tid);

	for (size_t i = 0; i < ARRAY_SIZE(calls); i++)
		if (call == calls[i])
			registers_repeat_call(tid);
}

/* 0: stopped; -ESRCH: it has ended; -ETIMEDOUT. */
static int thread_wait(struct stopped *thread, uint64_t deadline)
{
	struct timespec pause = {.tv_nsec = PAUSE_NS};
	int status;

	while (clock_ns(CLOCK_MONOTONIC) < deadline) {
		pid_t got = waitpid(thread->tid, &status, __WALL | WNOHANG);

		if (got < 0 || (got && !WIFSTOPPED(status)))
			return -ESRCH;
		if (got) {
			/*
			 * An event stop is the one that we requested; any other stop carries a
			 * signal.
			 */
			thread->signal = status >> 16 ? 0 : WSTOPSIG(status);
			if (!thread->signal)
				call_resume(thread->tid);
			return 0;
		}
		nanosleep(&pause, NULL);
	}
	return error_set(-ETIMEDOUT, "thread %d did not stop within half a second", thread->tid);
}

/*
 * Stops a thread of the list. 0, also for a thread that has ended meanwhile and is not stopped;
 * -EBUSY; -ETIMEDOUT.
 */
static int thread_interrupt(struct stopped *thread)
{
	int err = 0;

	if (ptrace(PTRACE_SEIZE, thread->tid, NULL, NULL)) {
		if (errno == ESRCH)
			return 0;
		return error_set(-EBUSY, "thread %d is already traced, or may not be traced",
				 thread->tid);
	}
	if (ptrace(PTRACE_INTERRUPT, thread->tid, NULL, NULL))
		err = -ESRCH;
	err = err ?: thread_wait(thread, clock_ns(CLOCK_MONOTONIC) + PATIENCE_NS);
	return err == -ESRCH ? 0 : err;
}

/* Stops a thread, or leaves it asleep. */
static int thread_stop(struct freezer *holder, struct stopped *thread)
{
	unsigned long runs = thread_runs(holder->pid, thread->tid);
	long call = thread_call(holder->pid, thread->tid);

	thread->asleep = call >= 0 && !is_restarted(call) && runs;
	thread->runs = runs;
	return thread->asleep ? 0 : thread_interrupt(thread);
}

/* 0; -EBUSY; -ETIMEDOUT; -ENOMEM. */
static int thread_add(struct freezer *holder, pid_t tid)
{
	int err = ARRAY_GROW(holder->threads, holder->capacity, holder->count);

	if (err)
		return err;
	holder->threads[holder->count++] = (struct stopped){.tid = tid};
	return thread_stop(holder, &holder->threads[holder->count - 1]);
}

/* Stops the threads that are not in the list yet. Returns their number, or an error. */
static int threads_pass(struct freezer *holder, pid_t pid)
{
	char path[64];
	struct dirent *entry;
	int found = 0, err = 0;

	snprintf(path, sizeof(path), "/proc/%d/task", pid);
	DIR *directory = opendir(path);
	if (!directory)
		return -ESRCH;
	while (!err && (entry = readdir(directory))) {
		pid_t tid = (pid_t)strtol(entry->d_name, NULL, 10);

		if (!isdigit((unsigned char)entry->d_name[0]) || thread_known(holder, tid))
			continue;
		found++;
		err = thread_add(holder, tid);
	}
	closedir(directory);
	return err ?: found;
}

static int threads_stop(struct freezer *holder)
{
	int found = 1;

	for (int i = 0; i < MAX_PASSES && found > 0; i++)
		found = threads_pass(holder, holder->pid);
	if (found > 0)
		return error_set(-ETIMEDOUT, "it starts threads faster than they can be stopped");
	return !found && !holder->count ? -ESRCH : found;
}

/* Stops threads that were left asleep and have woken up, unless they sleep in such a call again. */
static void sleepers_check(struct freezer *holder)
{
	for (size_t i = 0; i < holder->count; i++) {
		struct stopped *thread = &holder->threads[i];

		if (!thread->asleep || thread_runs(holder->pid, thread->tid) == thread->runs)
			continue;
		holder->woke++;
		thread_stop(holder, thread);
	}
}

/* Has the process ended, or is it stopped itself? */
static bool is_stopped_or_gone(pid_t pid)
{
	char path[32], text[512], *state;

	snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t bytes = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
	descriptor_close(fd);
	if (bytes <= 0)
		return 1;
	text[bytes] = '\0';
	state = strrchr(text, ')');
	return !state || strchr("TtZX", state[2]) != NULL;
}

/* Waits until we are asked to release the target, or must. 1: it was held until asked. */
static int hold(struct freezer *holder, int socket, pid_t parent)
{
	struct pollfd asked = {.fd = socket, .events = POLLIN};

	while (poll(&asked, 1, POLL_MS) <= 0) {
		if (is_stopped_or_gone(parent) || getppid() != parent ||
		    clock_ns(CLOCK_MONOTONIC) - holder->began_ns > STOP_MAX_NS)
			return 0;
		sleepers_check(holder);
	}
	sleepers_check(holder);
	return !holder->woke;
}

static int report_send(int socket, const struct freeze_report *report)
{
	return send(socket, report, sizeof(*report), MSG_NOSIGNAL) == (ssize_t)sizeof(*report);
}

static void holder_run(void *pid, int socket, pid_t parent)
{
	struct freezer holder = {.pid = *(const pid_t *)pid, .began_ns = clock_ns(CLOCK_MONOTONIC)};
	struct freeze_report report = {0};

	/* Detach from the terminal's session, which Ctrl-Z stops. */
	setsid();
	prctl(PR_SET_NAME, "tracer-freeze");
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	/* Probes end with the tracer, so this process must not keep its descriptors open. */
	if (getppid() != parent || dup2(socket, 3) < 0 || syscall(SYS_close_range, 4u, ~0u, 0u))
		_exit(1);
	report.err = threads_stop(&holder);
	if (report.err)
		snprintf(report.reason, sizeof(report.reason), "%s", error_reason(report.err));
	if (!report_send(3, &report) || report.err)
		_exit(1);
	report.woke = !hold(&holder, 3, parent);
	for (size_t i = 0; i < holder.count; i++)
		if (!holder.threads[i].asleep)
			ptrace(PTRACE_DETACH, holder.threads[i].tid, NULL,
			       (void *)(long)holder.threads[i].signal);
	report_send(3, &report);
	_exit(0);
}

/* Receives the helper's next message. 0; -EIO if the helper has ended without one. */
static int report_receive(const struct freeze *freeze, struct freeze_report *report)
{
	ssize_t bytes;

	do
		bytes = recv(freeze->socket, report, sizeof(*report), 0);
	while (bytes < 0 && errno == EINTR);
	report->reason[sizeof(report->reason) - 1] = '\0';
	return bytes == (ssize_t)sizeof(*report)
		       ? 0
		       : error_set(-EIO, "the helper process that stops it has ended");
}

static void freeze_close(struct freeze *freeze)
{
	close(freeze->socket);
	while (waitpid(freeze->holder, NULL, 0) < 0 && errno == EINTR)
		;
	free(freeze);
}

int freeze_begin(struct freeze **out, pid_t pid)
{
	struct freeze *freeze = calloc(1, sizeof(*freeze));
	struct freeze_report report;

	error_clear();
	if (!freeze)
		return -ENOMEM;
	freeze->began_ns = clock_ns(CLOCK_MONOTONIC);
	freeze->socket = message_child(&freeze->holder, SOCK_SEQPACKET, holder_run, &pid);
	int err = freeze->socket < 0 ? freeze->socket : 0;
	if (err) {
		free(freeze);
		return err;
	}
	err = report_receive(freeze, &report);
	if (!err && report.err)
		err = error_set(report.err, "%s", report.reason);
	if (err)
		freeze_close(freeze);
	else
		*out = freeze;
	return err;
}

uint64_t freeze_end(struct freeze *freeze)
{
	struct freeze_report report = {0};

	if (!freeze)
		return 0;
	/* The helper sees the end of its input. */
	shutdown(freeze->socket, SHUT_WR);
	int err = report_receive(freeze, &report);
	uint64_t elapsed = clock_ns(CLOCK_MONOTONIC) - freeze->began_ns;
	freeze_close(freeze);
	return err || report.woke ? 0 : elapsed;
}
