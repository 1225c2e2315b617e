/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which processes a target_set selects, among real ones: this process, a child, and others in
 * /proc.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "proc/targets/target_set.h"
#include "util/error.h"

static pid_t child_start(const char *name)
{
	int fds[2];
	char byte;
	pid_t child;

	assert_int_equal(pipe(fds), 0);
	child = fork();
	if (!child) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		prctl(PR_SET_NAME, name);
		if (write(fds[1], "", 1) == 1)
			for (;;)
				pause();
		_exit(1);
	}
	assert_int_equal(read(fds[0], &byte, 1), 1);
	close(fds[0]);
	close(fds[1]);
	return child;
}

static void child_stop(pid_t child)
{
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
}

static int lists(struct target_set *set, pid_t pid)
{
	pid_t *pids = NULL;
	size_t count = 0;
	int found = 0;

	assert_int_equal(target_set_list(set, &pids, &count), 0);
	for (size_t i = 0; i < count; i++) {
		found += pids[i] == pid;
		assert_int_not_equal(pids[i], getpid());
	}
	free(pids);
	return found;
}

static int matches(struct target_set *set, pid_t pid)
{
	struct process_info info;

	assert_int_equal(process_info_read(pid, &info), 0);
	return target_set_match(set, &info);
}

static void names(void **state)
{
	static const struct {
		const char *wanted, *name;
		int matches;
	} cases[] = {
		{"python3.11", "python3.11", 1},
		{"python3", "python3.11", 0},
		{"python3*", "python3.11", 1},
		{"python3.1[012]", "python3.11", 1},
		{"*", "x", 1},
		{"gunicorn: worker [web]", "gunicorn: worke", 0}, /* a bracket is a wildcard */
		{"gunicorn: worker", "gunicorn: worke", 1},       /* 15 bytes of a longer name */
		{"gunicorn: worker", "gunicorn: work", 0},
		{"Python3.11", "python3.11", 0},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct target_set set = {0};
		struct process_info info = {.pid = 1 << 30, .tgid = 1 << 30};

		assert_int_equal(target_set_name(&set, cases[i].wanted), 0);
		strcpy(info.name, cases[i].name);
		assert_int_equal(target_set_match(&set, &info), cases[i].matches);
		info.kernel_thread = 1;
		assert_int_equal(target_set_match(&set, &info), 0);
		info.kernel_thread = 0;
		info.tgid++; /* a thread */
		assert_int_equal(target_set_match(&set, &info), 0);
		target_set_free(&set);
	}
}

static void all_but_us(void **state)
{
	pid_t child = child_start("tset-all");
	struct target_set set = {0};
	int status;

	(void)state;
	assert_true(target_set_is_empty(&set));
	assert_int_equal(matches(&set, child), 0);
	set.all = 1;
	assert_false(target_set_is_empty(&set));
	assert_int_equal(matches(&set, child), 1);
	assert_int_equal(matches(&set, getpid()), 0);
	assert_int_equal(lists(&set, child), 1);
	kill(child, SIGKILL);
	/* The child is not reaped: a zombie is not a target. */
	while (waitid(P_PID, (id_t)child, NULL, WEXITED | WNOWAIT) && errno == EINTR)
		;
	assert_int_equal(lists(&set, child), 0);
	waitpid(child, &status, 0);
	target_set_free(&set);
}

static void pids_and_names(void **state)
{
	pid_t child = child_start("tset-one"), other = child_start("tset-two");
	struct target_set set = {0};
	pid_t *pids = calloc(2, sizeof(*pids)), *found;
	size_t count;

	(void)state;
	pids[0] = child;
	pids[1] = 1 << 30;
	set.pids = pids;
	set.pid_count = 2;
	assert_true(target_set_is_pids(&set));
	assert_int_equal(matches(&set, child), 1);
	assert_int_equal(matches(&set, other), 0);
	assert_int_equal(target_set_list(&set, &found, &count), 0);
	assert_int_equal(count,
			 /* as requested: the session reports that there is no such process */
			 2);
	free(found);
	target_set_free(&set);

	assert_int_equal(target_set_name(&set, "tset-one"), 0);
	assert_int_equal(target_set_name(&set, "tset-t*"), 0);
	assert_int_equal(lists(&set, child), 1);
	assert_int_equal(lists(&set, other), 1);
	target_set_free(&set);
	child_stop(child);
	child_stop(other);
}

static void cgroups(void **state)
{
	pid_t child = child_start("tset-cgroup");
	struct target_set set = {0};
	const char *what = "";

	(void)state;
	assert_int_equal(target_set_cgroup(&set, "/etc"), 0);
	assert_int_equal(target_set_resolve(&set, &what), -ENOTDIR);
	assert_string_equal(what, "/etc");
	target_set_free(&set);

	/* The result depends on target_set_resolve(), since each machine has its own hierarchy. */
	assert_int_equal(target_set_cgroup(&set, "/"), 0);
	if (!target_set_resolve(&set, &what)) {
		assert_int_equal(matches(&set, child), 1);
		assert_int_equal(target_set_name(&set, "another"), 0);
		assert_int_equal(matches(&set, child), 0);
	}
	target_set_free(&set);
	child_stop(child);
}

static void containers(void **state)
{
	struct target_set set = {0};
	const char *what = "";

	(void)state;
	assert_int_equal(target_set_container(&set, "no such container/x"), 0);
	assert_int_equal(target_set_resolve(&set, &what), -ENOENT);
	assert_string_equal(what, "no such container/x");
	assert_false(target_set_is_waiting(&set));
	set.wait = 1;
	assert_int_equal(target_set_resolve(&set, &what), 0);
	assert_true(target_set_is_waiting(&set));
	assert_int_equal(matches(&set, getppid()), 0);
	assert_int_equal(matches(&set, getppid()), 0);
	target_set_free(&set);
}

/*
 * Creating a PID namespace needs privileges that a test without root lacks. Without one there is
 * nothing to explain.
 */
static void explanations(void **state)
{
	char text[160];

	(void)state;
	assert_int_equal(target_pid_explain(1 << 30, text, sizeof(text)), 0);
	assert_true(target_hidden_explain(text, sizeof(text)) == 0 || strstr(text, "hidepid="));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(names),          cmocka_unit_test(all_but_us),
		cmocka_unit_test(pids_and_names), cmocka_unit_test(cgroups),
		cmocka_unit_test(containers),     cmocka_unit_test(explanations),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
