/* SPDX-License-Identifier: Apache-2.0 */
/* The workers of a process: children of ours, and one of theirs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "proc/family.h"

/* A child that waits, and tells of one that it has forked, or of itself. */
static pid_t worker(int nested, int out)
{
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (pid)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	pid = nested ? fork() : getpid();
	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		pause();
	}
	if (write(out, &pid, sizeof(pid)) == sizeof(pid))
		pause();
	_exit(0);
}

static int has(const pid_t *pids, size_t count, pid_t pid)
{
	for (size_t i = 0; i < count; i++)
		if (pids[i] == pid)
			return 1;
	return 0;
}

static void test_family(void **state)
{
	pid_t one, two, grandchild, reported, other, *pids;
	size_t count;
	int ends[2];

	(void)state;
	assert_int_equal(pipe(ends), 0);
	one = worker(0, ends[1]);
	assert_int_equal(read(ends[0], &reported, sizeof(reported)), sizeof(reported));
	two = worker(1, ends[1]);
	assert_int_equal(read(ends[0], &grandchild, sizeof(grandchild)), sizeof(grandchild));
	/* Another program is none of the family. */
	other = fork();
	if (!other) {
		execl("/bin/sleep", "sleep", "60", (char *)NULL);
		_exit(1);
	}
	assert_int_equal(family_list(getpid(), &pids, &count), 0);
	assert_true(has(pids, count, one) && has(pids, count, two) && has(pids, count, grandchild));
	assert_false(has(pids, count, getpid()) || has(pids, count, getppid()));
	free(pids);
	assert_int_equal(family_list(two, &pids, &count), 0);
	assert_int_equal(count, 1);
	assert_int_equal(pids[0], grandchild);
	free(pids);
	assert_int_equal(family_list(one, &pids, &count), 0);
	assert_int_equal(count, 0);
	free(pids);
	kill(grandchild, SIGKILL);
	kill(one, SIGKILL);
	kill(two, SIGKILL);
	kill(other, SIGKILL);
	/* Not for all children: one serves the reading of files. */
	assert_int_equal(waitpid(one, NULL, 0), one);
	assert_int_equal(waitpid(two, NULL, 0), two);
	assert_int_equal(waitpid(other, NULL, 0), other);
	assert_int_equal(family_list(one, &pids, &count), -ESRCH);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_family)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
