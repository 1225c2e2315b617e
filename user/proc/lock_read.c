/* SPDX-License-Identifier: Apache-2.0 */
#include "proc/lock_read.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <unistd.h>

#include "util/clock.h"
#include "util/descriptor.h"
#include "util/error.h"
#include "util/interrupt.h"
#include "util/sched_time.h"

#define MS_NS       1000000ull
#define LOOK_MS     50 /* between two looks whether we are asked to end */
#define READS_MAX   64 /* that wait at once */
#define STACK_BYTES (128u * 1024)
#define CHUNK       (64u * 1024)

/* Belongs to whoever lets go of it last: the thread or its caller. */
struct read {
	int file, done; /* descriptors; done: an eventfd */
	int err;        /* 0, -errno */
	size_t max;
	int whole;
	struct buffer text;
	uint64_t slept_ns;
	atomic_int tid; /* 0: it has not run yet */
	uint64_t began_ns;
	atomic_int holders;
};

static atomic_int reads;

static void read_release(struct read *read)
{
	if (atomic_fetch_sub(&read->holders, 1) > 1)
		return;
	descriptor_close(read->file);
	descriptor_close(read->done);
	buffer_free(&read->text);
	free(read);
	atomic_fetch_sub(&reads, 1);
}

static int file_read(struct read *read)
{
	size_t chunk = read->max < CHUNK ? read->max : CHUNK;
	ssize_t got = 1;

	while (got > 0 && read->text.size < read->max) {
		int err = buffer_reserve(&read->text, chunk);

		if (err)
			return err;
		got = pread(read->file, read->text.data + read->text.size, chunk,
			    (off_t)read->text.size);
		if (got < 0)
			return error_errno();
		read->text.size += (size_t)got;
		if (!read->whole)
			break;
	}
	return 0;
}

static void *read_run(void *context)
{
	struct rusage before = {0}, after = {0};
	struct read *read = context;
	pid_t tid = gettid();
	uint64_t awake_ns = sched_time_ns(tid);

	read->began_ns = clock_ns(CLOCK_MONOTONIC);
	atomic_store(&read->tid, tid);
	getrusage(RUSAGE_THREAD, &before);
	read->err = file_read(read);
	getrusage(RUSAGE_THREAD, &after);
	if (after.ru_nvcsw != before.ru_nvcsw)
		read->slept_ns =
			sched_slept_ns(tid, clock_ns(CLOCK_MONOTONIC) - read->began_ns, awake_ns);
	eventfd_write(read->done, 1);
	read_release(read);
	return NULL;
}

/* Signals are for the thread that has called us. */
static int thread_start(struct read *read)
{
	pthread_attr_t attr;
	pthread_t thread;
	sigset_t all, old;

	pthread_attr_init(&attr);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	pthread_attr_setstacksize(&attr, STACK_BYTES);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	int err = pthread_create(&thread, &attr, read_run, read);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	pthread_attr_destroy(&attr);
	return -err;
}

/* 0; -errno, -ETIMEDOUT. */
static int read_start(pid_t pid, const char *name, size_t max, int whole, struct read **out)
{
	struct read *read = calloc(1, sizeof(*read));
	char path[64];
	int err = 0;

	if (!read)
		return -ENOMEM;
	snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, name);
	read->max = max;
	read->whole = whole;
	atomic_init(&read->holders, 2);
	if (atomic_fetch_add(&reads, 1) >= READS_MAX)
		err = -ETIMEDOUT;
	read->file = open(path, O_RDONLY | O_CLOEXEC);
	if (!err && read->file < 0)
		err = error_errno();
	read->done = eventfd(0, EFD_CLOEXEC);
	if (!err && read->done < 0)
		err = error_errno();
	err = err ?: thread_start(read);
	if (err) {
		read_release(read); /* the thread's part */
		read_release(read);
		return err;
	}
	*out = read;
	return 0;
}

/* Of a read that has not returned. */
static uint64_t slept_until_now(struct read *read)
{
	pid_t tid = atomic_load(&read->tid);

	if (!tid || !sched_sleeps(tid))
		return 0;
	/* All but some microseconds of its life are this read. */
	return sched_slept_ns(tid, clock_ns(CLOCK_MONOTONIC) - read->began_ns, 0);
}

int lock_read(pid_t pid, const char *name, size_t max, int whole, unsigned int wait_ms,
	      unsigned int busy_ms, struct buffer *out, uint64_t *slept_ns)
{
	uint64_t now_ns = clock_ns(CLOCK_MONOTONIC), until_ns = now_ns + wait_ms * MS_NS;
	uint64_t last_ns = until_ns + busy_ms * MS_NS;
	struct read *read;
	int err = read_start(pid, name, max, whole, &read), done = 0;

	*slept_ns = err == -ETIMEDOUT ? wait_ms * MS_NS : 0;
	if (err)
		return err;
	do {
		uint64_t look_ns = now_ns + LOOK_MS * MS_NS;

		done = descriptor_wait(
			read->done, now_ns < until_ns && until_ns < look_ns ? until_ns : look_ns);
		now_ns = clock_ns(CLOCK_MONOTONIC);
	} while (!done && !interrupt_pending() &&
		 (now_ns < until_ns || (now_ns < last_ns && !slept_until_now(read))));
	err = done ? read->err : -ETIMEDOUT;
	*slept_ns = done ? read->slept_ns : slept_until_now(read);
	if (!err && out) {
		*out = read->text;
		read->text = (struct buffer){0};
	}
	read_release(read);
	return err;
}
