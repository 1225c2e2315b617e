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
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "proc/patience.h"
#include "util/clock.h"

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

/* Traces a process that has asked for it, and the threads that it begins. */
static void trace_threads(pid_t pid, long options)
{
	int status;

	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFSTOPPED(status));
	options |= PTRACE_O_TRACECLONE;
	assert_int_equal(ptrace(PTRACE_SETOPTIONS, pid, NULL, (void *)options), 0);
	assert_int_equal(ptrace(PTRACE_CONT, pid, NULL, NULL), 0);
}

/* The threads of this process are held when they begin, as if no processor were free. */
static void hold_threads(pid_t pid)
{
	const struct timespec held = {.tv_nsec = HELD_NS};
	int status;

	trace_threads(pid, 0);
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

/* After one long wait, some seconds ago, a process whose lock is free is read at the end. */
static void test_free_again(void **state)
{
	const struct timespec wait = {.tv_nsec = 3 * WAIT_NS};
	pid_t idle = sleeper(), reader;
	struct patience patience;
	int status;

	(void)state;
	reader = fork();
	if (!reader) {
		if (patience_begin(&patience, idle))
			_exit(1);
		nanosleep(&wait, NULL);
		patience_end(&patience);
		if (patience_slow() != idle)
			_exit(2);
		patience_end_at(clock_ns(CLOCK_MONOTONIC));
		_exit(patience_begin(&patience, idle) ? 3 : 0);
	}
	assert_int_equal(waitpid(reader, &status, 0), reader);
	end(idle);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
}

/* The first read of a thread of this process is held for as long as a lock may be taken. */
static void hold_read(pid_t pid)
{
	const struct timespec held = {.tv_nsec = 3 * WAIT_NS / 2};
	struct __ptrace_syscall_info info;
	int status, done = 0;

	trace_threads(pid, PTRACE_O_TRACESYSGOOD);
	for (;;) {
		pid_t tid = waitpid(-1, &status, __WALL);

		assert_true(tid > 0);
		if (tid == pid && !WIFSTOPPED(status))
			break;
		if (!WIFSTOPPED(status))
			continue;
		if (WSTOPSIG(status) == (SIGTRAP | 0x80) && !done &&
		    ptrace(PTRACE_GET_SYSCALL_INFO, tid, sizeof(info), &info) > 0 &&
		    info.op == PTRACE_SYSCALL_INFO_ENTRY && info.entry.nr == SYS_pread64) {
			done = 1;
			nanosleep(&held, NULL);
		}
		ptrace(tid == pid ? PTRACE_CONT : PTRACE_SYSCALL, tid, NULL, NULL);
	}
	assert_true(done);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
}

/* One long try in five is no mean wait: a thousand probes would be refused for it. */
static void test_one_wait(void **state)
{
	pid_t idle = sleeper(), reader;

	(void)state;
	reader = fork();
	if (!reader) {
		ptrace(PTRACE_TRACEME, 0, NULL, NULL);
		raise(SIGSTOP);
		_exit(patience_wait_ns(idle) < WAIT_NS / 20 ? 0 : 1);
	}
	hold_read(reader);
	end(idle);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_kept),         cmocka_unit_test(test_busy),
		cmocka_unit_test(test_busy_machine), cmocka_unit_test(test_free_again),
		cmocka_unit_test(test_one_wait),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
