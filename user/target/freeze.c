/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tracer of a thread is a thread, and when that ends the kernel lets go of all that it traces. So a thread of its
 * own does the tracing: one in the target that would not stop in time (it sleeps in a driver) is not left behind with a
 * stop that it meets later, when nobody waits for it.
 */
#include "target/freeze.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <time.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/error.h"

#define PATIENCE_NS 500000000ull
#define PAUSE_NS    50000
#define MAX_PASSES  64 /* over the list of threads; every pass that finds a new one is followed by another */

struct stopped {
	pid_t tid;
	int signal; /* that it was about to be given; it gets it when it runs again */
};

struct freeze {
	pid_t pid;
	struct stopped *threads;
	size_t count, room;
	uint64_t began_ns;
	pthread_t tracer;
	sem_t stands, goes_on;
	int err; /* with stands */
	char reason[128];
};

static int thread_known(const struct freeze *freeze, pid_t tid)
{
	for (size_t i = 0; i < freeze->count; i++)
		if (freeze->threads[i].tid == tid)
			return 1;
	return 0;
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
			/* An event stop is the one that was asked for; any other has a signal with it. */
			thread->signal = status >> 16 ? 0 : WSTOPSIG(status);
			return 0;
		}
		nanosleep(&pause, NULL);
	}
	return error_set(-ETIMEDOUT, "thread %d did not stop within half a second", thread->tid);
}

/* 0, also for a thread that has ended meanwhile; -EBUSY; -ETIMEDOUT; -ENOMEM. */
static int thread_stop(struct freeze *freeze, pid_t tid)
{
	struct stopped *thread;
	int err = array_reserve(&freeze->threads, &freeze->room, freeze->count, 1, sizeof(*freeze->threads));

	if (err)
		return err;
	if (ptrace(PTRACE_SEIZE, tid, NULL, NULL)) {
		if (errno == ESRCH)
			return 0;
		return error_set(-EBUSY, "thread %d is traced by somebody already, or may not be", tid);
	}
	thread = &freeze->threads[freeze->count++];
	*thread = (struct stopped){.tid = tid};
	if (ptrace(PTRACE_INTERRUPT, tid, NULL, NULL))
		err = -ESRCH;
	if (!err)
		err = thread_wait(thread, freeze->began_ns + PATIENCE_NS);
	if (err == -ESRCH) {
		freeze->count--;
		return 0;
	}
	return err;
}

/* Stops the threads that are not known yet. Returns how many there were, or an error. */
static int threads_pass(struct freeze *freeze, pid_t pid)
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

		if (!isdigit((unsigned char)entry->d_name[0]) || thread_known(freeze, tid))
			continue;
		found++;
		err = thread_stop(freeze, tid);
	}
	closedir(directory);
	return err ? err : found;
}

static void *tracer_run(void *context)
{
	struct freeze *freeze = context;
	int found = 1;

	for (int i = 0; i < MAX_PASSES && found > 0; i++)
		found = threads_pass(freeze, freeze->pid);
	if (found > 0)
		found = error_set(-ETIMEDOUT, "it starts threads faster than they can be stopped");
	if (!found && !freeze->count)
		found = -ESRCH;
	freeze->err = found;
	if (found)
		snprintf(freeze->reason, sizeof(freeze->reason), "%s", error_reason(found));
	sem_post(&freeze->stands);
	while (sem_wait(&freeze->goes_on) && errno == EINTR)
		;
	for (size_t i = 0; i < freeze->count; i++)
		ptrace(PTRACE_DETACH, freeze->threads[i].tid, NULL, (void *)(long)freeze->threads[i].signal);
	return NULL;
}

int freeze_begin(struct freeze **out, pid_t pid)
{
	struct freeze *freeze = calloc(1, sizeof(*freeze));
	int err;

	error_clear();
	if (!freeze)
		return -ENOMEM;
	freeze->pid = pid;
	freeze->began_ns = clock_ns(CLOCK_MONOTONIC);
	sem_init(&freeze->stands, 0, 0);
	sem_init(&freeze->goes_on, 0, 0);
	err = -pthread_create(&freeze->tracer, NULL, tracer_run, freeze);
	if (err) {
		free(freeze);
		return err;
	}
	while (sem_wait(&freeze->stands) && errno == EINTR)
		;
	err = freeze->err;
	if (!err) {
		*out = freeze;
		return 0;
	}
	error_set(err, "%s", freeze->reason);
	freeze_end(freeze);
	return err;
}

uint64_t freeze_end(struct freeze *freeze)
{
	uint64_t elapsed;

	if (!freeze)
		return 0;
	sem_post(&freeze->goes_on);
	pthread_join(freeze->tracer, NULL);
	elapsed = clock_ns(CLOCK_MONOTONIC) - freeze->began_ns;
	sem_destroy(&freeze->stands);
	sem_destroy(&freeze->goes_on);
	free(freeze->threads);
	free(freeze);
	return elapsed;
}
