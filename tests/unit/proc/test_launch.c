/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "proc/launch.h"
#include "proc/process.h"
#include "pythons.h"

#define PROGRAMS_MAX 8

/* What ready() has seen, and what it returns. */
struct watch {
	int answer_at;       /* the call that returns 1; 0: none */
	int error;           /* what the first call returns instead, if not 0 */
	const char *library; /* searched for in the maps */
	int running_at;      /* the call with running set that returns 1; 0: none */
	int looks;           /* number of such calls; the other fields count the other calls */
	int calls;
	pid_t pid;
	char programs[PROGRAMS_MAX][256];
	int has_library, has_heap, traced;
};

static int ready(pid_t pid, int running, void *context)
{
	struct watch *watch = context;
	struct process_maps maps;
	char name[64];
	ssize_t n;

	if (running)
		return ++watch->looks == watch->running_at;
	if (watch->calls < PROGRAMS_MAX) {
		snprintf(name, sizeof(name), "/proc/%d/exe", pid);
		n = readlink(name, watch->programs[watch->calls], sizeof(watch->programs[0]) - 1);
		watch->programs[watch->calls][n > 0 ? n : 0] = '\0';
	}
	watch->calls++;
	watch->pid = pid;
	watch->has_library = watch->has_heap = 0;
	if (process_maps_read(pid, &maps))
		return -EIO;
	for (size_t i = 0; i < maps.count; i++) {
		if (watch->library && strstr(maps.entries[i].path, watch->library))
			watch->has_library = 1;
		if (!strcmp(maps.entries[i].path, "[heap]"))
			watch->has_heap = 1;
	}
	process_maps_free(&maps);
	if (watch->error)
		return watch->error;
	return watch->calls == watch->answer_at;
}

static void assert_program(const struct watch *watch, int call, const char *expected)
{
	char *real = realpath(expected, NULL);

	assert_non_null(real);
	assert_string_equal(watch->programs[call], real);
	free(real);
}

static int wait_status(struct launch *launch)
{
	int status = -1;

	assert_int_equal(launch_wait(launch, 1, &status), 1);
	/* The result stays the same. */
	assert_int_equal(launch_wait(launch, 0, &status), 1);
	return status;
}

/* None but the one that serves the reading of files. */
static void assert_no_child(void)
{
	FILE *children = fopen("/proc/thread-self/children", "r");
	char path[40], name[32];
	int pid;

	assert_non_null(children);
	while (fscanf(children, "%d", &pid) == 1) {
		FILE *comm;

		snprintf(path, sizeof(path), "/proc/%d/comm", pid);
		comm = fopen(path, "r");
		assert_non_null(comm);
		assert_non_null(fgets(name, sizeof(name), comm));
		fclose(comm);
		assert_string_equal(name, "tracer-files\n");
	}
	fclose(children);
}

/* A program that is resumed while it runs; signals reach it before and after. */
static void a_running_program_is_asked_about(void **state)
{
	char *argv[] = {
		"sh", "-c",
		"trap 'exit 7' TERM; trap : USR1; kill -USR1 $$; while :; do sleep 0.02; done",
		NULL};
	struct watch watch = {.running_at = 20};
	struct launch *launch;

	(void)state;
	assert_int_equal(launch_start(&launch, argv, ready, &watch), 0);
	assert_int_equal(watch.looks, 20);
	assert_int_equal(watch.calls, 1);
	launch_signal(launch, SIGTERM);
	assert_int_equal(wait_status(launch), 7);
	launch_free(launch);
	assert_no_child();
}

static void every_exec_is_asked_about(void **state)
{
	char *argv[] = {"sh", "-c", "exec env sh -c 'exit 7'", NULL};
	struct watch watch = {.answer_at = 3, .library = "libc"};
	struct launch *launch = NULL;

	(void)state;
	assert_int_equal(launch_start(&launch, argv, ready, &watch), 0);
	assert_int_equal(watch.calls, 3);
	assert_int_equal(launch_pid(launch), watch.pid);
	assert_program(&watch, 0, "/bin/sh");
	assert_program(&watch, 1, "/usr/bin/env");
	assert_program(&watch, 2, "/bin/sh");
	assert_int_equal(wait_status(launch), 7);
	launch_free(launch);
	assert_no_child();
}

