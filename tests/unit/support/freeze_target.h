/* SPDX-License-Identifier: Apache-2.0 */
/* A process of several threads that count, to be frozen. */
#pragma once

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define THREADS 8

struct shared {
	atomic_ulong count[THREADS]; /* of each thread, while it runs */
	atomic_uint started, short_lived, signals;
	atomic_int stopper; /* of the process that froze it */
};

static struct shared *shared;

static inline void nap(long ns)
{
	nanosleep(&(struct timespec){.tv_nsec = ns}, NULL);
}

static inline void *counter_run(void *context)
{
	atomic_ulong *count = context;

	atomic_fetch_add(&shared->started, 1);
	for (;;)
		atomic_fetch_add(count, 1);
	return NULL;
}

static inline void *short_run(void *context)
{
	(void)context;
	atomic_fetch_add(&shared->short_lived, 1);
	return NULL;
}

static inline void signal_count(int signal)
{
	(void)signal;
	atomic_fetch_add(&shared->signals, 1);
}

/* The first threads count without end; the main thread starts short-lived threads in a loop. */
static inline void target_main(unsigned int threads, int starts)
{
	pthread_t thread;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	alarm(120);
	signal(SIGUSR1, signal_count);
	for (unsigned int i = 1; i < threads; i++)
		pthread_create(&thread, NULL, counter_run, &shared->count[i]);
	while (starts)
		if (!pthread_create(&thread, NULL, short_run, NULL))
			pthread_join(thread, NULL);
	counter_run(&shared->count[0]);
}

static inline pid_t target_start(unsigned int threads, int starts)
{
	memset(shared, 0, sizeof(*shared));
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (!pid) {
		target_main(threads, starts);
		_exit(0);
	}
	while (atomic_load(&shared->started) < threads - !!starts)
		nap(100000);
	return pid;
}

static inline void target_stop(pid_t pid)
{
	assert_int_equal(kill(pid, SIGKILL), 0);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
}

static inline uint64_t speed(void)
{
	uint64_t sum = atomic_load(&shared->short_lived);

	for (int i = 0; i < THREADS; i++)
		sum += atomic_load(&shared->count[i]);
	return sum;
}

static inline int stands(void)
{
	uint64_t before = speed();

	nap(20000000);
	return speed() == before;
}

/* Waits until all of these threads run, however busy the machine is. */
static inline void wait_running(unsigned int first, unsigned int threads)
{
	for (unsigned int i = first; i < threads; i++) {
		uint64_t before = atomic_load(&shared->count[i]);

		while (atomic_load(&shared->count[i]) == before)
			nap(1000000);
	}
}

/* The state letter of the process in /proc. */
static inline char state_of(pid_t pid)
{
	char path[64], text[512] = "";
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	file = fopen(path, "r");
	assert_non_null(file);
	assert_true(fread(text, 1, sizeof(text) - 1, file) > 0);
	fclose(file);
	assert_non_null(strrchr(text, ')'));
	return strrchr(text, ')')[2];
}

static inline int setup(void **state)
{
	(void)state;
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		      0);
	return shared == MAP_FAILED;
}
