/* SPDX-License-Identifier: Apache-2.0 */
/* Freezing and resuming a process. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "freeze_target.h"
#include "proc/freeze.h"

static void test_stands(void **state)
{
	pid_t pid = target_start(THREADS, 0);
	struct freeze *freeze;

	(void)state;
	for (int i = 0; i < 5; i++) {
		assert_int_equal(freeze_begin(&freeze, pid), 0);
		assert_true(stands());
		assert_true(freeze_end(freeze) >= 20000000); /* it was frozen for that long */
		wait_running(0, THREADS);
	}
	assert_int_equal(freeze_end(NULL), 0);
	target_stop(pid);
}

/* A process that starts threads all the time is either frozen or resumed. */
static void test_starts_threads(void **state)
{
	pid_t pid = target_start(3, 1);
	struct freeze *freeze;
	unsigned int stood = 0;

	(void)state;
	for (int i = 0; i < 30; i++) {
		unsigned int before = atomic_load(&shared->short_lived);
		int err = freeze_begin(&freeze, pid);

		if (err) {
			assert_int_equal(err, -ETIMEDOUT);
		} else {
			assert_true(stands());
			freeze_end(freeze);
			stood++;
		}
		while (atomic_load(&shared->short_lived) == before)
			nap(1000000);
		wait_running(1, 3);
	}
	assert_true(stood > 0);
	target_stop(pid);
}

/* Signals sent or pending while the process is frozen are delivered. */
static void test_signals(void **state)
{
	pid_t pid = target_start(2, 0);
	struct freeze *freeze;
	unsigned int sent = 0;

	(void)state;
	for (int i = 0; i < 200; i++) {
		unsigned int before = atomic_load(&shared->signals);

		assert_int_equal(kill(pid, SIGUSR1),
				 0); /* may be pending when the threads are stopped */
		assert_int_equal(freeze_begin(&freeze, pid), 0);
		freeze_end(freeze);
		while (atomic_load(&shared->signals) == before)
			nap(100000);
		sent++;
	}
	assert_int_equal(freeze_begin(&freeze, pid), 0);
	assert_int_equal(kill(pid, SIGUSR1), 0);
	nap(5000000);
	assert_int_equal(atomic_load(&shared->signals), sent);
	freeze_end(freeze);
	while (atomic_load(&shared->signals) == sent)
		nap(100000);
	target_stop(pid);
}

static void test_gone(void **state)
{
	pid_t pid = target_start(2, 0);
	struct freeze *freeze = NULL;

	(void)state;
	assert_int_equal(kill(pid, SIGKILL), 0);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	assert_int_equal(freeze_begin(&freeze, pid), -ESRCH);
	assert_null(freeze);
	/* A process that is killed while it is frozen. */
	pid = target_start(THREADS, 0);
	assert_int_equal(freeze_begin(&freeze, pid), 0);
	assert_int_equal(kill(pid, SIGKILL), 0);
	freeze_end(freeze);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
}

/* Records that one of a thread's calls has returned. */
static void call_note(int failed)
{
	atomic_fetch_add(failed && errno == EINTR ? &shared->signals : &shared->short_lived, 1);
}

static void *epoll_run(void *context)
{
	int fd = epoll_create1(0), busy = context != NULL;
	struct epoll_event event;

	atomic_fetch_add(&shared->started, 1);
	for (;;)
		call_note(epoll_wait(fd, &event, 1, busy ? 1 : -1) < 0);
	return NULL;
}

static void *sigtimedwait_run(void *context)
{
	const struct timespec long_time = {.tv_sec = 1000};
	sigset_t set;

	(void)context;
	sigemptyset(&set);
	sigaddset(&set, SIGUSR2);
	atomic_fetch_add(&shared->started, 1);
	for (;;)
		call_note(sigtimedwait(&set, NULL, &long_time) < 0);
	return NULL;
}

/* Calls that would fail if interrupted: long sleeps, and a call that is entered all the time. */
static void test_calls(void **state)
{
	struct freeze *freeze;
	pthread_t thread;
	pid_t pid;

	(void)state;
	memset(shared, 0, sizeof(*shared));
	pid = fork();
	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		alarm(120);
		pthread_create(&thread, NULL, epoll_run, NULL);
		pthread_create(&thread, NULL, sigtimedwait_run, NULL);
		pthread_create(&thread, NULL, epoll_run, shared);
		counter_run(&shared->count[0]);
	}
	while (atomic_load(&shared->started) < 4)
		nap(1000000);
	for (int i = 0; i < 100; i++) {
		unsigned int before;

		assert_int_equal(freeze_begin(&freeze, pid), 0);
		freeze_end(freeze);
		for (before = atomic_load(&shared->short_lived);
		     atomic_load(&shared->short_lived) == before;)
			nap(100000);
	}
	assert_int_equal(atomic_load(&shared->signals), 0);
	target_stop(pid);
}

/* A zombie is not reaped: its parent can still wait for it. */
static void test_zombie(void **state)
{
	struct freeze *freeze = NULL;
	pid_t pid = fork();
	int status;

	(void)state;
	if (!pid)
		_exit(7);
	while (state_of(pid) != 'Z')
		nap(1000000);
	assert_int_not_equal(freeze_begin(&freeze, pid), 0);
	assert_null(freeze);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(WEXITSTATUS(status), 7);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_stands),  cmocka_unit_test(test_starts_threads),
		cmocka_unit_test(test_signals), cmocka_unit_test(test_gone),
		cmocka_unit_test(test_calls),   cmocka_unit_test(test_zombie),
	};

	return cmocka_run_group_tests(tests, setup, NULL);
}
