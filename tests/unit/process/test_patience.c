/* SPDX-License-Identifier: Apache-2.0 */
/* A process's share of our time: what it is held responsible for, and what the machine is. */
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "process/patience.h"

#define WAIT_NS 20000000ull
#define HELD_NS 600000000l /* longer than a try takes once the user waits for our end */

static pid_t sleeper(void)
{
	pid_t pid = fork();

	if (!pid)
		for (;;)
			pause();
	assert_true(pid > 0);
	return pid;
}

static void end(pid_t pid)
{
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

/* A read that waits as for a lock, then copies for some times as long. Returns what it waited. */
static uint64_t read_slowly(pid_t pid, unsigned int times, int *err)
{
	const struct timespec wait = {.tv_nsec = WAIT_NS};
	uint64_t began_ns, waited_ns;
	struct patience patience;

	*err = patience_begin(&patience, pid);
	if (*err)
		return 0;
	began_ns = clock_ns(CLOCK_MONOTONIC);
	nanosleep(&wait, NULL);
	waited_ns = clock_ns(CLOCK_MONOTONIC) - began_ns;
	while (clock_ns(CLOCK_MONOTONIC) - began_ns < (1 + times) * waited_ns)
		;
	patience_end(&patience);
	return waited_ns;
}

/* One that makes us wait all the time is given up. */
static void test_kept(void **state)
{
	pid_t pid = sleeper();
	uint64_t waited_ns = 0;
	int err = 0;

	(void)state;
	while (!err && waited_ns < 4 * PATIENCE_SHARE_MS * 1000000ull)
		waited_ns += read_slowly(pid, 0, &err);
	assert_int_equal(err, -ETIMEDOUT);
	end(pid);
}

/* One of which each of many reads waits for a part of its time is not. */
static void test_busy(void **state)
{
	pid_t pid = sleeper();
	uint64_t waited_ns = 0;
	int err = 0;

	(void)state;
	while (!err && waited_ns < 3 * PATIENCE_SHARE_MS * 1000000ull / 2)
		waited_ns += read_slowly(pid, 3, &err);
	assert_int_equal(err, 0);
	end(pid);
}

/* The threads of this process are held when they begin, as if no processor were free. */
static void hold_threads(pid_t pid)
{
	const struct timespec held = {.tv_nsec = HELD_NS};
	int status;

	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFSTOPPED(status));
	assert_int_equal(ptrace(PTRACE_SETOPTIONS, pid, NULL, (void *)PTRACE_O_TRACECLONE), 0);
	assert_int_equal(ptrace(PTRACE_CONT, pid, NULL, NULL), 0);
	for (;;) {
		pid_t tid = waitpid(-1, &status, __WALL);

		assert_true(tid > 0);
		if (tid == pid && !WIFSTOPPED(status))
			break;
		if (WIFSTOPPED(status) && tid != pid)
			nanosleep(&held, NULL);
		if (WIFSTOPPED(status))
			ptrace(PTRACE_CONT, tid, NULL, NULL);
	}
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
}

/* A try that has no processor says nothing of the process: it is read at the end all the same. */
static void test_busy_machine(void **state)
{
	pid_t idle = sleeper(), reader;

	(void)state;
	reader = fork();
	if (!reader) {
		struct patience patience;

		ptrace(PTRACE_TRACEME, 0, NULL, NULL);
		raise(SIGSTOP);
		patience_end_at(clock_ns(CLOCK_MONOTONIC));
		if (patience_begin(&patience, idle))
			_exit(1);
		patience_end(&patience);
		_exit(patience_slow() ? 2 : 0);
	}
	hold_threads(reader);
	end(idle);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_kept),
		cmocka_unit_test(test_busy),
		cmocka_unit_test(test_busy_machine),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
