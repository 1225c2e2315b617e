/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A process of its own does the tracing, since whoever traces must go on whatever becomes of us: it
 * lets the target run when we are stopped (Ctrl-Z), when we end, and at the latest after MOST_NS.
 * When it ends itself the kernel lets go of all that it traces: a thread that would not stop in
 * time (it sleeps in a driver) is not left with a stop that it meets later.
 *
 * An interruption shows in calls that the kernel does not take up again by itself: epoll_wait,
 * semop, sigtimedwait and others then fail with EINTR. So a thread that sleeps in a call of which
 * that is not known is left asleep, and stopped when it has woken up.
 */
#include "process/freeze.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/error.h"
#include "process/threads.h"

#define PATIENCE_NS 500000000ull
#define PAUSE_NS    50000
/* over the list of threads; every pass that finds a new one is followed by another */
#define MAX_PASSES 64

#define MOST_NS 10000000000ull
#define LOOK_MS 1 /* between two looks at us and at the threads that were left asleep */
#define CODE_64 0x33

struct stopped {
	pid_t tid;
	int signal; /* that it was about to be given; it gets it when it runs again */
	/* it is not stopped: it sleeps in a call that is not to be interrupted */
	int asleep;
	unsigned long runs; /* then: thread_runs() */
};

/* In the process that does it. */
struct holder {
	pid_t pid;
	struct stopped *threads;
	size_t count, room;
	uint64_t began_ns;
	int woke; /* threads that were left asleep and have run since */
};

/* What it says: when the threads stand, and at the end. */
struct freeze_word {
	int err;
	int woke; /* at the end: it did not all stand, or not for all the time */
	char reason[128];
};

struct freeze {
	pid_t holder;
	int socket;
	uint64_t began_ns;
};

static int thread_known(const struct holder *holder, pid_t tid)
{
	for (size_t i = 0; i < holder->count; i++)
		if (holder->threads[i].tid == tid)
			return 1;
	return 0;
}

/* Calls that the kernel takes up again after an interruption, as if nothing had been. */
static int is_taken_up(long call)
{
	static const long calls[] = {
		SYS_futex,    SYS_poll,   SYS_ppoll,         SYS_select,
		SYS_pselect6, SYS_pause,  SYS_nanosleep,     SYS_clock_nanosleep,
		SYS_wait4,    SYS_waitid, SYS_rt_sigsuspend, SYS_restart_syscall};

	for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++)
		if (calls[i] == call)
			return 1;
	return 0;
}

/*
 * A thread that ran a moment ago may have entered a call just then, which fails for our sake: it is
 * begun anew, in the way in which the kernel does that for others. Where it fails it has done
 * nothing yet.
 */
static void call_resume(pid_t tid)
{
	static const long calls[] = {
		SYS_epoll_wait, SYS_epoll_pwait, 441 /* epoll_pwait2 */, SYS_rt_sigtimedwait,
		SYS_semop,      SYS_semtimedop,  SYS_io_getevents,       333 /* io_pgetevents */};
	struct user_regs_struct registers;

	if (ptrace(PTRACE_GETREGS, tid, NULL, &registers) || registers.cs != CODE_64 ||
	    (long long)registers.rax != -EINTR)
		return;
	for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
		if ((long)registers.orig_rax != calls[i])
			continue;
		registers.rax = registers.orig_rax;
		registers.rip -= 2; /* the instruction's length */
		ptrace(PTRACE_SETREGS, tid, NULL, &registers);
	}
}

/* 0: it stands; -ESRCH: it has ended; -ETIMEDOUT. */
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
			 * An event stop is the one that was asked for; any other has a signal with
			 * it.
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
 * Stops one that is known. 0, also for a thread that has ended meanwhile, which is then not
 * stopped; -EBUSY; -ETIMEDOUT.
 */
static int thread_interrupt(struct stopped *thread)
{
	int err = 0;

	if (ptrace(PTRACE_SEIZE, thread->tid, NULL, NULL)) {
		if (errno == ESRCH)
			return 0;
		return error_set(-EBUSY, "thread %d is traced by somebody already, or may not be",
				 thread->tid);
	}
	if (ptrace(PTRACE_INTERRUPT, thread->tid, NULL, NULL))
		err = -ESRCH;
	if (!err)
		err = thread_wait(thread, clock_ns(CLOCK_MONOTONIC) + PATIENCE_NS);
	return err == -ESRCH ? 0 : err;
}

/* Left asleep, or stopped. */
static int thread_stop(struct holder *holder, struct stopped *thread)
{
	unsigned long runs = thread_runs(holder->pid, thread->tid);
	long call = thread_call(holder->pid, thread->tid);

	thread->asleep = call >= 0 && !is_taken_up(call) && runs;
	thread->runs = runs;
	return thread->asleep ? 0 : thread_interrupt(thread);
}

/* 0; -EBUSY; -ETIMEDOUT; -ENOMEM. */
static int thread_add(struct holder *holder, pid_t tid)
{
	int err = array_reserve(&holder->threads, &holder->room, holder->count, 1,
				sizeof(*holder->threads));

	if (err)
		return err;
	holder->threads[holder->count++] = (struct stopped){.tid = tid};
	return thread_stop(holder, &holder->threads[holder->count - 1]);
}

