/* SPDX-License-Identifier: Apache-2.0 */
/* A process's share of our time. */
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "process/patience.h"

#define WAIT_NS 20000000ull

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

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_kept),
		cmocka_unit_test(test_busy),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
