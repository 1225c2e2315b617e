/* SPDX-License-Identifier: Apache-2.0 */
/* Who maps a file: children of ours, whose maps are read, or cannot be. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "attach/file_users.h"
#include "proc/patience.h"
#include "proc/process.h"
#include "threads.h"

/* A child that waits; NULL: in our program. Returns when it runs its program. */
static pid_t child(const char *program)
{
	int ready[2];
	pid_t pid;
	char none;

	assert_int_equal(pipe(ready), 0);
	pid = fork();
	assert_true(pid >= 0);
	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		close(ready[0]);
		if (program) {
			fcntl(ready[1], F_SETFD, FD_CLOEXEC);
			execl(program, program, "100", NULL);
			_exit(1);
		}
		close(ready[1]);
		pause();
		_exit(0);
	}
	close(ready[1]);
	/* Its end is closed by then. */
	assert_int_equal(read(ready[0], &none, 1), 0);
	close(ready[0]);
	return pid;
}

/* As after a read that waited for its lock for as long as it may. */
static void patience_lose(pid_t pid)
{
	struct patience patience;
	int err = 0;

	/* The first time counts half; on a busy machine a read takes long without waiting, too. */
	for (int i = 0; i < 100 && !err; i++) {
		err = patience_begin(&patience, pid);
		if (err)
			break;
		patience.began_ns -= PATIENCE_SHARE_MS * 1000000ull;
		patience.sleeps--;
		patience_end(&patience);
	}
	assert_int_equal(err, -ETIMEDOUT);
}

/* Leaves one descriptor: awaiting takes two. */
static void awaiting_prevent(struct rlimit *before)
{
	struct rlimit limit;
	int next;

	threads_await();
	next = dup(0);
	assert_true(next >= 0);
	close(next);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, before), 0);
	limit = *before;
	limit.rlim_cur = (rlim_t)next + 1;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
}

struct asked {
	pid_t pid;
	int found;
};

static int found_add(pid_t pid, void *context)
{
	struct asked *asked = context;

	asked->found |= pid == asked->pid;
	return 0;
}

/* Does pid count as one that maps a file of ours? */
static int counts(pid_t pid, const char *path)
{
	struct asked asked = {.pid = pid};
	struct file_users *users;

	assert_int_equal(file_users_read(NULL, &users), 0);
	file_users_each(users, getpid(), path, found_add, &asked);
	file_users_free(users);
	return asked.found;
}

static bool is_other(pid_t pid, void *context)
{
	const pid_t *refused = context;

	return pid != *refused;
}

/* Would probes for every process that maps a file of ours reach none but accepted ones? */
static int are_all_accepted(pid_t refused, const char *path)
{
	struct file_users *users;
	int all;

	assert_int_equal(file_users_read(NULL, &users), 0);
	all = file_users_all(users, getpid(), path, is_other, &refused);
	file_users_free(users);
	return all;
}

/* The paths of our program and of a library, as our maps name them. */
static void paths_find(char *program, char *library, size_t bytes)
{
	struct process_maps maps;
	ssize_t length = readlink("/proc/self/exe", program, bytes - 1);

	assert_true(length > 0);
	program[length] = '\0';
	library[0] = '\0';
	assert_int_equal(process_maps_read(getpid(), &maps), 0);
	for (size_t i = 0; i < maps.count; i++)
		if (maps.entries[i].executable && strstr(maps.entries[i].path, "/libcmocka"))
			snprintf(library, bytes, "%s", maps.entries[i].path);
	process_maps_free(&maps);
	assert_true(library[0] == '/');
}

static void test_users(void **state)
{
	char program[4096], library[4096];
	pid_t same = child(NULL), other = child("/bin/sleep");
	struct rlimit descriptors;

	(void)state;
	paths_find(program, library, sizeof(program));
	assert_true(counts(same, program) && counts(same, library));
	assert_false(counts(other, program) || counts(other, library));
	patience_lose(same);
	patience_lose(other);
	/* Their maps are awaited, and come. */
	assert_true(counts(same, program) && counts(same, library));
	assert_false(counts(other, program) || counts(other, library));
	assert_true(are_all_accepted(other, library));
	/* They do not come: it runs another program, and may map any library. (Meanwhile the time
	 * for which patience is lost may be over.) */
	patience_lose(same);
	patience_lose(other);
	awaiting_prevent(&descriptors);
	assert_true(counts(same, program) && counts(same, library));
	assert_true(!counts(other, program) && counts(other, library));
	assert_true(are_all_accepted(other, program));
	assert_false(are_all_accepted(other, library));
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &descriptors), 0);
	kill(same, SIGKILL);
	kill(other, SIGKILL);
	/* Not for all children: one serves the reading of files. */
	assert_int_equal(waitpid(same, NULL, 0), same);
	assert_int_equal(waitpid(other, NULL, 0), other);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_users)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
