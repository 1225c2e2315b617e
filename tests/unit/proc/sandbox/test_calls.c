/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The list of system calls: a call on the list works, also in a thread that existed before. Any
 * other call is refused.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <linux/perf_event.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "proc/sandbox/calls.h"
#include "sanitized.h"

static int refused(long result)
{
	return result < 0 && errno == EPERM;
}

static void *program_starts(void *context)
{
	static char *const none[] = {NULL};

	(void)context;
	return refused(execve("/bin/true", none, none)) ? context : NULL;
}

static void *waits(void *context)
{
	pthread_barrier_t *barrier = context;

	pthread_barrier_wait(barrier); /* the thread exists */
	pthread_barrier_wait(barrier); /* the list is in force */
	return program_starts(context);
}

/* Makes calls that must be refused. Returns the number of the first that is not, or 0. */
static int done(unsigned int wants)
{
	struct perf_event_attr attr = {.type = PERF_TYPE_SOFTWARE, .size = sizeof(attr)};
	char byte = 0;
	struct iovec iov = {&byte, 1};

	if (!program_starts(&byte))
		return 1;
	if (!refused((long)mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1,
				0)))
		return 2;
	if (!refused(process_vm_writev(getpid(), &iov, 1, &iov, 1, 0)))
		return 3;
	if (!refused(socket(AF_INET, SOCK_STREAM, 0)))
		return 4;
	if (!refused(unshare(CLONE_NEWUSER)) ||
	    !refused(syscall(SYS_clone, CLONE_NEWUSER, NULL, NULL, NULL, 0)))
		return 5;
	if (refused(ptrace(PTRACE_ATTACH, 1 << 30, NULL, NULL)) != !(wants & CALLS_FREEZE))
		return 6;
	/* With a wrong size the kernel itself returns a different error. */
	attr.size = 1;
	if (refused(syscall(SYS_perf_event_open, &attr, 0, -1, -1, 0)) != !(wants & CALLS_ATTACH))
		return 7;
	return 0;
}

/* Makes the calls that a session needs. Returns the number of the first that fails, or 0. */
static int works(void)
{
	char byte = 0;
	struct iovec iov = {&byte, 1};
	int ends[2], status;
	pthread_t thread;
	void *result;
	pid_t child;

	if (pthread_create(&thread, NULL, program_starts, &byte) || pthread_join(thread, &result) ||
	    !result)
		return 11;
	child = fork();
	if (!child)
		_exit(program_starts(&byte) ? 3 : 4);
	if (child < 0 || waitpid(child, &status, 0) != child || WEXITSTATUS(status) != 3)
		return 12;
	if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) ||
	    process_vm_readv(getpid(), &iov, 1, &iov, 1, 0) != -1)
		return 13;
	if (open("/proc/self/maps", O_RDONLY) < 0 || !malloc(64 << 20))
		return 14;
	return 0;
}

static int child_run(unsigned int wants)
{
	pthread_barrier_t barrier;
	pthread_t thread;
	void *result;
	int failed;

	pthread_barrier_init(&barrier, NULL, 2);
	pthread_create(&thread, NULL, waits, &barrier);
	pthread_barrier_wait(&barrier);
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || calls_limit(wants))
		return 20;
	pthread_barrier_wait(&barrier);
	if (pthread_join(thread, &result) || !result)
		return 21;
	failed = done(wants);
	return failed ? failed : works();
}

static void list(void **state)
{
	(void)state;
#if SANITIZED
	print_message("the address sanitizer's build has no list\n");
	skip();
#endif
	unsetenv("TRACER_CALLS");
	for (unsigned int wants = 0; wants < 4; wants++) {
		pid_t child = fork();
		int status;

		if (!child)
			_exit(child_run(wants));
		assert_int_equal(waitpid(child, &status, 0), child);
		assert_int_equal(status, 0);
	}
}

/* A mode for tests: the process ends, and reports which call it made. */
static void kill_mode(void **state)
{
	char text[128] = "";
	int ends[2], status;
	pid_t child;

	(void)state;
#if SANITIZED
	print_message("the address sanitizer's build has no list\n");
	skip();
#endif
	assert_int_equal(pipe(ends), 0);
	child = fork();
	if (!child) {
		setenv("TRACER_CALLS", "kill", 1);
		dup2(ends[1], 2);
		if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || calls_limit(0))
			_exit(1);
		_exit(chroot("/") ? 2 : 3);
	}
	close(ends[1]);
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 70);
	assert_true(read(ends[0], text, sizeof(text) - 1) > 0);
	assert_string_equal(text, "tracer: system call 0161 is not on the list\n");
	close(ends[0]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(list), cmocka_unit_test(kill_mode)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
