/* SPDX-License-Identifier: Apache-2.0 */
/* Running and waiting threads of this process, distinguished from outside. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "proc/threads.h"
#include "ranges.h"

struct worker {
	pthread_t thread;
	atomic_int tid, over;
};

struct seen {
	pid_t tids[16];
	int count, stop;
};

static int see(pid_t tid, void *context)
{
	struct seen *seen = context;

	assert_uint_in_range(seen->count, 0, 15);
	seen->tids[seen->count++] = tid;
	return seen->stop;
}

static int has(const struct seen *seen, pid_t tid)
{
	for (int i = 0; i < seen->count; i++)
		if (seen->tids[i] == tid)
			return 1;
	return 0;
}

static void *spin(void *context)
{
	struct worker *worker = context;

	atomic_store(&worker->tid, (int)syscall(SYS_gettid));
	while (!atomic_load(&worker->over))
		;
	return NULL;
}

static void *sleep_long(void *context)
{
	struct worker *worker = context;

	atomic_store(&worker->tid, (int)syscall(SYS_gettid));
	while (!atomic_load(&worker->over))
		pause();
	return NULL;
}

static void wake(int signal)
{
	(void)signal;
}

static pid_t start(struct worker *worker, void *(*run)(void *))
{
	assert_int_equal(pthread_create(&worker->thread, NULL, run, worker), 0);
	while (!atomic_load(&worker->tid))
		sched_yield();
	return atomic_load(&worker->tid);
}

/* The kernel lists a thread that has been joined for a moment. */
static void join(struct worker *worker)
{
	assert_int_equal(pthread_join(worker->thread, NULL), 0);
	for (int i = 0; i < 10000 && !syscall(SYS_tgkill, getpid(), worker->tid, 0); i++)
		usleep(1000);
}

static void test_threads(void **state)
{
	struct worker spinner = {0}, sleeper = {0};
	pid_t running = start(&spinner, spin), waiting = start(&sleeper, sleep_long);
	struct seen seen;

	(void)state;
	signal(SIGUSR1, wake);
	do { /* until it has reached its call */
		seen = (struct seen){0};
		assert_int_equal(threads_visit(getpid(), see, &seen), 0);
		assert_true(has(&seen, running));
	} while (has(&seen, waiting));
	assert_false(has(&seen, getpid())); /* the query itself is a call */
	seen = (struct seen){.stop = -E2BIG};
	assert_int_equal(threads_visit(getpid(), see, &seen), -E2BIG);
	assert_int_equal(seen.count, 1);
	atomic_store(&spinner.over, 1);
	atomic_store(&sleeper.over, 1);
	for (int i = 0; i < 10000 && !syscall(SYS_tgkill, getpid(), waiting, SIGUSR1); i++)
		usleep(1000);
	join(&sleeper);
	join(&spinner);
	seen = (struct seen){0};
	assert_int_equal(threads_visit(getpid(), see, &seen), 0);
	assert_false(has(&seen, running) || has(&seen, waiting));
}

/* A thread stopped in the middle of its work, however long ago. */
static void test_stopped(void **state)
{
	struct seen seen = {0};
	pid_t pid = fork();

	(void)state;
	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		for (;;)
			;
	}
	while (!seen.count) { /* at first it may still be inside fork() */
		assert_int_equal(kill(pid, SIGCONT), 0);
		sched_yield();
		assert_int_equal(kill(pid, SIGSTOP), 0);
		assert_int_equal(waitpid(pid, NULL, WUNTRACED), pid);
		assert_int_equal(threads_visit(pid, see, &seen), 0);
	}
	assert_true(has(&seen, pid));
	assert_int_equal(kill(pid, SIGKILL), 0);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	assert_int_equal(threads_visit(pid, see, &seen), -ESRCH);
}

/* What runs takes time, what sleeps does not; other threads are another number. */
static void test_time(void **state)
{
	struct worker spinner = {0};
	struct threads_time first, second;
	(void)state;

	assert_int_equal(threads_time(getpid(), 16, &first), 0);
	start(&spinner, spin);
	assert_int_equal(threads_time(getpid(), 1, &second), -E2BIG);
	do
		assert_int_equal(threads_time(getpid(), 16, &second), 0);
	while (second.run_ns + second.wait_ns < first.run_ns + first.wait_ns + 20000000);
	assert_true(second.threads != first.threads);
	atomic_store(&spinner.over, 1);
	/* It ends while it is looked for, which is no failure. */
	for (int i = 0; i < 1000; i++)
		assert_int_equal(threads_time(getpid(), 16, &second), 0);
	join(&spinner);
	assert_int_equal(threads_time(getpid(), 16, &second), 0);
	assert_true(second.threads == first.threads);
	assert_int_equal(threads_time(0, 16, &second), -ESRCH);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_threads),
		cmocka_unit_test(test_stopped),
		cmocka_unit_test(test_time),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