/* Stops the threads that are not known yet. Returns how many there were, or an error. */
static int threads_pass(struct holder *holder, pid_t pid)
{
	char path[64];
	struct dirent *entry;
	DIR *directory;
	int found = 0, err = 0;

	snprintf(path, sizeof(path), "/proc/%d/task", pid);
	directory = opendir(path);
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
	return err ? err : found;
}

static int threads_stop(struct holder *holder)
{
	int found = 1;

	for (int i = 0; i < MAX_PASSES && found > 0; i++)
		found = threads_pass(holder, holder->pid);
	if (found > 0)
		return error_set(-ETIMEDOUT, "it starts threads faster than they can be stopped");
	return !found && !holder->count ? -ESRCH : found;
}

/*
 * Those that were left asleep: one that has woken up is stopped, unless it sleeps in such a call
 * again.
 */
static void sleepers_look(struct holder *holder)
{
	for (size_t i = 0; i < holder->count; i++) {
		struct stopped *thread = &holder->threads[i];

		if (!thread->asleep || thread_runs(holder->pid, thread->tid) == thread->runs)
			continue;
		holder->woke++;
		thread_stop(holder, thread);
	}
}

/* Is it gone, or does it stand itself? */
static int is_halted(pid_t pid)
{
	char path[32], text[512], *state;
	ssize_t bytes;
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	bytes = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
	if (fd >= 0)
		close(fd);
	if (bytes <= 0)
		return 1;
	text[bytes] = '\0';
	state = strrchr(text, ')');
	return !state || strchr("TtZX", state[2]) != NULL;
}

/* Until we are asked to let go, or must. 1: for all that time it was asked for. */
static int held(struct holder *holder, int socket, pid_t parent)
{
	struct pollfd asked = {.fd = socket, .events = POLLIN};

	while (poll(&asked, 1, LOOK_MS) <= 0) {
		if (is_halted(parent) || getppid() != parent ||
		    clock_ns(CLOCK_MONOTONIC) - holder->began_ns > MOST_NS)
			return 0;
		sleepers_look(holder);
	}
	sleepers_look(holder);
	return !holder->woke;
}

static int word_send(int socket, const struct freeze_word *word)
{
	return send(socket, word, sizeof(*word), MSG_NOSIGNAL) == (ssize_t)sizeof(*word);
}

static void holder_run(pid_t pid, int socket, pid_t parent)
{
	struct holder holder = {.pid = pid, .began_ns = clock_ns(CLOCK_MONOTONIC)};
	struct freeze_word word = {0};

	/* Ctrl-Z is for those of the terminal's session. */
	setsid();
	prctl(PR_SET_NAME, "tracer-freeze");
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	/* Probes must go when the tracer goes: none of its descriptors stays here. */
	if (getppid() != parent || dup2(socket, 3) < 0 || syscall(SYS_close_range, 4u, ~0u, 0u))
		_exit(1);
	word.err = threads_stop(&holder);
	if (word.err)
		snprintf(word.reason, sizeof(word.reason), "%s", error_reason(word.err));
	if (!word_send(3, &word) || word.err)
		_exit(1);
	word.woke = !held(&holder, 3, parent);
	for (size_t i = 0; i < holder.count; i++)
		if (!holder.threads[i].asleep)
			ptrace(PTRACE_DETACH, holder.threads[i].tid, NULL,
			       (void *)(long)holder.threads[i].signal);
	word_send(3, &word);
	_exit(0);
}

/* Its next word. 0, or it has ended without one: -EIO. */
static int word_take(const struct freeze *freeze, struct freeze_word *word)
{
	ssize_t bytes;

	do
		bytes = recv(freeze->socket, word, sizeof(*word), 0);
	while (bytes < 0 && errno == EINTR);
	word->reason[sizeof(word->reason) - 1] = '\0';
	return bytes == (ssize_t)sizeof(*word)
		       ? 0
		       : error_set(-EIO, "the process that was to stop it has ended");
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
	pid_t parent = getpid();
	struct freeze_word word;
	int ends[2], err;

	error_clear();
	if (!freeze)
		return -ENOMEM;
	freeze->began_ns = clock_ns(CLOCK_MONOTONIC);
	err = socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) ? -errno : 0;
	if (!err) {
		freeze->holder = fork();
		err = freeze->holder < 0 ? -errno : 0;
		if (!freeze->holder)
			holder_run(pid, ends[1], parent);
		close(ends[1]);
		if (err)
			close(ends[0]);
	}
	if (err) {
		free(freeze);
		return err;
	}
	freeze->socket = ends[0];
	err = word_take(freeze, &word);
	if (!err && word.err)
		err = error_set(word.err, "%s", word.reason);
	if (err)
		freeze_close(freeze);
	else
		*out = freeze;
	return err;
}

uint64_t freeze_end(struct freeze *freeze)
{
	struct freeze_word word = {0};
	uint64_t elapsed;
	int err;

	if (!freeze)
		return 0;
	/* The end of what it reads. */
	shutdown(freeze->socket, SHUT_WR);
	err = word_take(freeze, &word);
	elapsed = clock_ns(CLOCK_MONOTONIC) - freeze->began_ns;
	freeze_close(freeze);
	return err || word.woke ? 0 : elapsed;
}
