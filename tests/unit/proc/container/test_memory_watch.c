/* SPDX-License-Identifier: Apache-2.0 */
/* How near a real process is to its limits: of this machine, and of a cgroup if one can be made. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "proc/container/memory_watch.h"

#define MIB (1ull << 20)

static void machine(void **state)
{
	struct memory_watch *watch;
	struct memory_state now;
	(void)state;

	assert_int_equal(memory_watch_open(&watch, getpid()), 0);
	memory_watch_read(watch, 1, &now);
	assert_true(now.share > 0 && now.share < 1);
	assert_true(now.used > 0 && now.used < now.limit);
	assert_true(now.share * (double)now.limit - (double)now.used < 1);
	assert_true(now.where[0]);
	memory_watch_close(watch);
	memory_watch_close(NULL);
}

static void no_process(void **state)
{
	struct memory_watch *watch = NULL;
	pid_t child = fork();
	(void)state;

	if (!child)
		_exit(0);
	assert_int_equal(waitpid(child, NULL, 0), child);
	assert_int_equal(memory_watch_open(&watch, child), -ESRCH);
	assert_null(watch);
}

static int file_write(const char *directory, const char *name, const char *text)
{
	char path[256];

	snprintf(path, sizeof(path), "%s/%s", directory, name);
	int fd = open(path, O_WRONLY | O_CLOEXEC), err = -1;
	if (fd >= 0) {
		err = write(fd, text, strlen(text)) == (ssize_t)strlen(text) ? 0 : -1;
		close(fd);
	}
	return err;
}

/* A child in a cgroup of 64 MiB, which takes memory for each byte that it reads; "": none. */
static pid_t child_start(char directory[128], int pipe_fds[2])
{
	static const char *const files[][3] = {
		{"/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.memsw.limit_in_bytes"},
		{"/sys/fs/cgroup", "memory.max", "memory.swap.max"}};
	pid_t child;
	char byte;

	for (size_t i = 0; i < 2; i++) {
		snprintf(directory, 128, "%s/tracer-unit-%d", files[i][0], (int)getpid());
		if (mkdir(directory, 0755))
			continue;
		if (!file_write(directory, files[i][1], "67108864")) {
			file_write(directory, files[i][2], i ? "0" : "67108864");
			break;
		}
		rmdir(directory);
		directory[0] = '\0';
	}
	assert_int_equal(pipe(pipe_fds), 0);
	child = fork();
	if (child)
		return child;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (directory[0] && file_write(directory, "cgroup.procs", "0"))
		_exit(2);
	close(pipe_fds[1]);
	while (read(pipe_fds[0], &byte, 1) == 1) {
		size_t bytes = (byte == 'a' ? 40 : 80) * MIB;
		char *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
				    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

		memset(memory, 1, bytes);
	}
	_exit(0);
}

static void cgroup(void **state)
{
	struct memory_watch *watch;
	struct memory_state now;
	char directory[128] = "";
	int fds[2], status;
	pid_t child = child_start(directory, fds);
	(void)state;

	if (!directory[0]) {
		close(fds[1]);
		waitpid(child, NULL, 0);
		skip(); /* no memory cgroup can be made here */
	}
	/* It is in its cgroup before it takes memory. */
	for (int i = 0; i < 1000; i++) {
		assert_int_equal(memory_watch_open(&watch, child), 0);
		if (strstr(memory_watch_cgroup(watch), "tracer-unit-"))
			break;
		memory_watch_close(watch);
		usleep(1000);
	}
	assert_string_equal(memory_watch_directory(watch), directory);
	assert_true(memory_watch_fd(watch) >= 0);
	assert_int_equal(write(fds[1], "a", 1), 1);
	do
		memory_watch_read(watch, 1, &now);
	while (now.share < 40.0 / 64);
	assert_int_equal(now.limit, 64 * MIB);
	assert_int_equal(now.kills, 0);
	assert_non_null(strstr(now.where, "the cgroup /"));
	assert_int_equal(write(fds[1], "b", 1), 1);
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
	struct pollfd event = {.fd = memory_watch_fd(watch), .events = POLLPRI};
	poll(&event, 1, 1000);
	memory_watch_read(watch, 1, &now);
	assert_int_equal(now.kills, 1);
	memory_watch_close(watch);
	close(fds[0]);
	close(fds[1]);
	for (int i = 0; i < 1000 && rmdir(directory); i++)
		usleep(1000);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(machine), cmocka_unit_test(no_process),
					   cmocka_unit_test(cgroup)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
