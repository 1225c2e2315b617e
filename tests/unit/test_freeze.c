/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Real processes that stand, and go on. They count in shared memory, which tells whether they run.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/error.h"
#include "process/freeze.h"

#define THREADS 8

struct shared {
	atomic_ulong count[THREADS]; /* of each thread, while it runs */
	atomic_uint started, short_lived, signals;
	atomic_int stopper; /* of the process that froze it */
};

static struct shared *shared;

static void nap(long ns)
{
	nanosleep(&(struct timespec){.tv_nsec = ns}, NULL);
}

static void *counter_run(void *context)
{
	atomic_ulong *count = context;

	atomic_fetch_add(&shared->started, 1);
	for (;;)
		atomic_fetch_add(count, 1);
	return NULL;
}

static void *short_run(void *context)
{
	(void)context;
	atomic_fetch_add(&shared->short_lived, 1);
	return NULL;
}

static void signal_count(int signal)
{
	(void)signal;
	atomic_fetch_add(&shared->signals, 1);
}

/* Its first threads count for ever, and its main thread starts one after the other. */
static void target_main(unsigned int threads, int starts)
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

static pid_t target_start(unsigned int threads, int starts)
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

static void target_stop(pid_t pid)
{
	assert_int_equal(kill(pid, SIGKILL), 0);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
}

static uint64_t progress(void)
{
	uint64_t sum = atomic_load(&shared->short_lived);

	for (int i = 0; i < THREADS; i++)
		sum += atomic_load(&shared->count[i]);
	return sum;
}

static int stands(void)
{
	uint64_t before = progress();

	nap(20000000);
	return progress() == before;
}

/* All of these threads go on, however busy the machine is. */
static void wait_running(unsigned int first, unsigned int threads)
{
	for (unsigned int i = first; i < threads; i++) {
		uint64_t before = atomic_load(&shared->count[i]);

		while (atomic_load(&shared->count[i]) == before)
			nap(1000000);
	}
}

/* The letter of its state in /proc. */
static char state_of(pid_t pid)
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

static void test_stands(void **state)
{
	pid_t pid = target_start(THREADS, 0);
	struct freeze *freeze;

	(void)state;
	for (int i = 0; i < 5; i++) {
		assert_int_equal(freeze_begin(&freeze, pid), 0);
		assert_true(stands());
		assert_true(freeze_end(freeze) >= 20000000); /* it stood for that long */
		wait_running(0, THREADS);
	}
	assert_int_equal(freeze_end(NULL), 0);
	target_stop(pid);
}

/* One that starts threads all the time stands all the same, or is let go. */
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

