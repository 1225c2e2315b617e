/* SPDX-License-Identifier: Apache-2.0 */
/* The list of files: what is on it can be opened as far as it says, and nothing else. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "proc/sandbox/files.h"
#include "proc/sandbox/privileges.h"
#include "util/array.h"

#define LACKS 77 /* the kernel has no Landlock */

static const char *const folders[] = {"read", "list", "other"};

static int opens(const char *folder, const char *name, int flags)
{
	char path[64];

	snprintf(path, sizeof(path), "%s/%s", folder, name);
	int fd = open(path, flags | O_CLOEXEC, 0600), err = fd < 0 ? errno : 0;
	close(fd);
	return err;
}

/* The number of the first expectation that does not hold; 0. */
static int limited(void)
{
	const struct files_rule rules[] = {
		{"read", FILES_READ}, {"list", FILES_LIST}, {"/dev/null", FILES_WRITE},
		{"none", FILES_READ}, {NULL, FILES_LIST},
	};
	struct stat st;
	int err = privileges_drop_all() ?: files_limit(rules, ARRAY_SIZE(rules));
	const bool holds[] = {
		!err,
		opens("read", "file", O_RDONLY) == 0,
		opens("read", ".", O_RDONLY | O_DIRECTORY) == 0,
		opens("read", "file", O_WRONLY) == EACCES,
		opens("read", "new", O_WRONLY | O_CREAT) == EACCES,
		/* A link leads to what is on the list only. */
		opens("read", "link", O_RDONLY) == EACCES,
		opens("list", ".", O_RDONLY | O_DIRECTORY) == 0,
		opens("list", "file", O_RDONLY) == EACCES,
		stat("list/file", &st) == 0,
		opens("other", "file", O_RDONLY) == EACCES,
		opens("other", ".", O_RDONLY | O_DIRECTORY) == EACCES,
		opens("/proc/self/root/dev", "null", O_RDWR) == 0,
		opens("/proc/self", "status", O_RDONLY) == EACCES,
	};

	if (err == -ENOTSUP)
		return LACKS;
	for (size_t i = 0; i < ARRAY_SIZE(holds); i++)
		if (!holds[i])
			return (int)i + 1;
	return 0;
}

static void test_limit(void **state)
{
	char folder[] = "/tmp/tracer-files-XXXXXX", path[64], command[64];
	int status;

	(void)state;
	assert_non_null(mkdtemp(folder));
	assert_int_equal(chdir(folder), 0);
	for (size_t i = 0; i < ARRAY_SIZE(folders); i++) {
		assert_int_equal(mkdir(folders[i], 0700), 0);
		snprintf(path, sizeof(path), "%s/file", folders[i]);
		assert_int_equal(close(open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600)), 0);
	}
	assert_int_equal(symlink("../other/file", "read/link"), 0);
	pid_t pid = fork();
	if (!pid)
		_exit(limited());
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(chdir("/"), 0);
	snprintf(command, sizeof(command), "rm -r %s", folder);
	assert_int_equal(system(command), 0);
	assert_true(WIFEXITED(status));
	if (WEXITSTATUS(status) == LACKS) {
		print_message("the kernel has no Landlock\n");
		skip();
	}
	assert_int_equal(WEXITSTATUS(status), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_limit)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