/* After ready() accepts the first program, later programs run untraced. */
static void program_runs_free_after_the_answer(void **state)
{
	char *argv[] = {"sh", "-c", "exec env sh -c 'exit 9'", NULL};
	struct watch watch = {.answer_at = 1};
	struct launch *launch = NULL;

	(void)state;
	assert_int_equal(launch_start(&launch, argv, ready, &watch), 0);
	assert_int_equal(watch.calls, 1);
	assert_int_equal(wait_status(launch), 9);
	assert_int_equal(watch.calls, 1);
	launch_free(launch);
}

/* The libraries are mapped, and no block has been allocated yet. */
static void libraries_are_mapped_and_nothing_has_run(void **state)
{
	char *argv[] = {"ls", "/", NULL};
	struct watch watch = {.answer_at = 1, .library = "/libc"};
	struct launch *launch = NULL;
	int null = open("/dev/null", O_WRONLY), saved = dup(STDOUT_FILENO), err;

	(void)state;
	dup2(null, STDOUT_FILENO);
	err = launch_start(&launch, argv, ready, &watch);
	dup2(saved, STDOUT_FILENO);
	close(saved);
	close(null);
	assert_int_equal(err, 0);
	assert_true(watch.has_library);
	assert_false(watch.has_heap);
	assert_int_equal(wait_status(launch), 0);
	launch_free(launch);
}

static void shared_libpython_is_mapped(void **state)
{
	struct watch watch = {.answer_at = 1, .library = "libpython3"};
	char program[PATH_MAX], library[PATH_MAX + 32];
	char *argv[] = {program, "-c", "import sys; sys.exit(3)", NULL};
	struct launch *launch = NULL;

	(void)state;
	if (!python_path(12, program))
		skip();
	snprintf(library, sizeof(library), "%.*s/../lib/libpython3.12.so.1.0",
		 (int)(strrchr(program, '/') - program), program);
	if (access(library, R_OK)) {
		print_message("skipped: %s has no shared libpython\n", program);
		skip();
	}
	assert_int_equal(launch_start(&launch, argv, ready, &watch), 0);
	assert_true(watch.has_library);
	assert_false(watch.has_heap);
	assert_int_equal(wait_status(launch), 3);
	launch_free(launch);
}

static void interpreter_behind_a_wrapper(void **state)
{
	char *argv[] = {"sh", "-c", "exec env python3 -c 'import sys; sys.exit(4)'", NULL};
	struct watch watch = {0};
	struct launch *launch = NULL;

	(void)state;
	if (system("command -v python3 >/dev/null")) {
		print_message("skipped: no python3 on PATH\n");
		skip();
	}
	/*
	 * Never accepted: called at least once for sh, env, and each program that python3 consists
	 * of.
	 */
	assert_int_equal(launch_start(&launch, argv, ready, &watch), -ECHILD);
	assert_true(watch.calls >= 3);
	assert_program(&watch, 0, "/bin/sh");
	assert_program(&watch, 1, "/usr/bin/env");
	assert_int_equal(wait_status(launch), 4);
	launch_free(launch);
}

static void command_that_ends_first(void **state)
{
	char *exits[] = {"sh", "-c", "exit 5", NULL};
	char *dies[] = {"sh", "-c", "kill -TERM $$", NULL};
	struct watch watch = {0};
	struct launch *launch = NULL;

	(void)state;
	assert_int_equal(launch_start(&launch, exits, ready, &watch), -ECHILD);
	assert_int_equal(wait_status(launch), 5);
	launch_signal(launch, SIGKILL); /* no process is left: harmless */
	launch_free(launch);
	assert_int_equal(launch_start(&launch, dies, ready, &watch), -ECHILD);
	assert_int_equal(wait_status(launch), 128 + SIGTERM);
	launch_free(launch);
	assert_no_child();
}

/* A signal that the program handles reaches it while it is traced. */
static void signals_pass_through(void **state)
{
	char *argv[] = {"sh", "-c", "trap 'exit 6' USR1; kill -USR1 $$; exit 1", NULL};
	char *stops[] = {"sh", "-c", "kill -STOP $$; exit 8", NULL};
	struct watch watch = {0};
	struct launch *launch = NULL;

	(void)state;
	assert_int_equal(launch_start(&launch, argv, ready, &watch), -ECHILD);
	assert_int_equal(wait_status(launch), 6);
	launch_free(launch);
	/* A child that stops before it is traced would stop this process, too. */
	assert_int_equal(launch_start(&launch, stops, ready, &watch), -ECHILD);
	assert_int_equal(wait_status(launch), 8);
	launch_free(launch);
}