/* What was sent to it meanwhile, or was about to arrive, arrives. */
static void test_signals(void **state)
{
	pid_t pid = target_start(2, 0);
	struct freeze *freeze;
	unsigned int sent = 0;

	(void)state;
	for (int i = 0; i < 200; i++) {
		unsigned int before = atomic_load(&shared->signals);

		assert_int_equal(kill(pid, SIGUSR1),
				 0); /* it may be on its way when the threads are stopped */
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

/*
 * One that its user had stopped is stopped afterwards, and is woken by that user's SIGCONT alone.
 */
static void test_stopped_before(void **state)
{
	pid_t pid = target_start(2, 0);
	struct freeze *freeze;
	int status;

	(void)state;
	assert_int_equal(kill(pid, SIGSTOP), 0);
	assert_int_equal(waitpid(pid, &status, WUNTRACED), pid);
	assert_true(WIFSTOPPED(status));
	assert_int_equal(freeze_begin(&freeze, pid), 0);
	assert_true(stands());
	freeze_end(freeze);
	assert_true(stands());
	assert_int_equal(state_of(pid), 'T');
	assert_int_equal(kill(pid, SIGCONT), 0);
	wait_running(0, 2);
	target_stop(pid);
}

/* A stop that arrives while it stands is not lost either. */
static void test_stopped_meanwhile(void **state)
{
	pid_t pid = target_start(2, 0);
	struct freeze *freeze;
	int status;

	(void)state;
	assert_int_equal(freeze_begin(&freeze, pid), 0);
	assert_int_equal(kill(pid, SIGSTOP), 0);
	freeze_end(freeze);
	assert_int_equal(waitpid(pid, &status, WUNTRACED), pid);
	assert_true(WIFSTOPPED(status));
	assert_true(stands());
	assert_int_equal(kill(pid, SIGCONT), 0);
	wait_running(0, 2);
	target_stop(pid);
}

static void test_traced_already(void **state)
{
	pid_t pid = target_start(2, 0);
	struct freeze *freeze = NULL;
	int status, ready[2], go[2];
	pid_t debugger;

	(void)state;
	assert_int_equal(pipe(ready), 0);
	assert_int_equal(pipe(go), 0);
	debugger = fork();
	if (!debugger) {
		char byte = ptrace(PTRACE_SEIZE, pid, NULL, NULL) ? 'n' : 'y';

		_exit(write(ready[1], &byte, 1) != 1 || read(go[0], &byte, 1) != 1);
	}
	char byte = 0;
	assert_int_equal(read(ready[0], &byte, 1), 1);
	assert_int_equal(byte, 'y');
	assert_int_equal(freeze_begin(&freeze, pid), -EBUSY);
	assert_non_null(strstr(error_reason(-EBUSY), "traced"));
	assert_null(freeze);
	wait_running(0, 2); /* those that were stopped before, too */
	assert_int_equal(write(go[1], "x", 1), 1);
	assert_int_equal(waitpid(debugger, &status, 0), debugger);
	assert_int_equal(freeze_begin(&freeze, pid), 0); /* nobody's any more */
	freeze_end(freeze);
	close(ready[0]), close(ready[1]), close(go[0]), close(go[1]);
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
	/* And one that is killed while it stands. */
	pid = target_start(THREADS, 0);
	assert_int_equal(freeze_begin(&freeze, pid), 0);
	assert_int_equal(kill(pid, SIGKILL), 0);
	freeze_end(freeze);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
}

/* A process that has frozen the target, and waits. */
static pid_t stopper_start(pid_t pid)
{
	pid_t stopper = fork();

	if (!stopper) {
		struct freeze *freeze;

		atomic_store(&shared->stopper, freeze_begin(&freeze, pid) ? -1 : 1);
		for (;;)
			pause();
	}
	while (!atomic_load(&shared->stopper))
		nap(1000000);
	assert_int_equal(atomic_load(&shared->stopper), 1);
	assert_true(stands());
	return stopper;
}

/* Who froze it is killed: the kernel lets it run. */
static void test_killed_while_frozen(void **state)
{
	pid_t pid = target_start(THREADS, 0), stopper = stopper_start(pid);

	(void)state;
	assert_int_equal(kill(stopper, SIGKILL), 0);
	assert_int_equal(waitpid(stopper, NULL, 0), stopper);
	wait_running(0, THREADS);
	target_stop(pid);
}

/* Who froze it is stopped, as by Ctrl-Z: the target is not. */
static void test_stopped_while_frozen(void **state)
{
	pid_t pid = target_start(THREADS, 0), stopper = stopper_start(pid);

	(void)state;
	assert_int_equal(kill(stopper, SIGSTOP), 0);
	wait_running(0, THREADS);
	assert_int_equal(kill(stopper, SIGKILL), 0);
	assert_int_equal(waitpid(stopper, NULL, 0), stopper);
	target_stop(pid);
}

/* One of a thread's calls has returned. */
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

/*
 * Calls that an interruption would make fail: those that sleep for long, and one that is entered
 * all the time.
 */
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

/* A child whose end nobody has asked for is not taken away from who waits for it. */
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

static int setup(void **state)
{
	(void)state;
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		      0);
	return shared == MAP_FAILED;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_stands),
		cmocka_unit_test(test_starts_threads),
		cmocka_unit_test(test_signals),
		cmocka_unit_test(test_stopped_before),
		cmocka_unit_test(test_stopped_meanwhile),
		cmocka_unit_test(test_traced_already),
		cmocka_unit_test(test_gone),
		cmocka_unit_test(test_killed_while_frozen),
		cmocka_unit_test(test_stopped_while_frozen),
		cmocka_unit_test(test_calls),
		cmocka_unit_test(test_zombie),
	};

	return cmocka_run_group_tests(tests, setup, NULL);
}
