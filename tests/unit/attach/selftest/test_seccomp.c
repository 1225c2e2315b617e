/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "attach/selftest/seccomp.h"
#include "util/error.h"

static void filter_set(void)
{
	struct sock_filter code[] = {BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
	struct sock_fprog filter = {.len = 1, .filter = code};

	prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
	prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter);
}

static void *thread_run(void *context)
{
	filter_set();
	if (write(*(int *)context, "", 1) == 1)
		pause();
	return NULL;
}

/* A process without a filter, with one on all threads, or with one on a single thread. */
static void test_filtered(void **state)
{
	(void)state;
	for (int kind = 0; kind < 3; kind++) {
		int fds[2], status;
		pthread_t thread;
		char word;
		pid_t child;

		assert_int_equal(pipe(fds), 0);
		child = fork();
		if (!child) {
			if (kind == 1)
				filter_set();
			if (kind == 2)
				pthread_create(&thread, NULL, thread_run, &fds[1]);
			else if (write(fds[1], "", 1) != 1)
				_exit(1);
			alarm(60);
			pause();
			_exit(1);
		}
		assert_int_equal(read(fds[0], &word, 1), 1);
		/* If the test runs under a filter, every process here has one. */
		assert_int_equal(seccomp_is_filtered(child), kind || prctl(PR_GET_SECCOMP) == 2);
		kill(child, SIGKILL);
		waitpid(child, &status, 0);
		assert_int_equal(seccomp_is_filtered(child), -ESRCH);
		close(fds[0]);
		close(fds[1]);
	}
}

/*
 * The tracer survives whatever the kernel does to the child. A caller that may not place probes
 * gets an error.
 */
static void test_returns(void **state)
{
	int kills = seccomp_kills_returns();

	(void)state;
	print_message("this kernel: %d\n", kills);
	assert_true(kills <= 1);
	if (geteuid())
		assert_true(kills < 0);
}

/* The decision for every answer that a kernel can give. */
static void test_check(void **state)
{
	struct plan_site sites[2] = {{.with_return = 0}, {.with_return = 1}};
	struct plan plan = {.sites = sites, .count = 2};
	struct features features = {.kernel = "6.12.1", .returns_by_call = 1};
	struct seccomp_answer answer = {.asked = 1, .kills = 1};
	pid_t child = fork();

	(void)state;
	if (!child) {
		filter_set();
		alarm(60);
		pause();
		_exit(1);
	}
	while (!seccomp_is_filtered(child))
		usleep(1000);
	assert_int_equal(seccomp_check(&answer, &features, child, &plan), -ENOTSUP);
	assert_non_null(strstr(error_reason(-ENOTSUP), "kernel (6.12.1) a return probe kills"));
	answer.kills = -EPERM;
	assert_int_equal(seccomp_check(&answer, &features, child, &plan), -ENOTSUP);
	assert_non_null(strstr(error_reason(-ENOTSUP), "may kill"));
	answer.kills = 0;
	assert_int_equal(seccomp_check(&answer, &features, child, &plan), 0);
	answer.kills = 1;
	plan.count = 1; /* no return probes */
	assert_int_equal(seccomp_check(&answer, &features, child, &plan), 0);
	plan.count = 2;
	features.returns_by_call = 0; /* return probes make no system call */
	assert_int_equal(seccomp_check(&answer, &features, child, &plan), 0);
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_filtered),
					   cmocka_unit_test(test_returns),
					   cmocka_unit_test(test_check)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
