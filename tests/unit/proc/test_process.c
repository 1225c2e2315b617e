/* SPDX-License-Identifier: Apache-2.0 */
/* What /proc reports about a process and its memory. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "proc/process.h"
#include "threads.h"
#include "util/clock.h"

/* Starts a child that sleeps until it is killed. */
static pid_t start_sleeper(void)
{
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (!pid) {
		alarm(120); /* ends the child if the test crashes */
		for (;;)
			pause();
	}
	return pid;
}

static void stop_sleeper(pid_t pid)
{
	kill(pid, SIGKILL);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
}

/*
 * --- what a process is -----------------------------------------------------------------------
 */

static void info_of_ourselves(void **state)
{
	struct process_info info, child;
	pid_t pid;

	(void)state;
	assert_int_equal(process_info_read(getpid(), &info), 0);
	assert_int_equal(info.pid, getpid());
	assert_int_equal(info.tgid, getpid());
	assert_int_equal(info.ns_pid, getpid()); /* /proc and this process share a namespace */
	assert_int_equal(info.uid, geteuid());
	assert_int_equal(info.seccomp, prctl(PR_GET_SECCOMP));
	assert_int_equal(info.kernel_thread, 0);
	assert_int_equal(info.zombie, 0);
	assert_int_equal(info.threads, 1);
	assert_true(info.start_ticks > 0);
	assert_non_null(strstr(info.command, "test_process"));
	assert_int_equal(info.ppid, getppid());
	assert_int_equal(info.ns_pids[info.ns_count - 1], info.ns_pid);

	pid = start_sleeper();
	assert_int_equal(process_info_read(pid, &child), 0);
	assert_int_equal(child.pid, pid);
	assert_true(child.start_ticks >= info.start_ticks);
	stop_sleeper(pid);
}

/* To a tick of the clock that stat is in. */
static void age_of_processes(void **state)
{
	uint64_t tick_ns = 1000000000ull / (uint64_t)sysconf(_SC_CLK_TCK), begun_ns, age_ns;
	pid_t pid;

	(void)state;
	begun_ns = clock_ns(CLOCK_BOOTTIME);
	pid = start_sleeper();
	usleep(50000);
	age_ns = process_age_ns(pid);
	assert_true(age_ns >= 50000000 && age_ns <= clock_ns(CLOCK_BOOTTIME) - begun_ns + tick_ns);
	stop_sleeper(pid);
	assert_int_equal(process_age_ns(pid), 0);
}

static void info_of_a_misleading_name(void **state)
{
	static const char name[] = "a) Z 1 (b\n\\c";
	struct process_info info;
	char before[16];

	(void)state;
	threads_await();
	prctl(PR_GET_NAME, before);
	assert_int_equal(prctl(PR_SET_NAME, name), 0);
	assert_int_equal(process_info_read(getpid(), &info), 0);
	prctl(PR_SET_NAME, before);
	assert_string_equal(info.name, name);
	assert_int_equal(info.zombie, 0);
	assert_int_equal(info.tgid, getpid());
	assert_int_equal(info.uid, geteuid());
	assert_int_equal(info.threads, 1);
}

static void info_of_a_command_line(void **state)
{
	char *argv[] = {"sh", "-c", "read line", "two words", "", "last", NULL};
	struct process_info info;
	int fds[2], status;
	pid_t pid;

	(void)state;
	assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
	pid = fork();
	assert_true(pid >= 0);
	if (!pid) {
		dup2(fds[0], STDIN_FILENO);
		execvp(argv[0], argv);
		_exit(127);
	}
	close(fds[0]);
	do
		assert_int_equal(process_info_read(pid, &info), 0);
	/* until it has exec'ed */
	while (strcmp(info.name, "sh") || strncmp(info.command, "sh ", 3));
	close(fds[1]);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_string_equal(info.command, "sh -c read line two words  last");
	assert_string_equal(info.name, "sh");
}

static void info_of_a_zombie(void **state)
{
	struct process_info info;
	siginfo_t ended;
	pid_t pid = fork();

	(void)state;
	assert_true(pid >= 0);
	if (!pid)
		_exit(0);
	assert_int_equal(waitid(P_PID, (id_t)pid, &ended, WEXITED | WNOWAIT), 0);
	assert_int_equal(process_info_read(pid, &info), 0);
	assert_int_equal(info.zombie, 1);
	assert_string_equal(info.command, "");
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	assert_int_equal(process_info_read(pid, &info), -ESRCH);
	assert_int_equal(process_info_read(0, &info), -ESRCH);
	assert_int_equal(process_info_read(-1, &info), -ESRCH);
}

static void *read_own_info(void *out)
{
	return (void *)(intptr_t)process_info_read((pid_t)syscall(SYS_gettid), out);
}

static void info_of_a_thread(void **state)
{
	struct process_info info;
	pthread_t thread;
	void *err;

	(void)state;
	assert_int_equal(pthread_create(&thread, NULL, read_own_info, &info), 0);
	assert_int_equal(pthread_join(thread, &err), 0);
	assert_null(err);
	assert_int_not_equal(info.pid, getpid());
	assert_int_equal(info.tgid, getpid());
	assert_int_equal(info.threads, 2);
}

static void info_of_a_kernel_thread(void **state)
{
	struct process_info info;

	(void)state;
	if (process_info_read(2, &info) || strcmp(info.name, "kthreadd")) {
		print_message("skipped: no kernel thread to be seen\n");
		skip();
	}
	assert_int_equal(info.kernel_thread, 1);
	assert_string_equal(info.command, "");
}

static void list_holds_us_in_order(void **state)
{
	pid_t *pids = NULL, child = start_sleeper();
	size_t count = 0;
	int found = 0;

	(void)state;
	assert_int_equal(process_list(&pids, &count), 0);
	for (size_t i = 0; i < count; i++) {
		found += pids[i] == getpid() || pids[i] == child;
		assert_true(!i || pids[i - 1] < pids[i]);
	}
	free(pids);
	stop_sleeper(child);
	assert_int_equal(found, 2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(info_of_ourselves),
		cmocka_unit_test(age_of_processes),
		cmocka_unit_test(info_of_a_misleading_name),
		cmocka_unit_test(info_of_a_command_line),
		cmocka_unit_test(info_of_a_zombie),
		cmocka_unit_test(info_of_a_thread),
		cmocka_unit_test(info_of_a_kernel_thread),
		cmocka_unit_test(list_holds_us_in_order),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