static void commands_that_cannot_run(void **state)
{
	char *absent[] = {"/nonexistent/command", NULL};
	char *directory[] = {"/", NULL};
	char *nothing[] = {NULL};
	struct watch watch = {.answer_at = 1};
	struct launch *launch = NULL;

	(void)state;
	assert_int_equal(launch_start(&launch, absent, ready, &watch), -ENOENT);
	assert_int_equal(wait_status(launch), LAUNCH_NOT_FOUND);
	launch_free(launch);
	assert_int_equal(launch_start(&launch, directory, ready, &watch), -EACCES);
	assert_int_equal(wait_status(launch), LAUNCH_NOT_RUN);
	launch_free(launch);
	launch = NULL;
	assert_int_equal(launch_start(&launch, nothing, ready, &watch), -EINVAL);
	assert_null(launch);
	assert_int_equal(watch.calls, 0);
	assert_no_child();
}

static void refusal_ends_the_command(void **state)
{
	char *argv[] = {"sleep", "1000", NULL};
	struct watch watch = {.error = -EPERM};
	struct launch *launch = NULL;

	(void)state;
	assert_int_equal(launch_start(&launch, argv, ready, &watch), -EPERM);
	assert_int_equal(watch.calls, 1);
	assert_null(launch);
	assert_no_child();
}

static void running_command_is_not_waited_for(void **state)
{
	char *argv[] = {"sleep", "1000", NULL};
	struct watch watch = {.answer_at = 1};
	struct launch *launch = NULL;
	int status = -1;

	(void)state;
	assert_int_equal(launch_start(&launch, argv, ready, &watch), 0);
	assert_int_equal(launch_wait(launch, 0, &status), 0);
	assert_int_equal(status, -1);
	launch_signal(launch, SIGTERM);
	assert_int_equal(wait_status(launch), 128 + SIGTERM);
	launch_free(launch);
	launch_free(NULL);
}

/* The tracer's own signal mask must not reach the command: it could not be interrupted. */
static void blocked_signals_are_not_inherited(void **state)
{
	char *argv[] = {"sh", "-c", "kill -TERM $$; exit 1", NULL};
	struct watch watch = {.answer_at = 1};
	struct launch *launch = NULL;
	sigset_t blocked, before;
	int err;

	(void)state;
	sigemptyset(&blocked);
	sigaddset(&blocked, SIGTERM);
	sigprocmask(SIG_BLOCK, &blocked, &before);
	err = launch_start(&launch, argv, ready, &watch);
	sigprocmask(SIG_SETMASK, &before, NULL);
	assert_int_equal(err, 0);
	assert_int_equal(wait_status(launch), 128 + SIGTERM);
	launch_free(launch);
}

static int ready_and_stay(pid_t pid, int running, void *context)
{
	(void)running;
	const int *fd = context;

	if (write(*fd, &pid, sizeof(pid)) < 0)
		return -errno;
	for (;;)
		pause();
}

/* The tracer is killed while the command is stopped: the command must not stay stopped. */
static void command_dies_with_its_tracer(void **state)
{
	char *argv[] = {"sleep", "1000", NULL};
	struct launch *launch;
	pid_t tracer, pid = 0;
	int fds[2];
	char byte;

	(void)state;
	assert_int_equal(pipe(fds), 0);
	tracer = fork();
	assert_true(tracer >= 0);
	if (!tracer) {
		close(fds[0]);
		launch_start(&launch, argv, ready_and_stay, &fds[1]);
		_exit(1);
	}
	close(fds[1]);
	assert_int_equal(read(fds[0], &pid, sizeof(pid)), sizeof(pid));
	assert_int_equal(kill(tracer, SIGKILL), 0);
	assert_int_equal(waitpid(tracer, NULL, 0), tracer);
	/* The command has inherited the pipe, which closes when its last holder has exited. */
	assert_int_equal(read(fds[0], &byte, 1), 0);
	close(fds[0]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_exec_is_asked_about),
		cmocka_unit_test(a_running_program_is_asked_about),
		cmocka_unit_test(program_runs_free_after_the_answer),
		cmocka_unit_test(libraries_are_mapped_and_nothing_has_run),
		cmocka_unit_test(shared_libpython_is_mapped),
		cmocka_unit_test(interpreter_behind_a_wrapper),
		cmocka_unit_test(command_that_ends_first),
		cmocka_unit_test(signals_pass_through),
		cmocka_unit_test(commands_that_cannot_run),
		cmocka_unit_test(refusal_ends_the_command),
		cmocka_unit_test(running_command_is_not_waited_for),
		cmocka_unit_test(blocked_signals_are_not_inherited),
		cmocka_unit_test(command_dies_with_its_tracer),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
