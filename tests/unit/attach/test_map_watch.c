/* SPDX-License-Identifier: Apache-2.0 */
/* The kernel's records about exec'd programs and their mappings, compared with a known process. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <limits.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "attach/map_watch.h"
#include "util/clock.h"

struct reported {
	uint32_t tgid;
	struct stat program;
	uint64_t exec_ns, last_ns;
	int execs, maps, programs, renames, disorder;
};

static void reported_take(void *context, const struct map_watch_record *record)
{
	struct reported *reported = context;

	reported->disorder += record->time_ns < reported->last_ns;
	reported->last_ns = record->time_ns;
	if (record->tgid != reported->tgid)
		return;
	if (record->exec) {
		reported->execs++;
		reported->exec_ns = record->time_ns;
		return;
	}
	if (record->renamed) {
		assert_string_equal(record->renamed, "another name");
		reported->renames++;
		return;
	}
	reported->maps++;
	assert_true(record->map.executable && record->map.end > record->map.start);
	if (record->map.inode == reported->program.st_ino && !strcmp(record->map.path, "/bin/true"))
		fail_msg("a name with a symbolic link in it");
	if (record->map.inode == reported->program.st_ino &&
	    record->map.device_major == major(reported->program.st_dev) &&
	    record->map.device_minor == minor(reported->program.st_dev))
		reported->programs++;
}

static struct map_watch *watch_open(void)
{
	struct map_watch *watch = NULL;

	if (map_watch_open(&watch)) {
		print_message("skipped: no right to perf_event_open\n");
		skip();
	}
	return watch;
}

static void programs_and_maps(void **state)
{
	struct reported reported = {0};
	struct map_watch *watch;
	uint64_t begin;
	int status;
	pid_t pid;

	(void)state;
	watch = watch_open();
	assert_int_equal(stat("/bin/true", &reported.program), 0);
	for (int i = 0; i < 20; i++) {
		reported.execs = reported.maps = reported.programs = 0;
		begin = clock_ns(CLOCK_MONOTONIC);
		pid = fork();
		if (!pid) {
			execl("/bin/true", "true", (char *)NULL);
			_exit(127);
		}
		reported.tgid = (uint32_t)pid;
		assert_int_equal(waitpid(pid, &status, 0), pid);
		assert_int_equal(status, 0);
		map_watch_drain(watch, reported_take, &reported);
		assert_int_equal(reported.execs, 1);
		assert_true(reported.exec_ns > begin &&
			    reported.exec_ns < clock_ns(CLOCK_MONOTONIC));
		assert_int_equal(reported.programs, 1);
		assert_true(reported.maps >= 1);
	}
	assert_int_equal(reported.disorder, 0);
	assert_int_equal(map_watch_lost(watch), 0);
	map_watch_close(watch);
}

static void *thread_rename(void *unused)
{
	prctl(PR_SET_NAME, "a thread's");
	return unused;
}

/* The name of a process is its first thread's. */
static void names(void **state)
{
	struct reported reported = {0};
	struct map_watch *watch;
	int status;
	pid_t pid;

	(void)state;
	watch = watch_open();
	pid = fork();
	if (!pid) {
		pthread_t thread;

		pthread_create(&thread, NULL, thread_rename, NULL);
		pthread_join(thread, NULL);
		prctl(PR_SET_NAME, "another name");
		_exit(0);
	}
	reported.tgid = (uint32_t)pid;
	assert_int_equal(waitpid(pid, &status, 0), pid);
	map_watch_drain(watch, reported_take, &reported);
	assert_int_equal(reported.execs, 0);
	assert_int_equal(reported.renames, 1);
	map_watch_close(watch);
}

/* Records that do not fit are counted; later records are reported again. */
static void too_many(void **state)
{
	char *argv[] = {(char *)"true", NULL};
	struct reported reported = {0};
	struct map_watch *watch;
	pid_t pid;

	(void)state;
	watch = watch_open();
	for (int i = 0; i < 6000; i++) {
		pid = vfork();
		if (!pid) {
			execv("/bin/true", argv);
			_exit(127);
		}
		waitpid(pid, NULL, 0);
	}
	map_watch_drain(watch, reported_take, &reported);
	pid = fork();
	if (!pid) {
		execv("/bin/true", argv);
		_exit(127);
	}
	reported.tgid = (uint32_t)pid;
	waitpid(pid, NULL, 0);
	map_watch_drain(watch, reported_take, &reported);
	assert_int_equal(reported.execs, 1);
	assert_true(map_watch_lost(watch) > 0);
	map_watch_close(watch);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(programs_and_maps),
		cmocka_unit_test(names),
		cmocka_unit_test(too_many),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
