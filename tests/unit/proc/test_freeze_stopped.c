/* SPDX-License-Identifier: Apache-2.0 */
/* Processes that are stopped, traced or killed before or while they are frozen. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include "freeze_target.h"
#include "proc/freeze.h"
#include "util/error.h"

/* A process that its user stopped stays stopped, and only that user's SIGCONT resumes it. */
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

/* A stop signal that arrives while the process is frozen is not lost. */
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
	wait_running(0, 2); /* also those that were stopped before */
	assert_int_equal(write(go[1], "x", 1), 1);
	assert_int_equal(waitpid(debugger, &status, 0), debugger);
	assert_int_equal(freeze_begin(&freeze, pid), 0); /* the debugger has ended */
	freeze_end(freeze);
	close(ready[0]), close(ready[1]), close(go[0]), close(go[1]);
	target_stop(pid);
}

/* Starts a process that freezes the target, and waits. */
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

/* The process that froze it is killed: the kernel resumes the target. */
static void test_killed_while_frozen(void **state)
{
	pid_t pid = target_start(THREADS, 0), stopper = stopper_start(pid);

	(void)state;
	assert_int_equal(kill(stopper, SIGKILL), 0);
	assert_int_equal(waitpid(stopper, NULL, 0), stopper);
	wait_running(0, THREADS);
	target_stop(pid);
}

/* The process that froze it is stopped, as by Ctrl-Z: the target is not. */
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

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_stopped_before),
		cmocka_unit_test(test_stopped_meanwhile),
		cmocka_unit_test(test_traced_already),
		cmocka_unit_test(test_killed_while_frozen),
		cmocka_unit_test(test_stopped_while_frozen),
	};

	return cmocka_run_group_tests(tests, setup, NULL);
}
